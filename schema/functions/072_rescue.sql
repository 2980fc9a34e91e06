-- Rescue: the end of attempts that nobody is at work on any more.

-- Ends attempts that nobody beats for, or that passed their deadline. An attempt whose lock somebody holds is in the middle of
-- a finalization and is left alone. The crash counts as an attempt.
-- Every attempt is looked at once, when its claim reaches the staleness: by then it is closed, or has an attempt_state row (and
-- is found by that row from then on), or is rescued here, or its lock is held, and then it gets such a row. The mark moves over
-- what was looked at, so neither settled history nor a long attempt in the middle of it is walked again.

-- Ends these attempts, whose locks are held, and answers how many. The statement that closes them looks again: since they were
-- chosen a beat may have come. What cannot be moved on for something about one of them is ended by halves; the one stays open,
-- is told to the server's log, and rests as if it had been beaten for, so that it does not stand before the others for ever.
{{#segments}}
create or replace function {{schema}}.end_abandoned_{{segment}}(
  p_now timestamptz, p_stale timestamptz, p_ids bigint[], p_idx integer[], p_jobs bigint[], p_leases bigint[])
returns integer
language plpgsql volatile as $$
declare
  v_half    integer := cardinality(p_ids) / 2;
  v_ids     bigint[];
  v_idx     integer[];
  v_jobs    bigint[];
  v_leases  bigint[];
  v_detail  jsonb[];
  v_rows    tid[];
begin
  begin
    with closed as (
      insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
      select h.batch_id, h.idx, 'rescued', p_now, pg_current_xact_id(), s.progress
      from unnest(p_ids, p_idx, p_jobs, p_leases) as h(batch_id, idx, job_id, run_lease)
      cross join lateral (
        select c.claimed_at, c.deadline_at from {{schema}}.claim_batches_{{segment}} c where c.batch_id = h.batch_id offset 0) b
      left join lateral (
        select a.progress, a.heartbeat_at from {{schema}}.attempt_state a
        where a.job_id = h.job_id and a.run_lease = h.run_lease offset 0) s on true
      where coalesce(s.heartbeat_at, b.claimed_at) < p_stale
         or (b.deadline_at < p_now and coalesce(s.heartbeat_at, b.claimed_at) <= p_now)
      order by h.batch_id, h.idx
      on conflict (batch_id, batch_index) do nothing
      returning batch_id, batch_index, progress
    )
    select array_agg(h.batch_id), array_agg(h.idx), array_agg(h.job_id), array_agg(h.run_lease),
           array_agg(jsonb_build_object(
               'error', jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline'))
             || case when c.progress is null then '{}' else jsonb_build_object('progress', c.progress) end)
    into v_ids, v_idx, v_jobs, v_leases, v_detail
    from closed c
    join unnest(p_ids, p_idx, p_jobs, p_leases) as h(batch_id, idx, job_id, run_lease)
      on h.batch_id = c.batch_id and h.idx = c.batch_index;
    if v_ids is null then
      return 0;
    end if;
    perform {{schema}}.dispose_{{segment}}(
      v_ids, v_idx, array_fill('rescued'::{{schema}}.outcome, array[cardinality(v_ids)]), v_detail);
    -- A row that a beat holds at this moment is left to the sweep: nobody is waited for.
    v_rows := array(
      select s.ctid from unnest(v_jobs, v_leases) as u(job_id, run_lease)
      cross join lateral (
        select a.ctid from {{schema}}.attempt_state a
        where a.job_id = u.job_id and a.run_lease = u.run_lease for update skip locked) s);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
    return cardinality(v_ids);
  exception when others then
    if not {{schema}}.stops_one(sqlstate) then
      raise;
    end if;
    if v_half = 0 then
      raise warning 'the attempt of job %, run lease %, cannot be ended: % %', p_jobs[1], p_leases[1], sqlstate, sqlerrm;
    end if;
  end;
  if v_half > 0 then
    return {{schema}}.end_abandoned_{{segment}}(p_now, p_stale, p_ids[:v_half], p_idx[:v_half], p_jobs[:v_half], p_leases[:v_half])
      + {{schema}}.end_abandoned_{{segment}}(
          p_now, p_stale, p_ids[v_half + 1:], p_idx[v_half + 1:], p_jobs[v_half + 1:], p_leases[v_half + 1:]);
  end if;
  insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at)
  values (p_jobs[1], p_leases[1], {{segment}}, p_ids[1], p_idx[1], p_now + interval '1 minute')  -- it rests, past its deadline too
  on conflict (job_id, run_lease) do update set heartbeat_at = excluded.heartbeat_at;
  return 0;
end $$;
{{/segments}}

-- Whether an error is one attempt's own, so that the others can go on without it: of what was to be stored, or of what is stored
-- and cannot be read.
create or replace function {{schema}}.stops_one(p_state text) returns boolean
language sql immutable as $$ select {{schema}}.speaks_of_rows(p_state) or p_state in ('XX001', 'XX002') $$;

-- p_beaten_…: the rows of attempt_state that belong to this segment; null where nobody asked for them.
{{#segments}}
create or replace function {{schema}}.rescue_{{segment}}(
  p_staleness interval, p_limit integer, p_from bigint, p_beaten_ids bigint[], p_beaten_idx integer[], p_beaten_jobs bigint[],
  p_beaten_leases bigint[], p_beaten_at timestamptz[], out rescued integer, out done_to bigint)
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_stale  timestamptz := v_now - p_staleness;
  v_until  bigint;
  v_first  bigint;
  v_ids    bigint[];
  v_idx    integer[];
  v_jobs   bigint[];
  v_leases bigint[];
  v_busy_ids     bigint[];
  v_busy_idx     integer[];
  v_busy_jobs    bigint[];
  v_busy_leases  bigint[];
  v_busy_at      timestamptz[];
begin
  -- The mark stops before the first batch that is not stale: of two claims at once the later id may be the earlier in time. And so
  -- the young ones, a whole staleness full of them, are not walked at every tick, but for their deadlines where the beaten are too.
  done_to := coalesce(
    (select b.batch_id from {{schema}}.claim_batches_{{segment}} b
     where b.batch_id > p_from and b.batch_id < coalesce(
       (select y.batch_id from {{schema}}.claim_batches_{{segment}} y
        where y.batch_id > p_from and y.claimed_at >= v_stale order by y.batch_id limit 1), 9223372036854775807)
     order by b.batch_id desc limit 1),
    p_from);
  v_until := case when p_beaten_ids is null then done_to else 9223372036854775807 end;

  with unbeaten as materialized (  -- after a mass crash some: more than are rescued here, so the mark cannot pass the rest
    select b.batch_id, t.idx::integer, t.job_id, t.run_lease, b.claimed_at
    from (
      select c.batch_id, c.job_ids, c.run_leases, c.claimed_at
      from {{schema}}.claim_batches_{{segment}} c
      -- most batches are closed to the last item: one range of the index tells, without a look at each
      cross join lateral (
        select count(*) as n from {{schema}}.closures_{{segment}} e
        where e.batch_id = c.batch_id and e.batch_index between 1 and c.n offset 0) e
      -- a row without attempts (n = 0) only moves a lane's cursor
      where c.batch_id > p_from and c.batch_id <= v_until and (c.claimed_at < v_stale or c.deadline_at < v_now) and e.n < c.n
      order by c.batch_id offset 0) b
    cross join lateral unnest(b.job_ids, b.run_leases) with ordinality as t(job_id, run_lease, idx)
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = b.batch_id and c.batch_index = t.idx offset 0) c on true
    left join lateral (
      select true as found from {{schema}}.attempt_state s
      where s.job_id = t.job_id and s.run_lease = t.run_lease offset 0) s on true
    where c.found is null and s.found is null
    limit p_limit + 1000
  ), beaten as materialized (
    select s.batch_id, s.batch_index, s.job_id, s.run_lease
    from unnest(p_beaten_ids, p_beaten_idx, p_beaten_jobs, p_beaten_leases, p_beaten_at)
      as s(batch_id, batch_index, job_id, run_lease, heartbeat_at)
    cross join lateral (
      select b.deadline_at from {{schema}}.claim_batches_{{segment}} b where b.batch_id = s.batch_id offset 0) b
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
    where (s.heartbeat_at < v_stale or (b.deadline_at < v_now and s.heartbeat_at <= v_now)) and c.found is null
  ), held as materialized (
    select o.* from (
      select u.batch_id, u.idx, u.job_id, u.run_lease from unbeaten u
      union all select * from beaten
      order by 1, 2 offset 0) o
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || o.job_id || '/' || o.run_lease, 0))
    limit p_limit
  ), busy as materialized (  -- tried and not had: all that is not held, up to the last one that is when the limit was reached
    select u.* from unbeaten u
    where not exists (select from held h where h.batch_id = u.batch_id and h.idx = u.idx)
      and ((select count(*) from held) < p_limit
           or (u.batch_id, u.idx) < (select h.batch_id, h.idx from held h order by h.batch_id desc, h.idx desc limit 1))
  )
  select h.ids, h.idx, h.jobs, h.leases, b.ids, b.idx, b.jobs, b.leases, b.at,
         least(
           (select min(u.batch_id) from unbeaten u
            where not exists (select from held e where e.batch_id = u.batch_id and e.idx = u.idx)
              and not exists (select from busy b where b.batch_id = u.batch_id and b.idx = u.idx)),
           -- cut off: behind the last one there are more
           (select max(u.batch_id) from unbeaten u having count(*) >= p_limit + 1000))
  into v_ids, v_idx, v_jobs, v_leases, v_busy_ids, v_busy_idx, v_busy_jobs, v_busy_leases, v_busy_at, v_first
  from (select array_agg(e.batch_id) as ids, array_agg(e.idx) as idx, array_agg(e.job_id) as jobs, array_agg(e.run_lease) as leases
        from held e) h
  cross join (select array_agg(u.batch_id) as ids, array_agg(u.idx) as idx, array_agg(u.job_id) as jobs,
                     array_agg(u.run_lease) as leases, array_agg(u.claimed_at) as at
              from busy u) b;
  done_to := least(done_to, v_first - 1);
  rescued := case when v_ids is null then 0 else {{schema}}.end_abandoned_{{segment}}(v_now, v_stale, v_ids, v_idx, v_jobs, v_leases) end;
  if v_busy_ids is not null then
    insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at)
    select u.job_id, u.run_lease, {{segment}}, u.batch_id, u.idx, u.claimed_at
    from unnest(v_busy_ids, v_busy_idx, v_busy_jobs, v_busy_leases, v_busy_at) as u(batch_id, idx, job_id, run_lease, claimed_at)
    order by u.job_id, u.run_lease
    on conflict (job_id, run_lease) do nothing;
  end if;
end $$;
{{/segments}}

-- p_beaten: whether to look at the attempts that were beaten for as well, and at the deadlines of young ones. That is one pass over
-- attempt_state, dead rows included, and over the claims of a staleness, so a caller that ticks often asks for it every few seconds only.
create or replace function {{schema}}.rescue_stale(p_staleness interval, p_limit integer, p_beaten boolean default true) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  v_segment  record;
  v_answer   record;
  v_ids      bigint[];
  v_idx      integer[];
  v_jobs     bigint[];
  v_leases   bigint[];
  v_at       timestamptz[];
  v_slots    integer[];
  v_rescued  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  if p_beaten then
    -- By position: in the order of the file, whatever is dead in it. Its indexes would be walked entry by entry.
    select array_agg(s.claim_slot & 255), array_agg(s.batch_id), array_agg(s.batch_index), array_agg(s.job_id),
           array_agg(s.run_lease), array_agg(s.heartbeat_at)
    into v_slots, v_ids, v_idx, v_jobs, v_leases, v_at
    from {{schema}}.attempt_state s where s.ctid >= '(0,0)';
  end if;
  for v_segment in
    select g.slot, g.rescued_to, case when p_beaten then coalesce(b.ids, '{}') end as ids, b.idx, b.jobs, b.leases, b.at
    from {{schema}}.segments g
    left join (
      select u.slot, array_agg(u.batch_id) as ids, array_agg(u.idx) as idx, array_agg(u.job_id) as jobs,
             array_agg(u.run_lease) as leases, array_agg(u.at) as at
      from unnest(v_slots, v_ids, v_idx, v_jobs, v_leases, v_at) as u(slot, batch_id, idx, job_id, run_lease, at)
      group by u.slot) b on b.slot = g.slot
    where g.state <> 'free'
    order by g.slot  -- as a flush comes to them, or they could wait for each other
  loop
    case v_segment.slot
      {{#segments}}
      when {{segment}} then
        select * into v_answer from {{schema}}.rescue_{{segment}}(p_staleness, p_limit - v_rescued, v_segment.rescued_to,
          v_segment.ids, v_segment.idx, v_segment.jobs, v_segment.leases, v_segment.at);
      {{/segments}}
    end case;
    v_rescued := v_rescued + v_answer.rescued;
    if v_answer.done_to > v_segment.rescued_to then
      update {{schema}}.segments s set rescued_to = v_answer.done_to where s.slot = v_segment.slot;
    end if;
    exit when v_rescued >= p_limit;
  end loop;
  return v_rescued;
end $$;

-- Attempts whose lock somebody holds, and who: mostly the transaction that completes them, open (pid) or prepared and forgotten
-- (gid). Rescue leaves them alone for as long as that lasts. Of the attempts in the ring those that were beaten for, or that
-- rescue came to and took note of.
create or replace function {{schema}}.attempt_locks()
returns table (job_id bigint, run_lease bigint, segment smallint, pid integer, gid text, since timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    with known as materialized (
      select k.job_id, k.run_lease, k.segment, hashtextextended({{key attempt}} || k.job_id || '/' || k.run_lease, 0) as key
      from (
        select s.job_id, s.run_lease, (s.claim_slot & 255)::smallint as segment from {{schema}}.attempt_state s
        union all
        select l.job_id, l.run_lease, null from {{schema}}.leases l) k
    ), lock as materialized (
      select l.*, (l.classid::bigint << 32) | l.objid::bigint as key from pg_locks l
    )
    select k.job_id, k.run_lease, k.segment, l.pid, p.gid, coalesce(a.xact_start, p.prepared)
    from known k
    join lock l on l.key = k.key
    left join pg_stat_activity a on a.pid = l.pid
    left join lock t on l.pid is null and t.pid is null and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      and t.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
    order by k.job_id, k.run_lease;
end $$;

-- The same with what only the asking role may see of other sessions: since when their transactions are open.
create or replace function {{schema}}.held_attempts()
returns table (job_id bigint, run_lease bigint, segment smallint, pid integer, gid text, since timestamptz)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select h.job_id, h.run_lease, h.segment, h.pid, h.gid, coalesce(h.since, a.xact_start)
  from {{schema}}.attempt_locks() h left join pg_stat_activity a on a.pid = h.pid order by h.job_id, h.run_lease
$$;
