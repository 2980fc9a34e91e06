--------------------------- MODULE CompletionTrace --------------------------
(***************************************************************************)
(* Whether what was recorded of real runs is a behaviour of Completion.    *)
(* A trace tells of one job what its workers saw: calls that were sent and *)
(* what was answered. What the server did in between, and when, is for the *)
(* checker to find. A run lease names an attempt here: nothing was lost by *)
(* a failover. The runner writes RecordedTraces.                           *)
(***************************************************************************)
EXTENDS CompletionSpec, RecordedTraces, TLC

VARIABLES
  t, i,       \* which trace, and the event that comes next
  sent,       \* of each attempt: the call that is under way
  answer      \* and what the server answered to it

traceVars == <<db, standby, att, tx, ever, left, t, i, sent, answer>>

Trace == Traces[t].events
Event == Trace[i]
Job == IF Traces[t].owned THEN 1 ELSE 2

TraceInit ==
  /\ t \in DOMAIN Traces
  /\ i = 1
  /\ db = Empty /\ standby = Empty /\ att = <<>> /\ tx = <<>> /\ ever = {}
  /\ left = [losses |-> Traces[t].losses, crashes |-> 0, failovers |-> 0, replications |-> 0, turns |-> 0, waits |-> 0]
  /\ sent = [l \in 1 .. MaxLease |-> "nothing"]
  /\ answer = [l \in 1 .. MaxLease |-> "none"]

Of(lease) == CHOOSE a \in Receipts : att[a].lease = lease
Known(lease) == \E a \in Receipts : att[a].lease = lease
Model == vars
Quiet == UNCHANGED Model

(***************************************************************************)
(* What the worker did and saw                                             *)
(***************************************************************************)

Is(kind) == i <= Len(Trace) /\ Event.event = kind /\ i' = i + 1 /\ UNCHANGED t
Alone == UNCHANGED <<sent, answer>>
Sends(lease, call) == sent[lease] = "nothing" /\ sent' = [sent EXCEPT ![lease] = call] /\ answer' = [answer EXCEPT ![lease] = "none"]
Answered(lease) == sent' = [sent EXCEPT ![lease] = "nothing"] /\ UNCHANGED answer

Claims_ == Is("claim") /\ Alone /\ Claim(Job) /\ att'[Len(att')].lease = Event.lease
ClaimFails == Is("claim-unanswered") /\ Alone /\ (Quiet \/ ClaimLost(Job))
Begins == Is("begin") /\ Alone /\ Begin(Of(Event.lease))
CallsCompleteJob == Is("complete-job") /\ Quiet /\ Sends(Event.lease, "complete-job")
CompleteJobAnswers ==
  LET a == Of(Event.lease)
  IN /\ Is("complete-job-answer") /\ Quiet /\ Answered(Event.lease)
     /\ CASE Event.answer = "completed" -> answer[Event.lease] = "completed"
          [] Event.answer = "refused" -> answer[Event.lease] = "refused"
          [] OTHER -> tx[a] = "none"
Commits == Is("commit") /\ Alone /\ SendCommit(Of(Event.lease))
CommitAnswers ==
  LET a == Of(Event.lease)
  IN /\ Is("commit-answer") /\ Alone
     /\ CASE Event.answer = "committed" -> Quiet /\ att[a].phase = "exited" /\ att[a].exit = "success"
          [] Event.answer = "unknown" -> IF att[a].phase = "committing" THEN CommitUnanswered(a) ELSE Quiet /\ att[a].phase = "exited"
          [] OTHER -> Quiet /\ att[a].phase = "exited" /\ att[a].exit = "failure"

(* The handler may fail after its commit, and its transaction may have been broken under it before. *)
Exits ==
  LET a == Of(Event.lease)
  IN Is("exit") /\ Alone /\ IF att[a].phase = "exited" THEN Quiet ELSE HandlerEnds(a, Event.answer)

Asks == Is("evidence") /\ Quiet /\ Sends(Event.lease, "evidence")
EvidenceAnswers ==
  LET a == Of(Event.lease)
  IN /\ Is("evidence-answer") /\ Answered(Event.lease)
     /\ IF Event.answer = "none" THEN answer[Event.lease] = "none" /\ (IF att[a].phase = "exited" THEN AskUnanswered(a) ELSE Quiet)
        ELSE Quiet /\ answer[Event.lease] = Event.answer

Settles_ == Is("settle-attempt") /\ Quiet /\ Sends(Event.lease, "settle-attempt")
SettleAnswers ==
  LET a == Of(Event.lease)
  IN /\ Is("settle-attempt-answer") /\ Answered(Event.lease)
     /\ IF Event.answer # "none" THEN Quiet /\ answer[Event.lease] = Event.answer
        ELSE answer[Event.lease] = "none" /\ (IF att[a].phase = "open" THEN SettleUnanswered(a) ELSE Quiet)

Flushes ==
  LET a == Of(Event.lease)
  IN Is("close-attempts") /\ Sends(Event.lease, "close-attempts") /\ IF att[a].phase = "exited" THEN StartFlush({a}) ELSE Quiet
FlushAnswers ==
  LET a == Of(Event.lease)
  IN /\ Is("close-attempts-answer") /\ Answered(Event.lease)
     /\ IF Event.answer = "none" THEN answer[Event.lease] = "none" /\ CloseUnanswered({a})
        ELSE Quiet /\ answer[Event.lease] = Event.answer

(* What the server did counts for the worker from its answer on: nothing is settled while a call is under way. The bounded outage
   is by the runtime's own clock: after at least one question without an answer, or without knowledge. *)
SettledIs ==
  LET a == Of(Event.lease)
  IN /\ Is("settled")
     /\ sent[Event.lease] = "nothing"
     /\ answer' = [answer EXCEPT ![Event.lease] = "settled"] /\ UNCHANGED sent
     /\ IF Event.answer = "unresolved"
        THEN /\ att[a].phase = "exited" /\ att[a].asked > 0
             /\ att' = [att EXCEPT ![a].phase = "watched", ![a].how = "unresolved"]
             /\ UNCHANGED <<db, standby, tx, ever, left>>
        ELSE Quiet /\ att[a].phase = "settled" /\ att[a].how = Event.answer
Releases_ ==
  LET a == Of(Event.lease)
  IN /\ Is("released") /\ Alone
     /\ answer[Event.lease] = "settled"
     /\ IF att[a].phase = "watched" THEN Quiet ELSE Release(a)

(* What the database holds in the end: how each attempt ended, and whose rows are there. *)
EndsWith ==
  /\ Is("end") /\ Alone /\ Quiet
  /\ \A a \in Receipts : \E o \in Event.outcomes : o.lease = att[a].lease /\ o.outcome = Evidence(db, a)
  /\ {att[a].lease : a \in db.effects} = Event.effects

Worker ==
  \/ Claims_ \/ ClaimFails \/ Begins \/ CallsCompleteJob \/ CompleteJobAnswers \/ Commits \/ CommitAnswers \/ Exits
  \/ Asks \/ EvidenceAnswers \/ Settles_ \/ SettleAnswers \/ Flushes \/ FlushAnswers \/ SettledIs \/ Releases_ \/ EndsWith

(***************************************************************************)
(* What nobody recorded                                                    *)
(***************************************************************************)

Answers(lease, what) == answer[lease] = "none" /\ answer' = [answer EXCEPT ![lease] = what] /\ UNCHANGED <<t, i, sent>>

ExecutesCall(l) ==
  LET a == Of(l)
      closed == IF Evidence(db, a) \in {"unknown", "superseded", "open"} THEN "stale"
                ELSE IF ClosedBy(db, a, a) THEN "repeated" ELSE "stale"
  IN CASE sent[l] = "complete-job" -> CompleteJob(a) /\ Answers(l, tx'[a])
       [] sent[l] = "evidence" -> (IF att[a].phase = "settled" THEN Quiet ELSE Ask(a)) /\ Answers(l, Evidence(db, a))
       [] sent[l] = "settle-attempt" ->
            \/ att[a].phase = "settled" /\ Quiet /\ Answers(l, closed)
            (* rescue, and a call that was given up, hold the lock for an instant: here they are steps *)
            \/ att[a].phase = "open" /\ Set(a, "exited") /\ UNCHANGED <<db, standby, tx, ever, left>> /\ Answers(l, "busy")
            \/ /\ SettleAttempt(a)
               /\ Answers(l, IF LockHeld(att[a].job, l, None) THEN "busy" ELSE IF Settles(a) THEN "closed" ELSE closed)
       [] sent[l] = "close-attempts" ->
            /\ CloseAttempts({a})
            /\ Answers(l, IF Accepts(db, a) THEN "closed" ELSE IF AnswerOf(a, att[a].flush) = "closed" THEN "repeated" ELSE "stale")
       [] OTHER -> FALSE

Unseen ==
  \/ \E l \in 1 .. MaxLease : Known(l) /\ ExecutesCall(l)
  \/ /\ UNCHANGED <<t, i, sent, answer>>
     /\ \/ \E a \in Receipts : ServerCommits(a) \/ ServerAborts(a) \/ LateSettle(a) \/ LateClose(a) \/ BeatLost(a)
        \/ \E c \in OpenClaims(db) : Rescue(c)

TraceSpec == TraceInit /\ [][Worker \/ Unseen]_traceVars

(* Tells how far each trace was followed; a trace that came to its end is not looked at any further. *)
ASSUME \A k \in DOMAIN Traces : TLCSet(k, 0)
Follow == TLCGet(t) <= Len(Trace) /\ (i > TLCGet(t) => TLCSet(t, i) /\ PrintT(<<"followed", t, i - 1>>))
=============================================================================
