-- The guard for drivers whose nested transactions can swallow an error, or roll a completion back with a savepoint: called first
-- in the application's transaction, it makes COMMIT itself fail unless that transaction completed this attempt (C-41).

-- At COMMIT, or as soon as SET CONSTRAINTS says so: the completion must be there, made by this very transaction, in either
-- authority. A row of another transaction was not made by expect_completion here: a dump, a copy or a subscription brought it.
{{#segments}}
create or replace function {{schema}}.check_expected_{{segment}}() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
  if new.xid <> pg_current_xact_id() then
    return null;
  end if;
  if not exists (
       select from {{schema}}.claim_batches_{{segment}} b
       cross join lateral (
         select c.outcome, c.xid from {{schema}}.closures_{{segment}} c
         where c.batch_id = new.batch_id and c.batch_index = new.batch_index offset 0) c
       where b.batch_id = new.batch_id and b.job_ids[new.batch_index] = new.job_id and b.run_leases[new.batch_index] = new.run_lease
         and b.receipt_base + new.batch_index = new.receipt_id and c.outcome = 'completed' and c.xid = new.xid)
     and not exists (
       select from {{schema}}.lease_closures d
       where d.job_id = new.job_id and d.run_lease = new.run_lease and d.receipt_id = new.receipt_id
         and d.outcome = 'completed' and d.xid = new.xid)
  then
    raise exception using errcode = 'WA007', message = 'the transaction would commit without its completion',
      detail = format('job %s, run lease %s', new.job_id, new.run_lease);
  end if;
  return null;
end $$;
{{/segments}}

-- The arguments are the token, as complete_job takes it. Refused inside a savepoint, whose rollback would take the promise back.
create or replace function {{schema}}.expect_completion(
  job_id bigint, run_lease bigint, claim_slot integer, receipt_id bigint, batch_id bigint, batch_index integer)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_xid   xid8 := pg_current_xact_id();
  v_mine  xid;
begin
  perform {{schema}}.require_token(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index);
  case claim_slot & 255
    {{#segments}}
    when {{segment}} then
      insert into {{schema}}.expected_completions_{{segment}} as e (xid, job_id, run_lease, receipt_id, batch_id, batch_index)
      values (v_xid, job_id, run_lease, receipt_id, batch_id, batch_index)
      returning e.xmin into v_mine;
    {{/segments}}
  end case;
  if v_mine <> v_xid::xid then  -- the transaction that a row carries is the innermost
    raise exception using errcode = '3B001', message = 'expect_completion must be called outside any savepoint',
      hint = 'Call it first in the transaction, before whatever opens a savepoint or a nested transaction.';
  end if;
end $$;
