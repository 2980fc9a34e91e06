-- Rebase: makes what was restored or copied into this database this server's own. Everything that has to run is appended to the
-- cold heads of its lanes, whose order is a number of this server and not a transaction id; the old segments stay as history.

-- The attempts of one segment that nobody has ended.
{{#segments}}
create or replace function {{schema}}.open_attempts_{{segment}}()
returns table (batch_id bigint, batch_index integer, queue text, priority smallint, job_id bigint, run_lease bigint, xid xid8, seq bigint)
language sql stable as $$
  select b.batch_id, i.idx::integer, b.queue, b.priority, i.job_id, i.run_lease, i.xid, i.seq
  from {{schema}}.claim_batches_{{segment}} b
  cross join lateral unnest(b.job_ids, b.run_leases, b.xids, b.seqs) with ordinality as i(job_id, run_lease, xid, seq, idx)
  where b.n > 0
    and not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i.idx)
$$;

-- Moves the unclaimed entries of one segment to the heads of their lanes, in lane order, and answers how many; null when there is
-- nothing at all in the segment. Exactly those that no claim took (whatever cursors and pending lists say: their transaction ids
-- may be another server's) and that have no tombstone. They are listed in batches without attempts, as a spill lists them.
create or replace function {{schema}}.rebase_{{segment}}(p_now timestamptz) returns bigint
language plpgsql volatile as $$
declare
  v_here   bigint := pg_current_xact_id()::text::bigint;
  v_moved  bigint;
begin
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
  select a.batch_id, a.batch_index, 'released', p_now, pg_current_xact_id(), s.progress
  from {{schema}}.open_attempts_{{segment}}() a
  left join {{schema}}.attempt_state s on s.job_id = a.job_id and s.run_lease = a.run_lease;

  with taken as (
    select b.queue, b.priority, i.xid, i.seq
    from {{schema}}.claim_batches_{{segment}} b cross join lateral unnest(b.xids, b.seqs) as i(xid, seq)
    union all
    select t.queue, t.priority, t.xid, t.seq from {{schema}}.ready_tombstones_{{segment}} t
  ), left_over as materialized (
    select e.*, v_here - ((v_here - e.xmin::text::bigint) & 4294967295) as written_by
    from {{schema}}.ready_entries_{{segment}} e
    where not exists (select from taken t where t.queue = e.queue and t.priority = e.priority and t.xid = e.xid and t.seq = e.seq)
  ), restorers as (  -- who wrote rows of a transaction that this server has not had yet; the rest of those rows are as old
    select distinct l.written_by from left_over l where l.xid::text::bigint > l.written_by
  ), in_order as materialized (  -- what was enqueued here since has lower transaction ids perhaps, and comes behind
    select l.*, row_number() over (partition by l.queue, l.priority order by l.written_by not in (select r.written_by from restorers r), l.xid, l.seq) as place
    from left_over l
  ), moved as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select o.queue, abs(o.priority), nextval({{schema_text spill_positions}}), o.job_id, o.run_lease, o.attempt, o.max_attempts, o.created_at,
           o.kind, o.args, o.progress, o.errors, o.ready_at, o.unique_key, o.callback_result
    from (select * from in_order order by queue, priority, place) o
    returning 1
  ), listed as (  -- no attempts: n = 0
    insert into {{schema}}.claim_batches_{{segment}}
      (batch_id, queue, priority, receipt_base, claimed_at, runtime_id, n, cursor_xid, cursor_seq, pending_xids, pending_seqs,
       job_ids, run_leases, xids, seqs)
    select nextval({{schema_text batch_seq}}), g.queue, g.priority, 0, p_now, 0, 0, last.xid, last.seq, '{}', '{}',
           g.job_ids, '{}', g.xids, g.seqs
    from (
      select o.queue, o.priority, array_agg(o.job_id order by o.place) as job_ids, array_agg(o.xid order by o.place) as xids, array_agg(o.seq order by o.place) as seqs
      from in_order o group by o.queue, o.priority, (o.place - 1) / 10000) g
    cross join lateral (
      select e.xid, e.seq from {{schema}}.ready_entries_{{segment}} e
      where e.queue = g.queue and e.priority = g.priority order by e.xid desc, e.seq desc limit 1) last
  )
  select count(*) into v_moved from moved;
  if v_moved = 0 and not exists (select from {{schema}}.ready_entries_{{segment}})
     and not exists (select from {{schema}}.claim_batches_{{segment}}) then
    return null;
  end if;
  return v_moved;
end $$;
{{/segments}}

-- One transaction, so a crash leaves either nothing or all; only sequences have moved, and upwards. It waits, as long as the
-- session's lock_timeout says, until nobody writes, and keeps everybody out.
--
-- Refused as 55000 when it is not needed, when a subscription still writes here, and when a runtime may be at work. The rows of
-- runtimes are copied with the rest and nothing in them tells where they were written, so their age decides: a runtime that beat
-- within p_staleness, by this server's clock, may be alive. After a restore of what was dumped a moment ago that is a wait.
create or replace function {{schema}}.rebase_storage(p_staleness interval default '1 minute') returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- Nothing is known of restored tables: hash joins do not become quadratic by it.
set enable_nestloop = off
set jit = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_here       record;
  v_meta       record;
  v_fault      text;
  v_now        timestamptz;
  v_beat       record;
  v_subscriber text;
  v_error      jsonb := jsonb_build_object('name', 'DatabaseRestored', 'message', 'the attempt was open when the database was copied');
  v_released   bigint;
  v_leases     bigint;
  v_head       bigint;
  v_below      bigint;
  v_last       bigint;
  v_slot       smallint;
  v_rows       bigint;
  v_moved      bigint := 0;
  v_fresh      record;
  v_truncated  jsonb;
  v_id         uuid := gen_random_uuid();
begin
  perform {{schema}}.require_read_committed();
  -- Nobody leads, nobody enqueues (who waits for this lock looks for the current segment again), nobody else is in the tables.
  perform pg_advisory_xact_lock(hashtextextended({{key leader}}, 0));
  for v_slot in 0 .. {{ring}} - 1 loop
    perform pg_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0));
  end loop;
  lock table {{schema}}.meta, {{schema}}.segments, {{schema}}.runtimes, {{schema}}.deferred_jobs, {{schema}}.leases,
    {{schema}}.lease_closures, {{schema}}.attempt_state, {{schema}}.spill_heads, {{schema}}.spilled_entries in access exclusive mode;
  {{#segments}}
  lock table {{schema}}.expected_completions_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
    {{schema}}.ready_entries_{{segment}}, {{schema}}.ready_tombstones_{{segment}} in access exclusive mode;
  {{/segments}}

  v_fault := {{schema}}.storage_fault();
  v_now := clock_timestamp();
  select c.system_identifier, d.oid as database_oid into v_here
  from pg_control_system() c, pg_database d where d.datname = current_database();
  select m.* into v_meta from {{schema}}.meta m;
  if v_fault is null and v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    raise exception using errcode = '55000', message = 'there is nothing to rebase: what is stored is this database''s own, and fits this server';
  end if;
  select r.name, r.beat_at into v_beat from {{schema}}.runtimes r order by r.beat_at desc limit 1;
  if v_beat.beat_at > v_now - p_staleness then
    raise exception using errcode = '55000', message = format('a runtime may be at work: %s beat at %s', v_beat.name, v_beat.beat_at),
      hint = format('Stop all runtimes. The row may also have been copied: try again in %s.', v_beat.beat_at + p_staleness - v_now);
  end if;
  select s.subname into v_subscriber
  from pg_subscription s join pg_subscription_rel r on r.srsubid = s.oid join pg_class c on c.oid = r.srrelid
  where s.subenabled and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = {{schema_name}}) limit 1;
  if found then
    raise exception using errcode = '55000', message = format('the subscription %I still writes into these tables', v_subscriber),
      hint = 'Drop it, or disable it, when it has caught up.';
  end if;

  -- Sequences first: what follows draws from them.
  perform setval({{schema_text job_ids}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(r.job_id) from {{schema}}.ready_entries_{{segment}} r),
      {{/segments}}
      (select max(j.job_id) from {{schema}}.deferred_jobs j), (select max(j.job_id) from {{schema}}.terminal_jobs j),
      (select max(j.job_id) from {{schema}}.dlq_entries j), (select max(j.job_id) from {{schema}}.quarantined_jobs j),
      (select max(j.job_id) from {{schema}}.spilled_entries j), (select max(j.job_id) from {{schema}}.leases j),
      (select max(j.job_id) from {{schema}}.lease_closures j), (select max(u.job_id) from {{schema}}.unique_claims u)) as newest) s,
    {{schema}}.job_ids q where s.newest >= q.last_value;
  perform setval({{schema_text batch_seq}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(b.batch_id) from {{schema}}.claim_batches_{{segment}} b),
      {{/segments}}
      (select max(a.batch_id) from {{schema}}.attempt_state a), (select max(l.batch_id) from {{schema}}.leases l)) as newest) s,
    {{schema}}.batch_seq q where s.newest >= q.last_value;
  perform setval({{schema_text entry_seq}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(r.seq) from {{schema}}.ready_entries_{{segment}} r where r.priority > 0),
      {{/segments}}
      (select max(s.opened_seq) from {{schema}}.segments s)) as newest) s,
    {{schema}}.entry_seq q where s.newest >= q.last_value;
  perform setval({{schema_text spill_positions}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(r.seq) from {{schema}}.ready_entries_{{segment}} r where r.priority < 0),
      {{/segments}}
      (select max(e.position) from {{schema}}.spilled_entries e), (select max(h.last_position) from {{schema}}.spill_heads h)) as newest) s,
    {{schema}}.spill_positions q where s.newest >= q.last_value;
  perform setval({{schema_text runtime_ids}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(b.runtime_id) from {{schema}}.claim_batches_{{segment}} b),
      {{/segments}}
      (select max(r.runtime_id) from {{schema}}.runtimes r), (select max(l.runtime_id) from {{schema}}.leases l),
      (select max(c.runtime_id) from {{schema}}.lease_closures c)) as newest) s,
    {{schema}}.runtime_ids q where s.newest >= q.last_value;

  -- A lane's order: what had been claimed, in the order of its claims; then the head as it was; then what the ring held.
  select q.last_value - (not q.is_called)::integer into v_below from {{schema}}.spill_positions q;
  with interrupted as materialized (
    {{#segments}}
    select a.batch_id, a.batch_index, a.queue, a.priority, a.job_id, a.run_lease, e.attempt, e.max_attempts, e.created_at, e.kind, e.args,
           coalesce(s.progress, e.progress) as progress, e.errors, e.ready_at, e.unique_key, e.callback_result
    from {{schema}}.open_attempts_{{segment}}() a
    join {{schema}}.ready_entries_{{segment}} e on e.queue = a.queue and e.priority = a.priority and e.xid = a.xid and e.seq = a.seq
    left join {{schema}}.attempt_state s on s.job_id = a.job_id and s.run_lease = a.run_lease
    union all
    {{/segments}}
    -- A handler that waited for its callback is gone like any other; a parked attempt has none.
    select l.batch_id, l.batch_index, l.queue, l.priority, l.job_id, l.run_lease, l.attempt - 1, l.max_attempts, l.created_at, l.kind, l.args,
           l.progress, l.errors, null, l.unique_key,
           -- an answer that nobody will give again goes on with the job
           case when l.callback_answered and l.callback_error is null then coalesce(l.callback_result, 'null') else l.resumed_with end
    from {{schema}}.leases l where l.state <> 'parked'
  ), placed as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select i.queue, abs(i.priority), nextval({{schema_text spill_positions}}), i.job_id, i.run_lease, i.attempt, i.max_attempts, i.created_at,
           i.kind, i.args, i.progress,
           case when jsonb_array_length(coalesce(i.errors, '[]')) >= 20 then i.errors - 0 else coalesce(i.errors, '[]') end
             || jsonb_build_array(jsonb_build_object('attempt', i.attempt + 1, 'run_lease', i.run_lease, 'at', v_now, 'outcome', 'released',
                                                     'error', v_error)),
           coalesce(i.ready_at, i.created_at),
           case when get_byte(i.unique_key, 0) > 0 then i.unique_key end, i.callback_result
    from (select * from interrupted order by batch_id, batch_index) i
    returning 1
  )
  select count(*) into v_released from placed;
  with gone as (
    delete from {{schema}}.leases l where l.state <> 'parked' returning l.*
  ), ended as (
    insert into {{schema}}.lease_closures
      (job_id, run_lease, receipt_id, outcome, closed_at, xid, queue, priority, attempt, max_attempts, created_at, claimed_at, runtime_id,
       kind, args, progress, errors, callback_id, callback_result)
    select g.job_id, g.run_lease, g.receipt_id, 'released', v_now, pg_current_xact_id(), g.queue, g.priority, g.attempt, g.max_attempts,
           g.created_at, g.claimed_at, g.runtime_id, g.kind, g.args, g.progress, g.errors,
           case when g.callback_answered then g.callback_id end, case when g.callback_answered then g.callback_result end
    from gone g
    on conflict (job_id, run_lease) do nothing
    returning 1
  )
  select count(*) into v_leases from ended;
  with head as (
    delete from {{schema}}.spilled_entries e where e.position <= v_below returning e.*
  ), again as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select h.queue, h.priority, nextval({{schema_text spill_positions}}), h.job_id, h.run_lease, h.attempt, h.max_attempts, h.created_at,
           h.kind, h.args, h.progress, h.errors, h.ready_at, h.unique_key, h.callback_result
    from (select * from head order by queue, priority, position) h
    returning 1
  )
  select count(*) into v_head from again;
  for v_slot in select s.slot from {{schema}}.segments s
    order by s.state = 'free', s.generation loop  -- a free one has rows when an earlier rebase was undone: they came last
    case v_slot
      {{#segments}}
      when {{segment}} then v_rows := {{schema}}.rebase_{{segment}}(v_now);
      {{/segments}}
    end case;
    v_moved := v_moved + coalesce(v_rows, 0);
    -- Whatever state was copied: a segment that holds something is history, one that holds nothing is free.
    update {{schema}}.segments s
    set state = case when v_rows is null then 'free' else 'drained' end, rescued_to = 0,
        sealed_at = case when v_rows is not null then coalesce(s.sealed_at, v_now) end,
        drained_at = case when v_rows is not null then coalesce(s.drained_at, v_now) end
    where s.slot = v_slot;
  end loop;
  delete from {{schema}}.segment_lanes;
  delete from {{schema}}.spill_heads;
  insert into {{schema}}.spill_heads (queue, priority, first_position, last_position)
  select e.queue, e.priority, min(e.position) - 1, max(e.position) from {{schema}}.spilled_entries e group by e.queue, e.priority;

  -- The mutable rest.
  delete from {{schema}}.attempt_state;
  delete from {{schema}}.runtimes;
  update {{schema}}.deferred_jobs d set xid = '0' where d.xid >= pg_snapshot_xmin(pg_current_snapshot());

  -- A segment to go on in, of a generation above all: a free one, or else the oldest, whose history then ends here.
  select last_value into v_last from {{schema}}.segment_cursor;
  select s.slot, s.state, s.generation as old_generation, n.generation into v_fresh
  from {{schema}}.segments s,
    (select greatest(max(g.generation), v_last / {{ring}}) + 1 as generation from {{schema}}.segments g) n
  order by s.state = 'free' desc, case when s.state <> 'free' then s.generation end, (s.slot - v_last % {{ring}} + {{ring}}) % {{ring}}
  limit 1;
  if v_fresh.state <> 'free' then
    v_truncated := jsonb_build_object('segment', v_fresh.slot, 'generation', v_fresh.old_generation);
    case v_fresh.slot
      {{#segments}}
      when {{segment}} then
        truncate {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
          {{schema}}.ready_tombstones_{{segment}}, {{schema}}.expected_completions_{{segment}};
      {{/segments}}
    end case;
  end if;
  update {{schema}}.segments s
  set state = 'open', generation = v_fresh.generation, opened_seq = (select q.last_value from {{schema}}.entry_seq q), rescued_to = 0,
      opened_at = v_now, sealed_at = null, drained_at = null
  where s.slot = v_fresh.slot;
  update {{schema}}.meta m
  set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,
      system_identifier = v_here.system_identifier, database_oid = v_here.database_oid;
  -- Last: no rollback takes this back. Until COMMIT it names no open segment, which the next look at this database notices.
  perform setval({{schema_text segment_cursor}}, v_fresh.generation * {{ring}} + v_fresh.slot);
  return jsonb_build_object(
    'reason', coalesce(v_fault, 'the database is another one than the installation was made for'),
    'released', v_released, 'leases', v_leases, 'kept_in_head', v_head, 'moved', v_moved,
    'parked', (select count(*) from {{schema}}.leases),
    'segment', v_fresh.slot, 'generation', v_fresh.generation, 'truncated', v_truncated,
    'drained', (select count(*) from {{schema}}.segments s where s.state = 'drained'), 'installation_id', v_id);
end $$;
