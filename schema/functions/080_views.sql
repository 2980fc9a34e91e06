-- What operators read. The views scan, the functions answer by id or up to a cap; nothing on a hot path uses either.

create or replace view {{schema}}.ready_entries as
{{#segments union all}}
select {{segment}}::smallint as segment, r.* from {{schema}}.ready_entries_{{segment}} r
{{/segments}};

create or replace view {{schema}}.ready_tombstones as
{{#segments union all}}
select {{segment}}::smallint as segment, t.* from {{schema}}.ready_tombstones_{{segment}} t
{{/segments}};

-- A row with n = 0 is no claim: it moved the lane's cursor over entries that left for spilled_entries or had a tombstone.
create or replace view {{schema}}.claim_batches as
{{#segments union all}}
select {{segment}}::smallint as segment, b.* from {{schema}}.claim_batches_{{segment}} b
{{/segments}};

create or replace view {{schema}}.closures as
{{#segments union all}}
select {{segment}}::smallint as segment, c.* from {{schema}}.closures_{{segment}} c
{{/segments}};

-- One row per attempt that is remembered. An attempt that left the ring for a lease is shown once, as the lease has it, and
-- has no segment. outcome null: it is open.
create or replace view {{schema}}.attempts as
{{#segments union all}}
select {{segment}}::smallint as segment, b.batch_id, t.idx::integer as batch_index, t.job_id, t.run_lease,
       b.receipt_base + t.idx as receipt_id, b.queue, abs(b.priority) as priority, t.xid, t.seq, b.runtime_id, b.claimed_at, b.deadline_at,
       c.outcome, c.closed_at, c.progress, c.outcome is not null and c.closer is null and c.outcome = 'completed' as caller_owned,
       e.attempt + 1 as attempt, e.kind
from {{schema}}.claim_batches_{{segment}} b
cross join lateral unnest(b.job_ids, b.run_leases, b.xids, b.seqs) with ordinality as t(job_id, run_lease, xid, seq, idx)
left join {{schema}}.closures_{{segment}} c on c.batch_id = b.batch_id and c.batch_index = t.idx
left join {{schema}}.ready_entries_{{segment}} e on e.queue = b.queue and e.priority = b.priority and e.xid = t.xid and e.seq = t.seq
where b.n > 0 and c.outcome is distinct from 'materialized'
{{/segments}}
union all
select null::smallint, l.batch_id, l.batch_index, l.job_id, l.run_lease, l.receipt_id, l.queue, abs(l.priority), null::xid8, null::bigint,
       l.runtime_id, l.claimed_at, l.deadline_at, null::{{schema}}.outcome, null::timestamptz, l.progress, false, l.attempt, l.kind
from {{schema}}.leases l
union all
select null::smallint, null::bigint, null::integer, c.job_id, c.run_lease, c.receipt_id, c.queue, abs(c.priority), null::xid8, null::bigint,
       c.runtime_id, c.claimed_at, null::timestamptz, c.outcome, c.closed_at, c.progress, c.closer is null and c.outcome = 'completed',
       c.attempt, c.kind
from {{schema}}.lease_closures c;

-- The items of a batch. A function, for what it says of itself: the statistics of arrays that were small once promise so few
-- items that all of a lane's batches would be walked again for each of its entries, instead of being hashed once.
create or replace function {{schema}}.batch_items(p_run_leases bigint[], p_xids xid8[], p_seqs bigint[])
returns table (run_lease bigint, xid xid8, seq bigint, idx bigint)
language plpgsql immutable rows 1000
as $$
begin
  return query select t.* from unnest(p_run_leases, p_xids, p_seqs) with ordinality as t(run_lease, xid, seq, idx);
end $$;

-- One row per job, in the state that it is in now: available, running, waiting, parked, scheduled, retryable, snoozed,
-- gated, completed, failed, cancelled, discarded, dead_lettered, quarantined. A completed job is here for as long as the ring (or
-- lease_closures) keeps it. run_at: when it is due; ready_at: since when it can be claimed; reason: of the dead letter or quarantine.
create or replace view {{schema}}.jobs as
{{#segments union all}}
select e.job_id, e.queue, abs(e.priority) as priority, e.kind, e.args,
       case when a.n is null then 'available' when c.outcome is null then 'running' else 'completed' end as state,
       coalesce(a.run_lease, e.run_lease) as run_lease, case when a.n is null then e.attempt else e.attempt + 1 end as attempt,
       e.max_attempts, coalesce(c.progress, s.progress, e.progress) as progress, e.errors, e.created_at,
       null::timestamptz as run_at, a.claimed_at, c.closed_at as finalized_at,
       case when a.n is null then coalesce(e.ready_at, e.created_at) end as ready_at, null::text as reason
from {{schema}}.ready_entries_{{segment}} e
left join (
  select b.n, b.batch_id, b.queue, b.priority, b.claimed_at, t.run_lease, t.xid, t.seq, t.idx::integer as idx
  from {{schema}}.claim_batches_{{segment}} b
  cross join lateral {{schema}}.batch_items(b.run_leases, b.xids, b.seqs) t
  offset 0
) a on a.queue = e.queue and a.priority = e.priority and a.xid = e.xid and a.seq = e.seq
left join {{schema}}.closures_{{segment}} c on c.batch_id = a.batch_id and c.batch_index = a.idx
left join {{schema}}.ready_tombstones_{{segment}} t
  on t.queue = e.queue and t.priority = e.priority and t.xid = e.xid and t.seq = e.seq
left join {{schema}}.attempt_state s on s.job_id = e.job_id and s.run_lease = a.run_lease and c.outcome is null
where t.job_id is null and (a.n is null or a.n > 0) and (c.outcome is null or c.outcome = 'completed')
{{/segments}}
union all
select h.job_id, h.queue, h.priority, h.kind, h.args, 'available', h.run_lease, h.attempt, h.max_attempts, h.progress, h.errors,
       h.created_at, null, null, null, coalesce(h.ready_at, h.created_at), null
from {{schema}}.spilled_entries h
union all
select l.job_id, l.queue, abs(l.priority), l.kind, l.args, l.state, l.run_lease, l.attempt, l.max_attempts, l.progress, l.errors,
       l.created_at, null, l.claimed_at, null, null, null
from {{schema}}.leases l
union all
select c.job_id, c.queue, abs(c.priority), c.kind, c.args, 'completed', c.run_lease, c.attempt, c.max_attempts, c.progress, c.errors,
       c.created_at, null, c.claimed_at, c.closed_at, null, null
from {{schema}}.lease_closures c where c.outcome = 'completed'
union all
select d.job_id, d.queue, d.priority, d.kind, d.args, d.state, d.run_lease, d.attempt, d.max_attempts, d.progress, d.errors,
       d.created_at, nullif(d.run_at, 'infinity'), null, null, null, null
from {{schema}}.deferred_jobs d
union all
select t.job_id, t.queue, t.priority, t.kind, t.args, t.state, t.run_lease, t.attempt, t.max_attempts, t.progress, t.errors,
       t.created_at, null, null, t.finalized_at, null, null
from {{schema}}.terminal_jobs t
union all
select q.job_id, q.queue, q.priority, q.kind, q.args, 'dead_lettered', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
       q.created_at, null, null, q.dead_lettered_at, null, q.reason
from {{schema}}.dlq_entries q
union all
select q.job_id, q.queue, q.priority, q.kind, q.args, 'quarantined', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
       q.created_at, null, null, q.quarantined_at, null, q.reason
from {{schema}}.quarantined_jobs q;

{{#segments}}
-- The batch that took an entry, found by halving: that an entry is claimed stays true over a lane's batches, so the first of
-- them for which it is so is the one. None and is_claimed: the entry was passed over (a tombstone, or moved to the lane's head).
create or replace function {{schema}}.batch_of_{{segment}}(
  p_queue text, p_priority smallint, p_xid xid8, p_seq bigint,
  out is_claimed boolean, out batch_id bigint, out batch_index integer, out receipt_id bigint, out run_lease bigint,
  out runtime_id bigint, out claimed_at timestamptz, out deadline_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_low   bigint;   -- not yet claimed as of this batch
  v_high  bigint;   -- claimed as of this one
  v_mid   bigint;
  v_batch record;
begin
  select b.batch_id into v_high
  from (
    select b.queue, b.priority, b.batch_id from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
  where b.queue = p_queue and b.priority = p_priority;
  select b.batch_id - 1 into v_low
  from (
    select b.queue, b.priority, b.batch_id from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) <= (p_queue, p_priority) order by b.queue desc, b.priority desc, b.batch_id limit 1) b
  where b.queue = p_queue and b.priority = p_priority;
  v_mid := v_high;
  loop
    select b.batch_id,
           case when p_priority < 0 then p_seq <= b.cursor_seq  -- a claim from the head: its cursor is a position
           else (p_xid, p_seq) <= (b.cursor_xid, b.cursor_seq)
             and not exists (select from unnest(b.pending_xids, b.pending_seqs) as n(x, s) where n.x = p_xid and p_seq > n.s) end as claimed
    into v_batch
    from {{schema}}.claim_batches_{{segment}} b
    where b.queue = p_queue and b.priority = p_priority and b.batch_id <= v_mid and b.batch_id > v_low
    order by b.batch_id desc limit 1;
    if not found then
      v_low := v_mid;
    elsif v_batch.claimed then
      is_claimed := true;
      v_high := v_batch.batch_id;
    else
      v_low := v_mid;
    end if;
    exit when v_high is null or is_claimed is null or v_high - v_low <= 1;
    v_mid := v_low + (v_high - v_low) / 2;
  end loop;
  if is_claimed then
    select b.batch_id, t.idx::integer, b.receipt_base + t.idx, t.run_lease, b.runtime_id, b.claimed_at, b.deadline_at
    into batch_id, batch_index, receipt_id, run_lease, runtime_id, claimed_at, deadline_at
    from {{schema}}.claim_batches_{{segment}} b
    cross join lateral unnest(b.xids, b.seqs, b.run_leases) with ordinality as t(x, s, run_lease, idx)
    where b.batch_id = v_high and b.n > 0 and t.x = p_xid and t.s = p_seq;
  end if;
  is_claimed := coalesce(is_claimed, false);
end $$;

-- What this segment knows of some jobs, by their ids: every entry, the attempt that took it, and how that ended.
create or replace function {{schema}}.entries_of_{{segment}}(p_job_ids bigint[])
returns table (
  job_id bigint, queue text, priority smallint, xid xid8, seq bigint, run_lease bigint, attempt integer, unique_key bytea,
  tombstone text, is_claimed boolean, batch_id bigint, batch_index integer, receipt_id bigint, claimed_lease bigint, runtime_id bigint,
  claimed_at timestamptz, deadline_at timestamptz, outcome {{schema}}.outcome, closed_at timestamptz, closer bigint, progress jsonb)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query
    select e.job_id, e.queue, e.priority, e.xid, e.seq, e.run_lease, e.attempt, e.unique_key, t.reason, b.is_claimed, b.batch_id,
           b.batch_index, b.receipt_id, b.run_lease, b.runtime_id, b.claimed_at, b.deadline_at, c.outcome, c.closed_at, c.closer, c.progress
    from unnest(p_job_ids) as i(job_id)
    cross join lateral (
      select r.job_id, r.queue, r.priority, r.xid, r.seq, r.run_lease, r.attempt, r.unique_key
      from {{schema}}.ready_entries_{{segment}} r where r.job_id = i.job_id offset 0) e
    left join lateral (
      select s.reason from {{schema}}.ready_tombstones_{{segment}} s
      where s.queue = e.queue and s.priority = e.priority and s.xid = e.xid and s.seq = e.seq offset 0) t on true
    cross join lateral {{schema}}.batch_of_{{segment}}(e.queue, e.priority, e.xid, e.seq) b
    left join lateral (
      select s.outcome, s.closed_at, s.closer, s.progress from {{schema}}.closures_{{segment}} s
      where s.batch_id = b.batch_id and s.batch_index = b.batch_index offset 0) c on true;
end $$;
{{/segments}}

-- Where jobs are, by their ids, in one statement: a job that moves while it is looked for is in one place all the same.
-- place: deferred, entry (unclaimed), head (unclaimed, spilled), attempt, lease, completed, terminal, dead, quarantined, or past:
-- only its history is left.
create or replace function {{schema}}.find_jobs(p_job_ids bigint[]) returns setof {{schema}}.found_job
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    with ring as materialized (
      {{#segments union all}}
      select {{segment}}::smallint as segment, e.* from {{schema}}.entries_of_{{segment}}(p_job_ids) e
      {{/segments}}
    ), asked as materialized (
      select i.job_id from unnest(p_job_ids) as i(job_id)
    )
    select distinct on (f.job_id) f.job_id, f.place, f.state, f.segment, f.queue, f.priority, f.xid, f.seq, f.run_lease, f.attempt,
           f.claim_slot, f.batch_id, f.batch_index, f.receipt_id, f.unique_key
    from (
      select 1 as rank, d.job_id, 'deferred' as place, d.state, null::smallint as segment, d.queue, d.priority, null::xid8 as xid,
             null::bigint as seq, d.run_lease, d.attempt, null::integer as claim_slot, null::bigint as batch_id, null::integer as batch_index,
             null::bigint as receipt_id, d.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.deferred_jobs r where r.job_id = a.job_id offset 0) d
      union all
      select 1, h.job_id, 'head', 'available', null, h.queue, h.priority, null, h.position, h.run_lease, h.attempt, null, null, null, null, h.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.spilled_entries r where r.job_id = a.job_id offset 0) h
      union all
      select 1, l.job_id, 'lease', l.state, null, l.queue, l.priority, null, null, l.run_lease, l.attempt, l.claim_slot, l.batch_id,
             l.batch_index, l.receipt_id, l.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.leases r where r.job_id = a.job_id offset 0) l
      union all
      select 1, t.job_id, 'terminal', t.state, null, t.queue, t.priority, null, null, t.run_lease, t.attempt, null, null, null, null, t.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.terminal_jobs r where r.job_id = a.job_id offset 0) t
      union all
      select 1, t.job_id, 'dead', 'dead_lettered', null, t.queue, t.priority, null, null, t.run_lease, t.attempt, null, null, null, null, t.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.dlq_entries r where r.job_id = a.job_id offset 0) t
      union all
      select 2, t.job_id, 'quarantined', 'quarantined', null, t.queue, t.priority, null, null, t.run_lease, t.attempt, null, null, null, null, t.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.quarantined_jobs r where r.job_id = a.job_id offset 0) t
      union all
      select 3, e.job_id, 'entry', 'available', e.segment, e.queue, e.priority, e.xid, e.seq, e.run_lease, e.attempt, null, null, null, null, e.unique_key
      from ring e where not e.is_claimed and e.tombstone is null
      union all
      select 3, e.job_id, 'attempt', 'running', e.segment, e.queue, e.priority, e.xid, e.seq, e.claimed_lease, e.attempt + 1,
             (m.fingerprint << 12) | (1 << 8) | e.segment, e.batch_id, e.batch_index, e.receipt_id, e.unique_key
      from ring e cross join {{schema}}.meta m where e.batch_id is not null and e.outcome is null
      union all
      select 4, e.job_id, 'completed', 'completed', e.segment, e.queue, e.priority, e.xid, e.seq, e.claimed_lease, e.attempt + 1, null, e.batch_id,
             e.batch_index, null, null
      from ring e where e.outcome = 'completed'
      union all
      select 4, c.job_id, 'completed', 'completed', null, c.queue, c.priority, null, null, c.run_lease, c.attempt, null, null, null, null, null
      from asked a
      cross join lateral (
        select r.* from {{schema}}.lease_closures r where r.job_id = a.job_id and r.outcome = 'completed' offset 0) c
      union all
      select 5, e.job_id, 'past', coalesce(e.outcome::text, e.tombstone), null, e.queue, e.priority, null, null, e.run_lease, e.attempt, null, null, null, null, null
      from ring e
      union all
      select 5, c.job_id, 'past', c.outcome::text, null, c.queue, c.priority, null, null, c.run_lease, c.attempt, null, null, null, null, null
      from asked a cross join lateral (select r.* from {{schema}}.lease_closures r where r.job_id = a.job_id offset 0) c
    ) f
    order by f.job_id, f.rank, f.run_lease desc;
end $$;

-- One job by its id, in the columns of the view jobs, without a scan. No row: nothing of it is left but perhaps its attempts.
create or replace function {{schema}}.job(p_job_id bigint)
returns table (
  job_id bigint, queue text, priority smallint, kind text, args jsonb, state text, run_lease bigint, attempt integer, max_attempts integer,
  progress jsonb, errors jsonb, created_at timestamptz, run_at timestamptz, claimed_at timestamptz, finalized_at timestamptz,
  ready_at timestamptz, reason text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    with f as materialized (
      select j.* from {{schema}}.find_jobs(array[p_job_id]) j
    )
    select e.job_id, e.queue, abs(e.priority), e.kind, e.args, f.state, f.run_lease, f.attempt, e.max_attempts,
           coalesce(e.closed_progress, s.progress, e.progress), e.errors, e.created_at, null::timestamptz, e.claimed_at, e.closed_at,
           case when f.place = 'entry' then coalesce(e.ready_at, e.created_at) end, null::text
    from f
    cross join lateral (
      {{#segments union all}}
      select r.*, b.claimed_at, c.closed_at, c.progress as closed_progress
      from {{schema}}.ready_entries_{{segment}} r
      left join {{schema}}.claim_batches_{{segment}} b on b.batch_id = f.batch_id
      left join {{schema}}.closures_{{segment}} c on c.batch_id = f.batch_id and c.batch_index = f.batch_index
      where f.segment = {{segment}} and r.queue = f.queue and r.priority = f.priority and r.xid = f.xid and r.seq = f.seq
      {{/segments}}
    ) e
    left join {{schema}}.attempt_state s on f.place = 'attempt' and s.job_id = f.job_id and s.run_lease = f.run_lease
    where f.segment is not null
    union all
    select h.job_id, h.queue, h.priority, h.kind, h.args, f.state, h.run_lease, h.attempt, h.max_attempts, h.progress, h.errors,
           h.created_at, null, null, null, coalesce(h.ready_at, h.created_at), null
    from f join {{schema}}.spilled_entries h on f.place = 'head' and h.queue = f.queue and h.priority = f.priority and h.position = f.seq
    union all
    select l.job_id, l.queue, abs(l.priority), l.kind, l.args, l.state, l.run_lease, l.attempt, l.max_attempts, l.progress, l.errors,
           l.created_at, null, l.claimed_at, null, null, null
    from f join {{schema}}.leases l on f.place = 'lease' and l.job_id = f.job_id and l.run_lease = f.run_lease
    union all
    select c.job_id, c.queue, abs(c.priority), c.kind, c.args, 'completed', c.run_lease, c.attempt, c.max_attempts, c.progress, c.errors,
           c.created_at, null, c.claimed_at, c.closed_at, null, null
    from f join {{schema}}.lease_closures c
      on f.place = 'completed' and f.segment is null and c.job_id = f.job_id and c.run_lease = f.run_lease
    union all
    select d.job_id, d.queue, d.priority, d.kind, d.args, d.state, d.run_lease, d.attempt, d.max_attempts, d.progress, d.errors,
           d.created_at, nullif(d.run_at, 'infinity'), null, null, null, null
    from f join {{schema}}.deferred_jobs d on f.place = 'deferred' and d.job_id = f.job_id
    union all
    select t.job_id, t.queue, t.priority, t.kind, t.args, t.state, t.run_lease, t.attempt, t.max_attempts, t.progress, t.errors,
           t.created_at, null, null, t.finalized_at, null, null
    from f join {{schema}}.terminal_jobs t on f.place = 'terminal' and t.job_id = f.job_id
    union all
    select q.job_id, q.queue, q.priority, q.kind, q.args, 'dead_lettered', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
           q.created_at, null, null, q.dead_lettered_at, null, q.reason
    from f join {{schema}}.dlq_entries q on f.place = 'dead' and q.job_id = f.job_id
    union all
    select q.job_id, q.queue, q.priority, q.kind, q.args, 'quarantined', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
           q.created_at, null, null, q.quarantined_at, null, q.reason
    from f join {{schema}}.quarantined_jobs q on f.place = 'quarantined' and q.job_id = f.job_id;
end $$;

-- Every attempt of a job that is remembered, in order. outcome null: it is open. authority: claim, or lease for one that left
-- the ring. error: what the job's own list has kept of it.
create or replace function {{schema}}.job_attempts(p_job_id bigint)
returns table (
  job_id bigint, run_lease bigint, attempt integer, authority text, queue text, priority smallint, runtime_id bigint,
  claimed_at timestamptz, deadline_at timestamptz, outcome text, closed_at timestamptz, progress jsonb, error jsonb, caller_owned boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    with ring as materialized (
      {{#segments union all}}
      select e.* from {{schema}}.entries_of_{{segment}}(array[p_job_id]) e
      {{/segments}}
    ), errors as materialized (
      select distinct on (2) x.e -> 'error' as error, (x.e ->> 'run_lease')::bigint as run_lease
      from {{schema}}.job(p_job_id) j cross join lateral jsonb_array_elements(j.errors) as x(e)
      order by 2
    )
    select a.job_id, a.run_lease, a.attempt, a.authority, a.queue, abs(a.priority), a.runtime_id, a.claimed_at, a.deadline_at,
           a.outcome::text, a.closed_at, a.progress, x.error, a.outcome = 'completed' and a.closer is null
    from (
      select e.job_id, e.claimed_lease as run_lease, e.attempt + 1 as attempt, 'claim' as authority, e.queue, e.priority, e.runtime_id, e.claimed_at,
             e.deadline_at, e.outcome, e.closed_at, coalesce(e.progress, s.progress) as progress, e.closer
      from ring e
      left join {{schema}}.attempt_state s on e.outcome is null and s.job_id = e.job_id and s.run_lease = e.claimed_lease
      where e.batch_id is not null and e.outcome is distinct from 'materialized'
      union all
      select l.job_id, l.run_lease, l.attempt, 'lease', l.queue, l.priority, l.runtime_id, l.claimed_at, l.deadline_at, null, null, l.progress, null
      from {{schema}}.leases l where l.job_id = p_job_id
      union all
      select c.job_id, c.run_lease, c.attempt, 'lease', c.queue, c.priority, c.runtime_id, c.claimed_at, null, c.outcome, c.closed_at, c.progress, c.closer
      from {{schema}}.lease_closures c where c.job_id = p_job_id
    ) a
    left join errors x on x.run_lease = a.run_lease
    order by a.run_lease;
end $$;

-- Counting, up to a cap: what is in no segment's past, and never more of it than asked for.
{{#segments}}
create or replace function {{schema}}.count_available_{{segment}}(p_cap integer)
returns table (queue text, n bigint)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select l.queue, f.n + p.n
    from lane l
    left join lateral (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (l.queue, l.priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
      on b.queue = l.queue and b.priority = l.priority
    cross join lateral (
      select count(*) as n from (
        select from {{schema}}.ready_entries_{{segment}} r
        where r.queue = l.queue and r.priority = l.priority
          and (r.xid, r.seq) > (coalesce(b.cursor_xid, '0'::xid8), coalesce(b.cursor_seq, 0))
          and not exists (select from {{schema}}.ready_tombstones_{{segment}} t
                          where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq)
        limit p_cap + 1) r) f
    cross join lateral (
      select count(*) as n from (
        select from unnest(b.pending_xids, b.pending_seqs) as w(x, s)
        cross join lateral (
          select from {{schema}}.ready_entries_{{segment}} r
          where r.queue = l.queue and r.priority = l.priority and r.xid = w.x and r.seq > w.s
            and not exists (select from {{schema}}.ready_tombstones_{{segment}} t
                            where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq)
          limit p_cap + 1) r
        limit p_cap + 1) r) p
    where l.priority > 0;
end $$;

-- Open attempts: of a batch, as many as it has items without closures; of a batch that rescue's mark has passed, those that
-- have a row in attempt_state. p_queue null: of all queues.
create or replace function {{schema}}.count_running_{{segment}}(p_queue text)
returns table (queue text, n bigint)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_from bigint;
begin
  select s.rescued_to into v_from from {{schema}}.segments s where s.slot = {{segment}};
  return query
    select o.queue, sum(o.n)::bigint
    from (
      select b.queue, b.n - c.closed as n
      from (select b.queue, b.batch_id, b.n from {{schema}}.claim_batches_{{segment}} b
            where b.batch_id > v_from and b.n > 0 and (p_queue is null or b.queue = p_queue) offset 0) b
      cross join lateral (
        select count(*) as closed from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id offset 0) c
      union all
      select b.queue, 1
      from {{schema}}.attempt_state s
      cross join lateral (
        select b.queue from {{schema}}.claim_batches_{{segment}} b
        where b.batch_id = s.batch_id and b.job_ids[s.batch_index] = s.job_id and b.run_leases[s.batch_index] = s.run_lease offset 0) b
      left join lateral (
        select true as found from {{schema}}.closures_{{segment}} c
        where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
      where s.claim_slot & 255 = {{segment}} and s.batch_id <= v_from and c.found is null and (p_queue is null or b.queue = p_queue)
    ) o
    group by o.queue having sum(o.n) > 0;
end $$;
{{/segments}}

-- How many jobs a queue has in each state that is not history: exact up to the cap; above it the cap, and is_exact false.
create or replace function {{schema}}.queue_counts(p_cap integer)
returns table (queue text, state text, n bigint, is_exact boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
begin
  if p_cap is null or p_cap < 1 or p_cap > 1000000 then
    raise exception using errcode = '22023', message = 'cap: expected an integer from 1 to 1000000';
  end if;
  return query
    with recursive deferred as (
      (select d.queue, d.state from {{schema}}.deferred_jobs d order by d.queue, d.state limit 1)
      union all
      select n.queue, n.state from deferred l cross join lateral (
        select d.queue, d.state from {{schema}}.deferred_jobs d
        where (d.queue, d.state) > (l.queue, l.state) order by d.queue, d.state limit 1) n
    ), terminal as (
      (select d.queue, d.state from {{schema}}.terminal_jobs d order by d.queue, d.state limit 1)
      union all
      select n.queue, n.state from terminal l cross join lateral (
        select d.queue, d.state from {{schema}}.terminal_jobs d
        where (d.queue, d.state) > (l.queue, l.state) order by d.queue, d.state limit 1) n
    ), dead as (
      (select d.queue from {{schema}}.dlq_entries d order by d.queue limit 1)
      union all
      select n.queue from dead l cross join lateral (
        select d.queue from {{schema}}.dlq_entries d where d.queue > l.queue order by d.queue limit 1) n
    )
    select c.queue, c.state, least(sum(c.n), p_cap)::bigint, sum(c.n) <= p_cap
    from (
      {{#segments union all}}
      select a.queue, 'available' as state, a.n from {{schema}}.count_available_{{segment}}(p_cap) a
      union all
      select r.queue, 'running', r.n from {{schema}}.count_running_{{segment}}(null) r
      {{/segments}}
      union all
      select h.queue, 'available', e.n
      from {{schema}}.spill_heads h
      cross join lateral (
        select count(*) as n from (
          select from {{schema}}.spilled_entries s
          where s.queue = h.queue and s.priority = h.priority and s.position > h.first_position limit p_cap + 1) s) e
      union all
      select l.queue, l.state, count(*) from {{schema}}.leases l group by l.queue, l.state
      union all
      select l.queue, l.state, e.n from deferred l
      cross join lateral (select count(*) as n from (
        select from {{schema}}.deferred_jobs d where d.queue = l.queue and d.state = l.state limit p_cap + 1) d) e
      union all
      select l.queue, l.state, e.n from terminal l
      cross join lateral (select count(*) as n from (
        select from {{schema}}.terminal_jobs d where d.queue = l.queue and d.state = l.state limit p_cap + 1) d) e
      union all
      select l.queue, 'dead_lettered', e.n from dead l
      cross join lateral (select count(*) as n from (
        select from {{schema}}.dlq_entries d where d.queue = l.queue limit p_cap + 1) d) e
      union all
      select q.queue, 'quarantined', count(*) from {{schema}}.quarantined_jobs q group by q.queue
    ) c
    where c.n > 0
    group by c.queue, c.state
    order by c.queue, c.state;
end $$;

-- The ring's slots. history_since (the same in every row): whatever became runnable since then still reads back, however it
-- ended. free_slots: how often the ring can turn before something must be pruned.
create or replace function {{schema}}.storage_health()
returns table (
  slot smallint, generation bigint, state text, is_current boolean, opened_at timestamptz, sealed_at timestamptz, drained_at timestamptz,
  bytes bigint, free_slots integer, history_since timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    with sizes as (
      {{#segments union all}}
      select {{segment}} as slot,
             pg_total_relation_size({{schema_text ready_entries_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text claim_batches_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text closures_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text ready_tombstones_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text expected_completions_{{segment}}}}::regclass) as bytes
      {{/segments}}
    ), used as (
      -- generations go back without a gap from the newest: before a gap, something is missing
      select s.opened_at, s.generation, row_number() over (order by s.generation desc) as i, max(s.generation) over () as newest
      from {{schema}}.segments s where s.state <> 'free'
    )
    select s.slot, s.generation, s.state, s.slot = c.last_value % {{ring}}, s.opened_at, s.sealed_at, s.drained_at, z.bytes,
           (select count(*)::integer from {{schema}}.segments f where f.state = 'free'),
           (select min(u.opened_at) from used u where u.generation = u.newest - u.i + 1)
    from {{schema}}.segments s join sizes z on z.slot = s.slot cross join {{schema}}.segment_cursor c
    order by s.slot;
end $$;
