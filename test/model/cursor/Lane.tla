-------------------------------- MODULE Lane --------------------------------
(***************************************************************************)
(* One lane of the queue in a ring of segments, the transactions that      *)
(* write it, and what a snapshot of PostgreSQL sees of them.               *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Writers,    \* transactions that enqueue
  Inserts,    \* entries that a writer may insert, each by a call of its own
  Claimers,   \* transactions that claim, or spill
  Limit,      \* entries that one of them takes
  Ring, Rotations,
  Spills,     \* how many of the claimers may be spills
  Twin        \* "none", or the name of the guard that this twin does without

Slots == 0 .. Ring - 1
Sessions == Writers \cup Claimers
None == 0

VARIABLES
  xacts,      \* by transaction id: whether it is open, committed or aborted
  before,     \* by transaction id: those that had committed when it was obtained
  entries,    \* everything that was ever inserted, and the segment where it is; the sequence number is its place
  segments,   \* by slot: state and generation
  cursor,     \* the sequence that says which slot is current; no snapshot hides it
  batches,    \* by slot: rows of claim_batches
  head,       \* of the lane: entries that were spilled, in their order
  lane,       \* who holds the lane's lock
  session,    \* transactions, from their beginning to their end
  claimed,    \* entries in the order in which they were claimed, by transactions that committed
  spills

vars == <<xacts, before, entries, segments, cursor, batches, head, lane, session, claimed, spills>>

Range(s) == {s[i] : i \in 1 .. Len(s)}
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Max(S) == CHOOSE x \in S : \A y \in S : x >= y

(***************************************************************************)
(* Transactions and snapshots                                              *)
(***************************************************************************)

(* A snapshot's list of transactions in progress stops at xmax, which is one above the highest that has ended, and does not have the
   transaction's own. *)
Ended == {x \in DOMAIN xacts : xacts[x] # "open"}
SnapshotOf(own) ==
  LET xmax == IF Ended = {} THEN 1 ELSE Max(Ended) + 1
  IN [xmax |-> xmax, xip |-> {x \in DOMAIN xacts \ {own} : x < xmax /\ xacts[x] = "open"}]
EndedIn(snapshot, x) == x < snapshot.xmax /\ x \notin snapshot.xip

Obtain == xacts' = Append(xacts, "open") /\ before' = Append(before, {x \in DOMAIN xacts : xacts[x] = "committed"})
NewXid == Len(xacts) + 1

(***************************************************************************)
(* The lane in one segment                                                 *)
(***************************************************************************)

(* (xid, seq) order, or what a twin takes for it. *)
After(e, xid, seq) ==
  IF Twin = "a cursor in the order of seq" THEN e > seq
  ELSE entries[e].xid > xid \/ (entries[e].xid = xid /\ e > seq)

There(slot) == {e \in DOMAIN entries : entries[e].slot = slot}

Origin == [id |-> 0, xid |-> 0, cursor |-> <<0, 0>>, pending |-> {}]
(* The newest row that this transaction sees: what is committed, and its own. *)
Newest(slot, own) ==
  LET seen == {b \in batches[slot] : b.xid = own \/ xacts[b.xid] = "committed"}
  IN IF seen = {} THEN Origin ELSE CHOOSE b \in seen : \A c \in seen : b.id >= c.id

Passed(batch, e) ==
  /\ ~After(e, batch.cursor[1], batch.cursor[2])
  /\ ~\E p \in batch.pending : p[1] = entries[e].xid /\ e > p[2]

RECURSIVE Ordered(_)
Ordered(S) ==
  IF S = {} THEN <<>>
  ELSE LET e == CHOOSE x \in S : \A y \in S \ {x} : After(y, entries[x].xid, x)
       IN <<e>> \o Ordered(S \ {e})
Take(s, n) == SubSeq(s, 1, IF Len(s) < n THEN Len(s) ELSE n)

(* What a read of the lane takes from a segment, and the row that it leaves behind: pending transactions that have ended since,
   then onwards from the cursor, but nothing of a transaction that is not below `below`. `own` is the reader's transaction id, which
   no snapshot lists. *)
Read(slot, snapshot, newest, own, below, limit) ==
  LET late == {e \in There(slot) : \E p \in newest.pending : p[1] = entries[e].xid /\ e > p[2] /\ EndedIn(snapshot, p[1])}
      visible == {e \in There(slot) : EndedIn(snapshot, entries[e].xid) /\ xacts[entries[e].xid] = "committed"}
      behind == Take(Ordered(late \cap visible), limit)
      ahead == {e \in visible : After(e, newest.cursor[1], newest.cursor[2]) /\ entries[e].xid < below}
      onwards == Take(Ordered(ahead), limit - Len(behind))
      taken == behind \o onwards
      reached == IF onwards = <<>> THEN newest.cursor ELSE <<entries[onwards[Len(onwards)]].xid, onwards[Len(onwards)]>>
      progress(p) == LET mine == {e \in Range(behind) : entries[e].xid = p[1]} IN IF mine = {} THEN p[2] ELSE Max(mine)
      (* kept while it is in progress, and while it may not have been read to its end *)
      kept == {<<p[1], progress(p)>> : p \in {q \in newest.pending :
                 ~EndedIn(snapshot, q[1]) \/ \E e \in late \cap visible : entries[e].xid = q[1] /\ e \notin Range(behind)}}
      listed == snapshot.xip \cup (IF own = None \/ Twin = "its own transaction is not pending" THEN {} ELSE {own})
      new == {<<x, 0>> : x \in {y \in listed : y < reached[1] /\ ~\E p \in kept : p[1] = y}}
  IN [taken |-> taken, cursor |-> reached,
      pending |-> IF Twin = "nothing is pending" THEN {} ELSE kept \cup new]

(* What can still be claimed: in a segment that claims look at, and not passed there. *)
InReach(e) ==
  LET slot == entries[e].slot
  IN slot \in Slots /\ segments[slot].state \in {"open", "sealed"} /\ ~Passed(Newest(slot, None), e)
=============================================================================
