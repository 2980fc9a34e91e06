-- Beats. One statement for all attempts of a runtime that are older than a beat, and one for the runtime itself.

-- Answers the attempts that are no longer the runtime's. A beat touches only rows that it can lock at once: a finalization in
-- flight holds its row, and one hung caller must not stop everybody's beats.
{{#segments}}
create or replace function {{schema}}.heartbeat_{{segment}}(
  p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_live integer[];
  v_lost integer[];
  v_rows tid[];
  v_new  jsonb;
  v_now  timestamptz := clock_timestamp();
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

  -- Rows that can be locked at once, then updated where they are: no join whose plan could depend on the table's size.
  v_rows := array(
    select s.ctid from unnest(v_live) l
    cross join lateral (
      select a.ctid from {{schema}}.attempt_state a
      where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] for update skip locked) s);
  select jsonb_object_agg(p_job_ids[l] || '/' || p_run_leases[l], p_progress -> l::text) into v_new
  from unnest(v_live) l where p_progress ? l::text;
  update {{schema}}.attempt_state s
  set heartbeat_at = v_now, progress = coalesce(v_new -> (s.job_id || '/' || s.run_lease), s.progress)
  where s.ctid = any (v_rows);

  insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at, progress)
  select p_job_ids[l], p_run_leases[l], p_slots[l], p_batch_ids[l], p_indexes[l], v_now, p_progress -> l::text
  from unnest(v_live) l
  left join lateral (
    select true as found from {{schema}}.attempt_state s
    where s.job_id = p_job_ids[l] and s.run_lease = p_run_leases[l] offset 0) s on true
  where s.found is null
  order by p_job_ids[l], p_run_leases[l]
  on conflict (job_id, run_lease) do nothing;

  return query
    select l, c.outcome::text
    from unnest(v_lost) l
    left join lateral (
      select c.outcome from {{schema}}.closures_{{segment}} c
      where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] offset 0) c on true;
end $$;
{{/segments}}

create or replace function {{schema}}.heartbeat(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[],
  p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile
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
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := coalesce(p_runtime_id, nextval({{schema_text runtime_ids}}));
begin
  insert into {{schema}}.runtimes as r (runtime_id, name, contract, capabilities)
  values (v_id, p_name, p_contract, p_capabilities)
  on conflict (runtime_id) do update
  set beat_at = clock_timestamp(), capabilities = excluded.capabilities;
  return v_id;
end $$;

create or replace function {{schema}}.retire_runtime(p_runtime_id bigint) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ delete from {{schema}}.runtimes r where r.runtime_id = p_runtime_id $$;

-- Whether this database is the one that the installation was made for. A copy inside one cluster, or a database that kept its
-- transaction ids (pg_upgrade), is adopted under a new installation id, so that tokens of the original never match here. A
-- database whose stored transaction ids lie ahead of the server's own is refused: its cursors would hide new work.
create or replace function {{schema}}.adopt_database() returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_meta   record;
  v_here   record;
  v_ahead  boolean;
  v_id     uuid := gen_random_uuid();
begin
  perform {{schema}}.require_read_committed();
  select c.system_identifier, d.oid as database_oid into v_here
  from pg_control_system() c, pg_database d where d.datname = current_database();
  select m.* into v_meta from {{schema}}.meta m;
  if v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    return 'ours';
  end if;
  select m.* into v_meta from {{schema}}.meta m for update;
  if v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    return 'ours';
  end if;
  if v_meta.system_identifier <> v_here.system_identifier then
    select coalesce(bool_or(s.newest >= pg_snapshot_xmax(pg_current_snapshot())), false) into v_ahead
    from (
      {{#segments union all}}
      select greatest((select max(cursor_xid::text::numeric) from {{schema}}.claim_batches_{{segment}}),
                      (select max(xid::text::numeric) from {{schema}}.ready_entries_{{segment}}))::text::xid8 as newest
      {{/segments}}
    ) s;
    if v_ahead then
      return 'refused';
    end if;
  end if;
  update {{schema}}.meta m
  set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,
      system_identifier = v_here.system_identifier, database_oid = v_here.database_oid;
  return 'adopted';
end $$;
