/** What the driver needs of the server beside the engine: a clock that can be moved on, and everything at once to compare. */
export const modelFunctions = `
create schema model;

-- The clock moves on: every time that is stored moves back.
create function model.advance(p interval) returns void language plpgsql as $$
begin
  update awa.deferred_jobs set run_at = run_at - p, created_at = created_at - p;
  update awa.spilled_entries set created_at = created_at - p, ready_at = ready_at - p;
  update awa.attempt_state set heartbeat_at = heartbeat_at - p;
  update awa.leases set created_at = created_at - p, claimed_at = claimed_at - p, deadline_at = deadline_at - p,
    heartbeat_at = heartbeat_at - p, callback_deadline = callback_deadline - p;
  update awa.lease_closures set closed_at = closed_at - p;
  update awa.unique_claims set expires_at = expires_at - p;
  update awa.terminal_jobs set finalized_at = finalized_at - p;
  update awa.dlq_entries set dead_lettered_at = dead_lettered_at - p;
  update awa.segments set opened_at = opened_at - p, sealed_at = sealed_at - p, drained_at = drained_at - p;
${[0, 1, 2, 3]
  .map(
    (n) => `  update awa.ready_entries_${n} set created_at = created_at - p, ready_at = ready_at - p;
  update awa.claim_batches_${n} set claimed_at = claimed_at - p, deadline_at = deadline_at - p;
  update awa.closures_${n} set closed_at = closed_at - p;`
  )
  .join("\n")}
end $$;

-- Pauses of seconds become half an hour: nothing may become due by itself while a sequence runs.
create function model.stretch() returns void language plpgsql as $$
begin
  update awa.deferred_jobs set run_at = run_at + interval '30 minutes', xid = pg_current_xact_id()
  where run_at > clock_timestamp() and run_at < clock_timestamp() + interval '20 minutes';
end $$;

-- In one call: the shortest pause after a rescue is half a second, and the driver may be slower than that.
create function model.rescue(p_staleness interval) returns integer language plpgsql as $$
declare
  v_rescued integer;
begin
  v_rescued := awa.rescue_stale(p_staleness, 1000);
  v_rescued := v_rescued + awa.rescue_leases(p_staleness, 1000);
  perform model.stretch();
  return v_rescued;
end $$;

-- As reset.everything, without new files.
create function model.reset() returns void language plpgsql as $$
begin
  delete from awa.deferred_jobs; delete from awa.spilled_entries; delete from awa.spill_heads; delete from awa.attempt_state;
  delete from awa.leases; delete from awa.lease_closures; delete from awa.unique_claims; delete from awa.terminal_jobs;
  delete from awa.dlq_entries; delete from awa.quarantined_jobs; delete from awa.segments; delete from awa.segment_lanes; delete from awa.queues;
${[0, 1, 2, 3]
  .map(
    (n) => `  delete from awa.ready_entries_${n}; delete from awa.claim_batches_${n}; delete from awa.closures_${n};
  delete from awa.ready_tombstones_${n};`
  )
  .join("\n")}
  insert into awa.segments table reset.segments;
  perform setval('awa.segment_cursor', (select ring_size from awa.meta));
  update awa.meta set any_gated = false where any_gated;
end $$;

-- Now and then, or dead rows would pile up. Unlike reset.everything it leaves the sequences alone, of which sessions hold numbers.
create function model.truncate() returns void language plpgsql as $$
begin
  truncate awa.deferred_jobs, awa.spilled_entries, awa.attempt_state, awa.leases, awa.lease_closures, awa.unique_claims,
    awa.terminal_jobs, awa.dlq_entries, awa.segments, awa.queues,
    ${[0, 1, 2, 3].map((n) => `awa.ready_entries_${n}, awa.claim_batches_${n}, awa.closures_${n}, awa.ready_tombstones_${n}, awa.expected_completions_${n}`).join(", ")};
  perform model.reset();
end $$;

create function model.observe(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[])
returns jsonb language plpgsql set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return jsonb_build_object(
    'jobs', (select coalesce(jsonb_agg(jsonb_build_array(
        j.job_id, j.queue, j.priority, j.args, j.state, j.run_lease, j.attempt, j.max_attempts, j.progress,
        jsonb_array_length(coalesce(j.errors, '[]')), round(extract(epoch from j.run_at - clock_timestamp()) / 60)) order by j.job_id, j.state), '[]')
      from awa.jobs j),
    'keys', (select coalesce(jsonb_agg(jsonb_build_array(u.job_id, u.states) order by u.job_id, u.states), '[]')
      from awa.unique_claims u where u.expires_at is null or u.expires_at > clock_timestamp()),
    'evidence', (select coalesce(jsonb_agg(jsonb_build_array(e.status, e.outcome) order by e.ord), '[]')
      from awa.attempt_evidence(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) e),
    'attempts', (select coalesce(jsonb_agg(jsonb_build_array(a.job_id, a.run_lease, a.outcome) order by a.job_id, a.run_lease, a.outcome), '[]')
      from awa.attempts a),
    'leases', (select coalesce(jsonb_agg(jsonb_build_array(l.job_id, l.run_lease) order by l.job_id), '[]') from awa.leases l));
end $$;

create function model.leftovers() returns text language sql as $$
  select concat_ws(' ', (select string_agg(state, ',' order by state) from awa.segments),
    (select count(*) from awa.attempt_state), (select count(*) from awa.leases), (select count(*) from awa.spilled_entries),
    (select count(*) from awa.deferred_jobs), (select count(*) from awa.quarantined_jobs))
$$;
`
