-- Unique jobs: what a key is made of, who holds it, and what the enqueue of a twin does. The primary key of unique_claims is
-- the guard: an enqueue waits for the end of a transaction that has the same key, so a twin that is rolled back swallows nothing.

-- The value with the zeros dropped that end a number's fraction: 1.50 and 1.5 are one number.
create or replace function {{schema}}.trim_numbers(p_value jsonb) returns jsonb
language plpgsql immutable as $$
begin
  return case jsonb_typeof(p_value)
    when 'number' then to_jsonb(trim_scale(p_value::numeric))
    when 'object' then (
      select coalesce(jsonb_object_agg(m.key, {{schema}}.trim_numbers(m.value)), '{}') from jsonb_each(p_value) m)
    when 'array' then (
      select coalesce(jsonb_agg({{schema}}.trim_numbers(i.value) order by i.n), '[]')
      from jsonb_array_elements(p_value) with ordinality as i(value, n))
    else p_value
  end;
end $$;

-- One text for equal values. jsonb has sorted its keys (by length, then by bytes), keeps the last of equal ones, and writes
-- every number without an exponent: only the zeros at the end of a fraction are left, and most values have none.
create or replace function {{schema}}.canonical_json(p_value jsonb) returns text
language plpgsql immutable as $$
declare
  v_text text := p_value;
begin
  return case when v_text ~ '[.][0-9]*0([^0-9]|$)' then {{schema}}.trim_numbers(p_value)::text else v_text end;
end $$;

-- The unique key of a job: one byte that says how long it is held, then the hash. The payload stands in a list of its own, so
-- that a payload of null is not "whatever the payload".
-- In plpgsql, which keeps its plans: a function in SQL is planned again for every job.
create or replace function {{schema}}.unique_key(p_kind text, p_queue text, p_args jsonb, p_unique jsonb) returns bytea
language plpgsql stable as $$
declare
  v_by jsonb := case when jsonb_typeof(p_unique -> 'by') = 'array' then p_unique -> 'by'
                     when p_unique ->> 'key' is null then '["kind", "args"]' else '["kind"]' end;
begin
  return case p_unique ->> 'states' when 'unclaimed' then decode('00', 'hex') when 'successful' then decode('02', 'hex')
              when 'all' then decode('03', 'hex') else decode('01', 'hex') end
    || sha256(convert_to({{schema}}.canonical_json(jsonb_build_array(
         case when v_by ? 'kind' then p_kind end, case when v_by ? 'queue' then p_queue end,
         case when v_by ? 'args' then jsonb_build_array(p_args) end, p_unique ->> 'key')), 'UTF8'));
end $$;

-- The rule that the option `unique` breaks; null: none.
create or replace function {{schema}}.unique_fault(p_unique jsonb) returns text
language plpgsql immutable as $$
begin
  return case
    when p_unique is null or jsonb_typeof(p_unique) = 'null' or p_unique = '{}' then null
    when jsonb_typeof(p_unique) <> 'object' then 'unique: expected an object'
    when coalesce(jsonb_typeof(p_unique -> 'by'), 'null') not in ('array', 'null')
      or (jsonb_typeof(p_unique -> 'by') = 'array' and not p_unique -> 'by' <@ '["kind", "queue", "args"]')
      then 'unique.by: expected a list of kind, queue and args'
    when coalesce(jsonb_typeof(p_unique -> 'key'), 'null') not in ('string', 'null') or p_unique ->> 'key' = ''
      then 'unique.key: expected a non-empty text'
    when octet_length(p_unique ->> 'key') > 8192 then 'unique.key: at most 8192 bytes'
    when p_unique -> 'by' = '[]' and p_unique ->> 'key' is null then 'unique.by: expected one of kind, queue and args, or a key'
    when coalesce(p_unique ->> 'states', 'incomplete') not in ('unclaimed', 'incomplete', 'successful', 'all')
      then 'unique.states: expected unclaimed, incomplete, successful or all'
    when coalesce(p_unique ->> 'window_ms', '1') !~ '^[0-9]{1,14}$' or coalesce(p_unique ->> 'window_ms', '1')::bigint < 1
      then 'unique.window_ms: expected a whole number of milliseconds, at least 1'
    when p_unique ->> 'states' in ('successful', 'all') and p_unique ->> 'window_ms' is null
      then 'unique.window_ms: required when states is successful or all'
    when coalesce(p_unique ->> 'on_conflict', 'skip') not in ('skip', 'replace', 'error')
      then 'unique.on_conflict: expected skip, replace or error'
  end;
end $$;

-- The part of check_jobs that is about unique jobs.
create or replace function {{schema}}.check_unique(p_jobs jsonb) returns void
language plpgsql stable as $$
declare
  v_fault record;
begin
  select j.ord - 1 as at, k.key into v_fault
  from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
  cross join lateral jsonb_object_keys(
    case when jsonb_typeof(j.e -> 'opts' -> 'unique') = 'object' then j.e -> 'opts' -> 'unique' else '{}' end) as k(key)
  where k.key not in ('by', 'key', 'states', 'window_ms', 'on_conflict')
  order by j.ord limit 1;
  if found then
    raise exception using errcode = 'WA005', message = format('job %s: unknown option key %L', v_fault.at, 'unique.' || v_fault.key),
      hint = 'Known keys: by, key, states, window_ms, on_conflict.';
  end if;
  select j.ord - 1 as at, f.rule into v_fault
  from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
  cross join lateral (select {{schema}}.unique_fault(j.e -> 'opts' -> 'unique')) as f(rule)
  where f.rule is not null
  order by j.ord limit 1;
  if found then
    raise exception using errcode = '22023', message = format('job %s: %s', v_fault.at, v_fault.rule);
  end if;
end $$;

-- Claims the unique keys of a call. Answers for each job, in order, its id (or that of the job which holds its key), its
-- unique key, and whether it is to be inserted. Of twins in one call the first claims, the others find it.
create or replace function {{schema}}.claim_unique(p_jobs jsonb, out ids bigint[], out keys bytea[], out answers text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_drawn   bigint[];
  v_key     bytea[];     -- the distinct keys
  v_job     bigint[];    -- who claims each
  v_states  smallint[];
  v_window  interval[];
  v_before  bigint[];    -- who held it before this call did anything
  v_holder  bigint[] := '{}';
  v_rows    integer;
  v_past    tid[];
  v_fault   record;
begin
  select array_agg(j.job_id order by j.ord), array_agg(j.unique_key order by j.ord) into v_drawn, keys
  from (select e.ord, nextval({{schema_text job_ids}}) as job_id,
               case when jsonb_typeof(e.e -> 'opts' -> 'unique') = 'object'
                 then {{schema}}.unique_key(e.e ->> 'kind', e.e ->> 'queue', e.e -> 'args', e.e -> 'opts' -> 'unique') end as unique_key
        from jsonb_array_elements(p_jobs) with ordinality as e(e, ord) order by e.ord) j;
  ids := v_drawn;
  answers := array_fill('inserted'::text, array[cardinality(v_drawn)]);

  -- In the keys' order, in which they are then inserted: two calls with the same keys wait one for the other, and not both.
  select array_agg(f.unique_key order by f.unique_key), array_agg(f.job_id order by f.unique_key),
         array_agg(f.states order by f.unique_key), array_agg(f.hold order by f.unique_key)
  into v_key, v_job, v_states, v_window
  from (select distinct on (substr(j.unique_key, 2)) substr(j.unique_key, 2) as unique_key, j.job_id,
               get_byte(j.unique_key, 0)::smallint as states,
               (j.e -> 'opts' -> 'unique' ->> 'window_ms')::bigint * interval '1 millisecond' as hold
        from rows from (unnest(v_drawn, keys), jsonb_array_elements(p_jobs)) with ordinality as j(job_id, unique_key, e, ord)
        where j.unique_key is not null
        order by substr(j.unique_key, 2), j.ord) f;
  if v_key is null then
    return;
  end if;

  if cardinality(v_key) > 1 then
    v_before := array(
      select h.job_id from unnest(v_key) with ordinality as k(unique_key, n)
      left join lateral (
        select c.job_id from {{schema}}.unique_claims c
        where c.unique_key = k.unique_key and (c.expires_at is null or c.expires_at > clock_timestamp()) offset 0) h on true
      order by k.n);
  end if;
  loop
    -- Waits for a transaction that has inserted, or is giving back, one of these keys.
    insert into {{schema}}.unique_claims (unique_key, job_id, states, expires_at)
    select k.unique_key, k.job_id, k.states, clock_timestamp() + k.hold
    from unnest(v_key, v_job, v_states, v_window, v_holder) as k(unique_key, job_id, states, hold, holder)
    where k.holder is null
    on conflict (unique_key) do nothing;
    get diagnostics v_rows = row_count;
    if v_rows = cardinality(v_key) then
      if v_rows = cardinality(array_remove(keys, null)) then  -- and no twins in the call
        return;
      end if;
      v_holder := v_job;
      exit;
    end if;
    -- A key that was held and has been given back since: the job that had it is answered. To insert it now, behind greater
    -- keys, could wait in a circle.
    v_holder := array(
      select coalesce(k.holder, case when not h.expired or h.job_id = k.job_id then h.job_id when h.job_id is null then k.before end)
      from unnest(v_key, v_job, v_before, v_holder) with ordinality as k(unique_key, job_id, before, holder, n)
      left join lateral (
        select c.job_id, coalesce(c.expires_at <= clock_timestamp(), false) as expired from {{schema}}.unique_claims c
        where c.unique_key = k.unique_key offset 0) h on true
      order by k.n);
    exit when array_position(v_holder, null) is null;
    -- Holders whose time is over give way. Whoever is quicker has taken over; the next round finds it.
    v_past := array(
      select u.ctid from unnest(v_key, v_holder) as k(unique_key, holder)
      cross join lateral (
        select c.ctid from {{schema}}.unique_claims c
        where c.unique_key = k.unique_key and c.expires_at <= clock_timestamp() for update) u
      where k.holder is null);
    delete from {{schema}}.unique_claims c where c.ctid = any (v_past);
  end loop;

  select array_agg(coalesce(h.holder, j.job_id) order by j.ord),
         array_agg(case when h.holder <> j.job_id then 'existing' else 'inserted' end order by j.ord)
  into ids, answers
  from unnest(v_drawn, keys) with ordinality as j(job_id, unique_key, ord)
  left join unnest(v_key, v_holder) as h(unique_key, holder) on h.unique_key = substr(j.unique_key, 2);

  select j.ord - 1 as at, j.job_id, array_position(v_drawn, j.job_id) - 1 as twin into v_fault
  from rows from (unnest(ids, answers), jsonb_array_elements(p_jobs)) with ordinality as j(job_id, answer, e, ord)
  where j.answer = 'existing' and j.e -> 'opts' -> 'unique' ->> 'on_conflict' = 'error'
  order by j.ord limit 1;
  if found then
    raise exception using errcode = '23505', schema = {{schema_name}}, table = 'unique_claims', constraint = 'unique_claims_pkey',
      message = case when v_fault.twin is null then format('job %s: its unique key is held by job %s', v_fault.at, v_fault.job_id)
                     else format('job %s: its unique key is that of job %s of the same call', v_fault.at, v_fault.twin) end,
      -- The id is a text, since not every number survives JSON; that of a twin in the same call is void with the call.
      detail = jsonb_build_object('index', v_fault.at, 'job_id', case when v_fault.twin is null then v_fault.job_id::text end,
                                  'twin', v_fault.twin)::text;
  end if;
end $$;

-- Gives the jobs that hold the keys of this call what the call says, where it says `replace` and they wait to run: scheduled
-- or retryable, and of the same kind. The row's lock is the fence: promotion skips a locked row, and a row that it took is in
-- the ring now and left as it is. Id, attempts, errors, progress and the claim on the key stay; the last twin of a call counts.
create or replace function {{schema}}.replace_jobs(p_jobs jsonb, p_ids bigint[], p_answers text[]) returns text[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_jobs    bigint[];
  v_rows    tid[];
  v_kinds   text[];
  v_run_at  timestamptz[];
  v_due     bigint[];
  v_sooner  text[];
begin
  if not exists (select from jsonb_array_elements(p_jobs) as j(e) where j.e -> 'opts' -> 'unique' ->> 'on_conflict' = 'replace') then
    return p_answers;
  end if;
  select array_agg(d.job_id), array_agg(d.ctid), array_agg(d.kind), array_agg(d.run_at) into v_jobs, v_rows, v_kinds, v_run_at
  from (select distinct j.job_id
        from rows from (unnest(p_ids, p_answers), jsonb_array_elements(p_jobs)) as j(job_id, answer, e)
        where j.answer = 'existing' and j.e -> 'opts' -> 'unique' ->> 'on_conflict' = 'replace'
        order by j.job_id) i
  cross join lateral (
    select r.job_id, r.ctid, r.kind, r.run_at from {{schema}}.deferred_jobs r
    where r.job_id = i.job_id and r.state in ('scheduled', 'retryable') for update) d;
  if v_jobs is null then
    return p_answers;
  end if;
  with twin as materialized (
    select j.ord, j.job_id, j.e, t.ctid, t.run_at as run_before,
           coalesce((j.e -> 'opts' ->> 'run_at')::timestamptz,
                    v_now + (j.e -> 'opts' ->> 'delay_ms')::bigint * interval '1 millisecond') as run_at
    from rows from (unnest(p_ids, p_answers), jsonb_array_elements(p_jobs)) with ordinality as j(job_id, answer, e, ord)
    join unnest(v_jobs, v_rows, v_kinds, v_run_at) as t(job_id, ctid, kind, run_at) on t.job_id = j.job_id and t.kind = j.e ->> 'kind'
    where j.answer = 'existing' and j.e -> 'opts' -> 'unique' ->> 'on_conflict' = 'replace'
  ), last as materialized (
    select w.job_id, w.ctid, w.run_before, (array_agg(w.e order by w.ord desc))[1] as e,
           (array_agg(w.run_at order by w.ord desc) filter (where w.run_at is not null))[1] as run_at
    from twin w group by w.job_id, w.ctid, w.run_before
  ), replaced as (  -- where it is: no join whose plan could depend on the table's size
    update {{schema}}.deferred_jobs d
    set queue = l.e ->> 'queue', priority = coalesce((l.e -> 'opts' ->> 'priority')::smallint, 2::smallint), args = l.e -> 'args',
        -- at least one more, or a job would run as attempt 3 of 2
        max_attempts = greatest(coalesce((l.e -> 'opts' ->> 'max_attempts')::integer, 25), d.attempt + 1),
        run_at = coalesce(l.run_at, d.run_at), xid = pg_current_xact_id()
    from last l where d.ctid = l.ctid
  )
  select (select array_agg(case when w.ord is null then a.answer else 'replaced' end order by a.ord)
          from unnest(p_answers) with ordinality as a(answer, ord) left join twin w on w.ord = a.ord),
         array_agg(l.job_id) filter (where l.run_at <= v_now and coalesce(l.e -> 'opts' ->> 'notify', 'true') <> 'false'),
         array_agg(l.e ->> 'queue') filter (where l.run_at < l.run_before and coalesce(l.e -> 'opts' ->> 'notify', 'true') <> 'false')
  into p_answers, v_due, v_sooner
  from last l;
  if v_due is not null then  -- at once, not at the next tick
    perform {{schema}}.promote_jobs(v_due);
  end if;
  -- Whoever sleeps until a job is due has to know that one of them is due sooner.
  perform pg_notify({{channel}}, q) from (select distinct unnest(v_sooner) as q) s;
  return p_answers;
end $$;
