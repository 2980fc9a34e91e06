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
  select b.job_ids[p_batch_index] as job_id, b.run_leases[p_batch_index] as run_lease, b.receipt_base + p_batch_index as receipt_id,
         b.unique_keys[p_batch_index] as unique_key
  into v_claim
  from {{schema}}.claim_batches_{{segment}} b where b.batch_id = p_batch_id;
  if not found or v_claim.job_id is distinct from p_job_id or v_claim.run_lease is distinct from p_run_lease
     or v_claim.receipt_id is distinct from p_receipt_id then
    return {{schema}}.complete_lease(p_job_id, p_run_lease, p_receipt_id, p_batch_id, p_batch_index, p_progress, found);
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
    if v_claim.outcome = 'materialized' then
      return {{schema}}.complete_lease(p_job_id, p_run_lease, p_receipt_id, p_batch_id, p_batch_index, p_progress, true);
    end if;
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_claim.outcome, v_claim.closed_at);
  end if;
  delete from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
  if v_claim.unique_key is not null then
    perform {{schema}}.release_unique(array[v_claim.unique_key], array[p_job_id], 2::smallint);
  end if;
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

-- Raises unless these fields can be a token of this installation. Answers whether caller-owned completion is off for any queue.
create or replace function {{schema}}.require_token(
  p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer)
returns boolean
language plpgsql volatile as $$
declare
  v_meta  record;
begin
  if p_job_id is null or p_run_lease is null or p_claim_slot is null or p_receipt_id is null or p_batch_id is null or p_batch_index is null
     or p_job_id < 1 or p_run_lease < 1 or p_claim_slot < 0 or p_receipt_id < 1 or p_batch_id < 1 or p_batch_index < 1
     or (p_claim_slot & 255) >= {{ring}} then
    raise exception using errcode = 'WA003', message = 'malformed token';
  end if;
  if (p_claim_slot >> 8) & 15 <> 1 then
    raise exception using errcode = 'WA004', message = format('contract version %s is not supported', (p_claim_slot >> 8) & 15);
  end if;
  -- A token of another database, or of the database that this one was copied from, must not match by number (C-34).
  select m.fingerprint, m.any_gated, m.system_identifier = c.system_identifier
         and m.database_oid = (select d.oid from pg_database d where d.datname = current_database()) as ours
  into v_meta
  from {{schema}}.meta m, pg_control_system() c;
  if p_claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then
    raise exception using errcode = 'WA003', message = 'unknown token: it is not of this installation';
  end if;
  if p_batch_id > (select last_value from {{schema}}.batch_seq) then
    raise exception using errcode = 'WA003', message = 'unknown token: its claim was never made';
  end if;
  return v_meta.any_gated;
end $$;

-- Raises when caller-owned completion is off for the queue of an attempt that this transaction has just completed.
create or replace function {{schema}}.require_caller_owned(p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_batch_id bigint)
returns void
language plpgsql volatile as $$
declare
  v_queue  text;
begin
  case p_claim_slot & 255
    {{#segments}}
    when {{segment}} then
      select b.queue into v_queue from {{schema}}.claim_batches_{{segment}} b where b.batch_id = p_batch_id;
    {{/segments}}
  end case;
  if v_queue is null then  -- a lease that outlived its claim
    select c.queue into v_queue from {{schema}}.lease_closures c where c.job_id = p_job_id and c.run_lease = p_run_lease;
  end if;
  if exists (select from {{schema}}.queues q where q.queue = v_queue and not q.caller_owned) then
    raise exception using errcode = 'WA006', message = format('caller-owned completion is disabled for the queue %s', v_queue);
  end if;
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
  v_at     timestamptz;
  v_gated  boolean := {{schema}}.require_token(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index);
begin
  if pg_column_size(progress) > 131072 then
    raise exception using errcode = '22023', message = 'progress: at most 64 KiB';
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
  if v_gated then
    perform {{schema}}.require_caller_owned(job_id, run_lease, claim_slot, batch_id);
  end if;
  -- For the commit guard: survives this function, is undone by a rollback to a savepoint.
  perform set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '') || '[' || {{schema_name}} || '/' || receipt_id || ']', true);
  return row(1, job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, 'completed', v_at, pg_current_xact_id())::{{schema}}.finalization;
end $$;
