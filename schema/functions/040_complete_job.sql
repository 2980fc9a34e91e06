-- Caller-owned finalization: the completion of one exact attempt, inside the caller's transaction. It raises or it completed;
-- there is no third answer that a caller could ignore.

-- One branch per segment, reached through complete_job only. The attempt's lock is held. The usual attempt is completed by the first
-- statement alone: each one more is a tenth of what a completion costs, and each expression a hundredth.
{{#segments}}
create or replace function {{schema}}.complete_{{segment}}(
  p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb)
returns timestamptz
language plpgsql volatile as $$
declare
  v_claim  record;
  v_other  record;
  v_at     timestamptz;
  v_rows   integer := 0;
begin
  -- Its claim is there with every field, in the database that the token is of; no key is to be given back, nothing is known of it but that
  -- it runs, and no queue is gated.
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
  select p_batch_id, p_batch_index, 'completed', clock_timestamp(), pg_current_xact_id(), p_progress
  from (select m.*, m.tableoid from {{schema}}.meta m limit 1) m
  cross join {{schema}}.claim_batches_{{segment}} b
  where m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid) and not m.any_gated
    and p_claim_slot >> 12 = m.fingerprint and (p_claim_slot >> 8) & 15 = 1
    and b.batch_id = p_batch_id and p_batch_index >= 1 and b.job_ids[p_batch_index] = p_job_id
    and b.run_leases[p_batch_index] = p_run_lease and b.receipt_base + p_batch_index = p_receipt_id
    and b.unique_keys[p_batch_index] is null
    and not exists (select from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease)
  on conflict (batch_id, batch_index) do nothing
  returning closed_at into v_at;
  if v_at is not null then
    return v_at;
  end if;
  -- Whatever it is that differs, all of it is looked at in full.
  perform {{schema}}.require_token(p_job_id, p_run_lease, p_claim_slot, p_receipt_id, p_batch_id, p_batch_index);
  v_at := clock_timestamp();
  select m.any_gated, b.batch_id is not null as found,
         b.job_ids[p_batch_index] as job_id, b.run_leases[p_batch_index] as run_lease, b.receipt_base + p_batch_index as receipt_id,
         b.unique_keys[p_batch_index] as unique_key, s.job_id is not null as has_state, s.progress
  into v_claim
  -- one row, as the plan must know: it would keep the others' rows for more
  from (select m.any_gated from {{schema}}.meta m limit 1) m
  left join {{schema}}.claim_batches_{{segment}} b on b.batch_id = p_batch_id
  left join {{schema}}.attempt_state s on s.job_id = p_job_id and s.run_lease = p_run_lease;
  if v_claim.job_id = p_job_id and v_claim.run_lease = p_run_lease and v_claim.receipt_id = p_receipt_id then
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
    values (p_batch_id, p_batch_index, 'completed', v_at, pg_current_xact_id(), coalesce(p_progress, v_claim.progress))
    on conflict (batch_id, batch_index) do nothing;
    get diagnostics v_rows = row_count;
    if v_rows = 0 then  -- another statement, which sees the row that this one met
      select c.outcome, c.closed_at into v_other
      from {{schema}}.closures_{{segment}} c where c.batch_id = p_batch_id and c.batch_index = p_batch_index;
      if v_other.outcome <> 'materialized' then
        perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_other.outcome, v_other.closed_at);
      end if;
    end if;
  end if;
  if v_rows = 0 then
    v_at := {{schema}}.complete_lease(p_job_id, p_run_lease, p_receipt_id, p_batch_id, p_batch_index, p_progress, v_claim.found);
    if v_at is null then
      return null;
    end if;
  else
    -- A beat since this transaction's snapshot would make the deletion fail, and with it every finalization that outlasts a beat:
    -- there the sweep takes the row.
    if v_claim.has_state and current_setting('transaction_isolation') like 'read %' then
      delete from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
    end if;
    if v_claim.unique_key is not null then
      perform {{schema}}.release_unique(array[v_claim.unique_key], array[p_job_id], 2::smallint);
    end if;
  end if;
  if v_claim.any_gated then
    perform {{schema}}.require_caller_owned(p_job_id, p_run_lease, p_claim_slot, p_batch_id);
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

-- Raises unless these fields can be a token of this installation.
create or replace function {{schema}}.require_token(
  p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer)
returns void
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
  select m.fingerprint, m.system_identifier = c.system_identifier
         and m.database_oid = (select d.oid from pg_database d where d.datname = current_database()) as ours
  into v_meta
  from {{schema}}.meta m, pg_control_system() c;
  if p_claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then
    raise exception using errcode = 'WA003', message = 'unknown token: it is not of this installation';
  end if;
  if p_batch_id > (select last_value from {{schema}}.batch_seq) then
    raise exception using errcode = 'WA003', message = 'unknown token: its claim was never made';
  end if;
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
  v_at    timestamptz;
  v_note  text;
begin
  if pg_column_size(progress) > 131072 then
    raise exception using errcode = '22023', message = 'progress: at most 64 KiB';
  end if;
  -- As expressions, here and below: a PERFORM would be a statement each. A token of another version waits for nobody.
  if (claim_slot >> 8) & 15 = 1
     and pg_advisory_xact_lock(hashtextextended({{key attempt}} || job_id || '/' || run_lease, 0)) is null then
    null;
  end if;
  case claim_slot & 255
    {{#segments}}
    when {{segment}} then v_at := {{schema}}.complete_{{segment}}(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, progress);
    {{/segments}}
    else perform {{schema}}.require_token(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index);
  end case;
  if v_at is null then
    -- The claim was made and its evidence is gone, or this transaction's snapshot is too old to see it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
      raise exception using errcode = '40001', message = 'the claim is not visible in this transaction''s snapshot';
    end if;
    perform {{schema}}.raise_stale(job_id, run_lease, null, null);
  end if;
  -- For the commit guard: survives this function, is undone by a rollback to a savepoint.
  v_note := set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '') || '[' || {{schema_name}} || '/' || receipt_id || ']', true);
  return row(1, job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, 'completed', v_at, pg_current_xact_id())::{{schema}}.finalization;
end $$;
