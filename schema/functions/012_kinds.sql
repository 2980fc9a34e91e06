-- Kinds that are registered with the JSON Schema of their payload, so that an enqueue from any language can ask for its payload
-- to be checked (`validate`). Nothing of this is read for a job that does not ask.

-- The rule that a registered schema breaks, or what of it is not checked here: a path and a keyword. Known are type, properties,
-- required, additionalProperties, enum, const, items (one schema for all), minItems, maxItems, minLength, maxLength, minimum,
-- maximum, exclusiveMinimum, exclusiveMaximum, anyOf, and $ref to $defs of the root.
create or replace function {{schema}}.schema_look(p_schema jsonb, out fault text, out unchecked text[])
language plpgsql immutable as $$
declare
  v_defs jsonb := case when jsonb_typeof(p_schema -> '$defs') = 'object' then p_schema -> '$defs' else '{}' end;
begin
  if pg_column_size(p_schema) > 262144 then
    fault := 'at most 256 KiB';
  elsif (select count(*) from jsonb_object_keys(v_defs)) > 1000 then
    fault := ': $defs: at most 1000';
  end if;
  if fault is not null then
    return;
  end if;
  with recursive node as (  -- def: the definition whose value it sees, where it sees that of one
    select '' as path, p_schema as s, 0 as depth, null::text as def
    union all
    -- A path is cut: its length times the number of places would have no bound that is of use.
    select case when char_length(n.path) > 200 then n.path else left(n.path || c.step, 201) end, c.s, n.depth + 1,
           case when c.def is not null and n.depth = 0 then c.def when c.same then n.def end
    from node n cross join lateral (
      select '/' || g.name || '/' || replace(replace(m.key, '~', '~0'), '/', '~1') as step, m.value as s, false as same,
             case when g.name = '$defs' then m.key end as def
      from (values ('properties'), ('$defs')) as g(name)
      cross join lateral jsonb_each(case when jsonb_typeof(n.s -> g.name) = 'object' then n.s -> g.name else '{}' end) m
      union all
      select '/anyOf/' || (a.ord - 1), a.e, true, null
      from jsonb_array_elements(case when jsonb_typeof(n.s -> 'anyOf') = 'array' then n.s -> 'anyOf' else '[]' end) with ordinality as a(e, ord)
      union all
      select '/' || g.name, n.s -> g.name, false, null from (values ('items'), ('additionalProperties')) as g(name)
      where jsonb_typeof(n.s -> g.name) = 'object') c
    where n.depth < 64
  ), checked as (
    select n.path, n.depth, left(k.key, 255) as key, case
      when n.depth >= 64 then 'nested deeper than 64'
      when jsonb_typeof(n.s) <> 'object' then 'expected an object'
      when octet_length(k.key) > 255 then 'keys of at most 255 bytes'
      when k.key = 'type' and not (
        case jsonb_typeof(k.value) when 'array' then k.value else jsonb_build_array(k.value) end
        <@ '["string", "number", "integer", "boolean", "object", "array", "null"]') then 'type: expected the name of a type, or a list of them'
      when k.key in ('properties', '$defs') then case
        when jsonb_typeof(k.value) <> 'object' then k.key || ': expected an object'
        when exists (select from jsonb_object_keys(k.value) as m(name) where octet_length(m.name) > 255)
          then k.key || ': keys of at most 255 bytes' end
      when k.key = 'required' and (jsonb_typeof(k.value) <> 'array' or jsonb_path_exists(k.value, '$[*] ? (@.type() != "string")'))
        then 'required: expected a list of texts'
      when k.key in ('enum', 'anyOf') and (jsonb_typeof(k.value) <> 'array' or k.value = '[]') then k.key || ': expected a list that is not empty'
      when k.key = 'additionalProperties' and jsonb_typeof(k.value) not in ('boolean', 'object')
        then 'additionalProperties: expected a boolean or an object'
      when k.key = 'items' and jsonb_typeof(k.value) not in ('object', 'array') then 'items: expected an object'
      -- Not by their text: that of 1e100000 is long.
      when k.key in ('minLength', 'maxLength', 'minItems', 'maxItems') and not (
        case when jsonb_typeof(k.value) = 'number' then k.value::numeric between 0 and 999999999 and scale(k.value::numeric) = 0 else false end)
        then k.key || ': expected a whole number, not negative'
      when k.key in ('minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum') and jsonb_typeof(k.value) <> 'number'
        then k.key || ': expected a number'
      when k.key = '$ref' and (k.value #>> '{}' not like '#/$defs/%' or not v_defs ? {{schema}}.ref_name(k.value #>> '{}'))
        then '$ref: expected #/$defs/ and a name that is there'
    end as fault,
    k.key not in ('type', 'properties', 'required', 'additionalProperties', 'enum', 'const', 'items', 'minItems', 'maxItems', 'minLength',
      'maxLength', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'anyOf', '$ref', '$defs',
      -- say nothing of a value
      '$schema', '$id', '$comment', 'title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly')
      or (k.key = 'items' and jsonb_typeof(k.value) = 'array')
      -- which properties are additional depends on patterns
      or (k.key = 'additionalProperties' and n.s ? 'patternProperties') as is_unchecked
    from node n
    left join lateral jsonb_each(case when jsonb_typeof(n.s) = 'object' then n.s else '{}' end) k on true
  ), step as (  -- from a definition to one that the same value must satisfy
    select distinct n.def as a, {{schema}}.ref_name(n.s ->> '$ref') as b
    from node n where n.def is not null and jsonb_typeof(n.s) = 'object' and n.s ->> '$ref' like '#/$defs/%'
  ), walk as (  -- the definitions from which so many steps lead on: at most 65 times all of them, whatever leads where
    select s.a, 1 as steps from step s
    union
    select s.a, w.steps + 1 from walk w join step s on s.b = w.a where w.steps <= 64
  )
  select coalesce((select c.path || ': ' || c.fault from checked c where c.fault is not null order by c.path, c.key limit 1),
                  (select '/$defs/' || w.a || ': $ref: it leads back to itself, or on over more than 64 others' from walk w
                   where w.steps > 64 order by w.a limit 1)),
         (select coalesce(array_agg(c.path || ': ' || c.key order by c.path, c.key), '{}') from checked c where c.is_unchecked)
  into fault, unchecked;
end $$;

-- The name of a definition, of #/$defs/<name>.
create or replace function {{schema}}.ref_name(p_ref text) returns text
language sql immutable as $$
  select replace(replace(substr(p_ref, 9), '~1', '/'), '~0', '~')
$$;

-- The first rule that a value breaks, as a path and the rule; null: none. p_left bounds the work over all alternatives: a
-- schema that branches at every level, or is large and looked at often, is no way to keep the server busy. p_depth counts the
-- steps into the value, p_nested those of references and alternatives: together they bound the server's stack.
create or replace function {{schema}}.value_fault(
  p_schema jsonb, p_defs jsonb, p_value jsonb, p_path text, p_depth integer, p_nested integer, inout p_left integer, out fault text)
language plpgsql immutable as $$
declare
  v_type   text := jsonb_typeof(p_value);
  v_found  record;
  v_one    record;
  v_first  text;
  v_limit  text;
  v_names  jsonb;
  v_more   jsonb;
begin
  -- What is done here takes longer with the size of both, which is copied, unfolded and compared.
  p_left := p_left - 1 - pg_column_size(p_value) / 512 - pg_column_size(p_schema) / 1024
    - case when p_schema ? 'required' then jsonb_array_length(p_schema -> 'required') / 16 else 0 end
    - case when p_schema ? 'enum' and v_type in ('array', 'object') then jsonb_array_length(p_schema -> 'enum') else 0 end;
  if p_left < 0 then
    fault := left(p_path, 100) || ': more than 100000 steps to check it';
    return;
  end if;
  if p_depth > 32 then  -- of values: no schema is registered whose references lead back without a step into the value
    fault := left(p_path, 100) || ': nested deeper than 32';
    p_left := -1;       -- no other alternative is tried
    return;
  end if;
  if p_nested > 256 then
    fault := left(p_path, 100) || ': more than 256 references and alternatives inside each other';
    p_left := -1;
    return;
  end if;
  if p_schema ? '$ref' then
    select * into v_found from {{schema}}.value_fault(
      p_defs -> {{schema}}.ref_name(p_schema ->> '$ref'), p_defs, p_value, p_path, p_depth, p_nested + 1, p_left);
    p_left := v_found.p_left;
    fault := v_found.fault;
    if fault is not null then
      return;
    end if;
  end if;
  if p_schema ? 'type' and not (p_schema -> 'type' ? v_type)
     and not (v_type = 'number' and p_schema -> 'type' ? 'integer' and p_value::numeric = trunc(p_value::numeric)) then
    fault := format('%s: expected type %s', p_path, p_schema ->> 'type');
    return;
  end if;
  if p_schema ? 'enum' and not (case  -- a list contains a plain value when that is one of its own
    when v_type in ('array', 'object') then exists (select from jsonb_array_elements(p_schema -> 'enum') as e(v) where e.v = p_value)
    else p_schema -> 'enum' @> p_value end) then
    fault := format('%s: expected one of %s', p_path, left(p_schema ->> 'enum', 200));
    return;
  end if;
  if p_schema ? 'const' and p_schema -> 'const' <> p_value then
    fault := format('%s: expected %s', p_path, left((p_schema -> 'const')::text, 200));
    return;
  end if;
  case v_type
    when 'string' then
      if char_length(p_value #>> '{}') < (p_schema ->> 'minLength')::integer then
        fault := format('%s: minLength %s', p_path, p_schema ->> 'minLength');
      elsif char_length(p_value #>> '{}') > (p_schema ->> 'maxLength')::integer then
        fault := format('%s: maxLength %s', p_path, p_schema ->> 'maxLength');
      end if;
    when 'number' then
      v_limit := case
        when p_value::numeric < (p_schema -> 'minimum')::numeric then 'minimum'
        when p_value::numeric > (p_schema -> 'maximum')::numeric then 'maximum'
        when p_value::numeric <= (p_schema -> 'exclusiveMinimum')::numeric then 'exclusiveMinimum'
        when p_value::numeric >= (p_schema -> 'exclusiveMaximum')::numeric then 'exclusiveMaximum' end;
      if v_limit is not null then
        fault := format('%s: %s %s', p_path, v_limit, left(p_schema ->> v_limit, 200));
      end if;
    when 'array' then
      if jsonb_array_length(p_value) < (p_schema ->> 'minItems')::integer then
        fault := format('%s: minItems %s', p_path, p_schema ->> 'minItems');
      elsif jsonb_array_length(p_value) > (p_schema ->> 'maxItems')::integer then
        fault := format('%s: maxItems %s', p_path, p_schema ->> 'maxItems');
      elsif jsonb_typeof(p_schema -> 'items') = 'object' then
        for v_one in select a.e, a.ord - 1 as at from jsonb_array_elements(p_value) with ordinality as a(e, ord) loop
          select * into v_found from {{schema}}.value_fault(
            p_schema -> 'items', p_defs, v_one.e, format('%s[%s]', p_path, v_one.at), p_depth + 1, p_nested, p_left);
          p_left := v_found.p_left;
          fault := v_found.fault;
          exit when fault is not null;
        end loop;
      end if;
    when 'object' then
      select r.name into v_first from jsonb_array_elements_text(coalesce(p_schema -> 'required', '[]')) with ordinality as r(name, ord)
      where not p_value ? r.name order by r.ord limit 1;
      if found then
        fault := format('%s: required', p_path || {{schema}}.path_step(v_first));
      elsif p_schema ?| '{properties,additionalProperties}' then
        v_names := p_schema -> 'properties';
        v_more := case when not p_schema ? 'patternProperties' then p_schema -> 'additionalProperties' end;
        for v_one in select m.key, m.value, coalesce(v_names -> m.key, v_more) as s from jsonb_each(p_value) m loop
          if v_one.s = 'false' then
            fault := format('%s: no such property', p_path || {{schema}}.path_step(v_one.key));
          elsif jsonb_typeof(v_one.s) = 'object' then
            select * into v_found from {{schema}}.value_fault(
              v_one.s, p_defs, v_one.value, p_path || {{schema}}.path_step(v_one.key), p_depth + 1, p_nested, p_left);
            p_left := v_found.p_left;
            fault := v_found.fault;
          end if;
          exit when fault is not null;
        end loop;
      end if;
    else null;
  end case;
  if fault is null and p_schema ? 'anyOf' then
    v_first := null;
    for v_one in select a.e from jsonb_array_elements(p_schema -> 'anyOf') with ordinality as a(e, ord) order by a.ord loop
      select * into v_found from {{schema}}.value_fault(v_one.e, p_defs, p_value, p_path, p_depth, p_nested + 1, p_left);
      p_left := v_found.p_left;
      if v_found.fault is null then
        return;
      end if;
      v_first := coalesce(v_first, v_found.fault);
      exit when p_left < 0;
    end loop;
    fault := case when p_left < 0 then v_found.fault
             else format('%s: anyOf: none of %s fits (the first: %s)', p_path, jsonb_array_length(p_schema -> 'anyOf'), v_first) end;
  end if;
end $$;

-- One step of a path as a program would write it.
create or replace function {{schema}}.path_step(p_key text) returns text
language sql immutable as $$
  select case when p_key ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$' then '.' || p_key else '[' || to_json(left(p_key, 100)) || ']' end
$$;

-- The part of check_jobs that is about payloads: of the jobs that ask for it.
create or replace function {{schema}}.check_payloads(p_jobs jsonb) returns void
language plpgsql stable as $$
declare
  v_job    record;
  v_found  record;
begin
  for v_job in
    select j.ord - 1 as at, jsonb_typeof(j.e -> 'opts' -> 'validate') = 'boolean' as is_boolean, j.e ->> 'kind' as kind, j.e -> 'args' as args, k.schema
    from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
    left join {{schema}}.job_kinds k on k.kind = j.e ->> 'kind'
    where coalesce(j.e -> 'opts' -> 'validate', 'null') not in ('false', 'null')
    order by j.ord
  loop
    if not v_job.is_boolean then
      raise exception using errcode = '22023', message = format('job %s: validate: expected a boolean', v_job.at);
    end if;
    if v_job.schema is null then
      raise exception using errcode = '22023', message = format('job %s: validate: no kind %L is registered', v_job.at, v_job.kind),
        hint = 'Run `awa kinds register`.';
    end if;
    select * into v_found from {{schema}}.value_fault(v_job.schema, v_job.schema -> '$defs', v_job.args, 'args', 0, 0, 100000);
    if v_found.fault is not null then
      raise exception using errcode = '22023', message = format('job %s: %s', v_job.at, v_found.fault);
    end if;
  end loop;
end $$;

-- Registers kinds, all or none: [{"kind", "schema", "queue", "priority", "max_attempts"}, …]. Answers for each, in order, whether
-- it is new, and the keywords of its schema that `validate` does not check.
create or replace function {{schema}}.register_kinds(kinds jsonb) returns table (kind text, answer text, unchecked text[])
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set standard_conforming_strings = on
as $$
#variable_conflict use_column
declare
  v_kind   record;
  v_look   record;
  v_rule   text;
  v_old    {{schema}}.job_kinds;
  v_looks    jsonb[];  -- of each kind, by its place: what is not checked
  v_answers  text[];
begin
  v_rule := case
    when kinds is null or jsonb_typeof(kinds) <> 'array' then 'expected a JSON array'
    when jsonb_array_length(kinds) > 1000 then 'at most 1000 in one call'
    when (select sum(pg_column_size(k.e)) from jsonb_array_elements(kinds) as k(e)) > 16777216 then 'at most 16 MiB in one call' end;
  if v_rule is not null then
    raise exception using errcode = '22023', message = 'kinds: ' || v_rule;
  end if;
  -- Without jit: it would compile the look at a schema anew for each kind, which takes 20 ms and more.
  for v_kind in select k.e, k.ord - 1 as at from jsonb_array_elements(kinds) with ordinality as k(e, ord) order by k.ord loop
    v_rule := case
      when jsonb_typeof(v_kind.e) <> 'object' then 'expected an object'
      when jsonb_typeof(v_kind.e -> 'kind') is distinct from 'string' then 'kind: expected a non-empty text'
      when {{schema}}.name_fault(v_kind.e ->> 'kind') is not null then 'kind: ' || {{schema}}.name_fault(v_kind.e ->> 'kind')
      when jsonb_typeof(v_kind.e -> 'schema') is distinct from 'object' then 'schema: expected an object'
      when coalesce(jsonb_typeof(v_kind.e -> 'queue'), 'null') not in ('string', 'null') then 'queue: expected a non-empty text'
      when v_kind.e ->> 'queue' is not null and {{schema}}.name_fault(v_kind.e ->> 'queue') is not null
        then 'queue: ' || {{schema}}.name_fault(v_kind.e ->> 'queue')
      when coalesce(jsonb_typeof(v_kind.e -> 'priority'), 'null') not in ('number', 'null')
        or coalesce(v_kind.e ->> 'priority', '2') !~ '^[1-4]$' then 'priority: expected an integer from 1 to 4'
      when coalesce(jsonb_typeof(v_kind.e -> 'max_attempts'), 'null') not in ('number', 'null')
        or coalesce(v_kind.e ->> 'max_attempts', '25') !~ '^[0-9]{1,5}$'
        or coalesce(v_kind.e ->> 'max_attempts', '25')::integer not between 1 and 32767
        then 'max_attempts: expected an integer from 1 to 32767' end;
    if v_rule is not null then
      raise exception using errcode = '22023', message = format('kind %s: %s', v_kind.at, v_rule);
    end if;
    select k.key into v_rule from jsonb_object_keys(v_kind.e) as k(key)
    where k.key not in ('kind', 'schema', 'queue', 'priority', 'max_attempts') limit 1;
    if found then
      raise exception using errcode = 'WA005', message = format('kind %s: unknown option key %L', v_kind.at, v_rule),
        hint = 'Known keys: kind, schema, queue, priority, max_attempts.';
    end if;
    select * into v_look from {{schema}}.schema_look(v_kind.e -> 'schema');
    if v_look.fault is not null then
      raise exception using errcode = '22023', message = format('kind %s: schema: %s', v_kind.at, v_look.fault);
    end if;
    v_looks[v_kind.at + 1] := to_jsonb(v_look.unchecked);
  end loop;
  select max(k.ord) - 1 as at, min(k.ord) - 1 as first into v_kind from jsonb_array_elements(kinds) with ordinality as k(e, ord)
  group by k.e ->> 'kind' having count(*) > 1 order by 1 limit 1;
  if found then
    raise exception using errcode = '22023', message = format('kind %s: kind: the same as of kind %s', v_kind.at, v_kind.first);
  end if;
  -- In the order of names, so that two that register the same kinds never wait for each other in a circle.
  for v_kind in select k.e, k.ord from jsonb_array_elements(kinds) with ordinality as k(e, ord) order by k.e ->> 'kind' loop
    select o.* into v_old from {{schema}}.job_kinds o where o.kind = v_kind.e ->> 'kind' for update;
    insert into {{schema}}.job_kinds as o (kind, schema, queue, priority, max_attempts)
    values (v_kind.e ->> 'kind', v_kind.e -> 'schema', v_kind.e ->> 'queue', (v_kind.e ->> 'priority')::smallint,
            (v_kind.e ->> 'max_attempts')::integer)
    on conflict (kind) do update
    set schema = excluded.schema, queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
        registered_at = clock_timestamp()
    where (o.schema, o.queue, o.priority, o.max_attempts)
      is distinct from (excluded.schema, excluded.queue, excluded.priority, excluded.max_attempts);
    v_answers[v_kind.ord] := case when found and v_old.kind is null then 'registered' when found then 'changed' else 'unchanged' end;
  end loop;
  perform {{schema}}.record_audit('register_kinds', (
    select jsonb_build_object('kinds', coalesce(jsonb_object_agg(k.e ->> 'kind', v_answers[k.ord]), '{}'))
    from jsonb_array_elements(kinds) with ordinality as k(e, ord)));
  return query
    select k.e ->> 'kind', v_answers[k.ord], array(select jsonb_array_elements_text(v_looks[k.ord]))
    from jsonb_array_elements(kinds) with ordinality as k(e, ord) order by k.ord;
end $$;
