import type { Sabotage } from "../sabotages.js"

const file = "test/pg/abandoned.test.ts"
const inRing = `${file} > rescue in the ring >`
const underLease = `${file} > rescue under lease >`
const waits = "test/pg/locks.test.ts > whoever waits holds nothing that comes later: >"
const pastWhatCannotEnd = "takes the others past an attempt whose end cannot be recorded"

export const rescueSabotages: ReadonlyArray<Sabotage> = [
  {
    name: "rescue stops at an attempt that cannot be ended",
    file: "072_rescue.sql",
    from: "    if not {{schema}}.stops_one(sqlstate) then\n",
    to: "    if true then\n",
    test: `${inRing} ${pastWhatCannotEnd}`
  },
  {
    name: "rescue stops at a lease that cannot be ended",
    file: "065_leases.sql",
    from: "    if not {{schema}}.stops_one(sqlstate) then\n      raise;\n    end if;\n    if v_half = 0 then\n      raise warning 'the attempt",
    to: "    if true then\n      raise;\n    end if;\n    if v_half = 0 then\n      raise warning 'the attempt",
    test: `${underLease} ${pastWhatCannotEnd}`
  },
  {
    name: "let the mark pass claims that are to commit yet",
    file: "072_rescue.sql",
    from: "    (select b.batch_id from {{schema}}.claim_batches_{{segment}} b\n     where b.batch_id > p_from and b.batch_id < coalesce(",
    to: "    (select b.batch_id - 1 from {{schema}}.claim_batches_{{segment}} b\n     where b.batch_id > p_from and b.claimed_at >= v_stale order by b.batch_id limit 1),\n    (select b.batch_id from {{schema}}.claim_batches_{{segment}} b\n     where b.batch_id > p_from and b.batch_id < coalesce(",
    test: "test/pg/rescue.test.ts > rescue's mark > is not passed by a claim that commits later, whose id is lower than a young one's"
  },
  {
    name: "rescue what was chosen, whatever happened since",
    file: "072_rescue.sql",
    from: "      where coalesce(s.heartbeat_at, b.claimed_at) < p_stale\n         or (b.deadline_at < p_now and coalesce(s.heartbeat_at, b.claimed_at) <= p_now)\n",
    to: "",
    test: `${file} > rescue that had to wait on its way spares an attempt that was beaten for meanwhile`
  },
  {
    name: "rescue overwrites whoever ended the attempt before",
    file: "072_rescue.sql",
    from: "      on conflict (batch_id, batch_index) do nothing\n      returning batch_id, batch_index, progress",
    to: "      on conflict (batch_id, batch_index) do update set outcome = excluded.outcome\n      returning batch_id, batch_index, progress",
    test: `${file} > rescue that had to wait on its way spares an attempt that was beaten for meanwhile`
  },
  {
    name: "wait for a beat in rescue",
    file: "072_rescue.sql",
    from: "where a.job_id = u.job_id and a.run_lease = u.run_lease for update skip locked) s);",
    to: "where a.job_id = u.job_id and a.run_lease = u.run_lease for update) s);",
    test: `${file} > rescue does not wait for a beat that is in flight, whose row goes with the next sweep`
  },
  {
    name: "wait in the rescue of leases",
    file: "065_leases.sql",
    from: "where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || c.job_id || '/' || c.run_lease, 0))\n    limit p_limit) h;",
    to: "where pg_advisory_xact_lock(hashtextextended({{key attempt}} || c.job_id || '/' || c.run_lease, 0)) is not null\n    limit p_limit) h;",
    test: `${underLease} leaves an attempt to a prepared transaction for ever, and says whose it is`
  },
  {
    name: "starve stale attempts behind those that are not due",
    file: "072_rescue.sql",
    from: "    where (s.heartbeat_at < v_stale or (b.deadline_at < v_now and s.heartbeat_at <= v_now)) and c.found is null\n",
    to: "    where c.found is null\n    order by s.batch_id limit p_limit\n",
    test: `${inRing} does not starve what is stale behind what is not due, whatever its limit`
  },
  {
    name: "starve stale leases behind those that are not due",
    file: "065_leases.sql",
    from: "       where l.state <> 'parked'\n         and (l.heartbeat_at < v_stale or",
    to: "       where l.state <> 'parked'\n         and (true or l.heartbeat_at < v_stale or",
    test: `${underLease} does not starve what is stale behind what is not due, whatever its limit`
  },
  {
    name: "forget the deadline of the queue",
    file: "020_claim.sql",
    from: "  o_deadline_at := v_claimed + p_deadline;\n",
    to: "",
    test: "test/pg/claim.test.ts > claim > beside an older segment: takes nothing of a paused queue, and gives the queue's deadline to its attempts"
  },
  {
    name: "name nobody who holds an attempt",
    file: "072_rescue.sql",
    from: "    left join pg_prepared_xacts p on p.transaction = t.transactionid\n    where l.locktype = 'advisory'",
    to: "    left join pg_prepared_xacts p on false\n    where l.locktype = 'advisory'",
    test: `${inRing} leaves an attempt to a prepared transaction for ever, and says whose it is`
  },
  {
    name: "hold the old rows while a beat waits for a new one",
    file: "060_heartbeat.sql",
    from: "  with fresh as (\n",
    to:
      "  perform from unnest(v_live) l cross join lateral (select from {{schema}}.attempt_state a\n" +
      "    where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] for update skip locked) s;\n  with fresh as (\n",
    test: `${file} > a beat that waits for a new row holds none of the old ones`
  },
  {
    name: "close in rescue against the order of a flush",
    file: "072_rescue.sql",
    from: "      order by h.batch_id, h.idx\n      on conflict",
    to: "      order by h.batch_id desc, h.idx desc\n      on conflict",
    test: `${waits} rescue, for a closure, not those behind it`
  },
  {
    name: "complete_job takes the attempt's state before its closure",
    file: "040_complete_job.sql",
    from: "  v_at := clock_timestamp();\n",
    to: "  perform from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease for update;\n  v_at := clock_timestamp();\n",
    test: `${waits} complete_job, for a closure, not the attempt's state`
  },
  {
    name: "leases of a flush in the order they come",
    file: "065_leases.sql",
    from: "          order by u.job_id, u.run_lease offset 0) u\n    cross join lateral (\n      select c.ctid from {{schema}}.leases c",
    to: "          offset 0) u\n    cross join lateral (\n      select c.ctid from {{schema}}.leases c",
    test: `${waits} a flush, for a lease, not those of later jobs, whatever its order`
  },
  {
    name: "prune the promises after the claims",
    file: "074_ring.sql",
    from: "  lock table {{schema}}.expected_completions_{{segment}}, {{schema}}.claim_batches_{{segment}},",
    to: "  lock table {{schema}}.claim_batches_{{segment}}, {{schema}}.expected_completions_{{segment}},",
    test: `${waits} prune, for what a caller promised, not the claims`
  },
  {
    name: "cancel what is in the ring first, and then all leases",
    file: "090_admin.sql",
    from: "from unnest(p_held) p where p.state <> 'parked') u\n",
    to: "from unnest(p_held) p where p.place = 'attempt') u\n",
    test: `${waits} a cancellation, as a flush: first what is in the ring, then the leases of the same segment`
  }
]
