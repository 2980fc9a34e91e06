-- The operators' verbs. Each takes a list of job ids and answers one row per id. None waits for an application's transaction
-- or for a worker: what is locked at this moment is answered busy, and the caller asks again. They are to be called in a
-- transaction of their own, which holds the lanes' locks until it ends.

{{#segments}}
-- Lays tombstones on those of the entries that are still unclaimed, and answers what they hold. The lanes' locks are held, and
-- this statement's snapshot comes after them: a claim has either committed, and is seen, or comes later, and sees the tombstone.
create or replace function {{schema}}.bury_{{segment}}(
  p_queues text[], p_priorities smallint[], p_xids xid8[], p_seqs bigint[], p_reason text)
returns setof {{schema}}.ended_job
language plpgsql volatile as $$
begin
  return query
    with buried as (
      insert into {{schema}}.ready_tombstones_{{segment}} as t (queue, priority, xid, seq, job_id, reason, created_at)
      select e.queue, e.priority, e.xid, e.seq, e.job_id, p_reason, clock_timestamp()
      from unnest(p_queues, p_priorities, p_xids, p_seqs) as k(queue, priority, xid, seq)
      cross join lateral (
        select r.* from {{schema}}.ready_entries_{{segment}} r
        where r.queue = k.queue and r.priority = k.priority and r.xid = k.xid and r.seq = k.seq offset 0) e
      where not {{schema}}.is_claimed_{{segment}}(e.queue, e.priority, e.xid, e.seq)
      on conflict do nothing
      returning t.queue, t.priority, t.xid, t.seq
    )
    select e.job_id, e.run_lease, e.queue, e.priority, e.attempt, e.max_attempts, e.kind, e.args, e.progress, e.errors, e.created_at,
           e.unique_key, null::{{schema}}.outcome,
           jsonb_build_object('ready_at', coalesce(e.ready_at, e.created_at), 'xid', e.xid::text, 'seq', e.seq)
             || case when e.callback_result is null then '{}' else jsonb_build_object('callback_result', e.callback_result) end
    from buried b
    cross join lateral (
      select r.* from {{schema}}.ready_entries_{{segment}} r
      where r.queue = b.queue and r.priority = b.priority and r.xid = b.xid and r.seq = b.seq offset 0) e;
end $$;

-- Puts jobs into the current segment, which the caller holds, in another lane and in the order in which they could run.
create or replace function {{schema}}.place_entries_{{segment}}(p_jobs {{schema}}.ended_job[], p_priority smallint) returns void
language sql volatile as $$
  insert into {{schema}}.ready_entries_{{segment}}
    (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors,
     ready_at, unique_key, callback_result)
  select j.queue, p_priority, pg_current_xact_id(), nextval({{schema_text entry_seq}}), j.job_id, j.run_lease, j.attempt, j.max_attempts,
         j.created_at, j.kind, j.args, j.progress, j.errors, (j.detail ->> 'ready_at')::timestamptz, j.unique_key,
         j.detail -> 'callback_result'
  from (select u.* from unnest(p_jobs) u
        order by (u.detail ->> 'ready_at')::timestamptz, (u.detail ->> 'xid')::xid8, (u.detail ->> 'seq')::bigint) j
$$;
{{/segments}}

-- Who asked for what: the role that the session began as, since these functions run as their owner.
create or replace function {{schema}}.record_audit(p_verb text, p_detail jsonb) returns void
language sql volatile as $$
  insert into {{schema}}.audit (session_role, verb, detail) values (session_user, p_verb, p_detail)
$$;

-- The ids as asked for, each once.
create or replace function {{schema}}.asked_ids(p_job_ids bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  if p_job_ids is null then
    raise exception using errcode = '22023', message = 'job_ids: expected a list of ids';
  end if;
  if cardinality(p_job_ids) > 1000 then
    raise exception using errcode = '22023', message = 'job_ids: at most 1000 in one call';
  end if;
  return array(select distinct i from unnest(p_job_ids) i where i is not null order by i);
end $$;

-- Those of the lanes ('<priority>/<queue>') whose locks were to be had at once; held until the transaction ends.
create or replace function {{schema}}.hold_lanes(p_lanes text[]) returns text[]
language sql volatile as $$
  select coalesce(array_agg(l.lane), '{}') from (select distinct u as lane from unnest(p_lanes) u offset 0) l
  where pg_try_advisory_xact_lock(hashtextextended({{key lane}} || l.lane, 0))
$$;

-- Takes jobs that nobody has claimed out of where they are: from the ring under a tombstone, from a lane's head, from
-- deferred_jobs. Answers those that were taken, and what they hold; the others have moved, or somebody holds a lock.
create or replace function {{schema}}.take_waiting(p_found {{schema}}.found_job[], p_reason text) returns {{schema}}.ended_job[]
language plpgsql volatile as $$
declare
  v_jobs   {{schema}}.ended_job[] := '{}';
  v_part   {{schema}}.ended_job[];
  v_lanes  text[];
  v_rows   tid[];
  v_at     record;
begin
  v_rows := array(
    select d.ctid from unnest(p_found) f
    cross join lateral (
      select r.ctid from {{schema}}.deferred_jobs r where r.job_id = f.job_id for update skip locked) d
    where f.place = 'deferred');
  with taken as (
    delete from {{schema}}.deferred_jobs d where d.ctid = any (v_rows) returning d.*
  )
  select coalesce(array_agg(row(t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress,
                                t.errors, t.created_at, t.unique_key, null, '{}')::{{schema}}.ended_job), '{}')
  into v_jobs from taken t;

  v_lanes := {{schema}}.hold_lanes(array(select f.priority || '/' || f.queue from unnest(p_found) f where f.place in ('entry', 'head')));
  for v_at in
    select f.segment, array_agg(f.queue) as queues, array_agg(f.priority) as priorities, array_agg(f.xid) as xids, array_agg(f.seq) as seqs
    from unnest(p_found) f
    where f.place = 'entry' and f.priority || '/' || f.queue = any (v_lanes)
    group by f.segment order by f.segment
  loop
    case v_at.segment
      {{#segments}}
      when {{segment}} then
        v_part := array(select b from {{schema}}.bury_{{segment}}(v_at.queues, v_at.priorities, v_at.xids, v_at.seqs, p_reason) b);
      {{/segments}}
    end case;
    v_jobs := v_jobs || v_part;
  end loop;

  v_rows := array(
    select h.ctid from unnest(p_found) f
    cross join lateral (
      select r.ctid from {{schema}}.spilled_entries r
      where r.queue = f.queue and r.priority = f.priority and r.position = f.seq and r.job_id = f.job_id for update skip locked) h
    where f.place = 'head' and f.priority || '/' || f.queue = any (v_lanes));
  with taken as (
    delete from {{schema}}.spilled_entries s where s.ctid = any (v_rows) returning s.*
  )
  select array_agg(row(t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors,
                       t.created_at, t.unique_key, null,
                       jsonb_build_object('ready_at', coalesce(t.ready_at, t.created_at), 'xid', '0', 'seq', t.position)
                         || case when t.callback_result is null then '{}'
                              else jsonb_build_object('callback_result', t.callback_result) end)::{{schema}}.ended_job)
  into v_part from taken t;
  return v_jobs || v_part;
end $$;

-- Ends running attempts as cancelled; answers the jobs whose attempt this call ended. An attempt whose lock is held is in the
-- middle of a finalization: its end decides. A flush in flight is waited for, but not long.
create or replace function {{schema}}.cancel_attempts(p_found {{schema}}.found_job[]) returns bigint[]
language plpgsql volatile
set lock_timeout = '250ms'
as $$
declare
  v_held  {{schema}}.found_job[];
  v_one   {{schema}}.found_job;
  v_done  bigint[] := '{}';
begin
  v_held := array(
    select f from unnest(p_found) f
    where case when f.place in ('attempt', 'lease')
            then pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || f.job_id || '/' || f.run_lease, 0)) else false end);
  if cardinality(v_held) = 0 then
    return v_done;
  end if;
  begin
    return {{schema}}.close_cancelled(v_held);
  exception when lock_not_available or deadlock_detected then
    null;
  end;
  foreach v_one in array v_held loop
    begin
      v_done := v_done || {{schema}}.close_cancelled(array[v_one]);
    exception when lock_not_available or deadlock_detected then
      null;
    end;
  end loop;
  return v_done;
end $$;

create or replace function {{schema}}.close_cancelled(p_held {{schema}}.found_job[]) returns bigint[]
language plpgsql volatile as $$
declare
  -- a flush id of its own: 62 random bits
  v_closer  bigint := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_detail  constant jsonb := '{"error": {"name": "Cancelled", "message": "cancelled by an operator"}}';
  v_done    bigint[];
begin
  select coalesce(array_agg(h.job_ids[c.ord]), '{}') into v_done
  from (select -- of this installation, also where a lease is of the one that this was copied from
               array_agg({{schema}}.claim_slot_base() | (u.claim_slot & 255) order by u.ord) as slots,
               array_agg(u.batch_id order by u.ord) as batch_ids,
               array_agg(u.batch_index order by u.ord) as indexes, array_agg(u.job_id order by u.ord) as job_ids,
               array_agg(u.run_lease order by u.ord) as run_leases, array_agg(u.receipt_id order by u.ord) as receipts,
               array_agg('cancelled'::{{schema}}.outcome) as outcomes, jsonb_object_agg(u.ord, v_detail) as details
        from (select p.*, row_number() over (order by p.job_id) as ord from unnest(p_held) p where p.state <> 'parked') u
        having count(*) > 0) h
  cross join lateral {{schema}}.close_attempts(v_closer, h.slots, h.batch_ids, h.indexes, h.job_ids, h.run_leases, h.receipts, h.outcomes,
                                               h.details, true) c
  where c.answer = 'closed';
  -- and those that are parked: no flush comes to them
  return v_done || coalesce((
    select array_agg(e.job_id)
    from (select array_agg(u.job_id) as job_ids, array_agg(u.run_lease) as run_leases, array_agg(u.receipt_id) as receipts,
                 array_agg('cancelled'::{{schema}}.outcome) as outcomes, array_agg(v_detail) as details
          from (select p.* from unnest(p_held) p where p.state = 'parked' order by p.job_id) u having count(*) > 0) h
    cross join lateral {{schema}}.end_leases(h.job_ids, h.run_leases, h.receipts, h.outcomes, h.details, v_closer, true) e), '{}');
end $$;

-- Cancels jobs, wherever they are. cancelled; busy: a lock was held or the job was on the move, ask again; finished: it is over,
-- or it is dead-lettered or quarantined and does not run by itself; unknown. A running handler is told by a notification, and
-- whatever it reports later is stale.
create or replace function {{schema}}.cancel_jobs(p_job_ids bigint[])
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_ids      bigint[];
  v_found    {{schema}}.found_job[];
  v_jobs     {{schema}}.ended_job[];
  v_done     bigint[];
  v_stopped  bigint[];
begin
  perform {{schema}}.require_read_committed();
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('cancel', jsonb_build_object('job_ids', v_ids));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);

  v_jobs := {{schema}}.take_waiting(v_found, 'cancelled');
  if cardinality(v_jobs) > 0 then
    select array_agg(row(j.job_id, j.run_lease, j.queue, j.priority, j.attempt, j.max_attempts, j.kind, j.args, j.progress, j.errors,
                         j.created_at, j.unique_key, 'cancelled', '{}')::{{schema}}.ended_job), array_agg(j.job_id)
    into v_jobs, v_done from unnest(v_jobs) j;
    -- also the keys that are held until the first claim
    perform {{schema}}.release_unique(u.keys, u.job_ids, 3::smallint)
    from (select array_agg(j.unique_key) as keys, array_agg(j.job_id) as job_ids from unnest(v_jobs) j where j.unique_key is not null) u
    where u.keys is not null;
    perform {{schema}}.dispose_jobs(v_jobs);
  end if;

  v_stopped := {{schema}}.cancel_attempts(v_found);
  perform pg_notify({{channel}}, E'\x01cancel/' || f.job_id || '/' || f.run_lease)
  from unnest(v_found) f where f.job_id = any (v_stopped);

  return query
    select i.i, case when i.i = any (v_done) or i.i = any (v_stopped) then 'cancelled'
                     when f.place is null then 'unknown'
                     when f.place in ('deferred', 'entry', 'head', 'attempt', 'lease') then 'busy'
                     else 'finished' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- Removes jobs that do not run. deleted; running: cancel it first; busy: ask again; finished: it completed, and its history goes
-- with its segment; unknown.
create or replace function {{schema}}.delete_jobs(p_job_ids bigint[])
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_ids    bigint[];
  v_found  {{schema}}.found_job[];
  v_jobs   {{schema}}.ended_job[];
  v_over   {{schema}}.ended_job[];
  v_done   bigint[];
begin
  perform {{schema}}.require_read_committed();
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('delete', jsonb_build_object('job_ids', v_ids));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);
  v_jobs := {{schema}}.take_waiting(v_found, 'deleted');
  v_over := {{schema}}.take_over(array(select f.job_id from unnest(v_found) f where f.place in ('terminal', 'dead', 'quarantined')));
  select array_agg(j.job_id) into v_done from unnest(v_jobs || v_over) j;
  perform {{schema}}.release_unique(u.keys, u.job_ids, 4::smallint)  -- however long they would be held
  from (select array_agg(j.unique_key) as keys, array_agg(j.job_id) as job_ids from unnest(v_jobs || v_over) j
        where j.unique_key is not null) u
  where u.keys is not null;
  return query
    select i.i, case when i.i = any (v_done) then 'deleted'
                     when f.place is null then 'unknown'
                     when f.place in ('attempt', 'lease') then 'running'
                     when f.place in ('completed', 'past') then 'finished'
                     else 'busy' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- Takes jobs that ended out of terminal_jobs, dlq_entries and quarantined_jobs, as far as their rows can be locked at once.
create or replace function {{schema}}.take_over(p_job_ids bigint[]) returns {{schema}}.ended_job[]
language plpgsql volatile as $$
declare
  v_jobs  {{schema}}.ended_job[];
  v_rows  tid[];
  v_dead  tid[];
  v_quar  tid[];
begin
  v_rows := array(
    select t.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (select r.ctid from {{schema}}.terminal_jobs r where r.job_id = i.job_id for update skip locked) t);
  v_dead := array(
    select t.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (select r.ctid from {{schema}}.dlq_entries r where r.job_id = i.job_id for update skip locked) t);
  v_quar := array(
    select t.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (select r.ctid from {{schema}}.quarantined_jobs r where r.job_id = i.job_id for update skip locked) t);
  with ended as (
    delete from {{schema}}.terminal_jobs t where t.ctid = any (v_rows) returning t.*
  ), dead as (
    delete from {{schema}}.dlq_entries t where t.ctid = any (v_dead) returning t.*
  ), quarantined as (
    delete from {{schema}}.quarantined_jobs t where t.ctid = any (v_quar) returning t.*
  )
  select coalesce(array_agg(row(j.job_id, j.run_lease, j.queue, j.priority, j.attempt, j.max_attempts, j.kind, j.args, j.progress,
                                j.errors, j.created_at, j.unique_key, null, '{}')::{{schema}}.ended_job), '{}')
  into v_jobs
  from (
    select t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors, t.created_at, t.unique_key
    from ended t
    union all
    select t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors, t.created_at, t.unique_key
    from dead t
    union all
    select t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors, t.created_at, t.unique_key
    from quarantined t
  ) j;
  return v_jobs;
end $$;

-- Gives jobs that do not run yet another priority. In the ring: a tombstone on the old entry, and a new one at the end of the
-- other lane. reprioritized; unchanged: it has that priority; running; busy: ask again; finished; unknown.
create or replace function {{schema}}.reprioritize_jobs(p_job_ids bigint[], p_priority integer)
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_ids    bigint[];
  v_found  {{schema}}.found_job[];
  v_jobs   {{schema}}.ended_job[];
  v_rows   tid[];
  v_done   bigint[];
begin
  perform {{schema}}.require_read_committed();
  if p_priority is null or p_priority not between 1 and 4 then
    raise exception using errcode = '22023', message = 'priority: expected an integer from 1 to 4';
  end if;
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('reprioritize', jsonb_build_object('job_ids', v_ids, 'priority', p_priority));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);
  v_rows := array(
    select d.ctid from unnest(v_found) f
    cross join lateral (select r.ctid from {{schema}}.deferred_jobs r where r.job_id = f.job_id for update skip locked) d
    where f.place = 'deferred' and f.priority <> p_priority);
  with changed as (
    update {{schema}}.deferred_jobs d set priority = p_priority where d.ctid = any (v_rows) returning d.job_id
  )
  select array_agg(c.job_id) into v_done from changed c;

  v_jobs := {{schema}}.take_waiting(
    array(select f from unnest(v_found) f where f.place in ('entry', 'head') and f.priority <> p_priority), 'reprioritized');
  if cardinality(v_jobs) > 0 then
    case {{schema}}.hold_current_segment()
      {{#segments}}
      when {{segment}} then perform {{schema}}.place_entries_{{segment}}(v_jobs, p_priority::smallint);
      {{/segments}}
    end case;
    perform pg_notify({{channel}}, q.queue) from (select distinct j.queue from unnest(v_jobs) j) q;
    v_done := v_done || array(select j.job_id from unnest(v_jobs) j);
  end if;
  return query
    select i.i, case when i.i = any (v_done) then 'reprioritized'
                     when f.place is null then 'unknown'
                     when f.place in ('attempt', 'lease') then 'running'
                     when f.place not in ('deferred', 'entry', 'head') then 'finished'
                     when f.priority = p_priority then 'unchanged'
                     else 'busy' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- Runs jobs again that ended without success, or that are quarantined: at once, with all their attempts before them. The run
-- lease goes on, so nothing an old attempt says can be taken for a new one's; the errors stay. redriven; duplicate: another
-- job holds its unique key now; live: it is not over; finished: it completed; busy: ask again; refused: it cannot be stored;
-- unknown.
create or replace function {{schema}}.redrive_jobs(p_job_ids bigint[])
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set lock_timeout = '250ms'
as $$
#variable_conflict use_column
declare
  v_ids      bigint[];
  v_found    {{schema}}.found_job[];
  v_over     bigint[];
  v_one      bigint;
  v_did      record;
  v_done     bigint[] := '{}';
  v_doubled  bigint[] := '{}';
  v_refused  bigint[] := '{}';
begin
  perform {{schema}}.require_read_committed();
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('redrive', jsonb_build_object('job_ids', v_ids));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);
  v_over := array(select f.job_id from unnest(v_found) f where f.place in ('terminal', 'dead', 'quarantined'));
  if cardinality(v_over) > 0 then
    begin
      select * into v_did from {{schema}}.run_again(v_over);
      v_done := v_did.done;
      v_doubled := v_did.doubled;
    exception when others then
      if not ({{schema}}.speaks_of_rows(sqlstate) or sqlstate in ('55P03', '40P01')) then
        raise;
      end if;
      -- Somebody was waited for once: a wait for each of them would be as long as the list.
      perform set_config('lock_timeout', '5ms', true);
      foreach v_one in array v_over loop
        begin
          select * into v_did from {{schema}}.run_again(array[v_one]);
          v_done := v_done || v_did.done;
          v_doubled := v_doubled || v_did.doubled;
        exception when others then
          if {{schema}}.speaks_of_rows(sqlstate) then
            v_refused := v_refused || v_one;
          elsif sqlstate not in ('55P03', '40P01') then
            raise;
          end if;
        end;
      end loop;
    end;
  end if;
  return query
    select i.i, case when i.i = any (v_done) then 'redriven'
                     when i.i = any (v_doubled) then 'duplicate'
                     when i.i = any (v_refused) then 'refused'
                     when f.place is null then 'unknown'
                     when f.place in ('completed', 'past') then 'finished'
                     when f.place in ('terminal', 'dead', 'quarantined') then 'busy'
                     else 'live' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- The jobs that a unique key does not stop: out of where they ended, into deferred_jobs, and from there into the ring. A key is
-- taken again until the job's next end, whatever its preset was, since the window is over with the first life; one that the
-- job still holds (all: after any end) is kept as it is.
create or replace function {{schema}}.run_again(p_job_ids bigint[], out done bigint[], out doubled bigint[])
language plpgsql volatile as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_jobs  {{schema}}.ended_job[];
  v_held  bigint[];
  v_keys  bytea[];
  v_took  bigint[];  -- the jobs that this call gave a key
  v_more  bigint[];
begin
  select array_agg(k.job_id), array_agg(substr(k.unique_key, 2)) into v_held, v_keys
  from unnest(p_job_ids) as i(job_id)
  cross join lateral (
    (select r.job_id, r.unique_key from {{schema}}.terminal_jobs r where r.job_id = i.job_id)
    union all (select r.job_id, r.unique_key from {{schema}}.dlq_entries r where r.job_id = i.job_id)
    union all (select r.job_id, r.unique_key from {{schema}}.quarantined_jobs r where r.job_id = i.job_id)) k
  where k.unique_key is not null;
  with taken as (
    insert into {{schema}}.unique_claims (unique_key, job_id, states, expires_at)
    select k.unique_key, min(k.job_id), 1, null from unnest(v_held, v_keys) as k(job_id, unique_key)
    group by k.unique_key order by k.unique_key
    on conflict (unique_key) do nothing
    returning job_id
  )
  select array_agg(t.job_id) into v_took from taken t;
  -- A holder past its window gives way, also when it is the job itself: whether a sweep came by makes no difference. Nobody
  -- else's row is locked: the end of its job must find it free to release it.
  with taken as (
    update {{schema}}.unique_claims u set job_id = k.job_id, states = 1, expires_at = null
    from (select n.unique_key, min(n.job_id) as job_id from unnest(v_held, v_keys) as n(job_id, unique_key) group by n.unique_key) k
    where u.unique_key = k.unique_key and u.expires_at < v_now
    returning u.job_id
  )
  select array_agg(t.job_id) into v_more from taken t;
  -- another statement, which sees the holders
  select coalesce(array_agg(k.job_id), '{}') into doubled
  from unnest(v_held, v_keys) as k(job_id, unique_key)
  left join lateral (select u.job_id from {{schema}}.unique_claims u where u.unique_key = k.unique_key offset 0) u on true
  where u.job_id is distinct from k.job_id;

  v_jobs := {{schema}}.take_over(array(select i from unnest(p_job_ids) i where i <> all (doubled)));
  select coalesce(array_agg(j.job_id), '{}') into done from unnest(v_jobs) j;
  -- A key taken for a job whose row was locked is given back. One that the job had before is not: whoever holds its row may
  -- have made it run again.
  delete from {{schema}}.unique_claims u
  using unnest(v_held, v_keys) as k(job_id, unique_key)
  where u.unique_key = k.unique_key and u.job_id = k.job_id and u.states = 1 and k.job_id <> all (done) and k.job_id = any (v_took || v_more);

  insert into {{schema}}.deferred_jobs
    (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, xid, unique_key)
  select j.job_id, j.queue, j.priority, 'retryable', v_now, j.run_lease, 0, j.max_attempts, j.kind, j.args, j.progress, j.errors,
         j.created_at, pg_current_xact_id(), set_byte(j.unique_key, 0, u.states)
  from unnest(v_jobs) j
  left join lateral (
    select c.states from {{schema}}.unique_claims c where c.unique_key = substr(j.unique_key, 2) offset 0) u on true;
  if cardinality(done) > 0 then
    perform {{schema}}.promote_jobs(done);
  end if;
end $$;

-- Runs again what a filter selects: of dead letters (dlq), terminal jobs or quarantined ones; null selects all. In order of
-- ids above p_after, so that a caller goes on from the last id that was answered, past those that stay.
create or replace function {{schema}}.redrive_where(
  p_source text, p_queue text, p_kind text, p_before timestamptz, p_after bigint, p_limit integer)
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  perform {{schema}}.require_read_committed();
  if p_limit is null or p_limit < 1 or p_limit > 1000 then
    raise exception using errcode = '22023', message = 'limit: expected an integer from 1 to 1000';
  end if;
  case p_source
    when 'dlq' then
      v_ids := array(
        select t.job_id from {{schema}}.dlq_entries t
        where t.job_id > coalesce(p_after, 0) and (p_queue is null or t.queue = p_queue) and (p_kind is null or t.kind = p_kind)
          and (p_before is null or t.dead_lettered_at < p_before)
        order by t.job_id limit p_limit);
    when 'terminal' then
      v_ids := array(
        select t.job_id from {{schema}}.terminal_jobs t
        where t.job_id > coalesce(p_after, 0) and (p_queue is null or t.queue = p_queue) and (p_kind is null or t.kind = p_kind)
          and (p_before is null or t.finalized_at < p_before)
        order by t.job_id limit p_limit);
    when 'quarantined' then
      v_ids := array(
        select t.job_id from {{schema}}.quarantined_jobs t
        where t.job_id > coalesce(p_after, 0) and (p_queue is null or t.queue = p_queue) and (p_kind is null or t.kind = p_kind)
          and (p_before is null or t.quarantined_at < p_before)
        order by t.job_id limit p_limit);
    else
      raise exception using errcode = '22023', message = 'source: expected dlq, terminal or quarantined';
  end case;
  return query select r.job_id, r.answer from {{schema}}.redrive_jobs(v_ids) r;
end $$;

-- Claims take nothing of a paused queue; what runs goes on. Answers whether this changed anything.
create or replace function {{schema}}.pause_queue(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  perform {{schema}}.record_audit('pause', jsonb_build_object('queue', p_queue));
  insert into {{schema}}.queues as q (queue, paused) values (p_queue, true)
  on conflict (queue) do update set paused = true where not q.paused;
  return found;
end $$;

create or replace function {{schema}}.resume_queue(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update {{schema}}.queues q set paused = false where q.queue = p_queue and q.paused;
  if not found then
    return false;
  end if;
  perform {{schema}}.record_audit('resume', jsonb_build_object('queue', p_queue));
  perform pg_notify({{channel}}, p_queue);
  return true;
end $$;

-- Settings of a queue: what is named is set, null is none (or the default), what is not named stays. Lengths of time are
-- milliseconds. Answers the queue as it is then.
create or replace function {{schema}}.set_queue(p_queue text, p_settings jsonb) returns {{schema}}.queues
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key    text;
  v_queue  {{schema}}.queues;
  v_known  constant text[] := '{aging_ms,dead_letter,attempt_deadline_ms,rate_limit,rate_interval_ms}';
begin
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  if p_settings is null or jsonb_typeof(p_settings) <> 'object' then
    raise exception using errcode = '22023', message = 'settings: expected an object';
  end if;
  select k into v_key from jsonb_object_keys(p_settings) k where not k = any (v_known) order by k limit 1;
  if found then
    raise exception using errcode = 'WA005', message = format('unknown setting %L', v_key),
      hint = 'Known settings: ' || array_to_string(v_known, ', ') || '.';
  end if;
  if p_settings ->> 'aging_ms' !~ '^[0-9]{1,12}$' then
    raise exception using errcode = '22023', message = 'aging_ms: expected a whole number of milliseconds, not negative';
  end if;
  if jsonb_typeof(p_settings -> 'dead_letter') not in ('boolean', 'null') then
    raise exception using errcode = '22023', message = 'dead_letter: expected a boolean';
  end if;
  if p_settings ->> 'attempt_deadline_ms' !~ '^0*[1-9][0-9]{0,11}$' then
    raise exception using errcode = '22023', message = 'attempt_deadline_ms: expected a whole number of milliseconds above 0';
  end if;
  if p_settings ->> 'rate_limit' !~ '^0*[1-9][0-9]{0,8}$' then
    raise exception using errcode = '22023', message = 'rate_limit: expected a whole number from 1 to 999999999';
  end if;
  if p_settings ->> 'rate_interval_ms' !~ '^0*[1-9][0-9]{0,11}$' then
    raise exception using errcode = '22023', message = 'rate_interval_ms: expected a whole number of milliseconds above 0';
  end if;
  insert into {{schema}}.queues (queue) values (p_queue) on conflict (queue) do nothing;
  select q.* into v_queue from {{schema}}.queues q where q.queue = p_queue for update;
  if p_settings ? 'aging_ms' then
    v_queue.aging := coalesce((p_settings ->> 'aging_ms')::bigint * interval '1 millisecond', interval '1 minute');
  end if;
  if p_settings ? 'dead_letter' then
    v_queue.dead_letter := coalesce((p_settings ->> 'dead_letter')::boolean, false);
  end if;
  if p_settings ? 'attempt_deadline_ms' then
    v_queue.attempt_deadline := (p_settings ->> 'attempt_deadline_ms')::bigint * interval '1 millisecond';
  end if;
  if p_settings ? 'rate_limit' then
    v_queue.rate_limit := (p_settings ->> 'rate_limit')::integer;
  end if;
  if p_settings ? 'rate_interval_ms' then
    v_queue.rate_interval := (p_settings ->> 'rate_interval_ms')::bigint * interval '1 millisecond';
  end if;
  if (v_queue.rate_limit is null) <> (v_queue.rate_interval is null) then
    raise exception using errcode = '22023', message = case when v_queue.rate_limit is null
      then 'rate_limit: expected together with rate_interval_ms' else 'rate_interval_ms: expected together with rate_limit' end;
  end if;
  update {{schema}}.queues q
  set aging = v_queue.aging, dead_letter = v_queue.dead_letter, attempt_deadline = v_queue.attempt_deadline,
      rate_limit = v_queue.rate_limit, rate_interval = v_queue.rate_interval
  where q.queue = p_queue;
  perform {{schema}}.record_audit('set', jsonb_build_object('queue', p_queue, 'settings', p_settings));
  perform pg_notify({{channel}}, p_queue);
  return v_queue;
end $$;

-- The live runtimes that claim of a queue and do not advertise caller-owned completion of this contract version, or a later one,
-- as a list; null when there are none. One that does not say what it claims may claim anything.
create or replace function {{schema}}.caller_owned_laggards(p_queue text, p_staleness interval) returns jsonb
language sql volatile as $$
  select jsonb_agg(jsonb_build_object('runtime_id', r.runtime_id::text, 'name', r.name, 'beat_at', r.beat_at,
                                      'callerOwned', r.capabilities -> 'callerOwned') order by r.runtime_id)
  from {{schema}}.runtimes r
  where r.beat_at > clock_timestamp() - p_staleness
    and coalesce(jsonb_typeof(r.capabilities -> 'queues') <> 'array' or r.capabilities -> 'queues' ? p_queue, true)
    and not case when jsonb_typeof(r.capabilities -> 'callerOwned') = 'number'
              then (r.capabilities ->> 'callerOwned')::numeric >= 1 else false end
$$;

-- Makes complete_job serve a queue, once every live runtime that claims of it can (C-60); a runtime that has not beaten for the
-- staleness is none. What was put aside runs again, p_limit jobs in a call: answers how many, and is called again until it is
-- fewer (a sweep comes for what is left). 55000: refused, with the runtimes that are in the way as DETAIL.
create or replace function {{schema}}.enable_caller_owned(
  p_queue text, p_staleness interval default '60 seconds', p_limit integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
declare
  v_laggards jsonb;
begin
  perform {{schema}}.require_read_committed();
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  if p_staleness is null or p_staleness <= interval '0' then
    raise exception using errcode = '22023', message = 'staleness: expected a length of time above 0';
  end if;
  if p_limit is null or p_limit < 1 or p_limit > 10000 then
    raise exception using errcode = '22023', message = 'limit: expected an integer from 1 to 10000';
  end if;
  perform from {{schema}}.meta m for no key update;  -- one at a time, or any_gated would miss what another one is about to say
  if exists (select from {{schema}}.queues q where q.queue = p_queue and not q.caller_owned) then
    v_laggards := {{schema}}.caller_owned_laggards(p_queue, p_staleness);
    if v_laggards is not null then
      raise exception using errcode = '55000', detail = v_laggards::text,
        message = format('caller-owned completion of the queue %s cannot be enabled: %s', p_queue, (
          select string_agg(format('%s (runtime %s)', l ->> 'name', l ->> 'runtime_id'), ', ' order by o)
          from jsonb_array_elements(v_laggards) with ordinality as u(l, o))
          || case when jsonb_array_length(v_laggards) = 1 then ' does' else ' do' end || ' not advertise it'),
        hint = 'Upgrade or stop them. One that died is forgotten when it has not beaten for the staleness.';
    end if;
    perform {{schema}}.record_audit('enable_caller_owned', jsonb_build_object('queue', p_queue));
    update {{schema}}.queues q set caller_owned = true where q.queue = p_queue;
    update {{schema}}.meta m set any_gated = exists (select from {{schema}}.queues q where not q.caller_owned);
  end if;
  return {{schema}}.promote_gated(p_queue, p_limit);
end $$;

-- Makes complete_job refuse a queue (WA006): its caller-owned jobs are put aside as they are claimed, or when they try to complete.
-- Ordinary ones go on. Answers whether this changed anything.
create or replace function {{schema}}.disable_caller_owned(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_changed boolean;
begin
  perform {{schema}}.require_read_committed();
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  perform from {{schema}}.meta m for no key update;
  perform {{schema}}.record_audit('disable_caller_owned', jsonb_build_object('queue', p_queue));
  insert into {{schema}}.queues as q (queue, caller_owned) values (p_queue, false)
  on conflict (queue) do update set caller_owned = false where q.caller_owned;
  v_changed := found;
  update {{schema}}.meta m set any_gated = true where not m.any_gated;
  return v_changed;
end $$;

-- Whether anything of a queue is at work: an attempt that is open, with a handler (a parked one has none), or a claim that is
-- being made at this moment. Asked again and again after a pause until it is not so.
create or replace function {{schema}}.queue_running(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
declare
  v_slot  smallint;
  v_found boolean;
begin
  perform {{schema}}.require_read_committed();
  if cardinality({{schema}}.hold_lanes(array(select p || '/' || p_queue from generate_series(1, 4) p))) < 4
     or exists (select from {{schema}}.leases l where l.queue = p_queue and l.state <> 'parked') then
    return true;
  end if;
  for v_slot in select s.slot from {{schema}}.segments s where s.state <> 'free' order by s.generation desc loop
    case v_slot
      {{#segments}}
      when {{segment}} then v_found := exists (select from {{schema}}.count_running_{{segment}}(p_queue));
      {{/segments}}
    end case;
    if v_found then
      return true;
    end if;
  end loop;
  return false;
end $$;
