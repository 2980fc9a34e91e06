-- Guards that the other functions begin with.

-- The hot functions rely on every statement having a snapshot of its own (in REPEATABLE READ a claim handed jobs out twice).
create or replace function {{schema}}.require_read_committed() returns void
language plpgsql stable as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = '25001',
      message = format('this function runs in READ COMMITTED only, not in %s', upper(current_setting('transaction_isolation')));
  end if;
end $$;

-- Runtimes and drivers state the contract version they were written for.
create or replace function {{schema}}.require_contract(version integer) returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_minimum integer;
begin
  select m.minimum_contract into v_minimum from {{schema}}.meta m;
  if version is null or version < v_minimum or version > 1 then
    raise exception using errcode = 'WA004', message = format('contract version %s is not supported', coalesce(version::text, 'null')),
      detail = format('This installation serves contract versions %s to 1.', v_minimum);
  end if;
end $$;
