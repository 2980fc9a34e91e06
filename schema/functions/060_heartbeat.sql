-- Beats. One statement for all attempts of a runtime that are older than a beat, and one for the runtime itself.

-- Answers the attempts that are no longer the runtime's, with the outcome that ended them, and as 'busy' those that are and
-- were not beaten for. A beat touches only rows that it can lock at once: a finalization in flight holds its row, and one hung
-- caller must not stop everybody's beats.
{{#segments}}
create or replace function {{schema}}.heartbeat_{{segment}}(
  p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_live   integer[];
  v_lost   integer[];
  v_locked integer[];
  v_fresh  integer[];
  v_moved  integer[];
  v_rows   tid[];
  v_new    jsonb;
  v_now    timestamptz := clock_timestamp();
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
    from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
    where i.slot & 255 = {{segment}} and i.slot >> 12 = p_fingerprint
    group by i.batch_id
  )
  select coalesce(array_agg(x.ord), '{}') into v_live
  from asked a
  cross join lateral (
    select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
  cross join lateral unnest(a.ords, a.idxs, a.job_ids, a.run_leases, a.receipts) as x(ord, idx, job_id, run_lease, receipt)
  left join lateral (
    select true as found from {{schema}}.closures_{{segment}} c
    where c.batch_id = a.batch_id and c.batch_index = x.idx offset 0) c on true
  where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt
    and c.found is null;
  v_lost := array(
    select i.ord::integer from unnest(p_slots) with ordinality as i(slot, ord) where i.slot & 255 = {{segment}}
    except select unnest(v_live));

  -- New rows first: only their insertion may wait (for whoever makes a lease of the attempt, or takes note of it), and it must
  -- not do so with the rows of other attempts in hand.
  with fresh as (
    insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at, progress)
    select p_job_ids[l], p_run_leases[l], p_slots[l], p_batch_ids[l], p_indexes[l], v_now, p_progress -> l::text
    from unnest(v_live) l
    left join lateral (
      select true as found from {{schema}}.attempt_state s
      where s.job_id = p_job_ids[l] and s.run_lease = p_run_leases[l] offset 0) s on true
    where s.found is null
    order by p_job_ids[l], p_run_leases[l]
    on conflict (job_id, run_lease) do nothing
    returning batch_id, batch_index
  )
  select coalesce(array_agg(l), '{}') into v_fresh
  from unnest(v_live) l join fresh f on f.batch_id = p_batch_ids[l] and f.batch_index = p_indexes[l];

  -- Then the rows that can be locked at once, updated where they are: no join whose plan could depend on the table's size.
  select coalesce(array_agg(l), '{}'), array_agg(s.ctid) into v_locked, v_rows
  from (select unnest(v_live) as l except select unnest(v_fresh)) old
  cross join lateral (
    select a.ctid from {{schema}}.attempt_state a
    where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] for update skip locked) s;
  select jsonb_object_agg(p_job_ids[l] || '/' || p_run_leases[l], p_progress -> l::text) into v_new
  from unnest(v_locked) l where p_progress ? l::text;
  update {{schema}}.attempt_state s
  set heartbeat_at = v_now, progress = coalesce(v_new -> (s.job_id || '/' || s.run_lease), s.progress)
  where s.ctid = any (v_rows);

  -- A new row may have waited for the transaction that made a lease of its attempt: then it belongs there.
  v_moved := array(
    select l from unnest(v_fresh) l
    cross join lateral (
      select from {{schema}}.closures_{{segment}} c
      where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] and c.outcome = 'materialized' offset 0) c);
  if cardinality(v_moved) > 0 then
    v_rows := array(
      select s.ctid from unnest(v_moved) l
      cross join lateral (
        select a.ctid from {{schema}}.attempt_state a where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] offset 0) s);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
  end if;

  return query select unnest(v_live), 'busy'::text except select unnest(v_locked || v_fresh), 'busy'::text;
  if cardinality(v_lost) + cardinality(v_moved) > 0 then
    v_moved := v_moved || array(
      select l from unnest(v_lost) l
      left join lateral (
        select c.outcome from {{schema}}.closures_{{segment}} c
        where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] offset 0) c on true
      where p_slots[l] >> 12 = p_fingerprint and coalesce(c.outcome = 'materialized', true));
    return query
      select l, c.outcome::text
      from (select unnest(v_lost) except select unnest(v_moved)) as ended(l)
      left join lateral (
        select c.outcome from {{schema}}.closures_{{segment}} c
        where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] offset 0) c on true;
    return query select * from {{schema}}.heartbeat_leases(v_moved, p_job_ids, p_run_leases, p_receipts, p_progress);
  end if;
end $$;
{{/segments}}

create or replace function {{schema}}.heartbeat(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[],
  p_progress jsonb)
returns table (ord integer, outcome text)
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
        return query select * from {{schema}}.heartbeat_{{segment}}(v_fingerprint, p_slots, p_batch_ids, p_indexes, p_job_ids,
          p_run_leases, p_receipts, p_progress);
      {{/segments}}
    end case;
  end loop;
  return query
    select i.ord::integer, null::text from unnest(p_slots) with ordinality as i(slot, ord)
    where (i.slot & 255 < {{ring}}) is not true;
end $$;

-- Registers a runtime and returns its id; with an id, renews its row (and restores it after somebody swept it).
create or replace function {{schema}}.beat_runtime(p_runtime_id bigint, p_name text, p_contract integer, p_capabilities jsonb)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := coalesce(p_runtime_id, nextval({{schema_text runtime_ids}}));
begin
  perform {{schema}}.prove_identity();  -- the server may have been started anew; before the row: so does who locks both tables
  insert into {{schema}}.runtimes as r (runtime_id, name, contract, capabilities)
  values (v_id, p_name, p_contract, p_capabilities)
  on conflict (runtime_id) do update
  set beat_at = clock_timestamp(), capabilities = excluded.capabilities;
  return v_id;
end $$;

create or replace function {{schema}}.retire_runtime(p_runtime_id bigint) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ delete from {{schema}}.runtimes r where r.runtime_id = p_runtime_id $$;
