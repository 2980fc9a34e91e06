-- Callbacks: an attempt registers one and waits for its answer, with its handler (waiting) or without (parked). The answer
-- comes from outside, by an id that cannot be guessed. An attempt has one callback at a time; the next one replaces it.

-- The lease of a token, locked; for its own worker.
create or replace function {{schema}}.hold_lease(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint,
  out answer text, out lease {{schema}}.leases)
language plpgsql volatile as $$
begin
  perform {{schema}}.require_read_committed();
  if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || p_job_id || '/' || p_run_lease, 0)) then
    answer := 'busy';
    return;
  end if;
  select l.* into lease
  from {{schema}}.leases l
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt and l.batch_id = p_batch_id
    and l.batch_index = p_index and p_slot >> 12 = (select m.fingerprint from {{schema}}.meta m)
  for update;
  answer := case when found then 'held' else 'stale' end;
end $$;

-- Registers the attempt's callback and answers 'registered', with its id and when it times out; 'stale', or 'busy' when a
-- finalization is in flight. The attempt leaves the ring by it: what waits for the world outside may wait for long.
create or replace function {{schema}}.register_callback(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_timeout interval,
  out answer text, out callback_id uuid, out deadline timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
  v_held  record;
  v_base  integer := {{schema}}.claim_slot_base();
begin
  if p_timeout is null or p_timeout <= interval '0' or p_timeout > interval '100 years' then
    raise exception using errcode = '22023', message = 'timeout: expected a positive duration of at most 100 years';
  end if;
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  answer := v_held.answer;
  if answer = 'stale' and exists (
    select from {{schema}}.attempt_evidence(array[p_slot], array[p_batch_id], array[p_index], array[p_job_id], array[p_run_lease],
      array[p_receipt]) e where e.status = 'open')
  then
    case p_slot & 255
      {{#segments}}
      when {{segment}} then
        perform {{schema}}.materialize_attempts_{{segment}}(v_base | {{segment}}, array[p_batch_id], array[p_index]);
      {{/segments}}
    end case;
    answer := 'held';
  end if;
  if answer <> 'held' then
    return;
  end if;
  update {{schema}}.leases l
  set state = 'running', heartbeat_at = clock_timestamp(), callback_id = gen_random_uuid(), callback_timeout = p_timeout,
      callback_deadline = clock_timestamp() + p_timeout, callback_answered = false, callback_result = null, callback_error = null
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt and l.state <> 'parked'
  returning l.callback_id, l.callback_deadline into callback_id, deadline;
  answer := case when found then 'registered' else 'stale' end;
end $$;

-- Begins a wait, and looks how it stands: 'waiting'; 'answered', with the result; 'failed', with the error; 'timed_out';
-- 'replaced' by a later callback; 'stale'; 'busy'. With any end of the wait the attempt is running again, and a callback that
-- timed out is no callback any more.
create or replace function {{schema}}.wait_callback(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid,
  out answer text, out result jsonb, out error jsonb, out left_ms bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_lease {{schema}}.leases;
  v_held  record;
begin
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  v_lease := v_held.lease;
  if v_held.answer <> 'held' or v_lease.state = 'parked' then
    answer := case when v_held.answer = 'busy' then 'busy' else 'stale' end;
    return;
  end if;
  if v_lease.callback_id is distinct from p_callback_id then
    answer := 'replaced';
    return;
  end if;
  left_ms := greatest(0, ceil(extract(epoch from v_lease.callback_deadline - clock_timestamp()) * 1000));
  answer := case when v_lease.callback_error is not null then 'failed' when v_lease.callback_answered then 'answered'
                 when left_ms = 0 then 'timed_out' else 'waiting' end;
  result := v_lease.callback_result;
  error := v_lease.callback_error;
  if answer = 'waiting' and v_lease.state = 'waiting' then
    return;
  end if;
  update {{schema}}.leases l
  set state = case when answer = 'waiting' then 'waiting' else 'running' end, heartbeat_at = clock_timestamp(),
      callback_id = case when answer <> 'timed_out' then l.callback_id end,
      callback_deadline = case when answer <> 'timed_out' then l.callback_deadline end
  where l.job_id = p_job_id and l.run_lease = p_run_lease;
end $$;

-- The handler waits no longer, and the callback stays registered: what comes now is kept.
create or replace function {{schema}}.stop_waiting(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_held record;
begin
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  if v_held.answer = 'held' and (v_held.lease).state = 'waiting' and (v_held.lease).callback_id = p_callback_id then
    update {{schema}}.leases l set state = 'running' where l.job_id = p_job_id and l.run_lease = p_run_lease;
  end if;
  return v_held.answer;
end $$;

-- The handler ends and leaves the attempt to its callback: 'parked'. When the answer is there already, the job goes on at once:
-- 'released' to run again with it, or 'retried' after a failure. Otherwise 'replaced', 'stale' or 'busy'. Repeatable.
create or replace function {{schema}}.park_attempt(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid,
  p_progress jsonb)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_lease  {{schema}}.leases;
  v_held   record;
begin
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  v_lease := v_held.lease;
  if v_held.answer = 'stale' and exists (
    select from {{schema}}.attempt_evidence(array[p_slot], array[p_batch_id], array[p_index], array[p_job_id], array[p_run_lease],
      array[p_receipt]) e where e.status = 'open')
  then
    return 'replaced';  -- still in the ring: it never registered a callback
  end if;
  if v_held.answer <> 'held' then
    return v_held.answer;
  end if;
  if v_lease.callback_id is distinct from p_callback_id then
    return 'replaced';
  end if;
  update {{schema}}.leases l
  set state = 'parked', progress = coalesce(p_progress, l.progress)
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.state <> 'parked';
  if not v_lease.callback_answered then
    return 'parked';
  end if;
  return {{schema}}.leave_park(v_lease);
end $$;

-- The end of a parked lease whose callback was answered. The attempt is given back when the answer is a result; a failed one
-- counts, and the job rests as after a crash: nobody chose the pause.
create or replace function {{schema}}.leave_park(p_lease {{schema}}.leases) returns text
language plpgsql volatile as $$
declare
  v_outcome {{schema}}.outcome := case when p_lease.callback_error is null then 'released' else 'retried' end;
begin
  perform {{schema}}.end_leases(array[p_lease.job_id], array[p_lease.run_lease], array[p_lease.receipt_id], array[v_outcome],
    array[case when p_lease.callback_error is null then '{}' else jsonb_build_object(
      'error', p_lease.callback_error,
      'delay_ms', least(3600000, (power(2, least(p_lease.attempt - 1, 12)) - 1) * 1000)::bigint) end], null, true);
  return v_outcome;
end $$;

-- The lease of a callback, locked: 'open' when it waits for an answer, 'already' when it has one, 'unknown' when there is no
-- such callback (any more), 'busy' when a finalization of its attempt is in flight.
create or replace function {{schema}}.hold_callback(p_callback_id uuid, out answer text, out lease {{schema}}.leases)
language plpgsql volatile as $$
begin
  select l.* into lease from {{schema}}.leases l where l.callback_id = p_callback_id;
  if found then
    if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || lease.job_id || '/' || lease.run_lease, 0)) then
      answer := 'busy';
      return;
    end if;
    select l.* into lease from {{schema}}.leases l where l.callback_id = p_callback_id for update;  -- as it is under the lock
    if found then
      answer := case when lease.callback_answered then 'already' else 'open' end;
      return;
    end if;
  end if;
  if exists (select from {{schema}}.lease_closures c where c.callback_id = p_callback_id) then
    answer := 'already';
  elsif p_callback_id is not null and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception using errcode = '40001', message = 'the callback is not visible in this transaction''s snapshot';
  else
    answer := 'unknown';
  end if;
end $$;

-- The answer: the attempt goes on with this result. 'resumed', also when nobody waits yet: the result is kept. Or 'already',
-- 'unknown', 'busy' (try again).
create or replace function {{schema}}.resume_callback(callback_id uuid, result jsonb default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_held   record;
  v_lease  {{schema}}.leases;
begin
  perform {{schema}}.check_result(result);
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  v_lease := v_held.lease;
  update {{schema}}.leases l set callback_answered = true, callback_result = coalesce(result, 'null')
  where l.job_id = v_lease.job_id and l.run_lease = v_lease.run_lease
  returning l.* into v_lease;
  if v_lease.state = 'parked' then
    perform {{schema}}.leave_park(v_lease);
  else
    perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);
  end if;
  return 'resumed';
end $$;

-- The answer, and the end of the job with it: 'completed', whether or not a handler is still at work; whatever that does
-- afterwards is stale. Or 'already', 'unknown', 'busy' (try again).
create or replace function {{schema}}.complete_callback(callback_id uuid, result jsonb default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_held   record;
  v_lease  {{schema}}.leases;
begin
  perform {{schema}}.check_result(result);
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  v_lease := v_held.lease;
  update {{schema}}.leases l set callback_answered = true, callback_result = result
  where l.job_id = v_lease.job_id and l.run_lease = v_lease.run_lease;
  perform {{schema}}.end_leases(array[v_lease.job_id], array[v_lease.run_lease], array[v_lease.receipt_id],
    array['completed'::{{schema}}.outcome], array['{}'::jsonb], null, true);
  if v_lease.state <> 'parked' then
    perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);
  end if;
  return 'completed';
end $$;

-- The answer is a failure: 'failed'. A handler that waits decides what it means; a parked attempt has failed by it. Or
-- 'already', 'unknown', 'busy' (try again).
create or replace function {{schema}}.fail_callback(callback_id uuid, error text) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_held   record;
  v_lease  {{schema}}.leases;
begin
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  v_lease := v_held.lease;
  update {{schema}}.leases l
  set callback_answered = true,  -- what is stored of an error has at most 8 KiB: 2000 characters of at most 4 bytes
      callback_error = jsonb_build_object('name', 'CallbackFailed', 'message', left(coalesce(error, 'the callback failed'), 2000))
  where l.job_id = v_lease.job_id and l.run_lease = v_lease.run_lease
  returning l.* into v_lease;
  if v_lease.state = 'parked' then
    perform {{schema}}.leave_park(v_lease);
  else
    perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);
  end if;
  return 'failed';
end $$;

-- The answer will come, and its time begins anew: 'extended'. Or 'already', 'unknown', 'busy' (try again).
create or replace function {{schema}}.heartbeat_callback(callback_id uuid) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  v_held record;
begin
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  update {{schema}}.leases l set callback_deadline = clock_timestamp() + l.callback_timeout
  where l.job_id = (v_held.lease).job_id and l.run_lease = (v_held.lease).run_lease;
  return 'extended';
end $$;

-- The rule is 64 KiB of compact JSON; the stored text has spaces, hence twice that here.
create or replace function {{schema}}.check_result(p_result jsonb) returns void
language plpgsql immutable as $$
begin
  if octet_length(p_result::text) > 131072 then
    raise exception using errcode = '22023', message = 'result: at most 64 KiB';
  end if;
end $$;
