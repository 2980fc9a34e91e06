------------------------------ MODULE Database ------------------------------
(***************************************************************************)
(* What Completion.tla is about: the database, of which a failover may     *)
(* lose the newest part, and the attempts as their workers see them.       *)
(*                                                                         *)
(* An attempt's number is its receipt: drawn anew by every claim and never *)
(* repeated, not even after a lossy failover (C-01). Everything else that  *)
(* identifies an attempt falls back with the database.                     *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Owned,      \* jobs that their handlers complete, in transactions of their own
  Ordinary,   \* jobs that the runtime completes, in batches
  MaxLease,   \* after so many attempts a job is failed for good
  Attempts,   \* so many attempts there are in all
  Permits,
  Ring,       \* slots of the ring
  Turns,      \* how often the ring may rotate or prune
  Losses,     \* how many answers of the database may be lost
  Crashes, Failovers,
  Budget,     \* how many unanswered or unknowing questions reconciliation bears
  Twin        \* "none", or the name of the guard that this twin does without

Jobs == Owned \cup Ordinary
Slots == 0 .. Ring - 1
None == 0

VARIABLES
  db,         \* what is committed
  standby,    \* what has reached the standby, by asynchronous replication
  att,        \* attempts as their workers see them; the place is the receipt
  tx,         \* of each attempt: its application transaction, as the server sees it
  ever,       \* receipts whose completion was committed, whatever was lost since
  left        \* what may still go wrong

vars == <<db, standby, att, tx, ever, left>>
Receipts == DOMAIN att

(***************************************************************************)
(* The database                                                            *)
(***************************************************************************)

(* Of a job: the slot of its entry or None, and the last run lease. Of a slot: claims and closures, keyed by batch id. *)
Empty == [
  ready   |-> [j \in Jobs |-> 0],
  waiting |-> Jobs,
  lease   |-> [j \in Jobs |-> 0],
  failed  |-> {},
  current |-> 0,
  batches |-> 1,
  claims  |-> [s \in Slots |-> {}],
  closed  |-> [s \in Slots |-> {}],
  effects |-> {},
  done    |-> {}]

Claims(d) == UNION {d.claims[s] : s \in Slots}
ClosuresOf(d, s, batch) == {c \in d.closed[s] : c.batch = batch}
IsOpen(d, c) == c \in d.claims[c.slot] /\ ClosuresOf(d, c.slot, c.batch) = {}
OpenClaims(d) == {c \in Claims(d) : IsOpen(d, c)}

(* Whether a claim is that of a token, as every close, complete_job, a beat and the evidence ask (C-02). *)
Matches(d, a) ==
  \E c \in d.claims[att[a].slot] :
    c.batch = att[a].batch /\ c.job = att[a].job /\ c.lease = att[a].lease /\ c.receipt = a
MatchesWithoutReceipt(d, a) ==
  \E c \in d.claims[att[a].slot] : c.batch = att[a].batch /\ c.job = att[a].job /\ c.lease = att[a].lease

Evidence(d, a) ==
  LET there == {c \in d.claims[att[a].slot] : c.batch = att[a].batch}
      closures == ClosuresOf(d, att[a].slot, att[a].batch)
  IN IF there = {} THEN "unknown"
     ELSE IF ~Matches(d, a) THEN "superseded"
     ELSE IF closures = {} THEN "open"
     ELSE (CHOOSE c \in closures : TRUE).outcome

ClosedBy(d, a, closer) == \E c \in ClosuresOf(d, att[a].slot, att[a].batch) : c.closer = closer

(* Where a job goes whose attempt ended without success: the one exhaustion check. *)
Place(d, job, lease) ==
  IF lease >= MaxLease THEN [d EXCEPT !.failed = @ \cup {job}]
  ELSE [d EXCEPT !.waiting = @ \cup {job}, !.ready[job] = d.current]

Insert(d, slot, batch, outcome, receipt, closer) ==
  [d EXCEPT !.closed[slot] = @ \cup {[batch |-> batch, outcome |-> outcome, receipt |-> receipt, closer |-> closer]},
            !.done = IF outcome = "completed" THEN @ \cup {receipt} ELSE @]

Close(d, a, outcome, closer) ==
  LET e == Insert(d, att[a].slot, att[a].batch, outcome, a, closer)
  IN IF outcome = "completed" THEN e ELSE Place(e, att[a].job, att[a].lease)

(* The attempt lock is of (job, run lease): complete_job waits for it, everybody else only tries it. *)
Finalizing == {"completed", "refused", "committing", "swallowed"}
LockHeld(job, lease, except) ==
  \E b \in Receipts \ {except} : tx[b] \in Finalizing /\ att[b].job = job /\ att[b].lease = lease
TouchesSlot(s) == \E a \in Receipts : tx[a] \in Finalizing /\ att[a].slot = s

=============================================================================
