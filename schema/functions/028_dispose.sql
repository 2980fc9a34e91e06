-- Where a job goes when its attempt ended without success: aside, to run again; to the terminal jobs; to the dead letters.
-- Every path to another run passes this one exhaustion check. The caller has just closed the attempts.

create or replace function {{schema}}.place_jobs(p_jobs {{schema}}.ended_job[]) returns void
language plpgsql volatile as $$
declare
  v_now       timestamptz := clock_timestamp();
  v_runnable  bigint[];
  v_keys      bytea[];
  v_holders   bigint[];
  v_gated     text[];
begin
  -- What was put aside waits for its queue to be enabled. The lock decides who comes first: the queue is enabled by now, and the
  -- job runs again at once; or whoever enables it waits for this transaction, and finds the job.
  if exists (select from unnest(p_jobs) j where j.outcome = 'gated') then
    v_gated := array(
      select q.queue from (select distinct j.queue from unnest(p_jobs) j where j.outcome = 'gated' order by j.queue) g
      cross join lateral (
        select r.queue from {{schema}}.queues r where r.queue = g.queue and not r.caller_owned for share) q);
  end if;
  with item as materialized (
    select j.job_id, j.run_lease, j.queue, j.priority, j.max_attempts, j.kind, j.args, j.created_at, j.outcome, j.detail,
           -- snoozed, released and gated attempts do not count
           case when j.outcome in ('snoozed', 'released', 'gated') then j.attempt - 1 else j.attempt end as attempt,
           j.outcome = 'gated' and j.queue = any (v_gated) as gated,
           j.outcome in ('failed', 'cancelled', 'discarded', 'dead_lettered')
             or (j.outcome in ('retried', 'rescued') and j.attempt >= j.max_attempts) as ended,
           j.outcome = 'dead_lettered' or (j.outcome in ('failed', 'retried', 'rescued') and coalesce(q.dead_letter, false)) as dead,
           coalesce(j.detail -> 'progress', j.progress) as progress,
           case when j.detail ? 'error' then
             case when jsonb_array_length(coalesce(j.errors, '[]')) >= 20 then j.errors - 0 else coalesce(j.errors, '[]') end
             || jsonb_build_array(jsonb_build_object('attempt', j.attempt, 'run_lease', j.run_lease, 'at', v_now,
                                                     'outcome', j.outcome, 'error', j.detail -> 'error')
                                  || case when a.abandoned > 0 then jsonb_build_object('abandoned', a.abandoned) else '{}' end)
           else j.errors end as errors,
           a.abandoned,
           -- a key that was held until the first claim is nobody's any more
           case when get_byte(j.unique_key, 0) > 0 then j.unique_key end as unique_key,
           -- Nobody chose a pause: it doubles from zero. From the second one on it is drawn: a job that kills its worker would
           -- otherwise come back together with those that it took along, time after time.
           case when j.outcome = 'rescued' and not j.detail ? 'delay_ms' then
             (least(3600000, (power(2, least(j.attempt - 1, 12)) - 1) * 1000) * (0.5 + random() / 2))::bigint
           else coalesce((j.detail ->> 'delay_ms')::bigint, 0) end as delay_ms
    from unnest(p_jobs) j
    left join lateral (select s.dead_letter from {{schema}}.queues s where s.queue = j.queue offset 0) q on true
    -- How often it was left behind: the worker died, was cut off, or sat past the deadline. Counted from entry to entry, since
    -- only the last twenty are kept.
    cross join lateral (
      select case when j.outcome = 'rescued' and j.detail #>> '{error,name}' = 'AttemptAbandoned' then 1 + coalesce((
        select max((e.entry ->> 'abandoned')::integer)
        from jsonb_array_elements(coalesce(j.errors, '[]')) as e(entry)), 0) else 0 end as abandoned offset 0) a
  ), ended as (
    insert into {{schema}}.terminal_jobs
      (job_id, queue, priority, state, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, finalized_at, unique_key)
    select job_id, queue, priority, case outcome when 'cancelled' then 'cancelled' when 'discarded' then 'discarded' else 'failed' end,
           run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, v_now, unique_key
    from item where ended and not dead
    on conflict (job_id) do nothing
  ), dead as (
    insert into {{schema}}.dlq_entries
      (job_id, queue, priority, reason, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, dead_lettered_at, unique_key)
    select job_id, queue, priority,
           case outcome when 'dead_lettered' then coalesce(detail ->> 'reason', 'the handler said so') when 'failed' then 'failed'
             else 'attempts exhausted' || case when abandoned > 0 then format(', %s of them abandoned by their worker', abandoned) else '' end end,
           run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, v_now, unique_key
    from item where ended and dead
    on conflict (job_id) do nothing
  ), again as (
    insert into {{schema}}.deferred_jobs
      (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, xid, unique_key,
       callback_result)
    select job_id, queue, priority, case when gated then 'gated' when outcome = 'snoozed' then 'snoozed' else 'retryable' end,
           case when gated then 'infinity' else v_now + delay_ms * interval '1 millisecond' end,
           run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, pg_current_xact_id(), unique_key,
           detail -> 'callback_result'
    from item where not ended
    on conflict (job_id) do nothing
    returning job_id, run_at
  )
  select (select array_agg(job_id) from again where run_at <= v_now), array_agg(unique_key), array_agg(job_id)
  into v_runnable, v_keys, v_holders
  from item where ended and unique_key is not null;
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 3::smallint);
  end if;
  if v_runnable is not null then  -- at once, not at the next tick
    perform {{schema}}.promote_jobs(v_runnable);
  end if;
end $$;

-- All of them; when something about one of them refuses to be stored, the others nevertheless, and that one in quarantine
-- with the reason. It is found by halves. What says nothing of the row (locks, cancellation, a full disk) is the caller's to
-- try again.
create or replace function {{schema}}.dispose_jobs(p_jobs {{schema}}.ended_job[]) returns void
language plpgsql volatile as $$
declare
  v_half    integer := cardinality(p_jobs) / 2;
  v_job     {{schema}}.ended_job;
  v_reason  text;
begin
  if coalesce(cardinality(p_jobs), 0) = 0 then
    return;
  end if;
  begin
    perform {{schema}}.place_jobs(p_jobs);
    return;
  exception when others then
    if not {{schema}}.speaks_of_rows(sqlstate) then
      raise;
    end if;
    v_reason := format('%s, on its way from outcome %s: %s', sqlstate, p_jobs[1].outcome, left(sqlerrm, 1000));
  end;
  if v_half > 0 then
    perform {{schema}}.dispose_jobs(p_jobs[:v_half]);
    perform {{schema}}.dispose_jobs(p_jobs[v_half + 1:]);
    return;
  end if;
  v_job := p_jobs[1];
  -- It keeps its unique key: it is not over. A snoozed, released or gated attempt is refunded here as well.
  insert into {{schema}}.quarantined_jobs
    (job_id, run_lease, queue, priority, attempt, max_attempts, kind, args, progress, errors, created_at, unique_key, reason, quarantined_at)
  values (v_job.job_id, v_job.run_lease, v_job.queue, v_job.priority,
          v_job.attempt - (v_job.outcome in ('snoozed', 'released', 'gated'))::integer, v_job.max_attempts, v_job.kind, v_job.args,
          coalesce(v_job.detail -> 'progress', v_job.progress), v_job.errors, v_job.created_at, v_job.unique_key, v_reason,
          clock_timestamp())
  on conflict (job_id) do nothing;
end $$;

-- Whether an error says something of what was to be stored, and not of the server, its locks or its limits.
create or replace function {{schema}}.speaks_of_rows(p_state text) returns boolean
language sql immutable as $$ select left(p_state, 2) in ('21', '22', '23', '44', 'P0', '54') $$;

-- Gives back the unique keys that these jobs hold no longer: those held for less than p_states says (2: the job completed;
-- 3: it ended in another way; 1: it was claimed). Only an enqueue that takes over an expired key locks such a row, and then
-- the key is that enqueue's: nothing waits here.
create or replace function {{schema}}.release_unique(p_keys bytea[], p_job_ids bigint[], p_states smallint) returns void
language plpgsql volatile as $$
declare
  v_rows tid[];
begin
  v_rows := array(
    select u.ctid from unnest(p_keys, p_job_ids) as k(unique_key, job_id)
    cross join lateral (
      select c.ctid from {{schema}}.unique_claims c
      where c.unique_key = substr(k.unique_key, 2) and c.job_id = k.job_id and c.states < p_states for update skip locked) u
    where get_byte(k.unique_key, 0) < p_states);
  delete from {{schema}}.unique_claims c where c.ctid = any (v_rows);
end $$;
