-- Promotion: from deferred_jobs into the ring, when a job is due.
-- deferred_jobs is mutable: while some transaction pins the horizon, the index entries of what was promoted stay at the low end
-- of (run_at, job_id), and a promotion that began there would walk all of them every time. So a promoter remembers, in its own
-- memory, how far it came, and which transactions it could not see then (a mark). Without a mark it begins at the low end.

-- Moves these rows, which the caller has locked, into the current segment. Answers the queues, one for each job.
{{#segments}}
create or replace function {{schema}}.promote_{{segment}}(p_rows tid[]) returns text[]
language plpgsql volatile as $$
declare
  v_queues text[];
begin
  with moved as (  -- where they are: no join whose plan could depend on the table's size
    delete from {{schema}}.deferred_jobs d where d.ctid = any (p_rows)
    returning d.*
  ), placed as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors,
       ready_at, unique_key, callback_result)
    select m.queue, m.priority, pg_current_xact_id(), nextval({{schema_text entry_seq}}), m.job_id, m.run_lease, m.attempt,
           m.max_attempts, m.created_at, m.kind, m.args, m.progress, m.errors, m.run_at, m.unique_key, m.callback_result
    from (select * from moved order by run_at, job_id) m
    returning queue
  )
  select coalesce(array_agg(queue), '{}') into v_queues from placed;
  return v_queues;
end $$;
{{/segments}}

-- The same for whichever segment is current. Only the statements above may fail on a row: no lock is waited for here but that
-- of the segment, which the caller holds.
create or replace function {{schema}}.promote_into(p_slot integer, p_rows tid[]) returns text[]
language plpgsql volatile as $$
begin
  case p_slot
    {{#segments}}
    when {{segment}} then return {{schema}}.promote_{{segment}}(p_rows);
    {{/segments}}
  end case;
end $$;

-- Moves locked rows; one that cannot be stored in the ring goes into quarantine with the reason, and the others move. It is found
-- by halves: a subtransaction for every row of a large share would burden every snapshot of the server.
create or replace function {{schema}}.promote_rows(p_rows tid[]) returns integer
language plpgsql volatile as $$
declare
  v_slot    integer;
  v_queues  text[];
  v_reason  text;
  v_sorted  tid[];
begin
  if coalesce(cardinality(p_rows), 0) = 0 then
    return 0;
  end if;
  v_slot := {{schema}}.hold_current_segment();
  begin
    v_queues := {{schema}}.promote_into(v_slot, p_rows);
    perform pg_notify({{channel}}, q) from (select distinct unnest(v_queues) as q) s;
    return cardinality(v_queues);
  exception when others then
    if not {{schema}}.speaks_of_rows(sqlstate) then
      raise;
    end if;
    v_reason := format('%s, on its way into the ring: %s', sqlstate, left(sqlerrm, 1000));
  end;
  v_sorted := array(
    select d.ctid from {{schema}}.deferred_jobs d where d.ctid = any (p_rows) order by d.run_at, d.job_id);
  if cardinality(v_sorted) > 1 then
    return {{schema}}.promote_rows(v_sorted[:cardinality(v_sorted) / 2]) + {{schema}}.promote_rows(v_sorted[cardinality(v_sorted) / 2 + 1:]);
  end if;
  with refused as (
    delete from {{schema}}.deferred_jobs d where d.ctid = any (v_sorted) returning d.*
  )
  insert into {{schema}}.quarantined_jobs
    (job_id, run_lease, queue, priority, attempt, max_attempts, kind, args, progress, errors, created_at, unique_key, reason, quarantined_at)
  select r.job_id, r.run_lease, r.queue, r.priority, r.attempt, r.max_attempts, r.kind, r.args, r.progress, r.errors,
         r.created_at, r.unique_key, v_reason, clock_timestamp()
  from refused r;
  return 0;
end $$;

-- Moves the named jobs, due or not, into the ring at once. Answers how many: what another transaction holds is left alone.
create or replace function {{schema}}.promote_jobs(p_job_ids bigint[]) returns integer
language plpgsql volatile as $$
begin
  return {{schema}}.promote_rows(array(
    select d.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (
      select j.ctid from {{schema}}.deferred_jobs j where j.job_id = i.job_id for update skip locked) d));
end $$;

-- Makes due and moves jobs that were put aside, of this queue (null: of any), where caller-owned completion is enabled; in the
-- order of their ids, at most p_limit. Answers how many moved: what another transaction holds is left for the next call.
create or replace function {{schema}}.promote_gated(p_queue text, p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_rows  tid[];
  v_ids   bigint[];
begin
  if not exists (select from {{schema}}.deferred_jobs d where d.state = 'gated') then
    return 0;
  end if;
  v_rows := array(
    select g.tid
    from {{schema}}.queues q
    cross join lateral (
      select d.ctid as tid, d.job_id from {{schema}}.deferred_jobs d
      where d.state = 'gated' and d.queue = q.queue order by d.job_id limit p_limit for update skip locked) g
    where q.caller_owned and (p_queue is null or q.queue = p_queue)
    order by g.job_id limit p_limit);
  if cardinality(v_rows) = 0 then
    return 0;
  end if;
  with due as (
    update {{schema}}.deferred_jobs d set state = 'retryable', run_at = now.at, xid = pg_current_xact_id()
    from (select clock_timestamp() as at offset 0) now
    where d.ctid = any (v_rows)
    returning d.job_id
  )
  select array_agg(job_id) into v_ids from due;
  return {{schema}}.promote_jobs(v_ids);
end $$;

-- Where a mark is valid: in this table as it is in this run of the server. Whatever brings back rows that were gone (a restored
-- backup, a copy, another server after a failover) changes one of these.
create or replace function {{schema}}.mark_origin() returns text
language sql stable as $$
  select concat_ws('/', m.installation_id, d.oid, pg_relation_filenode({{schema_text deferred_jobs}}::regclass),
                   extract(epoch from pg_postmaster_start_time()))
  from {{schema}}.meta m, pg_database d where d.datname = current_database()
$$;

-- Promotes what is due, in the order of (run_at, job_id). Answers how many moved; how long until it pays to ask again (null: no
-- job waits; 0: more are due); and the mark for the promoter's next call, to be used when this transaction has committed.
-- A mark says: every row that its snapshot could see, and whose (run_at, job_id) is not above its position, is gone or among
-- its skipped (some other transaction held them). Whatever else is behind the position was written by a transaction that the
-- snapshot could not see, and who writes run_at writes xid: those rows are found by it. A mark that is none is as good as null.
create or replace function {{schema}}.promote_due(
  p_limit integer, p_mark jsonb default null, out promoted integer, out next_due_ms bigint, out mark jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
declare
  c_skipped   constant integer := 1000;  -- as many ids as a mark keeps
  v_now       timestamptz := clock_timestamp();  -- a volatile call in the condition would walk the whole index
  v_origin    text := {{schema}}.mark_origin();
  v_run_at    timestamptz := '-infinity';
  v_job_id    bigint := 0;
  v_seen      pg_snapshot;
  v_skipped   bigint[] := '{}';
  v_from      timestamptz;
  v_from_id   bigint;
  v_rows      tid[] := '{}';
  v_found     tid[];
  v_ids       bigint[];
  v_times     timestamptz[];
  v_held      tid[];
  v_held_ids  bigint[];
  v_kept      bigint[] := '{}';
  v_snapshot  pg_snapshot;
  v_left      integer;
  v_full      boolean := false;
begin
  perform {{schema}}.require_read_committed();
  if p_limit is null or p_limit < 1 then
    raise exception using errcode = '22023', message = 'limit: expected a positive integer';
  end if;
  mark := p_mark;
  if not {{schema}}.lead() then
    return;
  end if;

  if p_mark ->> 'origin' = v_origin then
    begin
      v_seen := (p_mark ->> 'snapshot')::pg_snapshot;
      v_run_at := (p_mark ->> 'run_at')::timestamptz;
      v_job_id := (p_mark ->> 'job_id')::bigint;
      v_skipped := array(select s::bigint from jsonb_array_elements_text(p_mark -> 'skipped') s);
    exception when data_exception then
      v_seen := null;
    end;
  end if;
  -- A clock that went back, or an id that this server has not given out: not a mark that can be relied on.
  if v_seen is null or v_run_at is null or v_job_id is null or v_run_at > v_now
     or pg_snapshot_xmax(v_seen) > pg_snapshot_xmax(pg_current_snapshot()) then
    v_seen := null;
    v_run_at := '-infinity';
    v_job_id := 0;
    v_skipped := '{}';
  end if;

  -- What was held by somebody before. Gone or put off: no longer of interest; free now: taken; else kept.
  if cardinality(v_skipped) > 0 then
    select array_agg(d.tid), array_agg(d.job_id) into v_found, v_ids
    from unnest(v_skipped) as i(job_id)
    cross join lateral (
      select j.ctid as tid, j.job_id from {{schema}}.deferred_jobs j where j.job_id = i.job_id and j.run_at <= v_now offset 0) d;
    if v_found is not null then
      select coalesce(array_agg(h.tid), '{}'), coalesce(array_agg(h.job_id), '{}') into v_rows, v_held_ids
      from (select d.ctid as tid, d.job_id from {{schema}}.deferred_jobs d
            where d.ctid = any (v_found) and d.run_at <= v_now limit p_limit for update skip locked) h;
      v_kept := array(select unnest(v_ids) except select unnest(v_held_ids));
    end if;
  end if;

  -- Upwards from the position, and behind it what the mark's snapshot could not see. OFFSET 0 keeps the latter from being
  -- looked for by run_at, which is where the dead entries are.
  v_left := p_limit - cardinality(v_rows);
  v_from := v_run_at;
  v_from_id := v_job_id;
  if v_left = 0 then
    promoted := {{schema}}.promote_rows(v_rows);
    next_due_ms := 0;
    mark := p_mark || jsonb_build_object('skipped', to_jsonb(v_kept));
    return;
  end if;
  select pg_current_snapshot(), array_agg(f.tid order by f.run_at, f.job_id), array_agg(f.job_id order by f.run_at, f.job_id),
         array_agg(f.run_at order by f.run_at, f.job_id)
  into v_snapshot, v_found, v_ids, v_times
  from (
    select u.tid, u.job_id, u.run_at
    from (
      (select d.ctid as tid, d.job_id, d.run_at from {{schema}}.deferred_jobs d
       where (d.run_at, d.job_id) > (v_run_at, v_job_id) and d.run_at <= v_now
       order by d.run_at, d.job_id limit v_left + 1)
      union all
      select l.tid, l.job_id, l.run_at
      from pg_snapshot_xip(v_seen) as x(xid)
      cross join lateral (
        select d.ctid as tid, d.job_id, d.run_at from {{schema}}.deferred_jobs d where d.xid = x.xid offset 0) l
      where pg_visible_in_snapshot(x.xid, pg_current_snapshot()) and (l.run_at, l.job_id) <= (v_run_at, v_job_id)
      union all
      select l.tid, l.job_id, l.run_at
      from (select d.ctid as tid, d.job_id, d.run_at from {{schema}}.deferred_jobs d
            -- bounded above: a restored row may bear an id that this server has not given out
            where d.xid >= pg_snapshot_xmax(v_seen) and d.xid < pg_snapshot_xmax(pg_current_snapshot()) offset 0) l
      where (l.run_at, l.job_id) <= (v_run_at, v_job_id)
    ) u
    order by u.run_at, u.job_id limit v_left + 1) f;
  if cardinality(v_found) > v_left then
    v_full := true;
    v_found := v_found[:v_left];
    v_ids := v_ids[:v_left];
    v_run_at := v_times[v_left];
    v_job_id := v_ids[v_left];
  else
    v_run_at := v_now;
    v_job_id := 9223372036854775807;
  end if;
  if cardinality(v_found) > 0 then
    select coalesce(array_agg(h.tid), '{}'), coalesce(array_agg(h.job_id), '{}') into v_held, v_held_ids
    from (select d.ctid as tid, d.job_id from {{schema}}.deferred_jobs d
          where d.ctid = any (v_found) and d.run_at <= v_now for update skip locked) h;
    v_rows := v_rows || v_held;
    v_kept := array(select unnest(v_kept) union select unnest(v_ids) except select unnest(v_held_ids));
  end if;

  if cardinality(v_kept) > c_skipped then
    -- More is held than a mark can name: it stays where it was, and what is free behind the held ones is taken all the same.
    v_rows := v_rows || array(
      select d.ctid from {{schema}}.deferred_jobs d where (d.run_at, d.job_id) > (v_from, v_from_id) and d.run_at <= v_now
        and not d.ctid = any (v_rows)
      order by d.run_at, d.job_id limit p_limit - cardinality(v_rows) for update skip locked);
    promoted := {{schema}}.promote_rows(v_rows);
    next_due_ms := case when cardinality(v_rows) = p_limit then 0 else 1000 end;
    return;
  end if;

  promoted := {{schema}}.promote_rows(v_rows);
  mark := jsonb_build_object('origin', v_origin, 'snapshot', v_snapshot::text, 'run_at', v_run_at, 'job_id', v_job_id,
                             'skipped', to_jsonb(v_kept));
  select least(greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000))::bigint, 9007199254740991) into next_due_ms
  from {{schema}}.deferred_jobs d
  where (d.run_at, d.job_id) > (v_run_at, v_job_id) and d.run_at < 'infinity' order by d.run_at, d.job_id limit 1;
  if v_full then
    next_due_ms := 0;
  elsif cardinality(v_kept) > 0 then  -- whoever holds them need not tell when it lets go
    next_due_ms := least(next_due_ms, 1000);
  end if;
end $$;
