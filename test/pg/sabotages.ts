/**
 * The sabotages of the SQL engine: each breaks one rule of storage.md or of the contract in the text of one file of schema/,
 * and names the test that must notice. `mutants.ts` proves that it does.
 */
import type { Edit } from "./database.js"
import { adminSabotages } from "./sabotages/admin.js"
import { contractSabotages } from "./sabotages/contract.js"
import { expectSabotages } from "./sabotages/expect.js"
import { lanes } from "./sabotages/lanes.js"
import { fifoSabotages } from "./sabotages/fifo.js"
import { gatingSabotages } from "./sabotages/gating.js"
import { leaseSabotages } from "./sabotages/leases.js"
import { lifeSabotages } from "./sabotages/life.js"
import { modelSabotages } from "./sabotages/model.js"
import { restore } from "./sabotages/restore.js"
import { unique } from "./sabotages/unique.js"
import { promoteSabotages } from "./sabotages/promote.js"
import { rescueSabotages } from "./sabotages/rescue.js"

export interface Sabotage extends Edit {
  readonly name: string
  /** The test that goes red: its file, then its path of names. */
  readonly test: string
}

const of = (name: string, file: string, from: string, to: string, test: string): Sabotage => ({
  name,
  file,
  from,
  to,
  test
})

const forged =
  "test/pg/completeJob.test.ts > complete_job > refuses a token that was forged, with the state that says how"
const many = "test/pg/completeJobs.test.ts > complete_jobs >"
const completions = "test/pg/close.test.ts > a flush of plain completions >"

export const sabotages: ReadonlyArray<Sabotage> = [
  of(
    "complete another job's attempt at once",
    "040_complete_job.sql",
    "p_batch_index >= 1 and b.job_ids[p_batch_index] = p_job_id\n",
    "p_batch_index >= 1\n",
    forged
  ),
  of(
    "complete by another run lease at once",
    "040_complete_job.sql",
    "    and b.run_leases[p_batch_index] = p_run_lease and b.receipt_base",
    "    and b.receipt_base",
    forged
  ),
  of(
    "complete by another receipt at once",
    "040_complete_job.sql",
    " and b.receipt_base + p_batch_index = p_receipt_id\n    and b.unique",
    "\n    and b.unique",
    forged
  ),
  of(
    "complete at once by a token of another installation",
    "040_complete_job.sql",
    "p_claim_slot >> 12 = m.fingerprint and (p_claim_slot",
    "(p_claim_slot",
    forged
  ),
  of(
    "complete at once by a token of another version",
    "040_complete_job.sql",
    " and (p_claim_slot >> 8) & 15 = 1\n    and b.batch_id",
    "\n    and b.batch_id",
    forged
  ),
  of(
    "keep the key of what was completed at once",
    "040_complete_job.sql",
    "    and b.unique_keys[p_batch_index] is null\n",
    "",
    "test/pg/leases.test.ts > the unique key of a job that completes > in the ring by complete_job is released, unless it is held for longer"
  ),
  of(
    "keep the state of what was completed at once",
    "040_complete_job.sql",
    "    and not exists (select from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease)\n",
    "",
    "test/pg/completeJob.test.ts > complete_job > flushes its progress, or keeps the last, and removes the attempt's state"
  ),
  of(
    "claim in any isolation level",
    "020_claim.sql",
    "  perform {{schema}}.require_read_committed();\n  if pg_current",
    "  if pg_current",
    "test/pg/claim.test.ts > outside READ COMMITTED > each of the functions that rely on a snapshot per statement is refused"
  ),
  of(
    "claim after a write of the same transaction",
    "020_claim.sql",
    "if pg_current_xact_id_if_assigned() is not null then",
    "if false then",
    "test/pg/claim.test.ts > claim > is refused after an enqueue, and after a claim, in the same transaction"
  ),
  of(
    "forget the claim's own transaction id",
    "020_claim.sql",
    "(select pg_snapshot_xip(v_snapshot) union all select pg_current_xact_id_if_assigned()) as p(x)",
    "(select pg_snapshot_xip(v_snapshot)) as p(x)",
    "test/pg/cursor.test.ts > a claim over several lanes that then enqueues loses nothing"
  ),
  of(
    "forget who was in progress below the cursor",
    "020_claim.sql",
    "where p.x < o_cursor_xid and not p.x = any (o_pending_xids)",
    "where false",
    "test/pg/cursor.test.ts > beside an older segment > a late committer > behind the cursor is read once it has ended, and only once"
  ),
  of(
    "take a pending transaction for ended",
    "020_claim.sql",
    "if v_have >= p_limit or o_more or not pg_visible_in_snapshot(v_pend_x[k], v_snapshot) then",
    "if v_have >= p_limit then",
    "test/pg/cursor.test.ts > beside an older segment > a late committer > is one of several: each is read when it ends, an aborted one leaves nothing"
  ),
  of(
    "drop a pending transaction that was read in part",
    "020_claim.sql",
    "if v_have >= p_limit or o_more then  -- perhaps",
    "if false then  -- perhaps",
    "test/pg/cursor.test.ts > beside an older segment > a late committer > that was read in part is continued where the claim stopped"
  ),
  of(
    "read a pending transaction from its start again",
    "020_claim.sql",
    "      v_pend_s[k] := f.last_seq;\n",
    "      v_pend_s[k] := 0;\n",
    "test/pg/cursor.test.ts > beside an older segment > a late committer > that was read in part is continued where the claim stopped"
  ),
  of(
    "do not move the cursor",
    "020_claim.sql",
    "    o_cursor_seq := f.s[v_cut];\n",
    "",
    "test/pg/cursor.test.ts > beside an older segment > the order of a lane > inside one call is the order of its jobs"
  ),
  of(
    "order a lane by seq",
    "020_claim.sql",
    "order by e.xid, e.seq limit v_step) r",
    "order by e.seq limit v_step) r",
    "test/pg/cursor.test.ts > beside an older segment > the order of a lane > is that of the transactions, whatever numbers their sessions had cached"
  ),
  of(
    "walk uncommitted entries",
    "020_claim.sql",
    "from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s\n          where s.x > coalesce(",
    "from (select pg_snapshot_xmax(v_snapshot) as x) s\n          where s.x > coalesce(",
    "test/pg/cursor.test.ts > beside an older segment > uncommitted entries cost an empty poll a probe, and hide nothing that stands behind them"
  ),
  of(
    "read the ranges backwards",
    "020_claim.sql",
    "        window in_order as (order by s.x)\n        offset 0) g",
    "        window in_order as (order by s.x)\n        order by s.x desc offset 0) g",
    "test/pg/cursor.test.ts > beside an older segment > a lane between many open transactions is read in order, whatever the limit"
  ),
  of(
    "cache batch ids",
    "0001_storage.sql",
    "create sequence {{schema}}.batch_seq as bigint cache 1;",
    "create sequence {{schema}}.batch_seq as bigint cache 20;",
    "test/pg/cursor.test.ts > beside an older segment > claims by several sessions follow one another: the batch ids have no cache"
  ),
  of(
    "claim a lane without its lock",
    "020_claim.sql",
    "if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_p || '/' || p_queue, 0)) then",
    "if false then",
    "test/pg/claim.test.ts > claim > beside an older segment: says of a lane that another claim holds that it is busy, and of an empty one nothing"
  ),
  of(
    "take busy for empty",
    "020_claim.sql",
    "if (v_busy and v_left > 0) or v_retry",
    "if false or v_retry",
    "test/pg/claim.test.ts > claim > beside an older segment: says of a lane that another claim holds that it is busy, and of an empty one nothing"
  ),
  of(
    "claim without durability",
    "020_claim.sql",
    "perform set_config('synchronous_commit', 'on', true);",
    "null;",
    "test/pg/claim.test.ts > claim > is durable whatever the session says, until the end of its transaction only"
  ),
  of(
    "take the current segment from a row",
    "010_enqueue.sql",
    "    select last_value into v_value from {{schema}}.segment_cursor;\n    perform pg_advisory_xact_lock_shared(hashtextextended({{key segment}} || (v_value % {{ring}})::text, 0));\n    select last_value into v_again from {{schema}}.segment_cursor;\n",
    "    select s.generation * {{ring}} + s.slot into v_value from {{schema}}.segments s where s.state = 'open' order by s.generation desc limit 1;\n    perform pg_advisory_xact_lock_shared(hashtextextended({{key segment}} || (v_value % {{ring}})::text, 0));\n    v_again := v_value;\n",
    "test/pg/rotation.test.ts > a transaction opened before a rotation, a drain and a prune > enqueues into the current segment after them, in repeatable read"
  ),
  of(
    "do not read the current segment again",
    "010_enqueue.sql",
    "    exit when v_again = v_value;\n",
    "    exit;\n",
    "test/pg/segments.test.ts > a sealed segment > that was drained while an enqueue waited for its lock does not get the entry"
  ),
  of(
    "drain under writers",
    "074_ring.sql",
    "if not pg_try_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0)) then",
    "if false then",
    "test/pg/segments.test.ts > a sealed segment > is not drained while a writer is in flight, prepared or open"
  ),
  of(
    "drain in spite of pending transactions",
    "074_ring.sql",
    "or exists (select from unnest(b.pending_xids, b.pending_seqs)",
    "or false and exists (select from unnest(b.pending_xids, b.pending_seqs)",
    "test/pg/segments.test.ts > a sealed segment > whose last entries are only behind the cursor is not drained"
  ),
  of(
    "drain in spite of a lane that nobody claimed from",
    "074_ring.sql",
    "(r.xid, r.seq) > (coalesce(b.cursor_xid, '0'::xid8), coalesce(b.cursor_seq, 0))",
    "(r.xid, r.seq) > (b.cursor_xid, b.cursor_seq)",
    "test/pg/segments.test.ts > a sealed segment > is not drained while an entry is unclaimed, ahead of a cursor, behind it, or in a lane without one"
  ),
  of(
    "prune in spite of open attempts",
    "074_ring.sql",
    "    where c.n < b.n);\nend $$;",
    "    where false);\nend $$;",
    "test/pg/segments.test.ts > prune > waits for every closure, and for the history to have lived its time"
  ),
  of(
    "prune young history",
    "074_ring.sql",
    "             where c.closed_at > clock_timestamp() - p_keep\n               and",
    "             where false\n               and",
    "test/pg/segments.test.ts > prune > waits for every closure, and for the history to have lived its time"
  ),
  of(
    "let prune wait",
    "074_ring.sql",
    "perform set_config('lock_timeout', '100ms', true);",
    "null;",
    "test/pg/segments.test.ts > prune > gives up quickly when anything holds a lock, and does its work afterwards"
  ),
  of(
    "advance by nextval",
    "074_ring.sql",
    "perform setval({{schema_text segment_cursor}}, v_next.generation * {{ring}} + v_next.slot);",
    "perform nextval({{schema_text segment_cursor}}) from generate_series(v_value + 1, v_next.generation * {{ring}} + v_next.slot);",
    "test/pg/rotation.test.ts > rotation > leaves nothing logged ahead in the cursor's sequence"
  ),
  of(
    "rotate in one step",
    "074_ring.sql",
    "  return 'opened';\n",
    "  perform setval({{schema_text segment_cursor}}, (v_current.generation + 1) * {{ring}} + v_next.slot);\n  return 'opened';\n",
    "test/pg/rotation.test.ts > rotation > can stop between its two steps, for ever or until somebody continues"
  ),
  of(
    "do not repair a rotation",
    "074_ring.sql",
    "  update {{schema}}.segments s set state = 'sealed', sealed_at = clock_timestamp()\n  where s.state = 'open' and s.slot <> v_value % {{ring}};\n",
    "",
    "test/pg/rotation.test.ts > rotation > is repaired when the second step moved the cursor and did not commit"
  ),
  of(
    "rotate while idle",
    "0001_storage.sql",
    "opened_seq   bigint not null default 1,",
    "opened_seq   bigint not null default 0,",
    "test/pg/rotation.test.ts > rotation > goes by age and by size, and an idle system rotates nothing"
  ),
  of(
    "everybody leads",
    "070_lead.sql",
    "select pg_try_advisory_xact_lock(hashtextextended({{key leader}}, 0))",
    "select true",
    "test/pg/rotation.test.ts > the leader > is one transaction at a time, for every step"
  ),
  of(
    "close by key alone",
    "030_close.sql",
    "    where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt\n  ), inserted as (",
    "  ), inserted as (",
    "test/pg/segments.test.ts > a flush that comes after its segment was pruned and reused is stale"
  ),
  of(
    "close without the receipt",
    "030_close.sql",
    "and b.receipt_base + x.idx = x.receipt\n  ), inserted as (",
    "\n  ), inserted as (",
    "test/pg/close.test.ts > a close > answers stale to a token that is not exactly the attempt's, and touches nothing"
  ),
  of(
    "close without the fingerprint",
    "030_close.sql",
    "where i.slot & 255 = {{segment}} and i.slot >> 12 = p_fingerprint",
    "where i.slot & 255 = {{segment}}",
    "test/pg/close.test.ts > a close > answers stale to a token that is not exactly the attempt's, and touches nothing"
  ),
  of(
    "drop the closure guard",
    "030_close.sql",
    "    on conflict (batch_id, batch_index) do nothing\n    returning batch_id, batch_index, outcome",
    "    on conflict (batch_id, batch_index) do update set outcome = excluded.outcome, closer = excluded.closer\n    returning batch_id, batch_index, outcome",
    "test/pg/rescue.test.ts > rescue > makes every later word of the old attempt stale, and leaves the new one alone"
  ),
  of(
    "take a repeated flush for stale",
    "030_close.sql",
    "when met.closer = p_closer then 'repeated' else 'stale' end",
    "else 'stale' end",
    "test/pg/close.test.ts > a close > that is repeated says so to its own flush, is stale to any other, and disposes of the job once"
  ),
  of(
    "take a stale flush for repeated",
    "030_close.sql",
    "when met.closer = p_closer then 'repeated' else 'stale' end",
    "when met.closer is not null then 'repeated' else 'stale' end",
    "test/pg/close.test.ts > a close > that is repeated says so to its own flush, is stale to any other, and disposes of the job once"
  ),
  of(
    "close one item with two outcomes",
    "030_close.sql",
    " and i.outcome = p_outcomes[m.ord];",
    ";",
    "test/pg/close.test.ts > a close > of one attempt with two outcomes in the same flush takes one of them"
  ),
  of(
    "crash without end",
    "028_dispose.sql",
    "(j.outcome in ('retried', 'rescued') and j.attempt >= j.max_attempts) as ended",
    "(j.outcome = 'retried' and j.attempt >= j.max_attempts) as ended",
    "test/pg/rescue.test.ts > rescue > of the last attempt is a failure with all its errors"
  ),
  of(
    "retry without end",
    "028_dispose.sql",
    "(j.outcome in ('retried', 'rescued') and j.attempt >= j.max_attempts) as ended",
    "(j.outcome = 'rescued' and j.attempt >= j.max_attempts) as ended",
    "test/pg/outcomes.test.ts > an attempt that is closed as > retried for the last time is failed, with all its errors, whatever delay it asked for"
  ),
  of(
    "count a snooze",
    "028_dispose.sql",
    "case when j.outcome in ('snoozed', 'released', 'gated') then j.attempt - 1 else j.attempt end as attempt",
    "j.attempt as attempt",
    "test/pg/outcomes.test.ts > an attempt that is closed as > snoozed or released does not count as an attempt; the lease rises all the same"
  ),
  of(
    "keep the lease",
    "030_close.sql",
    "row(e.job_id, e.run_lease + 1, e.queue",
    "row(e.job_id, e.run_lease, e.queue",
    "test/pg/outcomes.test.ts > an attempt that is closed as > snoozed or released does not count as an attempt; the lease rises all the same"
  ),
  of(
    "wait in settle",
    "030_close.sql",
    "if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || p_job_id || '/' || p_run_lease, 0)) then",
    "if pg_advisory_xact_lock(hashtextextended({{key attempt}} || p_job_id || '/' || p_run_lease, 0)) is null then",
    "test/pg/close.test.ts > settle > is busy while a finalization is in flight, and never waits for it"
  ),
  of(
    "answer instead of raising",
    "040_complete_job.sql",
    "on conflict (batch_id, batch_index) do nothing;\n    get diagnostics v_rows = row_count;",
    "on conflict (batch_id, batch_index) do nothing;\n    v_rows := 1;",
    "test/pg/completeJob.test.ts > complete_job > after another outcome is WA001 with that outcome and its time, and the caller's writes are gone"
  ),
  of(
    "complete without the attempt lock",
    "040_complete_job.sql",
    "     and pg_advisory_xact_lock(hashtextextended({{key attempt}} || job_id || '/' || run_lease, 0)) is null then",
    "     and false then",
    "test/pg/rescue.test.ts > rescue > leaves an attempt alone while a caller's finalization is in flight, whatever becomes of it"
  ),
  of(
    "complete without the receipt",
    "040_complete_job.sql",
    " and v_claim.receipt_id = p_receipt_id then",
    " then",
    "test/pg/completeJob.test.ts > complete_job > refuses a token that was forged, with the state that says how"
  ),
  of(
    "complete without the lease",
    "040_complete_job.sql",
    "v_claim.job_id = p_job_id and v_claim.run_lease = p_run_lease",
    "v_claim.job_id = p_job_id",
    "test/pg/completeJob.test.ts > complete_job > refuses a token that was forged, with the state that says how"
  ),
  of(
    "take the beat's row from under a snapshot",
    "040_complete_job.sql",
    "v_claim.has_state and current_setting('transaction_isolation') like 'read %' then",
    "v_claim.has_state then",
    "test/pg/completeJob.test.ts > complete_job > commits although its attempt was beaten for meanwhile, in every isolation level"
  ),
  of(
    "take an invisible claim for a stale one",
    "040_complete_job.sql",
    "if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then",
    "if false then",
    "test/pg/completeJobRaces.test.ts > evidence that is not there > for the caller's snapshot, which is older than the claim, is 40001; a new transaction succeeds"
  ),
  of(
    "complete with any fingerprint",
    "040_complete_job.sql",
    "  if p_claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then",
    "  if not v_meta.ours then",
    "test/pg/completeJob.test.ts > complete_job > refuses a token that was forged, with the state that says how"
  ),
  of(
    "complete in a copy",
    "040_complete_job.sql",
    "  if p_claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then",
    "  if p_claim_slot >> 12 <> v_meta.fingerprint then",
    "test/pg/completeJobRaces.test.ts > a token from a copied database is refused there, before and after the copy is adopted"
  ),
  of(
    "keep the fingerprint of a copy",
    "094_adopt.sql",
    "set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,",
    "set installation_id = v_id,",
    "test/pg/completeJobRaces.test.ts > a token from a copied database is refused there, before and after the copy is adopted"
  ),
  of(
    "accept a batch that was never drawn",
    "040_complete_job.sql",
    "  if p_batch_id > (select last_value from {{schema}}.batch_seq) then",
    "  if false then",
    "test/pg/completeJob.test.ts > complete_job > refuses a token that was forged, with the state that says how"
  ),
  of(
    "look for a lane's last batch by its equals",
    "020_claim.sql",
    "      where (b.queue, b.priority) >= (p_queue, p.p::smallint) order by b.queue, b.priority, b.batch_id desc limit 1) c",
    "      where b.queue = p_queue and b.priority = p.p::smallint order by b.batch_id desc limit 1) c",
    "test/pg/plans.test.ts > plans that were made when all batches were of one lane > beside an older segment: find the last batch of a lane that has none without walking those"
  ),
  of(
    "note the finalization for the session",
    "040_complete_job.sql",
    "|| receipt_id || ']', true);",
    "|| receipt_id || ']', false);",
    "test/pg/completeJob.test.ts > complete_job > notes itself for the commit guard, and the note goes with a savepoint"
  ),
  of(
    "wait in a beat",
    "060_heartbeat.sql",
    "and a.run_lease = p_run_leases[l] for update skip locked) s;",
    "and a.run_lease = p_run_leases[l] for update) s;",
    "test/pg/heartbeat.test.ts > a beat > is not held up by a caller that hung in a finalization, and the others are beaten for"
  ),
  of(
    "beat for closed attempts",
    "060_heartbeat.sql",
    "    and c.found is null;\n  v_lost",
    "    and true;\n  v_lost",
    "test/pg/heartbeat.test.ts > a beat > answers the attempts that are lost, with how they ended, and beats for the others"
  ),
  of(
    "forget the progress",
    "060_heartbeat.sql",
    "progress = coalesce(v_new -> (s.job_id || '/' || s.run_lease), s.progress)",
    "progress = v_new -> (s.job_id || '/' || s.run_lease)",
    "test/pg/heartbeat.test.ts > a beat > keeps the progress of the beats before it"
  ),
  of(
    "rescue the living",
    "072_rescue.sql",
    "  v_stale  timestamptz := v_now - p_staleness;\n  v_until",
    "  v_stale  timestamptz := v_now;\n  v_until",
    "test/pg/rescue.test.ts > rescue > does not touch what was closed or is beaten for"
  ),
  of(
    "wait in rescue",
    "072_rescue.sql",
    "where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || o.job_id || '/' || o.run_lease, 0))",
    "where pg_advisory_xact_lock(hashtextextended({{key attempt}} || o.job_id || '/' || o.run_lease, 0)) is not null",
    "test/pg/rescue.test.ts > rescue > leaves an attempt alone while a caller's finalization is in flight, whatever becomes of it"
  ),
  of(
    "forget the long attempts",
    "072_rescue.sql",
    "      union all select * from beaten\n",
    "",
    "test/pg/rescue.test.ts > rescue's mark > moves over a long attempt that is beaten for, which is rescued all the same once nobody does"
  ),
  of(
    "move the mark over what is undecided",
    "072_rescue.sql",
    "  done_to := least(done_to, v_first - 1);\n",
    "",
    "test/pg/rescue.test.ts > rescue after a mass crash takes everybody, in order, a limited share at a time"
  ),
  of(
    "look at fewer attempts than are rescued",
    "072_rescue.sql",
    "    limit p_limit + 1000\n",
    "    limit p_limit\n",
    "test/pg/rescue.test.ts > rescue after a mass crash takes everybody, in order, a limited share at a time"
  ),
  of(
    "never go back with the mark",
    "074_ring.sql",
    ", rescued_to = 0 where s.slot = v_slot;",
    " where s.slot = v_slot;",
    "test/pg/rescue.test.ts > rescue's mark > that passed a claim which had not committed goes back when the segment is drained"
  ),
  of(
    "move rescue's mark over what is not stale",
    "072_rescue.sql",
    "where y.batch_id > p_from and y.claimed_at >= v_stale order by",
    "where false order by",
    "test/pg/rescue.test.ts > rescue's mark > stops before a claim that is not stale, whatever is behind it"
  ),
  of(
    "walk what is young in rescue",
    "072_rescue.sql",
    "c.batch_id <= v_until and ",
    "",
    "test/pg/rescue.test.ts > rescue's mark > leaves alone the claims behind it that are young, but for the deadlines, when it is told to"
  ),
  of(
    "look for deadlines among stale claims only",
    "072_rescue.sql",
    "  v_until := case when p_beaten_ids is null then done_to else 9223372036854775807 end;\n",
    "  v_until := done_to;\n",
    "test/pg/rescue.test.ts > rescue > ends an attempt that passed its deadline, beaten for or not"
  ),
  of(
    "walk all history in rescue",
    "072_rescue.sql",
    "      update {{schema}}.segments s set rescued_to = v_answer.done_to where s.slot = v_segment.slot;\n",
    "      null;\n",
    "test/pg/rescue.test.ts > rescue's mark > keeps settled history, and a long attempt in the middle of it, from being walked at every tick"
  ),
  of(
    "walk what is not due",
    "071_promote.sql",
    "(v_run_at, v_job_id) and d.run_at <= v_now\n       order by",
    "(v_run_at, v_job_id) and d.run_at <= clock_timestamp()\n       order by",
    "test/pg/promote.test.ts > promote_due > does not walk the jobs that are not due, nor does a close that gives one job back"
  ),
  of(
    "promote what another holds",
    "071_promote.sql",
    "and d.run_at <= v_now for update skip locked) h;",
    "and d.run_at <= v_now for update) h;",
    "test/pg/promote.test.ts > promote_due > leaves a job that another transaction holds, and takes it afterwards"
  ),
  of(
    "enqueue by the transaction's start",
    "010_enqueue.sql",
    "  v_now timestamptz := clock_timestamp();\n",
    "  v_now timestamptz := now();\n",
    "test/pg/settings.test.ts > a transaction opened two seconds ago reckons from the clock, not from its start"
  ),
  of(
    "claim by the transaction's start",
    "020_claim.sql",
    "  v_claimed := clock_timestamp();\n  o_deadline_at",
    "  v_claimed := now();\n  o_deadline_at",
    "test/pg/settings.test.ts > a transaction opened two seconds ago reckons from the clock, not from its start"
  ),
  of(
    "ignore unknown options",
    "010_enqueue.sql",
    "  if found and v_fault.key not in ('unique', 'validate') then",
    "  if false then",
    "test/pg/enqueue.test.ts > insert_jobs > refuses an unknown option as WA005 and names it"
  ),
  of(
    "start a batch of later jobs at once",
    "010_enqueue.sql",
    "  if p_run_at > p_now then\n    with later",
    "  if false then\n    with later",
    "test/pg/enqueue.test.ts > insert_batch > stores what insert_jobs stores, and answers the ids in order"
  ),
  of(
    "take a batch of any size",
    "010_enqueue.sql",
    "  if pg_column_size(insert_batch.args) > 131072 then",
    "  if false then",
    "test/pg/enqueue.test.ts > insert_batch > raises what insert_jobs raises, names the payload that is too long, and writes nothing"
  ),
  of(
    "let twins into a batch",
    "010_enqueue.sql",
    "  if v_opts ?| '{unique,validate}' then",
    "  if false then",
    "test/pg/enqueue.test.ts > insert_batch > looks at each payload where it is asked to: its twins, and its schema"
  ),
  of(
    "believe every time",
    "010_enqueue.sql",
    "        perform v_fault.run_at::timestamptz;\n",
    "        null;\n",
    "test/pg/enqueue.test.ts > insert_jobs > names the job, the field and the rule, and writes nothing"
  ),
  of(
    "plan the claim by an empty segment's size",
    "020_claim.sql",
    "\n            cross join lateral (select r.* from {{schema}}.ready_entries_{{segment}} r where r.ctid = u.place offset 0) e;",
    "\n            cross join {{schema}}.ready_entries_{{segment}} e where e.ctid::text = u.place::text;",
    "test/pg/plans.test.ts > plans that were made for an empty segment > never analyzed, do with a full one what the rows in question need, and no more"
  ),
  of(
    "plan the claim step by step by an empty segment's size",
    "020_claim.sql",
    "\n              cross join lateral (select r.* from {{schema}}.ready_entries_{{segment}} r where r.ctid = u.place offset 0) e;",
    "\n              cross join {{schema}}.ready_entries_{{segment}} e where e.ctid::text = u.place::text;",
    "test/pg/plans.test.ts > plans that were made for an empty segment > never analyzed, do with a full one what the rows in question need, and no more"
  ),
  of(
    "complete whatever job stands at the index",
    "030_close.sql",
    "    and b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease\n  order by",
    "  order by",
    `${completions} passes by every token that is not exactly the attempt's`
  ),
  of(
    "complete many by any receipt",
    "041_complete_jobs.sql",
    "b.receipt_base + x.idx = x.receipt_id\n    and not exists (",
    "true\n    and not exists (",
    `${many} raises for one that is not exactly its attempt's, and then completes none`
  ),
  of(
    "complete whoever is left of many by any receipt",
    "041_complete_jobs.sql",
    "b.receipt_base + x.idx = x.receipt_id\n  ), inserted",
    "true\n  ), inserted",
    `${many} raises for one that is not exactly its attempt's, and then completes none`
  ),
  of(
    "lock many in the order in which they are named",
    "041_complete_jobs.sql",
    "\n        order by i.s & 255, i.b, i.x, i.j, i.l) o;",
    ") o;",
    `${many} of overlapping sets in opposite orders wait for each other and never both; the later one is stale`
  ),
  of(
    "complete many of a queue that is switched off",
    "041_complete_jobs.sql",
    "  if v_gated then",
    "  if false then",
    `${many} keeps the promises of expect_completion, and is refused where caller-owned completion is off`
  ),
  of(
    "complete many and forget the promises",
    "041_complete_jobs.sql",
    "  -- for the commit guard, as complete_job's\n",
    "  return;\n",
    `${many} commits all of them with the caller's transaction, or none, in every isolation level`
  ),
  of(
    "give back the keys of whoever was closed before",
    "030_close.sql",
    "and c.closer = p_closer and c.xid = pg_current_xact_id() offset 0) c",
    "offset 0) c",
    `${completions} gives back the unique keys of what it closed, and no other's`
  ),
  of(
    "complete by any receipt",
    "030_close.sql",
    "c.receipt_base = g.receipt_base offset 0) b\n  cross join lateral unnest(p_indexes",
    "true offset 0) b\n  cross join lateral unnest(p_indexes",
    `${completions} passes by every token that is not exactly the attempt's`
  ),
  of(
    "complete unique jobs and keep their keys",
    "030_close.sql",
    "    and b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.unique_keys[x.idx] is not null;",
    "    and false;",
    `${completions} gives back the unique keys of what it closed, and no other's`
  ),
  of(
    "plan a promotion by an empty table's size",
    "071_promote.sql",
    "delete from {{schema}}.deferred_jobs d where d.ctid = any (p_rows)",
    "delete from {{schema}}.deferred_jobs d using {{schema}}.deferred_jobs o where o.job_id = d.job_id and o.ctid = any (p_rows)",
    "test/pg/plans.test.ts > plans that were made for an empty segment > analyzed while nearly empty, do with a full one what the rows in question need, and no more"
  ),
  of(
    "read literals as the session says",
    "010_enqueue.sql",
    "set standard_conforming_strings = on\nas $$\ndeclare\n  v_slot",
    "as $$\ndeclare\n  v_slot",
    "test/pg/settings.test.ts > a role with standard_conforming_strings = off, escape_string_warning = off, backslash_quote = on enqueues and completes"
  ),
  of(
    "do not fix the search path",
    "040_complete_job.sql",
    "set search_path = pg_catalog, pg_temp\n",
    "",
    "test/pg/settings.test.ts > a caller's own functions and operators are not what complete_job calls"
  ),
  ...lanes,
  ...leaseSabotages,
  ...lifeSabotages,
  ...unique,
  ...promoteSabotages,
  ...rescueSabotages,
  ...adminSabotages,
  ...expectSabotages,
  ...contractSabotages,
  ...restore,
  ...fifoSabotages,
  ...gatingSabotages,
  ...modelSabotages
]
