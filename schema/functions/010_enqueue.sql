-- Enqueue, in the caller's transaction and in any isolation level. The tables it writes are chosen by a sequence, whose
-- value no snapshot hides; the shared lock lets maintenance prove that no writer is in flight in a segment.

-- One branch per segment: number the jobs and store them, the due ones in the ring and the later ones aside. A call with
-- unique jobs brings what claim_unique answered; otherwise these arrays are null.
{{#segments}}
create or replace function {{schema}}.insert_jobs_{{segment}}(p_jobs jsonb, p_ids bigint[], p_keys bytea[], p_answers text[])
returns bigint[]
language plpgsql volatile as $$
declare
  v_xid xid8 := pg_current_xact_id();   -- top level, also inside a savepoint
  v_now timestamptz := clock_timestamp();
  v_ids bigint[];
begin
  with job as materialized (
    select j.ord, coalesce(j.job_id, nextval({{schema_text job_ids}})) as job_id, nextval({{schema_text entry_seq}}) as seq, j.unique_key,
           j.e ->> 'queue' as queue, coalesce((j.e -> 'opts' ->> 'priority')::smallint, 2::smallint) as priority,
           coalesce((j.e -> 'opts' ->> 'max_attempts')::integer, 25) as max_attempts,
           coalesce((j.e -> 'opts' ->> 'run_at')::timestamptz,
                    v_now + (j.e -> 'opts' ->> 'delay_ms')::bigint * interval '1 millisecond') as run_at,
           j.e ->> 'kind' as kind, j.e -> 'args' as args
    from rows from (jsonb_array_elements(p_jobs), unnest(p_ids, p_keys, p_answers)) with ordinality as j(e, job_id, unique_key, answer, ord)
    where j.answer is null or j.answer = 'inserted'
    order by j.ord
  ), due as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, unique_key)
    select queue, priority, v_xid, seq, job_id, 0, 0, max_attempts, v_now, kind, args, unique_key
    from job where run_at is null or run_at <= v_now
    order by seq
  ), later as (
    insert into {{schema}}.deferred_jobs
      (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, created_at, xid, unique_key)
    select job_id, queue, priority, 'scheduled', run_at, 0, 0, max_attempts, kind, args, v_now, v_xid, unique_key
    from job where run_at > v_now
  )
  select array_agg(job_id order by ord) into v_ids from job;
  return v_ids;
end $$;
{{/segments}}

-- The same for jobs that differ in nothing but their payloads: there is nothing to take apart, and one table to write.
{{#segments}}
create or replace function {{schema}}.insert_batch_{{segment}}(
  p_kind text, p_args jsonb, p_queue text, p_priority smallint, p_max_attempts integer, p_run_at timestamptz, p_now timestamptz)
returns bigint[]
language plpgsql volatile as $$
declare
  v_xid xid8 := pg_current_xact_id();   -- top level, also inside a savepoint
  v_ids bigint[];
begin
  if p_run_at > p_now then
    with later as (
      insert into {{schema}}.deferred_jobs
        (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, created_at, xid)
      select nextval({{schema_text job_ids}}), p_queue, p_priority, 'scheduled', p_run_at, 0, 0, p_max_attempts, p_kind, a.payload, p_now, v_xid
      from jsonb_array_elements(p_args) as a(payload)
      returning job_id
    )
    select array_agg(job_id) into v_ids from later;
  else
    with due as (
      insert into {{schema}}.ready_entries_{{segment}}
        (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args)
      select p_queue, p_priority, v_xid, nextval({{schema_text entry_seq}}), nextval({{schema_text job_ids}}), 0, 0, p_max_attempts, p_now,
             p_kind, a.payload
      from jsonb_array_elements(p_args) as a(payload)
      returning job_id
    )
    select array_agg(job_id) into v_ids from due;
  end if;
  return v_ids;
end $$;
{{/segments}}

-- The slot of the current segment, held for writing until the end of the transaction. The transaction has its id by then: drawn
-- later, it could come after that of somebody who committed into the next segment, and yet be claimed first.
create or replace function {{schema}}.hold_current_segment() returns integer
language plpgsql volatile as $$
declare
  v_value bigint;
  v_again bigint;
begin
  perform pg_current_xact_id();
  loop
    select last_value into v_value from {{schema}}.segment_cursor;
    perform pg_advisory_xact_lock_shared(hashtextextended({{key segment}} || (v_value % {{ring}})::text, 0));
    select last_value into v_again from {{schema}}.segment_cursor;
    exit when v_again = v_value;
  end loop;
  return (v_value % {{ring}})::integer;
end $$;

-- Raises on the first job that breaks a rule, naming the field and the rule, before anything is written. Answers whether a
-- job says `unique`: the search for unknown options finds that, and `validate`, by the way.
create or replace function {{schema}}.check_jobs(p_jobs jsonb) returns boolean
language plpgsql stable as $$
declare
  v_unique    boolean;
  v_validate  boolean;
  v_fault     record;
begin
  if p_jobs is null or jsonb_typeof(p_jobs) <> 'array' then
    raise exception using errcode = '22023', message = 'jobs: expected a JSON array';
  end if;
  select j.ord - 1 as at, k.key into v_fault
  from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
  cross join lateral jsonb_object_keys(case when jsonb_typeof(j.e -> 'opts') = 'object' then j.e -> 'opts' else '{}' end) as k(key)
  where k.key not in ('priority', 'run_at', 'delay_ms', 'max_attempts', 'notify')
  order by case k.key when 'validate' then 1 when 'unique' then 2 else 0 end, j.ord limit 1;
  if found and v_fault.key not in ('unique', 'validate') then
    raise exception using errcode = 'WA005', message = format('job %s: unknown option key %L', v_fault.at, v_fault.key),
      hint = 'Known keys: priority, run_at, delay_ms, max_attempts, notify, unique, validate.';
  end if;
  v_validate := found and v_fault.key = 'validate';
  v_unique := found and (not v_validate or exists (select from jsonb_array_elements(p_jobs) as j(e) where j.e -> 'opts' ? 'unique'));
  select j.ord - 1 as at, f.rule into v_fault
  from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
  cross join lateral (select case
    when jsonb_typeof(j.e) <> 'object' then 'expected an object'
    when j.e - '{kind,args,queue,opts}'::text[] <> '{}' then 'expected the keys kind, args, queue and opts only'
    when jsonb_typeof(j.e -> 'kind') <> 'string' then 'kind: expected a non-empty text'
    when {{schema}}.name_fault(j.e ->> 'kind') is not null then 'kind: ' || {{schema}}.name_fault(j.e ->> 'kind')
    when jsonb_typeof(j.e -> 'queue') <> 'string' then 'queue: expected a non-empty text'
    when {{schema}}.name_fault(j.e ->> 'queue') is not null then 'queue: ' || {{schema}}.name_fault(j.e ->> 'queue')
    when j.e -> 'args' is null then 'args: expected a JSON value'
    -- The rule is 1 MiB of compact JSON; the stored text has spaces, hence twice that here. The cheap size comes first.
    when pg_column_size(j.e -> 'args') > 131072 and octet_length((j.e -> 'args')::text) > 2097152 then 'args: at most 1 MiB'
    when coalesce(jsonb_typeof(j.e -> 'opts'), 'object') <> 'object' then 'opts: expected an object'
    when coalesce(j.e -> 'opts' ->> 'priority', '2') !~ '^[1-4]$' then 'priority: expected an integer from 1 to 4'
    when coalesce(j.e -> 'opts' ->> 'max_attempts', '25') !~ '^[0-9]{1,5}$'
      or coalesce(j.e -> 'opts' ->> 'max_attempts', '25')::integer not between 1 and 32767
      then 'max_attempts: expected an integer from 1 to 32767'
    when coalesce(j.e -> 'opts' ->> 'delay_ms', '0') !~ '^[0-9]{1,14}$' then 'delay_ms: expected a whole number of milliseconds, not negative'
    when j.e -> 'opts' ->> 'run_at' is not null and j.e -> 'opts' ->> 'delay_ms' is not null then 'run_at: not together with delay_ms'
    when coalesce(j.e -> 'opts' ->> 'run_at', '2000-01-01T00:00:00Z')
      !~ '^[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})$'
      then 'run_at: expected an ISO 8601 time with its zone'
    when coalesce(jsonb_typeof(j.e -> 'opts' -> 'notify'), 'null') not in ('boolean', 'null') then 'notify: expected a boolean'
  end) as f(rule)
  where f.rule is not null
  order by j.ord limit 1;
  if found then
    raise exception using errcode = '22023', message = format('job %s: %s', v_fault.at, v_fault.rule);
  end if;
  if exists (select from jsonb_array_elements(p_jobs) as j(e) where j.e -> 'opts' ->> 'run_at' is not null) then
    begin  -- of the right form, and yet no such day or hour
      for v_fault in
        select j.ord - 1 as at, j.e -> 'opts' ->> 'run_at' as run_at
        from jsonb_array_elements(p_jobs) with ordinality as j(e, ord) order by j.ord
      loop
        perform v_fault.run_at::timestamptz;
      end loop;
    exception when data_exception then
      raise exception using errcode = '22023', message = format('job %s: run_at: there is no such time', v_fault.at);
    end;
  end if;
  if v_unique then
    perform {{schema}}.check_unique(p_jobs);
  end if;
  if v_validate then
    perform {{schema}}.check_payloads(p_jobs);
  end if;
  return v_unique;
end $$;

-- The one rule for the names of queues and kinds, the same as in TypeScript: 1 to 255 bytes, no control character.
create or replace function {{schema}}.name_fault(p_name text) returns text
language sql immutable as $$
  select case
    when p_name is null or p_name = '' then 'expected a non-empty text'
    when octet_length(p_name) > 255 then 'at most 255 bytes'
    when p_name ~ '[\u0001-\u001f\u007f]' then 'no control characters'
  end
$$;

-- Many jobs in one call: [{"kind", "args", "queue", "opts": {…}}, …]. The answers come in the same order: the id and
-- `inserted`, or the id of the job that holds the unique key and `existing` or `replaced`.
create or replace function {{schema}}.insert_jobs(p_jobs jsonb) returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set standard_conforming_strings = on
as $$
declare
  v_slot     integer;
  v_ids      bigint[];
  v_keys     bytea[];
  v_answers  text[];
  v_inserted bigint[];
begin
  if {{schema}}.check_jobs(p_jobs) then
    -- Before a segment is held: this may wait for other transactions.
    select u.ids, u.keys, u.answers into v_ids, v_keys, v_answers from {{schema}}.claim_unique(p_jobs) u;
  end if;
  if v_answers is null or 'inserted' = any (v_answers) then
    v_slot := {{schema}}.hold_current_segment();
    case v_slot
      {{#segments}}
      when {{segment}} then v_inserted := {{schema}}.insert_jobs_{{segment}}(p_jobs, v_ids, v_keys, v_answers);
      {{/segments}}
    end case;
    -- A hint, one per queue: PostgreSQL folds equal notifications of a transaction into one.
    perform pg_notify({{channel}}, q.queue)
    from (select distinct j.e ->> 'queue' as queue
          from rows from (jsonb_array_elements(p_jobs), unnest(v_answers)) as j(e, answer)
          where coalesce(j.e -> 'opts' ->> 'notify', 'true') <> 'false' and (j.answer is null or j.answer = 'inserted')) q;
  end if;
  if v_answers is null then
    return query select i.job_id, 'inserted' from unnest(v_inserted) as i(job_id);
  else
    if 'existing' = any (v_answers) then
      v_answers := {{schema}}.replace_jobs(p_jobs, v_ids, v_answers);
    end if;
    return query select i.job_id, i.answer from unnest(v_ids, v_answers) as i(job_id, answer);
  end if;
end $$;

-- Many jobs that differ in nothing but their payloads: an array of these, and what they have in common said and checked once.
-- Answers their ids in order; with `unique`, for a twin the id of the job that holds the key.
create or replace function {{schema}}.insert_batch(kind text, args jsonb, queue text default 'default', opts jsonb default '{}')
returns bigint[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set standard_conforming_strings = on
as $$
declare
  v_opts      jsonb := coalesce(insert_batch.opts, '{}');
  v_at        bigint;
  v_now       timestamptz;
  v_run_at    timestamptz;
  v_priority  smallint;
  v_max       integer;
  v_slot      integer;
  v_ids       bigint[];
begin
  if jsonb_typeof(insert_batch.args) is distinct from 'array' then
    raise exception using errcode = '22023', message = 'args: expected a JSON array of payloads';
  end if;
  if jsonb_array_length(insert_batch.args) = 0 then
    return '{}';
  end if;
  if v_opts ?| '{unique,validate}' then  -- what is asked of each payload
    return array(select i.job_id from {{schema}}.insert_jobs((
      select jsonb_agg(jsonb_build_object('kind', insert_batch.kind, 'args', a.payload, 'queue', insert_batch.queue, 'opts', v_opts) order by a.ord)
      from jsonb_array_elements(insert_batch.args) with ordinality as a(payload, ord))) i);
  end if;
  if v_opts <> '{}' or {{schema}}.name_fault(insert_batch.kind) is not null or {{schema}}.name_fault(insert_batch.queue) is not null then
    perform {{schema}}.check_jobs(jsonb_build_array(jsonb_build_object(
      'kind', insert_batch.kind, 'args', null, 'queue', insert_batch.queue, 'opts', v_opts)));
  end if;
  if pg_column_size(insert_batch.args) > 131072 then  -- the same rule as in check_jobs
    select a.ord - 1 into v_at from jsonb_array_elements(insert_batch.args) with ordinality as a(payload, ord)
    where pg_column_size(a.payload) > 131072 and octet_length(a.payload::text) > 2097152
    order by a.ord limit 1;
    if found then
      raise exception using errcode = '22023', message = format('job %s: args: at most 1 MiB', v_at);
    end if;
  end if;
  v_slot := {{schema}}.hold_current_segment();
  v_now := clock_timestamp();
  v_run_at := coalesce((v_opts ->> 'run_at')::timestamptz, v_now + (v_opts ->> 'delay_ms')::bigint * interval '1 millisecond');
  v_priority := coalesce((v_opts ->> 'priority')::smallint, 2::smallint);
  v_max := coalesce((v_opts ->> 'max_attempts')::integer, 25);
  case v_slot
    {{#segments}}
    when {{segment}} then
      v_ids := {{schema}}.insert_batch_{{segment}}(insert_batch.kind, insert_batch.args, insert_batch.queue, v_priority, v_max, v_run_at, v_now);
    {{/segments}}
  end case;
  if coalesce(v_opts ->> 'notify', 'true') <> 'false' then
    perform pg_notify({{channel}}, insert_batch.queue);
  end if;
  return v_ids;
end $$;

-- One job, for any driver. Answers its id, or that of the job that holds its unique key.
create or replace function {{schema}}.insert_job(kind text, args jsonb, queue text default 'default', opts jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select i.job_id from {{schema}}.insert_jobs(jsonb_build_array(jsonb_build_object(
    'kind', insert_job.kind, 'args', insert_job.args, 'queue', insert_job.queue, 'opts', coalesce(insert_job.opts, '{}')))) as i);
end $$;
