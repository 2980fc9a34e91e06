-- What the database knows of attempts whose handlers have just exited. Nothing is changed; 'unknown' (its evidence is gone)
-- is never 'open'. A lease is 'open' while a handler is at work on it or waits for its callback, and 'parked' when only its
-- callback can end it.

{{#segments}}
create or replace function {{schema}}.evidence_{{segment}}(
  p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[])
returns table (ord integer, status text, outcome text, closed_at timestamptz, closed_xid xid8, age_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
  return query
    with asked as materialized (
      select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.slot) as slots, array_agg(i.idx) as idxs,
             array_agg(i.job_id) as job_ids, array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
      from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
        as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
      where i.slot & 255 = {{segment}}
      group by i.batch_id
    )
    select i.ord,
           case when l.state = 'parked' then 'parked'
                when l.state is not null then 'open'
                when d.outcome is not null then 'closed'
                when b.batch_id is null then 'unknown'
                when i.slot >> 12 <> p_fingerprint or b.job_ids[i.idx] is distinct from i.job_id
                  or b.run_leases[i.idx] is distinct from i.run_lease or b.receipt_base + i.idx is distinct from i.receipt
                then 'superseded'
                when c.batch_id is null then 'open'
                else 'closed' end,
           coalesce(d.outcome, case when l.state is null then c.outcome end)::text,
           coalesce(d.closed_at, case when l.state is null then c.closed_at end), coalesce(d.xid, case when l.state is null then c.xid end),
           (extract(epoch from clock_timestamp() - coalesce(l.heartbeat_at, s.heartbeat_at, b.claimed_at)) * 1000)::bigint
    from asked a
    left join lateral (
      select c.batch_id, c.receipt_base, c.claimed_at, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b on true
    cross join lateral unnest(a.ords, a.slots, a.idxs, a.job_ids, a.run_leases, a.receipts)
      as i(ord, slot, idx, job_id, run_lease, receipt)
    left join lateral (select c.* from {{schema}}.closures_{{segment}} c
                       where c.batch_id = a.batch_id and c.batch_index = i.idx offset 0) c on true
    left join lateral (select s.heartbeat_at from {{schema}}.attempt_state s
                       where s.job_id = i.job_id and s.run_lease = i.run_lease offset 0) s on true
    -- only for those that are not in the ring, or not any more
    cross join lateral (
      select i.slot >> 12 = p_fingerprint
             and (c.outcome = 'materialized' or b.job_ids[i.idx] is distinct from i.job_id
                  or b.run_leases[i.idx] is distinct from i.run_lease or b.receipt_base + i.idx is distinct from i.receipt) as elsewhere) o
    left join lateral (select l.state, l.heartbeat_at from {{schema}}.leases l
                       where o.elsewhere and l.job_id = i.job_id and l.run_lease = i.run_lease
                         and l.receipt_id = i.receipt offset 0) l on true
    left join lateral (select d.outcome, d.closed_at, d.xid from {{schema}}.lease_closures d
                       where o.elsewhere and d.job_id = i.job_id and d.run_lease = i.run_lease
                         and d.receipt_id = i.receipt offset 0) d on true;
end $$;
{{/segments}}

create or replace function {{schema}}.attempt_evidence(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[])
returns table (ord integer, status text, outcome text, closed_at timestamptz, closed_xid xid8, age_ms bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
  v_slot        integer;
  v_fingerprint integer;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(p_slots) s where s & 255 < {{ring}} order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        return query select * from {{schema}}.evidence_{{segment}}(v_fingerprint, p_slots, p_batch_ids, p_indexes, p_job_ids,
          p_run_leases, p_receipts);
      {{/segments}}
    end case;
  end loop;
  return query
    select i.ord::integer, 'unknown'::text, null::text, null::timestamptz, null::xid8, null::bigint
    from unnest(p_slots) with ordinality as i(slot, ord) where (i.slot & 255 < {{ring}}) is not true;
end $$;
