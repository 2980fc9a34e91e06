-- Leases: the authority over attempts that left the ring, because they registered a callback or ran longer than their
-- segment. The receipt claim ends with the closure 'materialized'; job, run lease, receipt and token stay what they were.

-- Moves open attempts from the ring into leases. The closure comes first: it is the guard, and whoever closed the attempt
-- before has won. An attempt whose lock somebody holds is in the middle of a finalization and is left where it is.
{{#segments}}
create or replace function {{schema}}.materialize_attempts_{{segment}}(p_claim_slot integer, p_batch_ids bigint[], p_indexes integer[])
returns integer
language plpgsql volatile as $$
declare
  v_ids    bigint[];
  v_idx    integer[];
  v_jobs   bigint[];
  v_leases bigint[];
  v_rows   tid[];
  v_count  integer;
begin
  select array_agg(h.batch_id), array_agg(h.idx), array_agg(h.job_id), array_agg(h.run_lease)
  into v_ids, v_idx, v_jobs, v_leases
  from (
    select i.batch_id, i.idx, b.job_id, b.run_lease
    from unnest(p_batch_ids, p_indexes) as i(batch_id, idx)
    cross join lateral (
      select c.job_ids[i.idx] as job_id, c.run_leases[i.idx] as run_lease
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = i.batch_id offset 0) b
    order by i.batch_id, i.idx offset 0) h
  where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || h.job_id || '/' || h.run_lease, 0));

  with closed as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid)
    select i.batch_id, i.idx, 'materialized', clock_timestamp(), pg_current_xact_id()
    from unnest(v_ids, v_idx) as i(batch_id, idx)
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  )
  select array_agg(h.batch_id), array_agg(h.idx), array_agg(h.job_id), array_agg(h.run_lease)
  into v_ids, v_idx, v_jobs, v_leases
  from (
    select i.batch_id, i.idx, i.job_id, i.run_lease
    from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)
    join closed c on c.batch_id = i.batch_id and c.batch_index = i.idx
    order by i.job_id, i.run_lease offset 0) h;
  if v_ids is null then
    return 0;
  end if;

  -- A beat that looked before the closure was there may be about to write: these rows make it wait, and look again.
  insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at)
  select i.job_id, i.run_lease, p_claim_slot, i.batch_id, i.idx, '-infinity'
  from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)
  on conflict (job_id, run_lease) do nothing;
  v_rows := array(
    select s.ctid from unnest(v_jobs, v_leases) as i(job_id, run_lease)
    cross join lateral (
      select a.ctid from {{schema}}.attempt_state a
      where a.job_id = i.job_id and a.run_lease = i.run_lease for update) s);

  with gone as (
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows)
    returning s.job_id, s.run_lease, s.heartbeat_at, s.progress
  )
  insert into {{schema}}.leases
    (job_id, run_lease, receipt_id, claim_slot, batch_id, batch_index, runtime_id, state, queue, priority, attempt, max_attempts,
     created_at, claimed_at, deadline_at, heartbeat_at, kind, args, progress, errors, unique_key, resumed_with)
  select g.job_id, g.run_lease, b.receipt_base + i.idx, p_claim_slot, i.batch_id, i.idx, b.runtime_id, 'running', b.queue,
         abs(b.priority), e.attempt + 1, e.max_attempts, e.created_at, b.claimed_at, b.deadline_at,
         greatest(b.claimed_at, g.heartbeat_at), e.kind, e.args, coalesce(g.progress, e.progress), e.errors, e.unique_key,
         e.callback_result
  from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)
  join gone g on g.job_id = i.job_id and g.run_lease = i.run_lease
  cross join lateral (
    select c.queue, c.priority, c.receipt_base, c.claimed_at, c.deadline_at, c.runtime_id, c.xids[i.idx] as xid, c.seqs[i.idx] as seq
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = i.batch_id offset 0) b
  cross join lateral (
    select r.* from {{schema}}.ready_entries_{{segment}} r
    where r.queue = b.queue and r.priority = b.priority and r.xid = b.xid and r.seq = b.seq offset 0) e
  order by g.job_id, g.run_lease
  on conflict (job_id, run_lease) do nothing;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- The same, half by half when one of them is refused: that one stays where it is and keeps its segment, the others leave.
create or replace function {{schema}}.materialize_each_{{segment}}(p_claim_slot integer, p_batch_ids bigint[], p_indexes integer[])
returns integer
language plpgsql volatile as $$
declare
  v_half  integer := cardinality(p_batch_ids) / 2;
begin
  begin
    return {{schema}}.materialize_attempts_{{segment}}(p_claim_slot, p_batch_ids, p_indexes);
  exception when others then
    if not {{schema}}.stops_one(sqlstate) then
      raise;
    end if;
    if v_half = 0 then
      raise warning 'item % of batch % cannot leave its segment: % %', p_indexes[1], p_batch_ids[1], sqlstate, sqlerrm;
      return 0;
    end if;
  end;
  return {{schema}}.materialize_each_{{segment}}(p_claim_slot, p_batch_ids[:v_half], p_indexes[:v_half])
    + {{schema}}.materialize_each_{{segment}}(p_claim_slot, p_batch_ids[v_half + 1:], p_indexes[v_half + 1:]);
end $$;

-- The open attempts of a segment: those with mutable state, and those that rescue has not come to yet. A batch of none moved
-- its lane's head, and claimed nothing.
create or replace function {{schema}}.materialize_segment_{{segment}}(p_claim_slot integer, p_from bigint, p_limit integer)
returns integer
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_idx integer[];
begin
  select array_agg(o.batch_id), array_agg(o.idx) into v_ids, v_idx
  from (
    select s.batch_id, s.batch_index as idx
    from {{schema}}.attempt_state s
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
    where s.claim_slot & 255 = {{segment}} and c.found is null
    union
    select b.batch_id, t.idx::integer
    from (
      select c.batch_id, c.job_ids from {{schema}}.claim_batches_{{segment}} c
      where c.batch_id > p_from and c.n > 0 offset 0) b
    cross join lateral unnest(b.job_ids) with ordinality as t(job_id, idx)
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = b.batch_id and c.batch_index = t.idx offset 0) c on true
    where c.found is null
    order by 1, 2 limit p_limit) o;
  if v_ids is null then
    return 0;
  end if;
  return {{schema}}.materialize_each_{{segment}}(p_claim_slot, v_ids, v_idx);
end $$;
{{/segments}}

-- The tokens of this installation's attempts, but for the segment.
create or replace function {{schema}}.claim_slot_base() returns integer
language sql stable as $$ select (m.fingerprint << 12) | (1 << 8) from {{schema}}.meta m $$;

-- When the oldest drained segment has lived its time, what still runs in it leaves the ring, so that it can be pruned.
-- Answers how many left.
create or replace function {{schema}}.materialize_long(p_keep interval, p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_oldest  record;
  v_base    integer := {{schema}}.claim_slot_base();
  v_moved   integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select s.slot, s.drained_at, s.rescued_to into v_oldest
  from {{schema}}.segments s where s.state = 'drained' order by s.generation limit 1;
  if not found or v_oldest.drained_at > clock_timestamp() - p_keep then
    return 0;
  end if;
  case v_oldest.slot
    {{#segments}}
    when {{segment}} then v_moved := {{schema}}.materialize_segment_{{segment}}(v_base | {{segment}}, v_oldest.rescued_to, p_limit);
    {{/segments}}
  end case;
  return v_moved;
end $$;

-- The one end of leases: the closure, which is self-contained; the job's way on, or the release of its key; the row. The
-- receipts are matched here, and a parked lease only where the caller says so: its handler has no say any more.
create or replace function {{schema}}.end_leases(
  p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb[],
  p_closer bigint, p_parked boolean)
returns table (job_id bigint, run_lease bigint, receipt_id bigint, outcome {{schema}}.outcome, closed_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_rows      tid[];
  v_ended     bigint[];
  v_leases    bigint[];
  v_receipts  bigint[];
  v_outcomes  {{schema}}.outcome[];
  v_at        timestamptz := clock_timestamp();
  v_jobs      {{schema}}.ended_job[];
  v_keys      bytea[];
  v_holders   bigint[];
begin
  v_rows := array(
    select l.ctid
    from (select u.* from unnest(p_job_ids, p_run_leases, p_receipts) as u(job_id, run_lease, receipt_id)
          order by u.job_id, u.run_lease offset 0) u
    cross join lateral (
      select c.ctid from {{schema}}.leases c
      where c.job_id = u.job_id and c.run_lease = u.run_lease and c.receipt_id = u.receipt_id
        and (p_parked or c.state <> 'parked') for update) l);
  if cardinality(v_rows) = 0 then
    return;
  end if;
  with item as materialized (
    select distinct on (u.job_id, u.run_lease) u.job_id, u.run_lease, u.outcome, coalesce(u.detail, '{}') as detail, l.*
    from unnest(p_job_ids, p_run_leases, p_outcomes, p_details) with ordinality as u(job_id, run_lease, outcome, detail, ord)
    cross join lateral (
      select c.receipt_id, c.queue, c.priority, c.attempt, c.max_attempts, c.created_at, c.claimed_at, c.runtime_id, c.kind, c.args,
             c.progress, c.errors, c.unique_key, c.callback_id, c.callback_answered, c.callback_result, c.callback_error,
             c.resumed_with
      from {{schema}}.leases c
      where c.job_id = u.job_id and c.run_lease = u.run_lease and c.ctid = any (v_rows) offset 0) l
    where l.receipt_id = p_receipts[u.ord]
    order by u.job_id, u.run_lease, u.ord
  ), closed as (
    insert into {{schema}}.lease_closures
      (job_id, run_lease, receipt_id, outcome, closed_at, xid, closer, queue, priority, attempt, max_attempts, created_at, claimed_at,
       runtime_id, kind, args, progress, errors, callback_id, callback_result)
    select i.job_id, i.run_lease, i.receipt_id, i.outcome, v_at, pg_current_xact_id(), p_closer, i.queue, i.priority, i.attempt,
           i.max_attempts, i.created_at, i.claimed_at, i.runtime_id, i.kind, i.args, coalesce(i.detail -> 'progress', i.progress),
           i.errors, case when i.callback_answered then i.callback_id end, case when i.callback_answered then i.callback_result end
    from item i
    on conflict (job_id, run_lease) do nothing
    returning job_id, run_lease
  ), ended as (
    select i.* from item i join closed c on c.job_id = i.job_id and c.run_lease = i.run_lease
  )
  select array_agg(e.job_id), array_agg(e.run_lease), array_agg(e.receipt_id), array_agg(e.outcome),
         array_agg(row(e.job_id, e.run_lease, e.queue, e.priority, e.attempt, e.max_attempts, e.kind, e.args, e.progress, e.errors,
                       e.created_at, e.unique_key, e.outcome,
                       -- an answer that nobody will give again goes on with the job
                       case when e.callback_answered and e.callback_error is null
                         then jsonb_build_object('callback_result', coalesce(e.callback_result, 'null'))
                         when e.resumed_with is not null then jsonb_build_object('callback_result', e.resumed_with) else '{}' end
                       || e.detail)::{{schema}}.ended_job order by e.job_id) filter (where e.outcome <> 'completed'),
         array_agg(e.unique_key order by e.job_id) filter (where e.outcome = 'completed' and e.unique_key is not null),
         array_agg(e.job_id order by e.job_id) filter (where e.outcome = 'completed' and e.unique_key is not null)
  into v_ended, v_leases, v_receipts, v_outcomes, v_jobs, v_keys, v_holders
  from ended e;
  delete from {{schema}}.leases l where l.ctid = any (v_rows);
  perform {{schema}}.dispose_jobs(v_jobs);
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
  return query select e.j, e.l, e.r, e.o, v_at from unnest(v_ended, v_leases, v_receipts, v_outcomes) as e(j, l, r, o);
end $$;

-- The items of a flush whose attempts are not in the ring any more, or never were. Answers as a flush does.
create or replace function {{schema}}.close_leases(
  p_closer bigint, p_ords integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {{schema}}.outcome[],
  p_details jsonb)
returns table (ord integer, answer text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_jobs      bigint[];
  v_receipts  bigint[];
  v_outcomes  {{schema}}.outcome[];
begin
  select array_agg(e.job_id), array_agg(e.receipt_id), array_agg(e.outcome) into v_jobs, v_receipts, v_outcomes
  from (
    select array_agg(p_job_ids[o]) as j, array_agg(p_run_leases[o]) as l, array_agg(p_receipts[o]) as r,
           array_agg(p_outcomes[o]) as o, array_agg(coalesce(p_details -> o::text, '{}')) as d
    from (select o from unnest(p_ords) o order by o offset 0) i) a
  cross join lateral {{schema}}.end_leases(a.j, a.l, a.r, a.o, a.d, p_closer, false) e;
  return query
    select o, case when done.outcome = p_outcomes[o] then 'closed' when c.closer = p_closer then 'repeated' else 'stale' end
    from unnest(p_ords) o
    left join unnest(v_jobs, v_receipts, v_outcomes) as done(job_id, receipt_id, outcome)
      on done.job_id = p_job_ids[o] and done.receipt_id = p_receipts[o]
    left join lateral (
      select l.closer from {{schema}}.lease_closures l
      where l.job_id = p_job_ids[o] and l.run_lease = p_run_leases[o] and l.receipt_id = p_receipts[o] offset 0) c on true;
end $$;

-- The completion of an attempt that is not in the ring any more, in the caller's transaction. Null when this transaction knows
-- nothing of it, which only a caller that found no claim either may take for an answer. The attempt's lock is held.
create or replace function {{schema}}.complete_lease(
  p_job_id bigint, p_run_lease bigint, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb,
  p_claim_found boolean)
returns timestamptz
language plpgsql volatile as $$
declare
  v_lease  record;
  v_at     timestamptz;
begin
  select l.state into v_lease
  from {{schema}}.leases l
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt_id
    and l.batch_id = p_batch_id and l.batch_index = p_batch_index
  for update;
  if found then
    if v_lease.state <> 'running' then
      raise exception using errcode = 'WA002',
        message = format('the attempt waits for a callback: job %s, run lease %s', p_job_id, p_run_lease);
    end if;
    select e.closed_at into v_at
    from {{schema}}.end_leases(array[p_job_id], array[p_run_lease], array[p_receipt_id], array['completed'::{{schema}}.outcome],
      array[case when p_progress is null then '{}' else jsonb_build_object('progress', p_progress) end], null, false) e;
    if found then
      return v_at;
    end if;
  end if;
  select c.outcome, c.closed_at into v_lease
  from {{schema}}.lease_closures c
  where c.job_id = p_job_id and c.run_lease = p_run_lease and c.receipt_id = p_receipt_id;
  if found then
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_lease.outcome, v_lease.closed_at);
  elsif p_claim_found then
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, null, null);
  end if;
  return null;
end $$;

-- Beats for attempts that are leases. Answers those that are not beaten for, as `heartbeat` does.
create or replace function {{schema}}.heartbeat_leases(
  p_ords integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_ords integer[];
  v_rows tid[];
  v_new  jsonb;
  v_now  timestamptz := clock_timestamp();
begin
  select coalesce(array_agg(o), '{}'), coalesce(array_agg(l.ctid), '{}') into v_ords, v_rows
  from unnest(p_ords) o
  cross join lateral (
    select c.ctid from {{schema}}.leases c
    where c.job_id = p_job_ids[o] and c.run_lease = p_run_leases[o] and c.receipt_id = p_receipts[o] and c.state <> 'parked'
    for update skip locked) l;
  select jsonb_object_agg(p_job_ids[o] || '/' || p_run_leases[o], p_progress -> o::text) into v_new
  from unnest(v_ords) o where p_progress ? o::text;
  update {{schema}}.leases l
  set heartbeat_at = v_now, progress = coalesce(v_new -> (l.job_id || '/' || l.run_lease), l.progress)
  where l.ctid = any (v_rows);
  return query
    select o, case when l.state = 'parked' then 'parked' when l.state is not null then 'busy' else c.outcome::text end
    from (select unnest(p_ords) except select unnest(v_ords)) as rest(o)
    left join lateral (
      select e.state from {{schema}}.leases e
      where e.job_id = p_job_ids[o] and e.run_lease = p_run_leases[o] and e.receipt_id = p_receipts[o] offset 0) l on true
    left join lateral (
      select e.outcome from {{schema}}.lease_closures e
      where e.job_id = p_job_ids[o] and e.run_lease = p_run_leases[o] and e.receipt_id = p_receipts[o] offset 0) c on true;
end $$;

-- Ends these leases, whose locks and rows are held, as rescued, and answers how many: as end_abandoned does in the ring.
create or replace function {{schema}}.end_abandoned_leases(
  p_jobs bigint[], p_leases bigint[], p_receipts bigint[], p_details jsonb[])
returns integer
language plpgsql volatile as $$
declare
  v_half   integer := cardinality(p_jobs) / 2;
  v_ended  integer;
begin
  begin
    select count(*) into v_ended
    from {{schema}}.end_leases(p_jobs, p_leases, p_receipts,
      array_fill('rescued'::{{schema}}.outcome, array[cardinality(p_jobs)]), p_details, null, true);
    return v_ended;
  exception when others then
    if not {{schema}}.stops_one(sqlstate) then
      raise;
    end if;
    if v_half = 0 then
      raise warning 'the attempt of job %, run lease %, cannot be ended: % %', p_jobs[1], p_leases[1], sqlstate, sqlerrm;
    end if;
  end;
  if v_half > 0 then
    return {{schema}}.end_abandoned_leases(p_jobs[:v_half], p_leases[:v_half], p_receipts[:v_half], p_details[:v_half])
      + {{schema}}.end_abandoned_leases(
          p_jobs[v_half + 1:], p_leases[v_half + 1:], p_receipts[v_half + 1:], p_details[v_half + 1:]);
  end if;
  update {{schema}}.leases l
  -- It rests: by what it is asked for, the deadline too, it is not looked at before.
  set heartbeat_at = clock_timestamp() + interval '1 minute',
      callback_deadline = case when l.state = 'parked' then greatest(l.callback_deadline, clock_timestamp() + interval '1 minute')
                          else l.callback_deadline end
  where l.job_id = p_jobs[1] and l.run_lease = p_leases[1];
  return 0;
end $$;

-- Ends leases that nobody beats for or that passed their deadline, and parked ones whose callback did not come in time. A
-- handler that waits sees the end of its waiting by itself; only when it has not done so for the staleness is it ended here.
create or replace function {{schema}}.rescue_leases(p_staleness interval, p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_now       timestamptz := clock_timestamp();
  v_stale     timestamptz := v_now - p_staleness;
  v_jobs      bigint[];
  v_leases    bigint[];
  v_receipts  bigint[];
  v_details   jsonb[];
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select array_agg(h.job_id), array_agg(h.run_lease) into v_jobs, v_leases
  from (
    select c.job_id, c.run_lease
    from (
      (select l.job_id, l.run_lease from {{schema}}.leases l
       where l.state <> 'parked'
         and (l.heartbeat_at < v_stale or (l.deadline_at < v_now and l.heartbeat_at <= v_now) or (l.state = 'waiting' and l.callback_deadline < v_stale)))
      union all
      (select l.job_id, l.run_lease from {{schema}}.leases l
       where l.state = 'parked' and l.callback_deadline < v_now order by l.callback_deadline)
      offset 0) c
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || c.job_id || '/' || c.run_lease, 0))
    limit p_limit) h;
  -- Looked at again, under the lock: a beat or an answer may have come in between.
  select array_agg(l.job_id), array_agg(l.run_lease), array_agg(l.receipt_id),
         array_agg(jsonb_build_object('error', case
           when l.state <> 'running' and l.callback_deadline < v_now and (l.state = 'parked' or l.heartbeat_at >= v_stale)
             then jsonb_build_object('name', 'CallbackTimeout', 'message', 'the callback was not answered in time')
           else jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline')
           end))
  into v_jobs, v_leases, v_receipts, v_details
  from (select u.* from unnest(v_jobs, v_leases) as u(job_id, run_lease) order by u.job_id, u.run_lease offset 0) u
  cross join lateral (
    select c.* from {{schema}}.leases c
    where c.job_id = u.job_id and c.run_lease = u.run_lease
      and case when c.state = 'parked' then c.callback_deadline < v_now
          else c.heartbeat_at < v_stale or (c.deadline_at < v_now and c.heartbeat_at <= v_now) or (c.state = 'waiting' and c.callback_deadline < v_stale) end
    for update skip locked) l;
  return case when v_jobs is null then 0 else {{schema}}.end_abandoned_leases(v_jobs, v_leases, v_receipts, v_details) end;
end $$;

-- How long until the callback of a parked attempt times out, in milliseconds; null when none is parked.
create or replace function {{schema}}.next_callback_due() returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select greatest(0, ceil(extract(epoch from l.callback_deadline - clock_timestamp()) * 1000))::bigint
  from {{schema}}.leases l where l.state = 'parked' order by l.callback_deadline limit 1
$$;
