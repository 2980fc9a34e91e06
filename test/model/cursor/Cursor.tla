------------------------------- MODULE Cursor -------------------------------
(***************************************************************************)
(* The snapshot cursor with rotation: writers whose transactions end in    *)
(* any order, claimers that read a lane under its lock, and a leader that  *)
(* rotates, drains, prunes and spills. The README beside this folder maps  *)
(* every action to its SQL function.                                       *)
(***************************************************************************)
EXTENDS Lane

Idle ==
  [state |-> "idle", xid |-> None, target |-> None, holds |-> {}, inserted |-> 0, sees |-> 0, kind |-> "none",
   list |-> <<>>, at |-> 0, snapshot |-> [xmax |-> 0, xip |-> {}], took |-> <<>>, fromHead |-> 0, again |-> FALSE]

Init ==
  /\ xacts = <<>> /\ before = <<>> /\ entries = <<>>
  /\ segments = [s \in Slots |-> IF s = 0 THEN [state |-> "open", generation |-> 1] ELSE [state |-> "free", generation |-> 0]]
  /\ cursor = 0
  /\ batches = [s \in Slots |-> {}]
  /\ head = <<>> /\ lane = None
  /\ session = [p \in Sessions |-> Idle]
  /\ claimed = <<>>
  /\ spills = Spills

Update(p, record) == session' = [session EXCEPT ![p] = record]

(***************************************************************************)
(* Enqueue                                                                 *)
(***************************************************************************)

(* Sessions of a kind are alike, so they begin in the order of their numbers. *)
InTurn(p, kind) == \A q \in kind : q < p => session[q].state # "idle"
Late == Twin = "the transaction id comes after the segment"

(* The first write of a transaction: the caller's own, or that of its enqueue, which draws the id before it chooses a segment. An
   isolation level with one snapshot sees tables from here on as they are now. *)
Begin(p) ==
  /\ p \in Writers /\ session[p].state = "idle" /\ InTurn(p, Writers)
  /\ IF Late THEN UNCHANGED <<xacts, before>> ELSE Obtain
  /\ Update(p, [session[p] EXCEPT !.state = "open", !.xid = IF Late THEN None ELSE NewXid, !.sees = cursor])
  /\ UNCHANGED <<entries, segments, cursor, batches, head, lane, claimed, spills>>

Enqueues(p) ==
  /\ session[p].inserted < Inserts
  /\ \/ p \in Writers /\ session[p].state = "open"
     \/ p \in Claimers /\ session[p].state = "read" /\ session[p].xid # None /\ session[p].kind = "claim"

(* hold_current_segment reads the sequence, takes the shared lock of that segment and reads again, until both are the same:
   one step, since what it read before the last time has no effect but a lock too many. *)
Unlocked == Twin \in {"the current segment is a row", "the segment is not read again"}
HoldSegment(p) ==
  /\ Enqueues(p) /\ session[p].target = None
  /\ LET slot == IF Twin = "the current segment is a row" THEN session[p].sees ELSE cursor
     IN Update(p, [session[p] EXCEPT !.target = slot + 1, !.holds = IF Unlocked THEN @ ELSE @ \cup {slot}])
  /\ UNCHANGED <<xacts, before, entries, segments, cursor, batches, head, lane, claimed, spills>>
LockUnread(p) ==
  /\ Unlocked /\ session[p].target # None
  /\ Update(p, [session[p] EXCEPT !.holds = @ \cup {session[p].target - 1}])
  /\ UNCHANGED <<xacts, before, entries, segments, cursor, batches, head, lane, claimed, spills>>

Insert(p) ==
  LET slot == session[p].target - 1
      xid == IF session[p].xid = None THEN NewXid ELSE session[p].xid
  IN /\ session[p].target # None /\ slot \in session[p].holds
     /\ IF session[p].xid = None THEN Obtain ELSE UNCHANGED <<xacts, before>>
     /\ entries' = Append(entries, [xid |-> xid, slot |-> slot])
     /\ Update(p, [session[p] EXCEPT !.xid = xid, !.inserted = @ + 1, !.target = None])
     /\ UNCHANGED <<segments, cursor, batches, head, lane, claimed, spills>>

End(p, how) ==
  /\ p \in Writers /\ session[p].state = "open" /\ session[p].target = None
  /\ session[p].inserted > 0
  /\ xacts' = [xacts EXCEPT ![session[p].xid] = how]
  /\ Update(p, [Idle EXCEPT !.state = "ended"])
  /\ UNCHANGED <<before, entries, segments, cursor, batches, head, lane, claimed, spills>>

(***************************************************************************)
(* Claim, and spill, which is a claim without attempts                     *)
(***************************************************************************)

Unbounded == Twin = "a claim takes what begins while it is under way"

Readable == {s \in Slots : segments[s].state \in {"open", "sealed"}}
RECURSIVE ByGeneration(_)
ByGeneration(S) ==
  IF S = {} THEN <<>>
  ELSE LET s == CHOOSE x \in S : \A y \in S : segments[x].generation <= segments[y].generation
       IN <<s>> \o ByGeneration(S \ {s})

(* Which segments to look at: all that claims look at; a spill, the oldest, unless that is the current one. A claim takes nothing
   of transactions that begin after its look. *)
Look(p, kind) ==
  LET list == ByGeneration(Readable)
  IN /\ p \in Claimers /\ session[p].state = "idle" /\ InTurn(p, Claimers)
     /\ kind = "spill" => spills > 0 /\ list[1] # cursor
     /\ Update(p, [session[p] EXCEPT !.state = "looked", !.kind = kind, !.list = IF kind = "spill" THEN <<list[1]>> ELSE list,
                                    !.snapshot = SnapshotOf(None)])
     /\ spills' = IF kind = "spill" THEN spills - 1 ELSE spills
     /\ UNCHANGED <<xacts, before, entries, segments, cursor, batches, head, lane, claimed>>

(* The lane's lock. What was spilled comes before the ring. *)
LockLane(p) ==
  LET free == lane = None \/ (Twin = "a spill without the lane's lock" /\ session[p].kind = "spill")
      n == IF session[p].kind = "spill" THEN 0 ELSE IF Len(head) < Limit THEN Len(head) ELSE Limit
  IN /\ p \in Claimers /\ session[p].state = "looked" /\ free
     /\ lane' = IF lane = None THEN p ELSE lane
     /\ Update(p, [session[p] EXCEPT !.state = "locked", !.at = 1, !.took = SubSeq(head, 1, n), !.fromHead = n])
     /\ UNCHANGED <<xacts, before, entries, segments, cursor, batches, head, claimed, spills>>

(* The newest batch of a lane has the highest id: one sequence, CACHE 1, drawn under the lane's lock. *)
BatchId(p) ==
  LET all == UNION {batches[s] : s \in Slots}
  IN IF Twin = "batch ids are cached by sessions" THEN 10 * (Cardinality(Claimers) - p + 100) + session[p].at
     ELSE IF all = {} THEN 1 ELSE Max({b.id : b \in all}) + 1

(* Each segment is read with a snapshot of its own, after the lock. *)
ReadSegment(p) ==
  LET slot == session[p].list[session[p].at]
      snapshot == IF Twin = "the snapshot comes before the lock" THEN session[p].snapshot ELSE SnapshotOf(session[p].xid)
      below == IF Unbounded \/ session[p].kind = "spill" THEN NewXid ELSE session[p].snapshot.xmax
      newest == Newest(slot, session[p].xid)
      read == Read(slot, snapshot, newest, session[p].xid, below, Limit - Len(session[p].took))
      moved == read.taken # <<>>
      xid == IF session[p].xid = None THEN NewXid ELSE session[p].xid
      more == session[p].at < Len(session[p].list) /\ Len(session[p].took) + Len(read.taken) < Limit
  IN /\ session[p].state = "locked" /\ Len(session[p].took) < Limit
     /\ IF moved /\ session[p].xid = None THEN Obtain ELSE UNCHANGED <<xacts, before>>
     /\ batches' = IF ~moved THEN batches ELSE [batches EXCEPT ![slot] =
          @ \cup {[id |-> BatchId(p), xid |-> xid, cursor |-> read.cursor, pending |-> read.pending]}]
     /\ Update(p, [session[p] EXCEPT !.xid = IF moved THEN xid ELSE @, !.took = @ \o read.taken,
                     !.state = IF more THEN "locked" ELSE "read", !.at = IF more THEN @ + 1 ELSE @])
     /\ UNCHANGED <<entries, segments, cursor, head, lane, claimed, spills>>

(* The same call comes back to the lane after a turn of another one, and looks again. *)
ReadAgain(p) ==
  /\ session[p].state = "read" /\ session[p].kind = "claim"
  /\ ~session[p].again /\ session[p].inserted = 0 /\ session[p].target = None
  /\ Len(session[p].took) < Limit /\ session[p].xid # None
  /\ Update(p, [session[p] EXCEPT !.state = "locked", !.at = 1, !.again = TRUE, !.snapshot = SnapshotOf(session[p].xid)])
  /\ UNCHANGED <<xacts, before, entries, segments, cursor, batches, head, lane, claimed, spills>>

Without(s, n) == SubSeq(s, n + 1, Len(s))

Finish(p, how) ==
  LET s == session[p]
      full == s.state = "locked" /\ Len(s.took) >= Limit
      commits == how = "committed"
  IN /\ p \in Claimers /\ (s.state = "read" \/ full) /\ s.target = None
     /\ xacts' = IF s.xid = None THEN xacts ELSE [xacts EXCEPT ![s.xid] = how]
     /\ claimed' = IF commits /\ s.kind = "claim" THEN claimed \o s.took ELSE claimed
     /\ head' = IF ~commits THEN head ELSE IF s.kind = "spill" THEN head \o s.took ELSE Without(head, s.fromHead)
     /\ batches' = IF commits THEN batches ELSE [slot \in Slots |-> {b \in batches[slot] : b.xid # s.xid}]
     /\ lane' = IF lane = p THEN None ELSE lane
     /\ Update(p, [Idle EXCEPT !.state = "ended"])
     /\ UNCHANGED <<before, entries, segments, cursor, spills>>

(***************************************************************************)
(* The ring turns                                                          *)
(***************************************************************************)

Generation == segments[cursor].generation

Rotate(slot) ==
  /\ segments[slot].state = "free" /\ Generation <= Rotations
  /\ segments' = [s \in Slots |->
       IF s = slot THEN [state |-> "open", generation |-> Generation + 1]
       ELSE IF segments[s].state = "open" THEN [segments[s] EXCEPT !.state = "sealed"] ELSE segments[s]]
  /\ cursor' = slot
  /\ UNCHANGED <<xacts, before, entries, batches, head, lane, session, claimed, spills>>

Held(slot) == \E p \in Sessions : slot \in session[p].holds

(* Under the exclusive lock that no writer of the segment shares: everything that is committed there is claimed. *)
Drain(slot) ==
  /\ segments[slot].state = "sealed" /\ slot # cursor
  /\ ~Held(slot) \/ Twin = "drain without the exclusive lock"
  /\ \A e \in There(slot) : xacts[entries[e].xid] = "committed" => Passed(Newest(slot, None), e)
  /\ segments' = [segments EXCEPT ![slot].state = "drained"]
  /\ UNCHANGED <<xacts, before, entries, cursor, batches, head, lane, session, claimed, spills>>

(* TRUNCATE needs its tables to itself, and history lives longer than any claim: none that looked at the segment is under way. *)
Prune(slot) ==
  /\ segments[slot].state = "drained"
  /\ \A p \in Claimers : session[p].state \in {"idle", "ended"} \/ slot \notin Range(session[p].list)
  /\ segments' = [segments EXCEPT ![slot].state = "free"]
  /\ batches' = [batches EXCEPT ![slot] = {}]
  /\ entries' = [e \in DOMAIN entries |-> IF entries[e].slot = slot THEN [entries[e] EXCEPT !.slot = Ring] ELSE entries[e]]
  /\ UNCHANGED <<xacts, before, cursor, head, lane, session, claimed, spills>>

Next ==
  \/ \E p \in Sessions : HoldSegment(p) \/ LockUnread(p) \/ Insert(p)
  \/ \E p \in Writers : Begin(p) \/ End(p, "committed") \/ End(p, "aborted")
  \/ \E p \in Claimers : Look(p, "claim") \/ Look(p, "spill") \/ LockLane(p) \/ ReadSegment(p) \/ ReadAgain(p)
  \/ \E p \in Claimers : Finish(p, "committed") \/ Finish(p, "aborted")
  \/ \E s \in Slots : Rotate(s) \/ Drain(s) \/ Prune(s)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Safety                                                                  *)
(***************************************************************************)

Live == {e \in DOMAIN entries : xacts[entries[e].xid] # "aborted"}

(* None is lost: what is or may be committed is claimed, spilled, or there for a claim to come. *)
NoneLost == \A e \in Live : e \in Range(claimed) \/ e \in Range(head) \/ InReach(e)

NoneTwice == \A i, k \in DOMAIN claimed : claimed[i] = claimed[k] => i = k

(* If A committed before B's transaction obtained its id, A is claimed first. *)
FifoAmong(related(_, _)) ==
  \A i \in DOMAIN claimed : \A a \in DOMAIN entries :
    (entries[a].xid \in before[entries[claimed[i]].xid] /\ related(a, claimed[i])) => \E k \in 1 .. i - 1 : claimed[k] = a
Any(a, b) == TRUE
Fifo == FifoAmong(Any)
=============================================================================
