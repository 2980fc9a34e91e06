-- Caller-owned finalization: the completion of one exact attempt, inside the caller's transaction. It raises or it completed;
-- there is no third answer that a caller could ignore.

-- One branch per segment, reached through complete_job only. The attempt's lock is held.
{{#segments}}
create or replace function {{schema}}.complete_{{segment}}(
  p_job_id bigint, p_run_lease bigint, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb)
returns timestamptz
language plpgsql volatile as $$
declare
  v_claim     record;
  v_progress  jsonb := p_progress;
  v_at        timestamptz := clock_timestamp();
  v_rows      integer;
begin
  select b.job_ids[p_batch_index] as job_id, b.run_leases[p_batch_index] as run_lease, b.receipt_base + p_batch_index as receipt_id
  into v_claim
  from {{schema}}.claim_batches_{{segment}} b where b.batch_id = p_batch_id;
  if not found then
    return null;
  end if;
  if v_claim.job_id is distinct from p_job_id or v_claim.run_lease is distinct from p_run_lease
     or v_claim.receipt_id is distinct from p_receipt_id then
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, null, null);
  end if;
  if v_progress is null then
    select s.progress into v_progress from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
  end if;
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
  values (p_batch_id, p_batch_index, 'completed', v_at, pg_current_xact_id(), v_progress)
  on conflict (batch_id, batch_index) do nothing;
  get diagnostics v_rows = row_count;
  if v_rows = 0 then  -- another statement, which sees the row that this one met
    select c.outcome, c.closed_at into v_claim
    from {{schema}}.closures_{{segment}} c where c.batch_id = p_batch_id and c.batch_index = p_batch_index;
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_claim.outcome, v_claim.closed_at);
  end if;
  delete from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
  return v_at;
end $$;
{{/segments}}

create or replace function {{schema}}.raise_stale(
  p_job_id bigint, p_run_lease bigint, p_outcome {{schema}}.outcome, p_closed_at timestamptz)
returns void
language plpgsql volatile as $$
begin
  if p_outcome is null then
    raise exception using errcode = 'WA001', message = format('stale attempt: job %s, run lease %s', p_job_id, p_run_lease);
  end if;
  raise exception using errcode = 'WA001', message = format('stale attempt: job %s, run lease %s', p_job_id, p_run_lease),
    detail = json_build_object('outcome', p_outcome, 'closed_at', p_closed_at)::text;
end $$;

-- The signature is the contract (C-15): callable by name, one exact form, no overload.
create or replace function {{schema}}.complete_job(
  job_id bigint, run_lease bigint, claim_slot integer, receipt_id bigint, batch_id bigint, batch_index integer,
  progress jsonb default null)
returns {{schema}}.finalization
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_meta   record;
  v_at     timestamptz;
begin
  if job_id is null or run_lease is null or claim_slot is null or receipt_id is null or batch_id is null or batch_index is null
     or job_id < 1 or run_lease < 1 or claim_slot < 0 or receipt_id < 1 or batch_id < 1 or batch_index < 1
     or (claim_slot & 255) >= {{ring}} then
    raise exception using errcode = 'WA003', message = 'malformed token';
  end if;
  if (claim_slot >> 8) & 15 <> 1 then
    raise exception using errcode = 'WA004', message = format('contract version %s is not supported', (claim_slot >> 8) & 15);
  end if;
  if pg_column_size(progress) > 131072 then
    raise exception using errcode = '22023', message = 'progress: at most 64 KiB';
  end if;
  -- A token of another database, or of the database that this one was copied from, must not match by number (C-34).
  select m.fingerprint, m.system_identifier = c.system_identifier
         and m.database_oid = (select d.oid from pg_database d where d.datname = current_database()) as ours
  into v_meta
  from {{schema}}.meta m, pg_control_system() c;
  if claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then
    raise exception using errcode = 'WA003', message = 'unknown token: it is not of this installation';
  end if;
  if batch_id > (select last_value from {{schema}}.batch_seq) then
    raise exception using errcode = 'WA003', message = 'unknown token: its claim was never made';
  end if;

  perform pg_advisory_xact_lock(hashtextextended({{key attempt}} || job_id || '/' || run_lease, 0));
  case claim_slot & 255
    {{#segments}}
    when {{segment}} then v_at := {{schema}}.complete_{{segment}}(job_id, run_lease, receipt_id, batch_id, batch_index, progress);
    {{/segments}}
  end case;
  if v_at is null then
    -- The claim was made and its evidence is gone, or this transaction's snapshot is too old to see it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
      raise exception using errcode = '40001', message = 'the claim is not visible in this transaction''s snapshot';
    end if;
    perform {{schema}}.raise_stale(job_id, run_lease, null, null);
  end if;
  -- For the commit guard: survives this function, is undone by a rollback to a savepoint.
  perform set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '') || '[' || {{schema_name}} || '/' || receipt_id || ']', true);
  return row(1, job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, 'completed', v_at, pg_current_xact_id())::{{schema}}.finalization;
end $$;
