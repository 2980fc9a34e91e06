-- Retention, in bounded shares: at most p_limit rows of a table in a call. Whatever another transaction holds waits for the next
-- call, and what is not there is not written: an idle system draws no transaction id here.

-- Of these rows of attempt_state, all of this segment, those whose attempt is closed or gone.
{{#segments}}
create or replace function {{schema}}.orphans_{{segment}}(p_rows tid[], p_batch_ids bigint[], p_idx integer[]) returns tid[]
language sql volatile as $$
  select array_agg(u.tid)
  from unnest(p_rows, p_batch_ids, p_idx) as u(tid, batch_id, idx)
  left join lateral (
    select true as found from {{schema}}.closures_{{segment}} c
    where c.batch_id = u.batch_id and c.batch_index = u.idx offset 0) c on true
  left join lateral (
    select true as found from {{schema}}.claim_batches_{{segment}} b where b.batch_id = u.batch_id offset 0) b on true
  where c.found or b.found is null
$$;
{{/segments}}

-- Removes what has lived its time: jobs that ended without success, what operators asked for, dead letters, ended leases, unique keys that bind nobody any
-- more (a holder past its window gives way, so its row says nothing), silent runtimes, and the state of attempts that are closed
-- or gone. What is in quarantine stays until somebody decides. What was put aside for a queue that is enabled by now runs again.
-- Answers how many rows went.
create or replace function {{schema}}.sweep(
  p_runtime_silence interval, p_terminal interval default '30 days', p_dead_letter interval default '30 days',
  p_history interval default '1 hour', p_limit integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_state  record;
  v_rows   tid[];
  v_part   tid[];
  v_count  integer;
  v_total  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if least(p_runtime_silence, p_terminal, p_dead_letter, p_history) < interval '0' then
    raise exception using errcode = '22023', message = 'sweep: expected lengths of time that are not negative';
  end if;
  if not {{schema}}.lead() then
    return null;
  end if;

  v_rows := '{}';
  for v_state in  -- one pass, by position
    select s.claim_slot & 255 as slot, array_agg(s.ctid) as tids, array_agg(s.batch_id) as batch_ids, array_agg(s.batch_index) as idx
    from {{schema}}.attempt_state s where s.ctid >= '(0,0)' group by 1
  loop
    case v_state.slot
      {{#segments}}
      when {{segment}} then v_part := {{schema}}.orphans_{{segment}}(v_state.tids, v_state.batch_ids, v_state.idx);
      {{/segments}}
      else v_part := v_state.tids;
    end case;
    v_rows := v_rows || v_part;
  end loop;
  if cardinality(v_rows) > 0 then
    v_rows := array(select s.ctid from {{schema}}.attempt_state s where s.ctid = any (v_rows) limit p_limit for update skip locked);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
    get diagnostics v_count = row_count;
    v_total := v_total + v_count;
  end if;

  v_rows := array(
    select t.ctid from {{schema}}.terminal_jobs t where t.finalized_at < v_now - p_terminal
    order by t.finalized_at limit p_limit for update skip locked);
  delete from {{schema}}.terminal_jobs t where t.ctid = any (v_rows);
  v_total := v_total + cardinality(v_rows);

  v_rows := array(  -- in the order of their ids, which is nearly that of their times
    select a.ctid from (select b.ctid, b.audit_id, b.at from {{schema}}.audit b order by b.audit_id limit p_limit) a
    where a.at < v_now - greatest(p_terminal, interval '30 days'));  -- whoever leads cannot make it forget
  delete from {{schema}}.audit a where a.ctid = any (v_rows);
  v_total := v_total + cardinality(v_rows);

  v_rows := array(
    select e.ctid from {{schema}}.dlq_entries e where e.dead_lettered_at < v_now - p_dead_letter
    order by e.dead_lettered_at limit p_limit for update skip locked);
  delete from {{schema}}.dlq_entries e where e.ctid = any (v_rows);
  v_total := v_total + cardinality(v_rows);

  v_rows := array(
    select c.ctid from {{schema}}.lease_closures c where c.closed_at < v_now - p_history
    order by c.closed_at limit p_limit for update skip locked);
  delete from {{schema}}.lease_closures c where c.ctid = any (v_rows);
  v_total := v_total + cardinality(v_rows);

  v_rows := array(
    select u.ctid from {{schema}}.unique_claims u where u.expires_at < v_now
    order by u.expires_at limit p_limit for update skip locked);
  delete from {{schema}}.unique_claims u where u.ctid = any (v_rows);
  v_total := v_total + cardinality(v_rows);

  v_rows := array(
    select r.ctid from {{schema}}.runtimes r where r.beat_at < v_now - p_runtime_silence limit p_limit for update skip locked);
  delete from {{schema}}.runtimes r where r.ctid = any (v_rows);
  v_total := v_total + cardinality(v_rows);
  -- what is left of a queue that was enabled: one call of enable_caller_owned moves only so many
  return v_total + {{schema}}.promote_gated(null, p_limit);
end $$;
