--------------------------- MODULE CompletionSpec ---------------------------
(***************************************************************************)
(* How Completion.tla begins and goes on, and what must be true of it.     *)
(***************************************************************************)
EXTENDS Completion

Init ==
  /\ db = Empty /\ standby = Empty
  /\ att = <<>> /\ tx = <<>>
  /\ ever = {}
  /\ left = [losses |-> Losses, crashes |-> Crashes, failovers |-> Failovers, replications |-> Failovers, turns |-> Turns, waits |-> 0]

Handler(a) == Begin(a) \/ CompleteJob(a) \/ SendCommit(a) \/ (\E exit \in {"success", "failure"} : HandlerEnds(a, exit))
Server(a) == ServerCommits(a) \/ ServerAborts(a)
Reconcile(a) == Ask(a) \/ SettleAttempt(a)

(* Nobody is at work on these any more, so their staleness is certain to come. *)
Abandoned == {c \in OpenClaims(db) : att[c.receipt].phase \in Releases \cup {"dead"}}

Next ==
  \/ \E j \in Jobs : Claim(j) \/ ClaimLost(j)
  \/ \E a \in Receipts :
       \/ Handler(a) \/ BeatLost(a) \/ Server(a) \/ CommitUnanswered(a)
       \/ Reconcile(a) \/ AskUnanswered(a) \/ SettleUnanswered(a) \/ LateSettle(a) \/ Watch(a)
       \/ LateClose(a) \/ Release(a) \/ Crash(a)
  \/ \E batch \in SUBSET Receipts : StartFlush(batch) \/ CloseAttempts(batch) \/ CloseUnanswered(batch)
  \/ \E c \in Claims(db) : Rescue(c)
  \/ \E s \in Slots : Rotate(s) \/ Prune(s)
  \/ Replicate \/ Failover

Spec == Init /\ [][Next]_vars

(* What goes on by itself when nothing breaks any more. *)
Fairness ==
  /\ WF_vars(\E j \in Jobs : Claim(j))
  /\ \A a \in 1 .. Attempts :
       /\ WF_vars(a \in Receipts /\ Handler(a))
       /\ WF_vars(a \in Receipts /\ Server(a))
       /\ WF_vars(a \in Receipts /\ Reconcile(a))
       /\ WF_vars(a \in Receipts /\ Release(a))
       /\ WF_vars(a \in Receipts /\ CloseAttempts({a}))
  /\ WF_vars(\E batch \in SUBSET Receipts : StartFlush(batch))
  /\ WF_vars(\E c \in Abandoned : Rescue(c))

FairSpec == Spec /\ Fairness

(***************************************************************************)
(* Safety                                                                  *)
(***************************************************************************)

Completions(j) == {a \in db.done : att[a].job = j}

(* C-13: application rows and completion are there together, or neither is. *)
EffectExactlyWhenCompleted == db.effects = {a \in db.done : att[a].job \in Owned}

(* No job has two completions, hence no second effect. *)
OneCompletion == \A j \in Jobs : Cardinality(Completions(j)) <= 1

(* Each closure is of a claim in its own segment, and was made by the attempt that the claim handed out. *)
ClosureIsOfItsClaim ==
  \A s \in Slots : \A c \in db.closed[s] : \E claim \in db.claims[s] : claim.batch = c.batch /\ claim.receipt = c.receipt

(* The key of the closures: whoever was first has won, and nobody overwrites it. *)
OneClosurePerClaim == \A s \in Slots : \A c, d \in db.closed[s] : c.batch = d.batch => c = d

(* A job waits, runs, has failed or is completed: one of these, always. *)
EveryJobSomewhere ==
  \A j \in Jobs :
    Cardinality(Completions(j)) + Cardinality({c \in OpenClaims(db) : c.job = j})
      + (IF j \in db.waiting THEN 1 ELSE 0) + (IF j \in db.failed THEN 1 ELSE 0) = 1

(* C-17: nothing counts as completed but what was committed as such, and nothing that was is reported as somebody else's, unless
   its evidence was pruned while its flush was under way: one that is not answered for an hour at least. *)
AcceptedOnlyByEvidence == \A a \in Receipts : att[a].how = "accepted" => a \in ever
SettledTellsTheTruth ==
  \A a \in Receipts :
    /\ att[a].how = "stale" => (a \notin db.done \/ Evidence(db, a) = "unknown")
    /\ (att[a].how = "closed" /\ att[a].exit = "success") => a \in ever

(* What is not over holds its permit: released means closed, or somebody else's, or handed over by the bounded outage. *)
ReleasedMeansOver ==
  \A a \in Receipts : att[a].phase = "released" => att[a].how # "none" /\ (Failovers > 0 \/ Evidence(db, a) # "open")

RescueNeverWaits == left.waits = 0

(***************************************************************************)
(* Liveness                                                                *)
(***************************************************************************)

EveryJobEnds == \A j \in Jobs : <>[](j \in db.failed \/ Completions(j) # {})
EveryPermitReturns == \A a \in 1 .. Attempts : (a \in Receipts) ~> (a \in Receipts /\ att[a].phase \in Releases \cup {"dead"})
=============================================================================
