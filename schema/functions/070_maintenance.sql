-- Maintenance. Every step takes the leader's lock in the try form for its own transaction: one runtime at a time does the
-- work, and none can go on believing that it is the leader. A step that is not the leader's answers null.

create or replace function {{schema}}.lead() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(hashtextextended({{key leader}}, 0)) $$;

-- Moves jobs from deferred_jobs into the current segment: the named ones, or those that are due, oldest first.
{{#segments}}
create or replace function {{schema}}.promote_{{segment}}(p_job_ids bigint[], p_limit integer) returns text[]
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();  -- a volatile call in the condition would walk the whole index
  v_rows   tid[];
  v_queues text[];
begin
  if p_job_ids is null then
    v_rows := array(
      select d.ctid from {{schema}}.deferred_jobs d where d.run_at <= v_now
      order by d.run_at, d.job_id limit p_limit for update skip locked);
  else
    v_rows := array(
      select d.ctid from unnest(p_job_ids) as i(job_id)
      cross join lateral (
        select j.ctid from {{schema}}.deferred_jobs j where j.job_id = i.job_id for update skip locked) d);
  end if;
  with moved as (  -- where they are: no join whose plan could depend on the table's size
    delete from {{schema}}.deferred_jobs d where d.ctid = any (v_rows)
    returning d.*
  ), placed as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors)
    select m.queue, m.priority, pg_current_xact_id(), nextval({{schema_text entry_seq}}), m.job_id, m.run_lease, m.attempt,
           m.max_attempts, m.created_at, m.kind, m.args, m.progress, m.errors
    from (select * from moved order by run_at, job_id) m
    returning queue
  )
  select array_agg(queue) into v_queues from placed;
  return coalesce(v_queues, '{}');
end $$;
{{/segments}}

create or replace function {{schema}}.promote_jobs(p_job_ids bigint[], p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_slot   integer := {{schema}}.hold_current_segment();
  v_queues text[];
begin
  case v_slot
    {{#segments}}
    when {{segment}} then v_queues := {{schema}}.promote_{{segment}}(p_job_ids, p_limit);
    {{/segments}}
  end case;
  perform pg_notify({{channel}}, q) from (select distinct unnest(v_queues) as q) s;
  return cardinality(v_queues);
end $$;

-- Promotes what is due. Answers how many, and how long until the next one is due (null: none waits).
create or replace function {{schema}}.promote_due(p_limit integer, out promoted integer, out next_due_ms bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return;
  end if;
  promoted := 0;
  if exists (select from {{schema}}.deferred_jobs d where d.run_at <= v_now) then
    promoted := {{schema}}.promote_jobs(null, p_limit);
  end if;
  select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000))::bigint into next_due_ms
  from {{schema}}.deferred_jobs d order by d.run_at limit 1;
end $$;

-- Ends attempts that nobody beats for, or that passed their deadline. An attempt whose lock somebody holds is in the middle of
-- a finalization and is left alone. The crash counts as an attempt.
-- Every attempt is looked at once, when its claim reaches the staleness: by then it is closed, or has an attempt_state row (and
-- is found by that row from then on), or is rescued here. The mark moves over what was looked at, so neither settled history
-- nor a long attempt in the middle of it is walked again.
{{#segments}}
create or replace function {{schema}}.rescue_{{segment}}(p_staleness interval, p_limit integer, p_from bigint, out rescued integer, out done_to bigint)
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_stale  timestamptz := v_now - p_staleness;
  v_first  bigint;
  v_ids    bigint[];
  v_idx    integer[];
  v_jobs   bigint[];
  v_leases bigint[];
  v_detail jsonb[];
  v_rows   tid[];
begin
  select coalesce(max(b.batch_id), p_from) into done_to
  from {{schema}}.claim_batches_{{segment}} b where b.batch_id > p_from and b.claimed_at < v_stale;

  with unbeaten as materialized (  -- after a mass crash some: more than are rescued here, so the mark cannot pass the rest
    select b.batch_id, t.idx::integer, t.job_id, t.run_lease
    from (
      select c.batch_id, c.job_ids, c.run_leases from {{schema}}.claim_batches_{{segment}} c
      where c.batch_id > p_from and (c.claimed_at < v_stale or c.deadline_at < v_now)
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
    select s.batch_id, s.batch_index, s.job_id, s.run_lease, s.progress
    from {{schema}}.attempt_state s
    cross join lateral (
      select b.deadline_at from {{schema}}.claim_batches_{{segment}} b where b.batch_id = s.batch_id offset 0) b
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
    where s.claim_slot & 255 = {{segment}} and (s.heartbeat_at < v_stale or b.deadline_at < v_now) and c.found is null
  ), held as materialized (
    select o.* from (
      select u.batch_id, u.idx, u.job_id, u.run_lease, null::jsonb as progress from unbeaten u
      union all select * from beaten
      order by 1, 2 offset 0) o
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || o.job_id || '/' || o.run_lease, 0))
    limit p_limit
  ), closed as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
    select h.batch_id, h.idx, 'rescued', v_now, pg_current_xact_id(), h.progress from held h order by h.batch_id, h.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  ), ended as materialized (
    select h.* from closed c join held h on h.batch_id = c.batch_id and h.idx = c.batch_index
  )
  select array_agg(e.batch_id), array_agg(e.idx), array_agg(e.job_id), array_agg(e.run_lease),
         array_agg(jsonb_build_object(
             'error', jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline'))
           || case when e.progress is null then '{}' else jsonb_build_object('progress', e.progress) end),
         (select min(u.batch_id) from unbeaten u
          where not exists (select from ended e where e.batch_id = u.batch_id and e.idx = u.idx))
  into v_ids, v_idx, v_jobs, v_leases, v_detail, v_first
  from ended e;
  done_to := least(done_to, v_first - 1);
  rescued := coalesce(cardinality(v_ids), 0);
  if rescued = 0 then
    return;
  end if;
  perform {{schema}}.dispose_{{segment}}(v_ids, v_idx, array_fill('rescued'::{{schema}}.outcome, array[rescued]), v_detail);
  v_rows := array(
    select s.ctid from unnest(v_jobs, v_leases) as u(job_id, run_lease)
    cross join lateral (
      select a.ctid from {{schema}}.attempt_state a
      where a.job_id = u.job_id and a.run_lease = u.run_lease for update) s);
  delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
end $$;
{{/segments}}

create or replace function {{schema}}.rescue_stale(p_staleness interval, p_limit integer) returns integer
language plpgsql volatile
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
  v_rescued  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  for v_segment in
    select s.slot, s.rescued_to from {{schema}}.segments s where s.state <> 'free'
    order by s.slot  -- as a flush comes to them, or they could wait for each other
  loop
    case v_segment.slot
      {{#segments}}
      when {{segment}} then
        select * into v_answer from {{schema}}.rescue_{{segment}}(p_staleness, p_limit - v_rescued, v_segment.rescued_to);
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

-- Rotation, one step a call, repeatable after a crash between any two: (1) a slot is committed as readable, (2) in a later
-- transaction the cursor moves to it, (3) older open slots are sealed. Answers what it did.
create or replace function {{schema}}.rotate(p_max_age interval, p_max_entries bigint) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_value    bigint;
  v_current  record;
  v_next     record;
  v_seq      bigint;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select last_value into v_value from {{schema}}.segment_cursor;
  select s.slot, s.generation into v_next from {{schema}}.segments s
  where s.state = 'open' and s.generation * {{ring}} + s.slot > v_value order by s.generation desc limit 1;
  if found then
    perform setval({{schema_text segment_cursor}}, v_next.generation * {{ring}} + v_next.slot);
    update {{schema}}.segments s set state = 'sealed', sealed_at = clock_timestamp()
    where s.state = 'open' and s.generation < v_next.generation;
    return 'advanced';
  end if;
  update {{schema}}.segments s set state = 'sealed', sealed_at = clock_timestamp()
  where s.state = 'open' and s.slot <> v_value % {{ring}};

  select last_value into v_seq from {{schema}}.entry_seq;
  select s.* into v_current from {{schema}}.segments s where s.slot = v_value % {{ring}};
  if v_seq <= v_current.opened_seq
     or (v_current.opened_at > clock_timestamp() - p_max_age and v_seq - v_current.opened_seq < p_max_entries) then
    return 'idle';
  end if;
  select s.slot into v_next from {{schema}}.segments s
  where s.state = 'free' order by (s.slot - v_current.slot + {{ring}}) % {{ring}} limit 1;
  if not found then
    return 'full';  -- the current segment grows until one is free; nothing fails and nothing waits
  end if;
  update {{schema}}.segments s
  set state = 'open', generation = v_current.generation + 1, opened_seq = v_seq, rescued_to = 0,
      opened_at = clock_timestamp(), sealed_at = null, drained_at = null
  where s.slot = v_next.slot;
  return 'opened';
end $$;

-- A sealed segment is drained once, for good, when no writer is in flight in it and every entry is claimed.
{{#segments}}
create or replace function {{schema}}.is_drained_{{segment}}() returns boolean
language plpgsql volatile as $$
begin
  return not exists (
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select from lane l
    left join lateral (
      select b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where b.queue = l.queue and b.priority = l.priority order by b.batch_id desc limit 1) b on true
    where b.cursor_xid is null
       or exists (select from {{schema}}.ready_entries_{{segment}} r
                  where r.queue = l.queue and r.priority = l.priority and (r.xid, r.seq) > (b.cursor_xid, b.cursor_seq))
       or exists (select from unnest(b.pending_xids, b.pending_seqs) as p(xid, seq)
                  cross join lateral (
                    select from {{schema}}.ready_entries_{{segment}} r
                    where r.queue = l.queue and r.priority = l.priority and r.xid = p.xid and r.seq > p.seq limit 1) r));
end $$;
{{/segments}}

create or replace function {{schema}}.drain_segments() returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_slot     smallint;
  v_value    bigint;
  v_drained  boolean;
  v_count    integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  for v_slot in select s.slot from {{schema}}.segments s where s.state = 'sealed' order by s.generation loop
    if not pg_try_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0)) then
      continue;  -- a transaction that enqueued here is still open
    end if;
    select last_value into v_value from {{schema}}.segment_cursor;
    if v_value % {{ring}} = v_slot then
      continue;
    end if;
    case v_slot  -- a statement of its own, so that its snapshot comes after the lock
      {{#segments}}
      when {{segment}} then v_drained := {{schema}}.is_drained_{{segment}}();
      {{/segments}}
    end case;
    if v_drained then
      -- Its claims are all committed now, and the mark may have passed one that committed late: look at all of them again, once.
      update {{schema}}.segments s set state = 'drained', drained_at = clock_timestamp(), rescued_to = 0 where s.slot = v_slot;
      v_count := v_count + 1;
    end if;
  end loop;
  return v_count;
end $$;

-- Truncates the oldest drained segment once its history has lived its time. Gives up quietly (55P03 is the caller's to
-- expect) when anything holds a lock on its tables.
{{#segments}}
create or replace function {{schema}}.is_prunable_{{segment}}(p_keep interval) returns boolean
language sql volatile as $$
  select not exists (
    select from {{schema}}.claim_batches_{{segment}} b cross join lateral generate_series(1, b.n) i
    where not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i)
  ) and coalesce((select max(c.closed_at) < clock_timestamp() - p_keep from {{schema}}.closures_{{segment}} c), true)
$$;

create or replace function {{schema}}.prune_{{segment}}(p_keep interval) returns boolean
language plpgsql volatile as $$
begin
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  -- in the order in which everybody else comes to them
  lock table {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}}, {{schema}}.ready_entries_{{segment}}
    in access exclusive mode;
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  truncate {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}};
  return true;
end $$;
{{/segments}}

create or replace function {{schema}}.prune_segment(p_keep interval) returns smallint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_oldest  record;
  v_pruned  boolean;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select s.slot, s.drained_at into v_oldest from {{schema}}.segments s where s.state = 'drained' order by s.generation limit 1;
  -- Cheap answers first: the proof reads the whole segment, and this is asked at every tick.
  if not found or v_oldest.drained_at > clock_timestamp() - p_keep
     or exists (select from {{schema}}.attempt_state a where a.claim_slot & 255 = v_oldest.slot) then
    return null;
  end if;
  perform set_config('lock_timeout', '100ms', true);
  case v_oldest.slot
    {{#segments}}
    when {{segment}} then v_pruned := {{schema}}.prune_{{segment}}(p_keep);
    {{/segments}}
  end case;
  if not v_pruned then
    return null;
  end if;
  update {{schema}}.segments s set state = 'free' where s.slot = v_oldest.slot;
  return v_oldest.slot;
end $$;

-- Rows that nobody will come back for: the state of attempts that are closed, and runtimes silent for a day.
create or replace function {{schema}}.sweep(p_runtime_silence interval) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_rows   integer;
  v_total  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  {{#segments}}
  delete from {{schema}}.attempt_state s
  where s.claim_slot & 255 = {{segment}}
    and (exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = s.batch_id and c.batch_index = s.batch_index)
         or not exists (select from {{schema}}.claim_batches_{{segment}} b where b.batch_id = s.batch_id));
  get diagnostics v_rows = row_count;
  v_total := v_total + v_rows;
  {{/segments}}
  delete from {{schema}}.runtimes r where r.beat_at < clock_timestamp() - p_runtime_silence;
  get diagnostics v_rows = row_count;
  return v_total + v_rows;
end $$;
