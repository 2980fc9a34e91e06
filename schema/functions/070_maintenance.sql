-- Maintenance. Every step takes the leader's lock in the try form for its own transaction: one runtime at a time does the
-- work, and none can go on believing that it is the leader. A step that is not the leader's answers null.

create or replace function {{schema}}.lead() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(hashtextextended({{key leader}}, 0)) $$;

-- Moves jobs from deferred_jobs into the current segment: the named ones, or those that are due, oldest first.
{{#segments}}
create or replace function {{schema}}.promote_{{segment}}(p_job_ids bigint[], p_limit integer) returns text[]
language plpgsql volatile as $$
declare
  v_queues text[];
begin
  with due as materialized (
    select d.job_id from {{schema}}.deferred_jobs d
    where p_job_ids is null and d.run_at <= clock_timestamp()
    order by d.run_at, d.job_id limit p_limit
    for update skip locked
  ), named as materialized (
    select d.job_id from unnest(p_job_ids) i(job_id) join {{schema}}.deferred_jobs d on d.job_id = i.job_id
    for update of d skip locked
  ), moved as (
    delete from {{schema}}.deferred_jobs d
    using (select job_id from due union all select job_id from named) m
    where d.job_id = m.job_id
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
as $$
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return;
  end if;
  promoted := 0;
  if exists (select from {{schema}}.deferred_jobs d where d.run_at <= clock_timestamp()) then
    promoted := {{schema}}.promote_jobs(null, p_limit);
  end if;
  select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000))::bigint into next_due_ms
  from {{schema}}.deferred_jobs d order by d.run_at limit 1;
end $$;

-- Ends attempts that nobody beats for, or that passed their deadline. An attempt whose lock somebody holds is in the middle of
-- a finalization and is left alone. The crash counts as an attempt; the pause before the next one doubles from zero.
{{#segments}}
create or replace function {{schema}}.rescue_{{segment}}(p_staleness interval, p_limit integer, p_from bigint, out rescued integer, out done_to bigint)
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_open   record;
  v_ids    bigint[];
  v_idx    integer[];
begin
  rescued := 0;
  -- Settled history is not walked again: the mark moves over old batches whose items are all closed.
  select coalesce(min(o.batch_id) - 1, max(o.last_id)) into done_to
  from (
    select case when exists (
             select from generate_series(1, b.n) i
             where not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i))
           then b.batch_id end as batch_id, b.batch_id as last_id
    from {{schema}}.claim_batches_{{segment}} b
    where b.batch_id > p_from and b.claimed_at < v_now - 2 * p_staleness
  ) o;
  done_to := coalesce(done_to, p_from);

  with stale as materialized (
    select b.batch_id, i.idx, t.job_id, t.run_lease
    from {{schema}}.claim_batches_{{segment}} b
    cross join lateral unnest(b.job_ids, b.run_leases) with ordinality as t(job_id, run_lease, ord)
    cross join lateral (select t.ord::integer as idx) i
    left join {{schema}}.attempt_state s on s.job_id = t.job_id and s.run_lease = t.run_lease
    where b.batch_id > done_to and (b.claimed_at < v_now - p_staleness or b.deadline_at < v_now)
      and (coalesce(s.heartbeat_at, b.claimed_at) < v_now - p_staleness or b.deadline_at < v_now)
      and not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i.idx)
    order by b.batch_id, i.idx limit p_limit
  ), held as materialized (
    select s.batch_id, s.idx from stale s
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || s.job_id || '/' || s.run_lease, 0))
  ), closed as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid)
    select h.batch_id, h.idx, 'rescued', v_now, pg_current_xact_id() from held h order by h.batch_id, h.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  )
  select array_agg(c.batch_id), array_agg(c.batch_index) into v_ids, v_idx from closed c;
  if v_ids is null then
    return;
  end if;
  rescued := cardinality(v_ids);
  perform {{schema}}.dispose_{{segment}}(v_ids, v_idx, (select array_agg('rescued'::{{schema}}.outcome) from unnest(v_ids)),
    (select array_agg(jsonb_build_object(
       'error', jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline'),
       'delay_ms', least(3600000, (power(2, least(b.entry_attempt, 12)) - 1) * 1000)::bigint)
       || case when s.progress is null then '{}' else jsonb_build_object('progress', s.progress) end order by u.ord)
     from unnest(v_ids, v_idx) with ordinality as u(batch_id, idx, ord)
     join lateral (
       select b.job_ids[u.idx] as job_id, b.run_leases[u.idx] as run_lease, e.attempt as entry_attempt
       from {{schema}}.claim_batches_{{segment}} b
       join {{schema}}.ready_entries_{{segment}} e
         on e.queue = b.queue and e.priority = b.priority and e.xid = b.xids[u.idx] and e.seq = b.seqs[u.idx]
       where b.batch_id = u.batch_id) b on true
     left join {{schema}}.attempt_state s on s.job_id = b.job_id and s.run_lease = b.run_lease));
  delete from {{schema}}.attempt_state s
  using unnest(v_ids, v_idx) as u(batch_id, idx)
  join {{schema}}.claim_batches_{{segment}} b on b.batch_id = u.batch_id
  where s.job_id = b.job_ids[u.idx] and s.run_lease = b.run_leases[u.idx];
end $$;
{{/segments}}

create or replace function {{schema}}.rescue_stale(p_staleness interval, p_limit integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
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
    select s.slot, s.rescued_to from {{schema}}.segments s where s.state <> 'free' order by s.generation
  loop
    case v_segment.slot
      {{#segments}}
      when {{segment}} then select * into v_answer from {{schema}}.rescue_{{segment}}(p_staleness, p_limit, v_segment.rescued_to);
      {{/segments}}
    end case;
    v_rescued := v_rescued + v_answer.rescued;
    if v_answer.done_to > v_segment.rescued_to then
      update {{schema}}.segments s set rescued_to = v_answer.done_to where s.slot = v_segment.slot;
    end if;
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
                  join {{schema}}.ready_entries_{{segment}} r
                    on r.queue = l.queue and r.priority = l.priority and r.xid = p.xid and r.seq > p.seq));
end $$;
{{/segments}}

create or replace function {{schema}}.drain_segments() returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
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
      update {{schema}}.segments s set state = 'drained', drained_at = clock_timestamp() where s.slot = v_slot;
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
  lock table {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}}
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
  v_slot    smallint;
  v_pruned  boolean;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select s.slot into v_slot from {{schema}}.segments s where s.state = 'drained' order by s.generation limit 1;
  if not found then
    return null;
  end if;
  perform set_config('lock_timeout', '100ms', true);
  case v_slot
    {{#segments}}
    when {{segment}} then v_pruned := {{schema}}.prune_{{segment}}(p_keep);
    {{/segments}}
  end case;
  if not v_pruned then
    return null;
  end if;
  update {{schema}}.segments s set state = 'free' where s.slot = v_slot;
  return v_slot;
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
