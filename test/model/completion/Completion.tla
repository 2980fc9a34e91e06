----------------------------- MODULE Completion -----------------------------
(***************************************************************************)
(* Completion versus rescue, with caller transactions and ambiguous        *)
(* commits: attempts from their claim to their permit's return. The README *)
(* beside this folder maps every action to its SQL function and TypeScript *)
(* module.                                                                 *)
(***************************************************************************)
EXTENDS Database

(***************************************************************************)
(* Claiming and running                                                    *)
(***************************************************************************)

Releases == {"released", "watched", "reported"}
Held == {a \in Receipts : att[a].phase \notin Releases \cup {"dead"}}
Spend(what) == left[what] > 0 /\ left' = [left EXCEPT ![what] = @ - 1]
Set(a, phase) == att' = [att EXCEPT ![a].phase = phase]
Exit(a, exit) == att' = [att EXCEPT ![a].phase = "exited", ![a].exit = exit]
Settle(a, how) == att' = [att EXCEPT ![a].phase = "settled", ![a].how = how]

Claimed(job, phase) ==
  LET slot == db.ready[job]
      receipt == Len(att) + 1
      lease == db.lease[job] + 1
  IN /\ Len(att) < Attempts
     /\ job \in db.waiting
     /\ db' = [db EXCEPT !.waiting = @ \ {job}, !.lease[job] = lease, !.batches = @ + 1, !.claims[slot] = @ \cup
          {[slot |-> slot, batch |-> db.batches, job |-> job, lease |-> lease, receipt |-> receipt]}]
     /\ att' = Append(att, [job |-> job, lease |-> lease, slot |-> slot, batch |-> db.batches, phase |-> phase,
                            exit |-> "none", how |-> "none", asked |-> 0, flush |-> None, late |-> FALSE])
     /\ tx' = Append(tx, "none")

Claim(job) ==
  /\ Cardinality(Held) < Permits
  /\ Claimed(job, "running")
  /\ UNCHANGED <<standby, ever, left>>

(* Committed, and its answer never came: nobody runs this attempt. *)
ClaimLost(job) ==
  /\ Claimed(job, "dead")
  /\ Spend("losses")
  /\ UNCHANGED <<standby, ever>>

(* A handler that fails, dies, is interrupted or runs past its time; or an ordinary one that ends well. *)
HandlerEnds(a, exit) ==
  /\ att[a].phase = "running"
  /\ exit = "success" => att[a].job \in Ordinary
  /\ Exit(a, exit)
  /\ UNCHANGED <<db, standby, tx, ever, left>>

(* The beat's answer says that the attempt is not the runtime's any more. *)
BeatLost(a) ==
  /\ att[a].phase = "running"
  /\ Evidence(db, a) # "open"
  /\ IF att[a].job \in Ordinary THEN Settle(a, "stale") ELSE Exit(a, "failure")
  /\ UNCHANGED <<db, standby, tx, ever, left>>

(***************************************************************************)
(* The application's transaction                                           *)
(***************************************************************************)

(* BEGIN and the application's own rows. *)
Begin(a) ==
  /\ att[a].phase = "running" /\ att[a].job \in Owned
  /\ tx[a] = "none"
  /\ tx' = [tx EXCEPT ![a] = "open"]
  /\ UNCHANGED <<db, standby, att, ever, left>>

(* Under the attempt's lock: the closure is in place, and nobody sees it before COMMIT; or the call raises. *)
CompleteJob(a) ==
  LET matches == IF Twin = "complete_job does not ask for the receipt" THEN MatchesWithoutReceipt(db, a) ELSE Matches(db, a)
      free == ClosuresOf(db, att[a].slot, att[a].batch) = {}
  IN /\ att[a].phase = "running"
     /\ tx[a] = "open"
     /\ ~LockHeld(att[a].job, att[a].lease, a)
     /\ tx' = [tx EXCEPT ![a] = IF matches /\ free THEN "completed" ELSE "refused"]
     /\ UNCHANGED <<db, standby, att, ever, left>>

(* COMMIT is on its way. A failure that a savepoint swallowed, or a completion that was rolled back with one, is refused. *)
SendCommit(a) ==
  /\ att[a].phase = "running"
  /\ tx[a] = "completed" \/ (Twin = "commit after a swallowed refusal" /\ tx[a] = "refused")
  /\ Set(a, "committing")
  /\ tx' = [tx EXCEPT ![a] = IF tx[a] = "completed" THEN "committing" ELSE "swallowed"]
  /\ UNCHANGED <<db, standby, ever, left>>

Committed(a) ==
  LET d == [db EXCEPT !.effects = @ \cup {a}]
  IN /\ db' = IF tx[a] = "committing" THEN Insert(d, att[a].slot, att[a].batch, "completed", a, None) ELSE d
     /\ ever' = IF tx[a] = "committing" THEN ever \cup {a} ELSE ever
     /\ tx' = [tx EXCEPT ![a] = "none"]

(* The server commits: the worker is told, or it is not (any more). *)
ServerCommits(a) ==
  /\ tx[a] \in {"committing", "swallowed"}
  /\ Committed(a)
  /\ IF att[a].phase = "committing" THEN Exit(a, "success") ELSE UNCHANGED att
  /\ UNCHANGED <<standby, left>>

(* The connection breaks while COMMIT is under way: what the server does with it is open. *)
CommitUnanswered(a) ==
  /\ att[a].phase = "committing"
  /\ Spend("losses")
  /\ Exit(a, "failure")
  /\ db' = IF Twin = "an unanswered commit is run again" THEN Place(db, att[a].job, att[a].lease) ELSE db
  /\ UNCHANGED <<standby, tx, ever>>

(* By the wrapper, by the server's own limits, or because the backend ended. *)
ServerAborts(a) ==
  /\ tx[a] # "none"
  /\ tx' = [tx EXCEPT ![a] = "none"]
  /\ IF att[a].phase \in {"running", "committing"} THEN Exit(a, "failure") ELSE UNCHANGED att
  /\ UNCHANGED <<db, standby, ever, left>>

(***************************************************************************)
(* Reconciliation of a caller-owned attempt: after every exit, by evidence *)
(***************************************************************************)

Outage(a) ==
  IF att[a].asked >= Budget THEN att' = [att EXCEPT ![a].phase = "watched", ![a].how = "unresolved"]
  ELSE att' = [att EXCEPT ![a].asked = @ + 1]

Ask(a) ==
  LET e == Evidence(db, a)
  IN /\ att[a].phase = "exited" /\ att[a].job \in Owned
     /\ CASE e = "completed" -> Settle(a, "accepted")
          [] e = "open" -> Set(a, "open")
          [] e = "unknown" -> Outage(a)
          [] OTHER -> Settle(a, IF ClosedBy(db, a, a) THEN "closed" ELSE "stale")
     /\ UNCHANGED <<db, standby, tx, ever, left>>

AskUnanswered(a) ==
  /\ att[a].phase = "exited" /\ att[a].job \in Owned
  /\ Spend("losses")
  /\ Outage(a)
  /\ UNCHANGED <<db, standby, tx, ever>>

(* Guarded, and never waiting: busy and stale are asked about again. *)
Settles(a) == ~LockHeld(att[a].job, att[a].lease, None) /\ Evidence(db, a) = "open"

SettleAttempt(a) ==
  /\ att[a].phase = "open"
  /\ IF Settles(a) THEN db' = Close(db, a, "retried", a) /\ Settle(a, "closed") ELSE UNCHANGED db /\ Set(a, "exited")
  /\ UNCHANGED <<standby, tx, ever, left>>

(* Whether it takes effect, and when, is open: the connection broke while the call was under way. *)
SettleUnanswered(a) ==
  /\ att[a].phase = "open"
  /\ Spend("losses")
  /\ att' = [att EXCEPT ![a].phase = "exited", ![a].late = TRUE]
  /\ UNCHANGED <<db, standby, tx, ever>>

LateSettle(a) ==
  /\ att[a].late /\ att[a].job \in Owned
  /\ db' = IF Settles(a) THEN Close(db, a, "retried", a) ELSE db
  /\ att' = [att EXCEPT ![a].late = FALSE]
  /\ UNCHANGED <<standby, tx, ever, left>>

(* What is left of an attempt whose budget is over: a memory that asks and tells, and never acts. *)
Watch(a) ==
  LET guesses == Twin = "the watcher settles by guess"
      e == Evidence(db, a)
  IN /\ att[a].phase = "watched"
     /\ guesses \/ e # "open"
     /\ att' = [att EXCEPT ![a].phase = "reported",
          ![a].how = IF e = "completed" \/ guesses THEN "accepted" ELSE IF e = "unknown" THEN "unresolved"
                     ELSE IF ClosedBy(db, a, a) THEN "closed" ELSE "stale"]
     /\ UNCHANGED <<db, standby, tx, ever, left>>

(***************************************************************************)
(* Batched completion of ordinary attempts                                 *)
(***************************************************************************)

StartFlush(batch) ==
  /\ batch # {}
  /\ \A a \in batch : att[a].phase = "exited" /\ att[a].job \in Ordinary
  /\ LET flush == CHOOSE a \in batch : \A b \in batch : a <= b
     IN att' = [a \in Receipts |-> IF a \in batch THEN [att[a] EXCEPT !.phase = "flushing", !.flush = flush] ELSE att[a]]
  /\ UNCHANGED <<db, standby, tx, ever, left>>

Accepts(d, a) ==
  /\ Twin = "close by the key alone" \/ Matches(d, a)
  /\ ClosuresOf(d, att[a].slot, att[a].batch) = {}
Outcome(a) == IF att[a].exit = "success" THEN "completed" ELSE "retried"

RECURSIVE CloseAll(_, _, _)
CloseAll(d, batch, flush) ==
  IF batch = {} THEN d
  ELSE LET a == CHOOSE x \in batch : TRUE
       IN CloseAll(IF Accepts(d, a) THEN Close(d, a, Outcome(a), flush) ELSE d, batch \ {a}, flush)

(* The flush that met a row asks whose it is: its own of an earlier try, or another's. *)
AnswerOf(a, flush) ==
  IF Accepts(db, a) \/ (Twin # "a flush does not know itself" /\ Matches(db, a) /\ ClosedBy(db, a, flush)) THEN "closed" ELSE "stale"

(* A flush, or a part of it: it is halved when something in it is locked. *)
PartOfFlush(batch) ==
  batch # {} /\ \A a, b \in batch : att[a].phase = "flushing" /\ att[a].flush = att[b].flush
FlushOf(batch) == att[CHOOSE a \in batch : TRUE].flush

Closing(batch) ==
  /\ db' = CloseAll(db, batch, FlushOf(batch))
  /\ ever' = ever \cup (db'.done \ db.done)

CloseAttempts(batch) ==
  /\ PartOfFlush(batch)
  /\ Closing(batch)
  /\ att' = [a \in Receipts |->
       IF a \in batch THEN [att[a] EXCEPT !.phase = "settled", !.how = AnswerOf(a, FlushOf(batch))] ELSE att[a]]
  /\ UNCHANGED <<standby, tx, left>>

(* It is sent again, and nothing is released; and the first one may still arrive. *)
CloseUnanswered(batch) ==
  /\ PartOfFlush(batch)
  /\ Spend("losses")
  /\ att' = [a \in Receipts |-> IF a \in batch THEN [att[a] EXCEPT !.late = TRUE] ELSE att[a]]
  /\ UNCHANGED <<db, standby, tx, ever>>

LateClose(a) ==
  /\ att[a].late /\ att[a].job \in Ordinary
  /\ Closing({a})
  /\ att' = [att EXCEPT ![a].late = FALSE]
  /\ UNCHANGED <<standby, tx, left>>

(***************************************************************************)
(* Permits                                                                 *)
(***************************************************************************)

Release(a) ==
  /\ att[a].phase = "settled" \/ (Twin = "release before reconciliation" /\ att[a].phase = "exited")
  /\ Set(a, "released")
  /\ UNCHANGED <<db, standby, tx, ever, left>>

(***************************************************************************)
(* Maintenance. Staleness is a guess about time, so any open claim may     *)
(* count as stale: nothing that must be safe may hang on that guess.       *)
(***************************************************************************)

Rescue(c) ==
  /\ c \in OpenClaims(db) \/ Twin = "rescue does not look again"
  /\ Twin # "nobody rescues"
  /\ Twin = "rescue without the attempt lock" \/ ~LockHeld(c.job, c.lease, None)
  (* Without the lock its insert would meet the uncommitted closure, and wait for the application's transaction. *)
  /\ IF LockHeld(c.job, c.lease, None) THEN left' = [left EXCEPT !.waits = 1] /\ UNCHANGED db
     ELSE db' = Place(Insert(db, c.slot, c.batch, "rescued", c.receipt, None), c.job, c.lease) /\ UNCHANGED left
  /\ UNCHANGED <<standby, att, tx, ever>>

IsFree(s) == s # db.current /\ db.claims[s] = {} /\ db.closed[s] = {} /\ \A j \in db.waiting : db.ready[j] # s

Rotate(s) ==
  /\ IsFree(s)
  /\ db' = [db EXCEPT !.current = s]
  /\ Spend("turns")
  /\ UNCHANGED <<standby, att, tx, ever>>

(* Everything claimed, every claim closed, and nobody holds a lock on the segment's tables. *)
Prune(s) ==
  /\ s # db.current /\ ~IsFree(s)
  /\ \A j \in db.waiting : db.ready[j] # s
  /\ Twin = "retire a segment by its age" \/
       /\ ~\E c \in db.claims[s] : IsOpen(db, c)
       /\ ~TouchesSlot(s)
  /\ db' = [db EXCEPT !.claims[s] = {}, !.closed[s] = {}]
  /\ Spend("turns")
  /\ UNCHANGED <<standby, att, tx, ever>>

(***************************************************************************)
(* What breaks                                                             *)
(***************************************************************************)

Crash(a) ==
  /\ att[a].phase \notin {"dead", "released", "watched", "reported"}
  /\ Set(a, "dead")
  /\ Spend("crashes")
  /\ UNCHANGED <<db, standby, tx, ever>>

Replicate ==
  /\ Spend("replications")
  /\ standby' = db
  /\ UNCHANGED <<db, att, tx, ever>>

(* The standby takes over, as far as it had come; every session ends. *)
Failover ==
  /\ Spend("failovers")
  /\ db' = standby
  /\ tx' = [a \in Receipts |-> "none"]
  /\ att' = [a \in Receipts |->
       IF att[a].phase = "committing" \/ (att[a].phase = "running" /\ tx[a] # "none")
       THEN [att[a] EXCEPT !.phase = "exited", !.exit = "failure"] ELSE att[a]]
  /\ UNCHANGED <<standby, ever>>

=============================================================================
