-- Closing attempts. Every close checks in the same call that its claim exists and that job id, run lease and receipt are the
-- item's: once a segment was pruned and reused, the closure's key alone is free again.
-- Plans here must not depend on statistics (a plan made while a segment was empty lives for hours): tables are reached by
-- LATERAL … OFFSET 0, which stays one index probe per key, and what remains to be joined are arrays, which are hashed.
-- A batch's arrays are fetched once per call (array || '{}' is the fetched copy), not once for each of its items.

-- The jobs of items that have just been closed without success, from their ring entries, moved on.
{{#segments}}
create or replace function {{schema}}.dispose_{{segment}}(
  p_batch_ids bigint[], p_indexes integer[], p_outcomes {{schema}}.outcome[], p_details jsonb[])
returns void
language plpgsql volatile as $$
declare
  v_jobs {{schema}}.ended_job[];
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.idx) as idxs, array_agg(i.outcome) as outcomes, array_agg(i.detail) as details
    from unnest(p_batch_ids, p_indexes, p_outcomes, p_details) as i(batch_id, idx, outcome, detail)
    group by i.batch_id
  )
  select array_agg(row(e.job_id, e.run_lease + 1, e.queue, abs(e.priority), e.attempt + 1, e.max_attempts, e.kind, e.args, e.progress,
                       e.errors, e.created_at, e.unique_key, i.outcome,
                       -- an answer that nobody will give again stays with the job until it has ended
                       case when e.callback_result is not null then jsonb_build_object('callback_result', e.callback_result) else '{}' end
                       || coalesce(i.detail, '{}'))::{{schema}}.ended_job
                   order by e.job_id)
  into v_jobs
  from asked a
  cross join lateral (
    select c.queue, c.priority, c.xids || '{}' as xids, c.seqs || '{}' as seqs
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
  cross join lateral unnest(a.idxs, a.outcomes, a.details) as i(idx, outcome, detail)
  cross join lateral (
    select r.* from {{schema}}.ready_entries_{{segment}} r
    where r.queue = b.queue and r.priority = b.priority and r.xid = b.xids[i.idx] and r.seq = b.seqs[i.idx] offset 0) e;
  perform {{schema}}.dispose_jobs(v_jobs);
end $$;

create or replace function {{schema}}.close_{{segment}}(
  p_fingerprint integer, p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb, p_has_state boolean)
returns table (ord integer, answer text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_ords    integer[];
  v_taken   bigint[];
  v_idxs    integer[];
  v_is      boolean[];
  v_closed  integer[];
  v_rows    tid[];
  v_keys    bytea[];
  v_holders bigint[];
  v_rest    integer[];
  v_answers text[];
  v_lease   integer[];
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
    from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
    where i.slot & 255 = {{segment}} and i.slot >> 12 = p_fingerprint
    group by i.batch_id
  ), matched as materialized (
    select x.ord, a.batch_id, x.idx, x.job_id, x.run_lease, b.unique_keys[x.idx] as unique_key
    from asked a
    cross join lateral (
      select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases,
             case when c.unique_keys is not null then c.unique_keys || '{}' end as unique_keys
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
    cross join lateral unnest(a.ords, a.idxs, a.job_ids, a.run_leases, a.receipts) as x(ord, idx, job_id, run_lease, receipt)
    where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt
  ), inserted as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, closer, progress)
    select m.batch_id, m.idx, p_outcomes[m.ord], clock_timestamp(), pg_current_xact_id(), p_closer,
           coalesce(p_details -> m.ord::text -> 'progress',
             case when p_has_state then (select s.progress from {{schema}}.attempt_state s
                                         where s.job_id = m.job_id and s.run_lease = m.run_lease) end)
    from matched m
    order by m.batch_id, m.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index, outcome
  )
  select array_agg(m.ord), array_agg(m.batch_id), array_agg(m.idx), array_agg(i.batch_id is not null),
         coalesce(array_agg(m.ord order by m.ord) filter (where i.batch_id is not null), '{}'),
         array_agg(m.unique_key) filter (where m.unique_key is not null and i.outcome = 'completed'),
         array_agg(m.job_id) filter (where m.unique_key is not null and i.outcome = 'completed')
  into v_ords, v_taken, v_idxs, v_is, v_closed, v_keys, v_holders
  from matched m
  left join inserted i on i.batch_id = m.batch_id and i.batch_index = m.idx and i.outcome = p_outcomes[m.ord];

  return query select c, 'closed'::text from unnest(v_closed) c;
  -- What this statement did not insert is classified by another one: the first cannot see the row that it met. An attempt that
  -- was materialized, or whose claim is gone with its segment, is tried on its lease.
  if cardinality(v_closed) < (select count(*) from unnest(p_slots) s where s & 255 = {{segment}}) then
    select array_agg(i.ord::integer),
           array_agg(case when i.slot >> 12 = p_fingerprint and coalesce(met.outcome = 'materialized', true) then 'lease'
                          when met.closer = p_closer then 'repeated' else 'stale' end)
    into v_rest, v_answers
    from unnest(p_slots) with ordinality as i(slot, ord)
    left join unnest(v_closed) as done(ord) on done.ord = i.ord
    left join (
      select m.ord, c.closer, c.outcome
      from unnest(v_ords, v_taken, v_idxs, v_is) as m(ord, batch_id, idx, is_closed)
      cross join lateral (
        select c.closer, c.outcome from {{schema}}.closures_{{segment}} c
        where c.batch_id = m.batch_id and c.batch_index = m.idx offset 0) c
      where not m.is_closed) met on met.ord = i.ord
    where i.slot & 255 = {{segment}} and done.ord is null;
    return query select r.ord, r.answer from unnest(v_rest, v_answers) as r(ord, answer) where r.answer <> 'lease';
    v_lease := array(select r.ord from unnest(v_rest, v_answers) as r(ord, answer) where r.answer = 'lease');
    if cardinality(v_lease) > 0 then
      return query select * from {{schema}}.close_leases(p_closer, v_lease, p_job_ids, p_run_leases, p_receipts, p_outcomes, p_details);
    end if;
  end if;

  if exists (select from unnest(v_closed) c where p_outcomes[c] <> 'completed') then
    perform {{schema}}.dispose_{{segment}}(d.batch_ids, d.indexes, d.outcomes, d.details)
    from (select array_agg(p_batch_ids[c]) as batch_ids, array_agg(p_indexes[c]) as indexes, array_agg(p_outcomes[c]) as outcomes,
                 array_agg(coalesce(p_details -> c::text, '{}')
                   || case when p_has_state and s.progress is not null and not coalesce(p_details -> c::text, '{}') ? 'progress'
                        then jsonb_build_object('progress', s.progress) else '{}' end) as details
          from unnest(v_closed) c
          left join lateral (
            select a.progress from {{schema}}.attempt_state a
            where p_has_state and a.job_id = p_job_ids[c] and a.run_lease = p_run_leases[c] offset 0) s on true
          where p_outcomes[c] <> 'completed') d;
  end if;
  if p_has_state then  -- two statements: a row that a beat moved in between is found where it is now
    v_rows := array(
      select a.ctid from unnest(v_closed) c
      cross join lateral (select a.ctid from {{schema}}.attempt_state a
                          where a.job_id = p_job_ids[c] and a.run_lease = p_run_leases[c] for update) a);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
  end if;
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
end $$;

-- What nearly every flush is: attempts that completed, with nothing else to say of them. By claim batch: p_lasts says where the items
-- of each batch end in the arrays of items. An attempt's receipt is its batch's base and its index, so one comparison is that of all of
-- them.
create or replace function {{schema}}.close_completed_{{segment}}(
  p_fingerprint integer, p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_receipt_bases bigint[], p_lasts integer[],
  p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[])
returns integer
language plpgsql volatile as $$
declare
  v_rows     integer;
  v_keys     bytea[];
  v_holders  bigint[];
begin
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, closer)
  select b.batch_id, x.idx, 'completed', clock_timestamp(), pg_current_xact_id(), p_closer
  from unnest(p_slots, p_batch_ids, p_receipt_bases, array[0] || p_lasts, p_lasts) as g(slot, batch_id, receipt_base, after, last)
  cross join lateral (
    select c.batch_id, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
    from {{schema}}.claim_batches_{{segment}} c
    where c.batch_id = g.batch_id and c.receipt_base = g.receipt_base offset 0) b
  cross join lateral unnest(p_indexes[g.after + 1:g.last], p_job_ids[g.after + 1:g.last], p_run_leases[g.after + 1:g.last])
    as x(idx, job_id, run_lease)
  where g.slot & 255 = {{segment}} and g.slot >> 12 = p_fingerprint
    and b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease
  order by b.batch_id, x.idx
  on conflict (batch_id, batch_index) do nothing;
  get diagnostics v_rows = row_count;
  -- the keys of those that it was which closed them
  select array_agg(b.unique_keys[x.idx]), array_agg(x.job_id) into v_keys, v_holders
  from unnest(p_slots, p_batch_ids, p_receipt_bases, array[0] || p_lasts, p_lasts) as g(slot, batch_id, receipt_base, after, last)
  cross join lateral (
    select c.batch_id, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases, c.unique_keys || '{}' as unique_keys
    from {{schema}}.claim_batches_{{segment}} c
    where c.batch_id = g.batch_id and c.receipt_base = g.receipt_base and c.unique_keys is not null offset 0) b
  cross join lateral unnest(p_indexes[g.after + 1:g.last], p_job_ids[g.after + 1:g.last], p_run_leases[g.after + 1:g.last])
    as x(idx, job_id, run_lease)
  cross join lateral (
    select from {{schema}}.closures_{{segment}} c
    where c.batch_id = b.batch_id and c.batch_index = x.idx and c.closer = p_closer and c.xid = pg_current_xact_id() offset 0) c
  where g.slot & 255 = {{segment}} and g.slot >> 12 = p_fingerprint
    and b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.unique_keys[x.idx] is not null;
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
  return v_rows;
end $$;
{{/segments}}

-- Ends many attempts in one statement. Answers one row per item: closed (by this call), repeated (by an earlier try of this
-- same flush, whose answer was lost) or stale (anything else: the winner is not touched). p_closer is the flush's own id, the
-- same over its retries and close_completed; p_details holds, under an item's ordinal, its error, progress and delay_ms.
create or replace function {{schema}}.close_attempts(
  p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb, p_has_state boolean)
returns table (ord integer, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_nestloop = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
declare
  v_slot        integer;
  v_fingerprint integer;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  if exists (select from unnest(p_outcomes) o
             where o is null or o in ('rescued', 'materialized')) then
    raise exception using errcode = '22023', message = 'outcomes: not an outcome that a worker may report';
  end if;
  for v_slot in select distinct s & 255 from unnest(p_slots) s where s & 255 < {{ring}} order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        return query select * from {{schema}}.close_{{segment}}(v_fingerprint, p_closer, p_slots, p_batch_ids, p_indexes, p_job_ids,
          p_run_leases, p_receipts, p_outcomes, p_details, p_has_state);
      {{/segments}}
    end case;
  end loop;
  -- One token that is none must not fail the whole flush.
  return query
    select i.ord::integer, 'stale'::text from unnest(p_slots) with ordinality as i(slot, ord)
    where (i.slot & 255 < {{ring}}) is not true;
end $$;

-- Completes many attempts of which nothing else is to be said, and answers how many it closed. When these are not all, close_attempts
-- with the same p_closer says which ones were not, and why.
create or replace function {{schema}}.close_completed(
  p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_receipt_bases bigint[], p_lasts integer[], p_indexes integer[],
  p_job_ids bigint[], p_run_leases bigint[])
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_slot         integer;
  v_fingerprint  integer;
  v_closed       integer := 0;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(p_slots) s order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        v_closed := v_closed + {{schema}}.close_completed_{{segment}}(v_fingerprint, p_closer, p_slots, p_batch_ids, p_receipt_bases,
          p_lasts, p_indexes, p_job_ids, p_run_leases);
      {{/segments}}
      else null;  -- no token of ours
    end case;
  end loop;
  return v_closed;
end $$;

-- Ends one attempt under its lock, taken in the try form: busy means that a finalization is in flight, whose end decides.
create or replace function {{schema}}.settle_attempt(
  p_closer bigint, p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint,
  p_outcome {{schema}}.outcome, p_detail jsonb)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform {{schema}}.require_read_committed();
  if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || p_job_id || '/' || p_run_lease, 0)) then
    return 'busy';
  end if;
  return (select c.answer from {{schema}}.close_attempts(p_closer, array[p_slot], array[p_batch_id], array[p_index],
    array[p_job_id], array[p_run_lease], array[p_receipt], array[p_outcome], jsonb_build_object('1', coalesce(p_detail, '{}')), true) c);
end $$;
