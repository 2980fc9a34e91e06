-- The ring's turning: rotate, spill, drain, prune; and what keeps it from turning.

-- How long what became of an attempt must be kept for those that may still ask: the longest that any runtime says of its
-- reconciliation budget, staleness and watchers together. The runtimes that lead hand the greater of this and their history's
-- minimum to the functions below. A runtime that fell silent is asked for as long as its row is there.
create or replace function {{schema}}.evidence_keep() returns interval
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  -- whatever was written there: a number of the wrong size must not stop maintenance
  select trunc(greatest(0, least(coalesce(max((r.capabilities #>> '{maintenance,evidenceMillis}')::numeric), 0), 259200000)))::float8
         * interval '1 millisecond'
  from {{schema}}.runtimes r where jsonb_typeof(r.capabilities #> '{maintenance,evidenceMillis}') = 'number'
$$;

-- Rotation, one step a call, repeatable after a crash between any two: (1) a slot is committed as readable, (2) in a later
-- transaction the cursor moves to it, (3) older open slots are sealed. Answers what it did.
-- By size only while the free slots last: at the pace of the current segment they must cover the time until the oldest
-- history may be pruned, or a burst of work would shorten it to nothing and then fill the ring.
create or replace function {{schema}}.rotate(p_max_age interval, p_max_entries bigint, p_keep interval default '0') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_value    bigint;
  v_current  record;
  v_next     record;
  v_seq      bigint;
  v_age      interval;
  v_free     integer;
  v_wait     interval;
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
  v_age := clock_timestamp() - v_current.opened_at;
  if v_seq <= v_current.opened_seq or (v_age < p_max_age and v_seq - v_current.opened_seq < p_max_entries) then
    return 'idle';
  end if;
  if v_age < p_max_age then
    select count(*) filter (where s.state = 'free'),
           coalesce(min(s.drained_at) filter (where s.state = 'drained') + p_keep - clock_timestamp(), p_keep)
    into v_free, v_wait from {{schema}}.segments s;
    if (v_free - 1) * v_age < v_wait then
      return 'idle';
    end if;
  end if;
  select s.slot into v_next from {{schema}}.segments s
  where s.state = 'free' order by (s.slot - v_current.slot + {{ring}}) % {{ring}} limit 1;
  if not found then
    return 'full';  -- the current segment grows until one is free; nothing fails and nothing waits
  end if;
  delete from {{schema}}.segment_lanes l where l.slot = v_next.slot;
  update {{schema}}.segments s
  set state = 'open', generation = v_current.generation + 1, opened_seq = v_seq, rescued_to = 0,
      opened_at = clock_timestamp(), sealed_at = null, drained_at = null
  where s.slot = v_next.slot;
  return 'opened';
end $$;

-- Unclaimed entries that would keep the oldest segment in the ring move to their lane's head: a paused queue, or one that
-- nobody serves. It is a claim without attempts: read in the lane's order under its lock, and passed by the cursor of a batch
-- of no items that lists what was moved.
{{#segments}}
create or replace function {{schema}}.spill_{{segment}}(p_queue text, p_priority smallint, p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_read   record;
  v_first  bigint;
  v_last   bigint;
begin
  select * into v_read from {{schema}}.read_lane_{{segment}}(p_queue, p_priority, p_limit, null, 0, null);
  if not v_read.o_moved then
    return 0;
  end if;
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, runtime_id, n, cursor_xid, cursor_seq, pending_xids, pending_seqs,
     job_ids, run_leases, xids, seqs)
  values (nextval({{schema_text batch_seq}}), p_queue, p_priority, 0, clock_timestamp(), 0, 0, v_read.o_cursor_xid, v_read.o_cursor_seq,
     v_read.o_pending_xids, v_read.o_pending_seqs, v_read.o_job_ids, '{}', v_read.o_xids, v_read.o_seqs);
  if cardinality(v_read.o_seqs) = 0 then
    return 0;
  end if;
  with moved as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select m.queue, m.priority, nextval({{schema_text spill_positions}}), m.job_id, m.run_lease, m.attempt, m.max_attempts, m.created_at,
           m.kind, m.args, m.progress, m.errors, m.ready_at, m.unique_key, m.callback_result
    from (
      select e.* from unnest(v_read.o_xids, v_read.o_seqs) with ordinality as u(x, s, i)
      cross join lateral (
        select r.* from {{schema}}.ready_entries_{{segment}} r
        where r.queue = p_queue and r.priority = p_priority and r.xid = u.x and r.seq = u.s offset 0) e
      order by u.i) m
    returning position
  )
  select min(position) - 1, max(position) into v_first, v_last from moved;
  insert into {{schema}}.spill_heads as h (queue, priority, first_position, last_position)
  values (p_queue, p_priority, v_first, v_last)
  on conflict (queue, priority) do update set last_position = excluded.last_position;
  return cardinality(v_read.o_seqs);
end $$;

create or replace function {{schema}}.spill_lanes_{{segment}}(p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_lane   record;
  v_moved  integer := 0;
begin
  for v_lane in
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select w.queue, w.priority from lane w where w.priority > 0
  loop
    if pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_lane.priority || '/' || v_lane.queue, 0)) then
      v_moved := v_moved + {{schema}}.spill_{{segment}}(v_lane.queue, v_lane.priority, p_limit - v_moved);
      exit when v_moved >= p_limit;
    end if;
  end loop;
  return v_moved;
end $$;
{{/segments}}

-- Spills from the oldest segment that is not drained, while no more than a quarter of the ring is free. Answers how many
-- entries moved; a full p_limit says that there are more.
create or replace function {{schema}}.spill_oldest(p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_slot   smallint;
  v_moved  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  if (select count(*) from {{schema}}.segments s where s.state = 'free') * 4 > {{ring}} then
    return 0;
  end if;
  select s.slot into v_slot from {{schema}}.segments s where s.state in ('sealed', 'open') order by s.generation limit 1;
  if v_slot = (select last_value % {{ring}} from {{schema}}.segment_cursor) then
    return 0;
  end if;
  case v_slot
    {{#segments}}
    when {{segment}} then v_moved := {{schema}}.spill_lanes_{{segment}}(p_limit);
    {{/segments}}
  end case;
  return v_moved;
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
    select from (select w.queue, w.priority from lane w where w.priority > 0 offset 0) l  -- the others are copies, claimed as they came
    left join lateral (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (l.queue, l.priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
      on b.queue = l.queue and b.priority = l.priority
    where exists (select from {{schema}}.ready_entries_{{segment}} r
                  where r.queue = l.queue and r.priority = l.priority
                    and (r.xid, r.seq) > (coalesce(b.cursor_xid, '0'::xid8), coalesce(b.cursor_seq, 0))
                    and not exists (
                      select from {{schema}}.ready_tombstones_{{segment}} t
                      where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq))
       or exists (select from unnest(b.pending_xids, b.pending_seqs) as p(xid, seq)
                  cross join lateral (
                    select from {{schema}}.ready_entries_{{segment}} r
                    where r.queue = l.queue and r.priority = l.priority and r.xid = p.xid and r.seq > p.seq
                      and not exists (
                        select from {{schema}}.ready_tombstones_{{segment}} t
                        where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq)
                    limit 1) r));
end $$;

-- The lanes of a segment, as segment_lanes has them; null when they are too many to be read by every claim.
create or replace function {{schema}}.lanes_held_{{segment}}() returns jsonb
language plpgsql volatile as $$
begin
  return (
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select case when sum(q.n) < 200 then coalesce(jsonb_object_agg(q.queue, q.mask) filter (where q.mask > 0), '{}') end
    from (
      select l.queue, count(*) as n, coalesce(bit_or(1 << (l.priority - 1)) filter (where l.priority > 0), 0) as mask
      from (select w.queue, w.priority from lane w limit 200) l group by l.queue) q);
end $$;
{{/segments}}

create or replace function {{schema}}.drain_segments() returns integer
language plpgsql volatile security definer
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
  v_lanes    jsonb;
  v_count    integer := 0;
  v_head     record;
  v_position bigint;
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
      -- Claims look no longer here for how far a lane's head was read.
      for v_head in select h.queue, h.priority, h.first_position from {{schema}}.spill_heads h order by h.queue, h.priority loop
        case v_slot
          {{#segments}}
          when {{segment}} then v_position := {{schema}}.spilled_to_{{segment}}(v_head.queue, v_head.priority);
          {{/segments}}
        end case;
        if v_position > v_head.first_position then
          update {{schema}}.spill_heads h set first_position = v_position
          where h.queue = v_head.queue and h.priority = v_head.priority and h.first_position < v_position;
        end if;
      end loop;
      delete from {{schema}}.spill_heads h where h.first_position >= h.last_position;  -- a claim looks for it no more
    elsif not exists (select from {{schema}}.segment_lanes l where l.slot = v_slot) then
      -- Nobody can add to it, so claims need not look here for a lane that it does not have: a backlog stands in many segments.
      case v_slot
        {{#segments}}
        when {{segment}} then v_lanes := {{schema}}.lanes_held_{{segment}}();
        {{/segments}}
      end case;
      if pg_column_size(v_lanes) <= 4096 then  -- more than that, and reading about them costs more than looking
        insert into {{schema}}.segment_lanes (slot, lanes) values (v_slot, v_lanes) on conflict (slot) do nothing;
      end if;
    end if;
  end loop;
  return v_count;
end $$;

-- Truncates the oldest drained segment once its history has lived its time. Gives up quietly (55P03 is the caller's to
-- expect) when anything holds a lock on its tables.
{{#segments}}
-- Counted batch by batch over the closures' own key, whose every entry belongs to an item: exact, and one range of the index
-- a batch. A join of items and closures was quadratic in the size of a batch.
create or replace function {{schema}}.is_prunable_{{segment}}(p_keep interval) returns boolean
language plpgsql volatile as $$
begin
  if exists (select from {{schema}}.closures_{{segment}} c
             where c.closed_at > clock_timestamp() - p_keep
               and c.outcome <> 'materialized') then  -- what became of those is told elsewhere
    return false;
  end if;
  return not exists (
    select from {{schema}}.claim_batches_{{segment}} b
    cross join lateral (
      select count(*) as n from {{schema}}.closures_{{segment}} c
      where c.batch_id = b.batch_id and c.batch_index between 1 and b.n offset 0) c
    where c.n < b.n);
end $$;

create or replace function {{schema}}.prune_{{segment}}(p_keep interval) returns boolean
language plpgsql volatile as $$
begin
  -- A cheap answer first: an attempt that is beaten for is open, unless its close and a beat passed each other.
  if exists (
    select from {{schema}}.attempt_state a
    cross join lateral (
      select true as found from {{schema}}.claim_batches_{{segment}} b where b.batch_id = a.batch_id offset 0) b
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = a.batch_id and c.batch_index = a.batch_index offset 0) c on true
    where a.claim_slot & 255 = {{segment}} and c.found is null)
  then
    return false;
  end if;
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  -- in the order in which everybody else comes to them: a caller promises before it completes
  lock table {{schema}}.expected_completions_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
    {{schema}}.ready_entries_{{segment}}, {{schema}}.ready_tombstones_{{segment}} in access exclusive mode;
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  truncate {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
    {{schema}}.ready_tombstones_{{segment}}, {{schema}}.expected_completions_{{segment}};
  -- What a beat left behind of an attempt that was being closed. None can come any more: a beat reads the claim first.
  delete from {{schema}}.attempt_state a where a.claim_slot & 255 = {{segment}};
  return true;
end $$;
{{/segments}}

create or replace function {{schema}}.prune_segment(p_keep interval) returns smallint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_memoize = off
set enable_hashjoin = off
set enable_mergejoin = off
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
  if not found or v_oldest.drained_at > clock_timestamp() - p_keep then
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

-- Who keeps the oldest segment in the ring, and why. For operators and health; no hot path asks.
--   writer: a transaction that enqueued there is still open (pid, or gid when it is prepared)
--   unclaimed: a lane has entries that nobody claimed; running: attempts are open
--   finalization: a transaction that ends an attempt here is open (pid, or gid when it is prepared)
--   history: completed history is younger than its minimum; lock: a session holds a lock on the segment's tables
{{#segments}}
create or replace function {{schema}}.blockers_{{segment}}(p_keep interval)
returns table (reason text, queue text, priority smallint, pid integer, gid text, since timestamptz, detail text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_key bigint := hashtextextended({{key segment}} || {{segment}}::text, 0);
begin
  return query
    select 'writer', null::text, null::smallint, l.pid, p.gid, coalesce(a.xact_start, p.prepared),
           case when p.gid is not null then 'a prepared transaction enqueued here' else 'a transaction that enqueued here is open' end
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_locks t on l.pid is null and t.pid is null and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      and t.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    where l.locktype = 'advisory' and l.objsubid = 1 and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid::bigint = (v_key >> 32) & 4294967295 and l.objid::bigint = v_key & 4294967295
      and l.mode = 'ShareLock' and l.granted;
  return query
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select 'unclaimed', l.queue, l.priority, null::integer, null::text, h.head_at, 'entries that nobody has claimed'
    from lane l cross join lateral {{schema}}.lanes_{{segment}}(l.queue, array[l.priority::integer]) h
    where l.priority > 0
    limit 100;
  return query
    select 'running', b.queue, abs(b.priority), null::integer, null::text, min(b.claimed_at), count(*) || ' attempts are open'
    from {{schema}}.claim_batches_{{segment}} b cross join lateral generate_series(1, b.n) i
    where not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i)
    group by b.queue, abs(b.priority);
  return query
    select 'finalization', null::text, null::smallint, h.pid, h.gid, h.since,
           format('holds the attempt of job %s, run lease %s', h.job_id, h.run_lease)
    from {{schema}}.attempt_locks() h where h.segment = {{segment}} limit 100;
  return query
    select 'history', null::text, null::smallint, null::integer, null::text, m.at, 'completed history is kept until ' || (m.at + p_keep)
    from (select max(c.closed_at) as at from {{schema}}.closures_{{segment}} c where c.outcome <> 'materialized') m
    where m.at > clock_timestamp() - p_keep;
  return query
    select 'lock', null::text, null::smallint, l.pid, p.gid, min(coalesce(a.xact_start, p.prepared)),
           string_agg(distinct l.mode, ', ') || ' on ' || string_agg(distinct l.relation::regclass::text, ', ')
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_locks t on l.pid is null and t.pid is null and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      and t.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.relation in ({{schema_text ready_entries_{{segment}}}}::regclass, {{schema_text claim_batches_{{segment}}}}::regclass,
        {{schema_text closures_{{segment}}}}::regclass, {{schema_text ready_tombstones_{{segment}}}}::regclass,
        {{schema_text expected_completions_{{segment}}}}::regclass)
      and exists (select from {{schema}}.segments s where s.slot = {{segment}} and s.state = 'drained')  -- before, it is in nobody's way
    group by l.pid, p.gid;
end $$;
{{/segments}}

create or replace function {{schema}}.ring_held(p_keep interval)
returns table (slot smallint, generation bigint, state text, reason text, queue text, priority smallint, pid integer, gid text,
  since timestamptz, detail text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_oldest record;
begin
  select s.slot, s.generation, s.state into v_oldest from {{schema}}.segments s
  where s.state in ('sealed', 'drained') order by s.generation limit 1;
  if not found then
    return;
  end if;
  case v_oldest.slot
    {{#segments}}
    when {{segment}} then
      return query select v_oldest.slot, v_oldest.generation, v_oldest.state, b.* from {{schema}}.blockers_{{segment}}(p_keep) b;
    {{/segments}}
  end case;
end $$;

-- The same with what only the asking role may see of other sessions: since when their transactions are open, and their state.
create or replace function {{schema}}.ring_blockers(p_keep interval)
returns table (slot smallint, generation bigint, state text, reason text, queue text, priority smallint, pid integer, gid text,
  since timestamptz, detail text)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select h.slot, h.generation, h.state, h.reason, h.queue, h.priority, h.pid, h.gid, coalesce(h.since, a.xact_start),
         case when h.reason = 'writer' and a.state is not null then h.detail || ': ' || a.state else h.detail end
  from {{schema}}.ring_held(p_keep) h left join pg_stat_activity a on a.pid = h.pid
$$;
