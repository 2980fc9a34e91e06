-- Caller-owned finalization of many attempts in one transaction of the caller: all of them are completed, or it raises. What one
-- attempt's completion means is 040's; here it is said once for all, and whatever is not plain is left to that.

-- One branch per segment, reached through complete_jobs only, which holds the attempts' locks. Answers which items it completed.
{{#segments}}
create or replace function {{schema}}.complete_jobs_{{segment}}(
  p_at timestamptz, p_job_ids bigint[], p_run_leases bigint[], p_claim_slots integer[], p_receipt_ids bigint[], p_batch_ids bigint[],
  p_batch_indexes integer[])
returns integer[]
language plpgsql volatile as $$
declare
  v_done     integer[];
  v_keys     bytea[];
  v_holders  bigint[];
  v_states   boolean;
  v_ords     integer[];
  v_batches  bigint[];
  v_idxs     integer[];
  v_rows     tid[];
  v_closed   integer;
begin
  -- The plain ones first: nothing is known of them but that they run, and no key is to be given back. Nearly always these are all.
  with asked as (
    select i.batch_id, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids, array_agg(i.run_lease) as run_leases,
           array_agg(i.receipt_id) as receipt_ids
    from unnest(p_claim_slots, p_batch_ids, p_batch_indexes, p_job_ids, p_run_leases, p_receipt_ids)
      as i(slot, batch_id, idx, job_id, run_lease, receipt_id)
    where i.slot & 255 = {{segment}}
    group by i.batch_id
  )
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid)
  select a.batch_id, x.idx, 'completed', p_at, pg_current_xact_id()
  from asked a
  cross join lateral (
    select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id and c.unique_keys is null offset 0) b
  cross join lateral unnest(a.idxs, a.job_ids, a.run_leases, a.receipt_ids) as x(idx, job_id, run_lease, receipt_id)
  where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt_id
    and not exists (select from {{schema}}.attempt_state t where t.job_id = x.job_id and t.run_lease = x.run_lease offset 0)
  order by a.batch_id, x.idx
  on conflict (batch_id, batch_index) do nothing;
  get diagnostics v_closed = row_count;
  v_done := array(select i.ord::integer from unnest(p_claim_slots) with ordinality as i(slot, ord) where i.slot & 255 = {{segment}});
  if v_closed = cardinality(v_done) then
    return v_done;
  end if;
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt_id) as receipt_ids
    from unnest(p_claim_slots, p_batch_ids, p_batch_indexes, p_job_ids, p_run_leases, p_receipt_ids) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt_id, ord)
    where i.slot & 255 = {{segment}}
    group by i.batch_id
  ), matched as materialized (
    select x.ord, a.batch_id, x.idx, x.job_id, b.unique_keys[x.idx] as unique_key, s.job_id is not null as has_state, s.progress
    from asked a
    cross join lateral (
      select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases,
             case when c.unique_keys is not null then c.unique_keys || '{}' end as unique_keys
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
    cross join lateral unnest(a.ords, a.idxs, a.job_ids, a.run_leases, a.receipt_ids) as x(ord, idx, job_id, run_lease, receipt_id)
    left join lateral (
      select t.job_id, t.progress from {{schema}}.attempt_state t
      where t.job_id = x.job_id and t.run_lease = x.run_lease offset 0) s on true
    where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt_id
  ), inserted as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
    select m.batch_id, m.idx, 'completed', p_at, pg_current_xact_id(), m.progress
    from matched m
    order by m.batch_id, m.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  )
  select array_agg(m.ord), array_agg(m.batch_id), array_agg(m.idx),
         array_agg(m.unique_key) filter (where m.unique_key is not null and i.batch_id is not null),
         array_agg(m.job_id) filter (where m.unique_key is not null and i.batch_id is not null),
         bool_or(m.has_state and i.batch_id is not null)
  into v_ords, v_batches, v_idxs, v_keys, v_holders, v_states
  from matched m left join inserted i on i.batch_id = m.batch_id and i.batch_index = m.idx;
  -- Of those whose every field is right, which stand for their places: those that this very call has closed. An earlier call of the same
  -- transaction has another time.
  v_done := array(
    select m.ord
    from unnest(v_ords, v_batches, v_idxs) as m(ord, batch_id, idx)
    cross join lateral (
      select from {{schema}}.closures_{{segment}} c
      where c.batch_id = m.batch_id and c.batch_index = m.idx and c.xid = pg_current_xact_id() and c.closed_at = p_at offset 0) c);
  -- where a beat since this transaction's snapshot would make the deletion fail, the sweep takes the rows
  if v_states and current_setting('transaction_isolation') like 'read %' then
    v_rows := array(
      select t.ctid from unnest(v_done) d
      cross join lateral (select a.ctid from {{schema}}.attempt_state a
                          where a.job_id = p_job_ids[d] and a.run_lease = p_run_leases[d] for update) t);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
  end if;
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
  return v_done;
end $$;
{{/segments}}

create or replace function {{schema}}.complete_jobs(
  job_ids bigint[], run_leases bigint[], claim_slots integer[], receipt_ids bigint[], batch_ids bigint[], batch_indexes integer[])
returns setof {{schema}}.finalization
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_nestloop = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_n      integer := cardinality(job_ids);
  v_known  record;
  v_item   record;
  v_slot   integer;
  v_done   integer[] := '{}';
  v_at     timestamptz;
  v_gated  boolean;
  v_one    timestamptz;
  v_times  timestamptz[] := '{}';  -- of those that were completed one by one
  v_note   text;
begin
  if not (v_n between 1 and 200 and cardinality(run_leases) = v_n and cardinality(claim_slots) = v_n and cardinality(receipt_ids) = v_n
          and cardinality(batch_ids) = v_n and cardinality(batch_indexes) = v_n
          and array_lower(job_ids, 1) = 1 and array_lower(run_leases, 1) = 1
          and (select max(array_ndims) from (values (array_ndims(job_ids)), (array_ndims(run_leases)), (array_ndims(claim_slots)),
               (array_ndims(receipt_ids)), (array_ndims(batch_ids)), (array_ndims(batch_indexes))) d(array_ndims)) = 1) is true then
    raise exception using errcode = '22023', message = 'expected six arrays of the same length, from 1 to 200';
  end if;
  select bool_and(i.j >= 1 and i.l >= 1 and i.r >= 1 and i.b >= 1 and i.x >= 1 and i.s >= 0 and i.s & 255 < {{ring}}
                  and (i.s >> 8) & 15 = 1 and i.s >> 12 = m.fingerprint and i.b <= q.last_value) is true
           and count(*) = v_n and not bool_or(i.j is null or i.l is null or i.r is null or i.b is null or i.x is null or i.s is null)
           and count(distinct i.r) = v_n as tokens,
         bool_and(m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid)) as ours
  into v_known
  from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) as i(j, l, s, r, b, x)
  cross join (select m.*, m.tableoid from {{schema}}.meta m limit 1) m cross join {{schema}}.batch_seq q;
  if (v_known.tokens and v_known.ours) is not true then  -- one by one, and in full: it says what is wrong, if anything is
    for v_item in
      select * from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) as i(j, l, s, r, b, x)
    loop
      perform {{schema}}.require_token(v_item.j, v_item.l, v_item.s, v_item.r, v_item.b, v_item.x);
    end loop;
    if (select count(distinct r) from unnest(receipt_ids) r) < v_n then
      raise exception using errcode = '22023', message = 'an attempt is named twice';
    end if;
  end if;

  -- In one order for all callers, that of their places: two that complete the same attempts wait for each other, and never both. Each is a
  -- place in the server's table of locks until the transaction ends, hence no more than 200.
  perform pg_advisory_xact_lock(o.key)
  from (select hashtextextended({{key attempt}} || i.j || '/' || i.l, 0) as key
        from unnest(job_ids, run_leases, claim_slots, batch_ids, batch_indexes) as i(j, l, s, b, x)
        order by i.s & 255, i.b, i.x, i.j, i.l) o;
  -- what is so now, when nobody else has these attempts
  v_at := clock_timestamp();
  select m.any_gated into v_gated from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(claim_slots) s order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        v_done := v_done || {{schema}}.complete_jobs_{{segment}}(v_at, job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes);
      {{/segments}}
    end case;
  end loop;
  if cardinality(v_done) < v_n then
    -- What is no plain attempt of the ring: a lease, which is completed here, or an attempt that has ended, which raises.
    for v_item in
      select * from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) with ordinality as i(j, l, s, r, b, x, ord)
      where i.ord <> all (v_done) order by i.s & 255, i.b, i.x
    loop
      case v_item.s & 255
        {{#segments}}
        when {{segment}} then
          v_one := {{schema}}.complete_{{segment}}(v_item.j, v_item.l, v_item.s, v_item.r, v_item.b, v_item.x, null);
        {{/segments}}
      end case;
      if v_one is null then
        if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
          raise exception using errcode = '40001', message = 'the claim is not visible in this transaction''s snapshot';
        end if;
        perform {{schema}}.raise_stale(v_item.j, v_item.l, null, null);
      end if;
      v_times[v_item.ord] := v_one;
    end loop;
  end if;
  if v_gated then
    for v_item in select * from unnest(job_ids, run_leases, claim_slots, batch_ids) as i(j, l, s, b) loop
      perform {{schema}}.require_caller_owned(v_item.j, v_item.l, v_item.s, v_item.b);
    end loop;
  end if;
  -- for the commit guard, as complete_job's
  v_note := set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '')
      || (select string_agg('[' || {{schema_name}} || '/' || r || ']', '') from unnest(receipt_ids) r), true);
  return query
    select 1, i.j, i.l, i.s, i.r, i.b, i.x, 'completed'::text, coalesce(v_times[i.ord], v_at), pg_current_xact_id()
    from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) with ordinality as i(j, l, s, r, b, x, ord)
    order by i.ord;
end $$;
