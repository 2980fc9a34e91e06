/** Sabotages of leases and callbacks. */
import type { Sabotage } from "../sabotages.js"

const of = (name: string, file: string, from: string, to: string, test: string): Sabotage => ({
  name,
  file,
  from,
  to,
  test
})

const materialization = "test/pg/leases.test.ts > materialization >"
const gone = "test/pg/leases.test.ts > a lease whose receipt claim is pruned >"
const there = "test/pg/leases.test.ts > a lease whose receipt claim is in the ring >"
const lease = "test/pg/leases.test.ts > a lease >"
const keys = "test/pg/leases.test.ts > the unique key of a job that completes >"
const registered = "test/pg/callbacks.test.ts > a registered callback >"
const waiting = "test/pg/callbacks.test.ts > a sequential wait >"
const parked = "test/pg/callbacks.test.ts > a parked attempt >"
const answer = "test/pg/callbacks.test.ts > an answer >"

const completedOnce = "is completed by complete_job with the same token, once, and reads back"
const flushed = "is closed by a flush, whose repetition is known and whose rival is stale"

export const leaseSabotages: ReadonlyArray<Sabotage> = [
  of(
    "materialize in the middle of a finalization",
    "065_leases.sql",
    "  where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || h.job_id || '/' || h.run_lease, 0));",
    "  where true;",
    `${materialization} does not wait for an open complete_job, and leaves its attempt to it`
  ),
  of(
    "materialize what somebody else closed",
    "065_leases.sql",
    "join closed c on c.batch_id = i.batch_id and c.batch_index = i.idx\n",
    "left join closed c on c.batch_id = i.batch_id and c.batch_index = i.idx\n",
    `${materialization} leaves alone what a flush has just closed`
  ),
  of(
    "materialize before the segment is due",
    "065_leases.sql",
    "if not found or v_oldest.drained_at > clock_timestamp() - p_keep then",
    "if not found then",
    `${materialization} comes when the oldest drained segment is due, takes what is open, and carries the body over`
  ),
  of(
    "forget the progress that a lease begins with",
    "065_leases.sql",
    "coalesce(g.progress, e.progress), e.errors, e.unique_key",
    "e.progress, e.errors, e.unique_key",
    `${materialization} comes when the oldest drained segment is due, takes what is open, and carries the body over`
  ),
  of(
    "take a batch that claimed nothing for attempts",
    "065_leases.sql",
    "where c.batch_id > p_from and c.n > 0 offset 0) b",
    "where c.batch_id > p_from offset 0) b",
    `${materialization} knows a batch that claimed nothing, and a claim from a lane's head, for what they are`
  ),
  of(
    "give a lease the priority of its lane's head",
    "065_leases.sql",
    "abs(b.priority), e.attempt + 1",
    "b.priority, e.attempt + 1",
    `${materialization} knows a batch that claimed nothing, and a claim from a lane's head, for what they are`
  ),
  of(
    "materialize past a beat that is under way",
    "065_leases.sql",
    "  from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)\n  on conflict (job_id, run_lease) do nothing;\n  v_rows",
    "  from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)\n  where false\n  on conflict (job_id, run_lease) do nothing;\n  v_rows",
    `${materialization} carries the progress of a beat that is under way, and a beat that comes too late finds the lease`
  ),
  of(
    "beat into the ring for an attempt that has left it",
    "060_heartbeat.sql",
    "c.batch_index = p_indexes[l] and c.outcome = 'materialized' offset 0) c);\n  if",
    "c.batch_index = p_indexes[l] and false offset 0) c);\n  if",
    `${materialization} carries the progress of a beat that is under way, and a beat that comes too late finds the lease`
  ),
  of(
    "complete_job knows the ring only",
    "040_complete_job.sql",
    "if v_other.outcome <> 'materialized' then",
    "if true then",
    `${there} ${completedOnce}`
  ),
  of(
    "complete_job takes a pruned claim for the attempt's end",
    "040_complete_job.sql",
    "    v_at := {{schema}}.complete_lease(p_job_id, p_run_lease, p_receipt_id, p_batch_id, p_batch_index, p_progress, v_claim.found);",
    "    v_at := null;",
    `${gone} ${completedOnce}`
  ),
  of(
    "complete a lease by a receipt that is not its own",
    "065_leases.sql",
    "where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt_id\n    and l.batch_id = p_batch_id and l.batch_index = p_batch_index\n",
    "where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt_id\n",
    `${there} ${completedOnce}`
  ),
  of(
    "do not say how a lease ended",
    "065_leases.sql",
    "perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_lease.outcome, v_lease.closed_at);",
    "perform {{schema}}.raise_stale(p_job_id, p_run_lease, null, null);",
    `${gone} ${completedOnce}`
  ),
  of(
    "close in the ring only",
    "030_close.sql",
    "coalesce(met.outcome = 'materialized', true) then 'lease'",
    "false then 'lease'",
    `${there} ${flushed}`
  ),
  of(
    "close takes a pruned claim for the attempt's end",
    "030_close.sql",
    "coalesce(met.outcome = 'materialized', true) then 'lease'",
    "met.outcome = 'materialized' then 'lease'",
    `${gone} ${flushed}`
  ),
  of(
    "close a lease with the token of another installation",
    "030_close.sql",
    "case when i.slot >> 12 = p_fingerprint and coalesce",
    "case when coalesce",
    `${gone} ${flushed}`
  ),
  of(
    "close a lease by any receipt",
    "065_leases.sql",
    "where l.receipt_id = p_receipts[u.ord]\n",
    "where true\n",
    `${gone} ${flushed}`
  ),
  of(
    "forget which flush closed a lease",
    "065_leases.sql",
    "when c.closer = p_closer then 'repeated' else 'stale' end",
    "else 'stale' end",
    `${gone} ${flushed}`
  ),
  of(
    "know no evidence of a lease whose claim is gone",
    "050_evidence.sql",
    "(c.outcome = 'materialized' or b.job_ids[i.idx] is distinct from i.job_id\n                  or b.run_leases[i.idx] is distinct from i.run_lease or b.receipt_base + i.idx is distinct from i.receipt) as elsewhere",
    "(c.outcome = 'materialized') as elsewhere",
    `${gone} ${completedOnce}`
  ),
  of(
    "take a materialized attempt for a closed one",
    "050_evidence.sql",
    "(c.outcome = 'materialized' or b.job_ids",
    "(b.job_ids",
    `${there} ${completedOnce}`
  ),
  of(
    "do not beat for leases",
    "060_heartbeat.sql",
    "where p_slots[l] >> 12 = p_fingerprint and coalesce(c.outcome = 'materialized', true));",
    "where false);",
    `${gone} is beaten for, keeps its progress, and is released with it`
  ),
  of(
    "wait for a lease that somebody holds",
    "065_leases.sql",
    "    for update skip locked) l;\n  select jsonb_object_agg",
    "    for update) l;\n  select jsonb_object_agg",
    `${lease} is not rescued while a finalization of it is in flight; nor while somebody renews it`
  ),
  of(
    "take progress for stored that is not",
    "060_heartbeat.sql",
    "return query select unnest(v_live), 'busy'::text except select",
    "return query select unnest(v_live), 'busy'::text where false except select",
    "test/pg/heartbeat.test.ts > a beat > is not held up by a caller that hung in a finalization, and the others are beaten for"
  ),
  of(
    "rescue leases past their deadline never",
    "065_leases.sql",
    "else c.heartbeat_at < v_stale or (c.deadline_at < v_now and c.heartbeat_at <= v_now) or",
    "else c.heartbeat_at < v_stale or",
    `${lease} is rescued when nobody beats for it or it passed its deadline; the crash counts`
  ),
  of(
    "materialize all or none",
    "065_leases.sql",
    "return {{schema}}.materialize_each_{{segment}}(p_claim_slot, v_ids, v_idx);",
    "return {{schema}}.materialize_attempts_{{segment}}(p_claim_slot, v_ids, v_idx);",
    `${materialization} leaves behind the one that cannot leave, and moves the others`
  ),
  of(
    "rescue leases without limit",
    "065_leases.sql",
    "    limit p_limit) h;\n  -- Looked",
    "    ) h;\n  -- Looked",
    `${lease} is rescued when nobody beats for it or it passed its deadline; the crash counts`
  ),
  of(
    "keep the key of a job that a flush completed",
    "030_close.sql",
    "  if v_keys is not null then\n    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);\n  end if;\nend $$;",
    "end $$;",
    `${keys} in the ring by a flush is released, unless it is held for longer`
  ),
  of(
    "keep the key of a job that its caller completed",
    "040_complete_job.sql",
    "  if v_claim.unique_key is not null then",
    "  if false then",
    `${keys} in the ring by complete_job is released, unless it is held for longer`
  ),
  of(
    "keep the key of a job that completed under lease",
    "065_leases.sql",
    "  if v_keys is not null then",
    "  if false then",
    `${keys} under lease by complete_job is released, unless it is held for longer`
  ),
  of(
    "release the key of a job that goes on",
    "065_leases.sql",
    "array_agg(e.unique_key order by e.job_id) filter (where e.outcome = 'completed' and e.unique_key is not null),\n         array_agg(e.job_id order by e.job_id) filter (where e.outcome = 'completed' and e.unique_key is not null)",
    "array_agg(e.unique_key order by e.job_id) filter (where e.unique_key is not null),\n         array_agg(e.job_id order by e.job_id) filter (where e.unique_key is not null)",
    `${keys} under lease by a flush is released, unless it is held for longer`
  ),
  of(
    "register a callback for whatever asks",
    "066_callbacks.sql",
    "array[p_receipt]) e where e.status = 'open')\n  then\n    case",
    "array[p_receipt]) e where e.status in ('open', 'superseded'))\n  then\n    case",
    `${registered} is refused to what is not a running attempt, and to a timeout that is none`
  ),
  of(
    "answer for a callback that was replaced",
    "066_callbacks.sql",
    "  if v_lease.callback_id is distinct from p_callback_id then\n    answer",
    "  if false then\n    answer",
    `${registered} is replaced by the next one`
  ),
  of(
    "complete an attempt that waits for the outside",
    "065_leases.sql",
    "if v_lease.state <> 'running' then",
    "if v_lease.state = 'parked' then",
    `${waiting} holds completion off until it is answered; then the same token completes the job`
  ),
  of(
    "announce an answer as a queue",
    "066_callbacks.sql",
    "perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);\n  end if;\n  return 'resumed';",
    "perform pg_notify({{channel}}, 'callback/' || callback_id);\n  end if;\n  return 'resumed';",
    `${waiting} tells the runtime by a payload that no queue's name can be`
  ),
  of(
    "forget an answer that came before the wait",
    "066_callbacks.sql",
    "when v_lease.callback_answered then 'answered'",
    "when v_lease.callback_answered and v_lease.state = 'waiting' then 'answered'",
    `${waiting} keeps an answer that came before it, also a failed one, and is over with the first answer`
  ),
  of(
    "store errors of any length",
    "066_callbacks.sql",
    "left(coalesce(error, 'the callback failed'), 2000)",
    "coalesce(error, 'the callback failed')",
    `${waiting} keeps an answer that came before it, also a failed one, and is over with the first answer`
  ),
  of(
    "wait for ever",
    "066_callbacks.sql",
    "when left_ms = 0 then 'timed_out' else",
    "else",
    `${waiting} times out, by itself: the attempt is running again, and an answer comes too late`
  ),
  of(
    "accept an answer after the timeout",
    "066_callbacks.sql",
    "callback_id = case when answer <> 'timed_out' then l.callback_id end",
    "callback_id = l.callback_id",
    `${waiting} times out, by itself: the attempt is running again, and an answer comes too late`
  ),
  of(
    "let a handler end what is parked",
    "065_leases.sql",
    "        and (p_parked or c.state <> 'parked') for update) l);",
    "        for update) l);",
    `${parked} has no handler any more: its token is stale, its completion WA002, and it is not beaten for`
  ),
  of(
    "beat for what is parked",
    "065_leases.sql",
    "and c.receipt_id = p_receipts[o] and c.state <> 'parked'\n",
    "and c.receipt_id = p_receipts[o]\n",
    `${parked} has no handler any more: its token is stale, its completion WA002, and it is not beaten for`
  ),
  of(
    "count an attempt that was resumed",
    "066_callbacks.sql",
    ":= case when p_lease.callback_error is null then 'released' else 'retried' end;",
    ":= 'retried';",
    `${parked} goes on with the result at once, its attempt refunded; a later answer is told so`
  ),
  of(
    "lose the answer between two attempts",
    "065_leases.sql",
    "case when e.callback_answered and e.callback_error is null\n",
    "case when false\n",
    `${parked} goes on with the result at once, its attempt refunded; a later answer is told so`
  ),
  of(
    "answer a callback again",
    "066_callbacks.sql",
    "answer := case when lease.callback_answered then 'already' else 'open' end;",
    "answer := 'open';",
    `${waiting} keeps an answer that came before it, also a failed one, and is over with the first answer`
  ),
  of(
    "forget the callbacks of leases that ended",
    "066_callbacks.sql",
    "if exists (select from {{schema}}.lease_closures c where c.callback_id = p_callback_id) then",
    "if false then",
    `${parked} is completed from outside: that is the end of the job, and whatever its handler does is stale`
  ),
  of(
    "park what is answered already",
    "066_callbacks.sql",
    "  if not v_lease.callback_answered then\n    return 'parked';",
    "  if true then\n    return 'parked';",
    `${parked} goes on at once when the answer was there before it was parked`
  ),
  of(
    "count the time of a callback from its registration only",
    "066_callbacks.sql",
    "set callback_deadline = clock_timestamp() + l.callback_timeout\n",
    "set callback_deadline = l.callback_deadline\n",
    `${parked} is rescued when the callback does not come in time; a heartbeat gives it that time anew`
  ),
  of(
    "take results of any size",
    "066_callbacks.sql",
    "if octet_length(p_result::text) > 131072 then",
    "if false then",
    `${answer} of an unknown callback, or too large, changes nothing`
  ),
  of(
    "answer a callback in the middle of a finalization",
    "066_callbacks.sql",
    "if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || lease.job_id || '/' || lease.run_lease, 0)) then",
    "if false then",
    `${answer} is part of the application's transaction, and busy while another one completes the attempt`
  ),
  of(
    "take an invisible callback for an unknown one",
    "066_callbacks.sql",
    "elsif p_callback_id is not null and current_setting",
    "elsif false and current_setting",
    `${answer} in a snapshot that is older than the callback is 40001`
  ),
  of(
    "look at all leases for the parked ones that are due",
    "0002_lifecycle.sql",
    "create index leases_parked on {{schema}}.leases (callback_deadline) where state = 'parked';\n",
    "",
    "test/pg/callbacks.test.ts > with many parked attempts > each call touches the rows in question, by plans that were made when there were none"
  ),
  of(
    "answer callbacks with the caller's privileges",
    "066_callbacks.sql",
    "{{schema}}.resume_callback(callback_id uuid, result jsonb default null) returns text\nlanguage plpgsql volatile security definer\n",
    "{{schema}}.resume_callback(callback_id uuid, result jsonb default null) returns text\nlanguage plpgsql volatile\n",
    `${answer} needs EXECUTE on its function and nothing else`
  )
]
