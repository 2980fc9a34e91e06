-- The calls for workers in other languages, written down in schema/CONTRACT.md: by name, with plain types, and with an attempt
-- as one JSON object, so that the row that a claim answered can be handed back as it came. They are SECURITY DEFINER: such a
-- worker needs EXECUTE on these and no table. The runtime of this library does not use them.

-- The fields of tokens, as the set-based functions take them. Numbers may come as texts: not every JSON parser keeps 62 bits.
create or replace function {{schema}}.worker_tokens(
  p_attempts jsonb, out slots integer[], out batch_ids bigint[], out indexes integer[], out job_ids bigint[], out run_leases bigint[],
  out receipts bigint[])
language plpgsql stable as $$
declare
  v_at bigint;
begin
  if p_attempts is null or jsonb_typeof(p_attempts) <> 'array' then
    raise exception using errcode = '22023', message = 'attempts: expected a JSON array of tokens';
  end if;
  if jsonb_array_length(p_attempts) > 10000 then
    raise exception using errcode = '22023', message = 'attempts: at most 10000';
  end if;
  select a.ord - 1 into v_at
  from jsonb_array_elements(p_attempts) with ordinality as a(e, ord)
  where exists (
    select from (values ('job_id', 9223372036854775807), ('run_lease', 9223372036854775807), ('receipt_id', 9223372036854775807),
                        ('batch_id', 9223372036854775807), ('claim_slot', 2147483647), ('batch_index', 2147483647)) as f(name, most)
    where case when a.e ->> f.name ~ '^[0-9]{1,19}$' then (a.e ->> f.name)::numeric > f.most else true end)
  order by a.ord limit 1;
  if found then
    raise exception using errcode = 'WA003', message = format('attempt %s: malformed token', v_at);
  end if;
  select coalesce(array_agg((a.e ->> 'claim_slot')::integer order by a.ord), '{}'),
         coalesce(array_agg((a.e ->> 'batch_id')::bigint order by a.ord), '{}'),
         coalesce(array_agg((a.e ->> 'batch_index')::integer order by a.ord), '{}'),
         coalesce(array_agg((a.e ->> 'job_id')::bigint order by a.ord), '{}'),
         coalesce(array_agg((a.e ->> 'run_lease')::bigint order by a.ord), '{}'),
         coalesce(array_agg((a.e ->> 'receipt_id')::bigint order by a.ord), '{}')
  into slots, batch_ids, indexes, job_ids, run_leases, receipts
  from jsonb_array_elements(p_attempts) with ordinality as a(e, ord);
end $$;

-- Raises on the first end of an attempt that breaks a rule.
create or replace function {{schema}}.worker_check_ends(p_outcomes text[], p_details jsonb) returns void
language plpgsql stable as $$
declare
  v_fault record;
begin
  select e.ord - 1 as at, k.key into v_fault
  from unnest(p_outcomes) with ordinality as e(outcome, ord)
  cross join lateral jsonb_object_keys(
    case when jsonb_typeof(p_details -> e.ord::text) = 'object' then p_details -> e.ord::text else '{}' end) as k(key)
  where k.key not in ('error', 'delay_ms', 'reason', 'progress')
  order by e.ord limit 1;
  if found then
    raise exception using errcode = 'WA005', message = format('attempt %s: unknown option key %L', v_fault.at, v_fault.key),
      hint = 'Known keys: error, delay_ms, reason, progress.';
  end if;
  select e.ord - 1 as at, f.rule into v_fault
  from unnest(p_outcomes) with ordinality as e(outcome, ord)
  cross join lateral (select p_details -> e.ord::text as detail) d
  cross join lateral (select case
    when e.outcome is null
      or e.outcome not in ('completed', 'retried', 'snoozed', 'released', 'failed', 'cancelled', 'discarded', 'dead_lettered', 'gated')
      then 'outcome: expected completed, retried, snoozed, released, failed, cancelled, discarded, dead_lettered or gated'
    when coalesce(jsonb_typeof(d.detail), 'null') not in ('object', 'null') then 'detail: expected an object'
    when coalesce(d.detail ->> 'delay_ms', '0') !~ '^[0-9]{1,13}$' or coalesce(d.detail ->> 'delay_ms', '0')::bigint > 3155760000000
      then 'delay_ms: expected a whole number of milliseconds, at most a hundred years'
    -- Nobody means to run a failing job again in the same millisecond, for all its attempts.
    when e.outcome in ('retried', 'snoozed') and d.detail ->> 'delay_ms' is null
      then 'delay_ms: required when the outcome is retried or snoozed'
    when coalesce(jsonb_typeof(d.detail -> 'reason'), 'null') not in ('string', 'null') then 'reason: expected a text'
    when octet_length(d.detail ->> 'reason') > 4096 then 'reason: at most 4096 bytes'
    when pg_column_size(d.detail -> 'error') > 131072 then 'error: at most 64 KiB'
    when pg_column_size(d.detail -> 'progress') > 131072 then 'progress: at most 64 KiB'
  end) as f(rule)
  where f.rule is not null
  order by e.ord limit 1;
  if found then
    raise exception using errcode = '22023', message = format('attempt %s: %s', v_fault.at, v_fault.rule);
  end if;
end $$;

-- A member that is null says as little as one that is missing.
create or replace function {{schema}}.worker_detail(p_detail jsonb) returns jsonb
language sql immutable as $$
  select coalesce(jsonb_object_agg(d.key, d.value) filter (where jsonb_typeof(d.value) <> 'null'), '{}')
  from jsonb_each(case when jsonb_typeof(p_detail) = 'object' then p_detail else '{}' end) d
$$;

-- Makes a worker known, and answers its id. Refuses a contract version that is not served, and a database that was restored.
create or replace function {{schema}}.worker_register(name text, contract integer default 1) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
  perform {{schema}}.require_contract(contract);
  if {{schema}}.name_fault(name) is not null then
    raise exception using errcode = '22023', message = 'name: ' || {{schema}}.name_fault(name);
  end if;
  if {{schema}}.adopt_database() = 'refused' then
    raise exception using errcode = '55000', message = 'the data were restored or copied here from another database',
      detail = {{schema}}.storage_fault(), hint = 'Run `awa storage rebase`.';
  end if;
  return {{schema}}.beat_runtime(null, name, contract, '{}');
end $$;

create or replace function {{schema}}.worker_retire(worker_id bigint) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select {{schema}}.retire_runtime(worker_id) $$;

-- Takes jobs to run. When there is none to be had at this moment, and yet there may be in a moment (another claimer holds the
-- lane, or the queue is at its rate), the answer is one row without a job that says in how many milliseconds to ask again.
create or replace function {{schema}}.worker_claim(worker_id bigint, queue text default 'default', max_jobs integer default 1)
returns table (
  job_id bigint, run_lease bigint, claim_slot integer, receipt_id bigint, batch_id bigint, batch_index integer, kind text, args jsonb,
  attempt integer, max_attempts integer, progress jsonb, callback_result jsonb, deadline_at timestamptz, idempotency_key text,
  retry_ms integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if worker_id is null then
    raise exception using errcode = '22023', message = 'worker_id: expected what worker_register answered';
  end if;
  if {{schema}}.name_fault(worker_claim.queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(worker_claim.queue);
  end if;
  return query
    with c as materialized (select * from {{schema}}.claim(worker_claim.queue, max_jobs, worker_id))
    select c.job_id, c.run_lease, c.claim_slot, c.receipt_id, c.batch_id, c.batch_index, c.kind, c.args, c.attempt, c.max_attempts,
           c.progress, c.callback_result, c.deadline_at,
           case when c.job_id is not null then (select m.origin_id from {{schema}}.meta m) || ':' || c.job_id end,
           case when c.job_id is null then coalesce(c.retry_ms, 10) end
    from c
    where c.job_id is not null or not exists (select from c where c.job_id is not null);
end $$;

-- A beat of the worker and of what it runs. Answers those attempts that are no longer its own.
create or replace function {{schema}}.worker_beat(worker_id bigint, attempts jsonb default '[]')
returns table (job_id bigint, run_lease bigint, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_tokens    record := {{schema}}.worker_tokens(attempts);
  v_progress  jsonb;
  v_at        bigint;
begin
  select min(a.ord - 1) filter (where pg_column_size(a.e -> 'progress') > 131072),
         jsonb_object_agg(a.ord::text, a.e -> 'progress') filter (where jsonb_typeof(a.e -> 'progress') <> 'null')
  into v_at, v_progress
  from jsonb_array_elements(attempts) with ordinality as a(e, ord);
  if v_at is not null then
    raise exception using errcode = '22023', message = format('attempt %s: progress: at most 64 KiB', v_at);
  end if;
  update {{schema}}.runtimes r set beat_at = clock_timestamp() where r.runtime_id = worker_id;
  if not found then
    raise exception using errcode = '22023', message = 'worker_id: unknown, or forgotten after a day of silence; register again';
  end if;
  return query
    select v_tokens.job_ids[h.ord], v_tokens.run_leases[h.ord], h.outcome
    from {{schema}}.heartbeat(v_tokens.slots, v_tokens.batch_ids, v_tokens.indexes, v_tokens.job_ids, v_tokens.run_leases,
                              v_tokens.receipts, coalesce(v_progress, '{}')) h
    where h.outcome is distinct from 'busy'
    order by h.ord;
end $$;

-- What became of attempts whose handlers have ended: one row for each, in order.
create or replace function {{schema}}.worker_evidence(attempts jsonb)
returns table (job_id bigint, run_lease bigint, status text, outcome text, closed_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_tokens record := {{schema}}.worker_tokens(attempts);
begin
  return query
    select v_tokens.job_ids[e.ord], v_tokens.run_leases[e.ord], e.status, e.outcome, e.closed_at
    from {{schema}}.attempt_evidence(v_tokens.slots, v_tokens.batch_ids, v_tokens.indexes, v_tokens.job_ids, v_tokens.run_leases,
                                     v_tokens.receipts) e
    order by e.ord;
end $$;

-- Ends one open attempt without waiting for anybody. The receipt is the flush's id: asked again after a lost answer, the end
-- that this very call made is told from another's.
create or replace function {{schema}}.worker_settle(attempt jsonb, outcome text, detail jsonb default '{}') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_token record := {{schema}}.worker_tokens(jsonb_build_array(attempt));
begin
  perform {{schema}}.worker_check_ends(array[outcome], jsonb_build_object('1', detail));
  return {{schema}}.settle_attempt(v_token.receipts[1], v_token.slots[1], v_token.batch_ids[1], v_token.indexes[1], v_token.job_ids[1],
    v_token.run_leases[1], v_token.receipts[1], outcome::{{schema}}.outcome, {{schema}}.worker_detail(detail));
end $$;

-- Ends many attempts, each {"outcome", "detail"} beside its token, in one statement. For ordinary outcomes: where a
-- finalization of one of them is in flight, this waits for it.
create or replace function {{schema}}.worker_close(attempts jsonb, flush_id bigint)
returns table (job_id bigint, run_lease bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_tokens    record := {{schema}}.worker_tokens(attempts);
  v_outcomes  text[];
  v_details   jsonb;
begin
  if flush_id is null then
    raise exception using errcode = '22023', message = 'flush_id: expected a number of the caller''s own, the same when it asks again';
  end if;
  select array_agg(a.e ->> 'outcome' order by a.ord), jsonb_object_agg(a.ord::text, coalesce(a.e -> 'detail', '{}'))
  into v_outcomes, v_details
  from jsonb_array_elements(attempts) with ordinality as a(e, ord);
  perform {{schema}}.worker_check_ends(v_outcomes, v_details);
  return query
    select v_tokens.job_ids[c.ord], v_tokens.run_leases[c.ord], c.answer
    from {{schema}}.close_attempts(flush_id, v_tokens.slots, v_tokens.batch_ids, v_tokens.indexes, v_tokens.job_ids, v_tokens.run_leases,
                                   v_tokens.receipts, v_outcomes::{{schema}}.outcome[],
                                   (select jsonb_object_agg(d.key, {{schema}}.worker_detail(d.value)) from jsonb_each(v_details) d), true) c
    order by c.ord;
end $$;
