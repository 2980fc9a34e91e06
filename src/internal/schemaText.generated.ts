// Generated from schema/ by `npm run schema`. Do not edit.

/** @internal */
export const migrations: ReadonlyArray<{ readonly name: string; readonly text: string }> = [
  {
    name: "0001_storage.sql",
    text: `-- The storage engine: a fixed ring of append-only segments, and the small mutable tables beside it.
-- Placeholders, replaced at install time and only there: schema (the quoted name), ring (the number of segments) and
-- segment (the number of one segment, inside a block that is repeated for each of them).

create type {{schema}}.outcome as enum (
  'completed',     -- the job is done
  'retried',       -- the attempt failed, the job waits in deferred_jobs
  'snoozed',       -- the handler asked to run later; the attempt is refunded
  'released',      -- shutdown gave the attempt back; the attempt is refunded
  'rescued',       -- the attempt was abandoned (stale heartbeat or deadline)
  'failed',        -- the attempt failed and was the last one
  'cancelled',
  'discarded',     -- the handler said that the job must not run again
  'materialized',  -- the receipt claim ended, a lease row took over
  'gated',         -- caller-owned completion is disabled for the queue
  'dead_lettered'
);

-- One row: what is installed, and in which database (C-34, C-62).
create table {{schema}}.meta (
  singleton          boolean primary key default true check (singleton),
  product            text not null default 'effect-awa',
  schema_version     integer not null,
  minimum_contract   integer not null,
  ring_size          smallint not null check (ring_size between 4 and 64),
  origin_id          uuid not null,      -- never changes: idempotency keys begin with it
  installation_id    uuid not null,      -- changes when a copy is adopted, so that tokens never match by number
  fingerprint        integer not null check (fingerprint between 0 and 524287),
  system_identifier  bigint not null,
  database_oid       oid not null,
  rendered_hash      text not null,
  installed_at       timestamptz not null default clock_timestamp()
);

create sequence {{schema}}.job_ids as bigint;
create sequence {{schema}}.runtime_ids as bigint;
-- Order inside one transaction. A session's cache keeps that order, so a cache is safe here.
create sequence {{schema}}.entry_seq as bigint cache 32;
-- CACHE 1 is load-bearing: the newest batch of a lane must carry the highest id, or its cursor is read from an older row.
create sequence {{schema}}.batch_seq as bigint cache 1;
-- last_value = generation * ring + slot of the current segment. A sequence, because every transaction reads its newest
-- value whatever its snapshot. Moved by setval only: nextval logs ahead, and a crash would make a wrong segment current.
create sequence {{schema}}.segment_cursor as bigint minvalue 0 cache 1;

create table {{schema}}.segments (
  slot         smallint primary key check (slot between 0 and {{ring}} - 1),
  generation   bigint not null,
  state        text not null check (state in ('free', 'open', 'sealed', 'drained')),
  opened_seq   bigint not null default 1,     -- entry_seq when it was opened: how many entries it took, without counting
  rescued_to   bigint not null default 0,     -- every attempt up to this batch is closed or has a row in attempt_state
  opened_at    timestamptz,
  sealed_at    timestamptz,
  drained_at   timestamptz
) with (fillfactor = 50);

create table {{schema}}.queues (
  queue             text primary key,
  paused            boolean not null default false,
  attempt_deadline  interval,
  created_at        timestamptz not null default clock_timestamp()
);

create table {{schema}}.runtimes (
  runtime_id    bigint primary key,
  name          text not null,
  contract      integer not null,
  capabilities  jsonb not null,
  started_at    timestamptz not null default clock_timestamp(),
  beat_at       timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Jobs that are not in the ring: scheduled, retryable, snoozed.
create table {{schema}}.deferred_jobs (
  job_id        bigint primary key,
  queue         text not null,
  priority      smallint not null,
  state         text not null check (state in ('scheduled', 'retryable', 'snoozed')),
  run_at        timestamptz not null,
  run_lease     bigint not null,
  attempt       integer not null,
  max_attempts  integer not null,
  kind          text not null,
  args          jsonb not null,
  progress      jsonb,
  errors        jsonb,
  created_at    timestamptz not null
) with (fillfactor = 80);
create index deferred_jobs_run_at on {{schema}}.deferred_jobs (run_at, job_id);

-- Mutable state of a running attempt; most attempts end before they need a row.
create table {{schema}}.attempt_state (
  job_id        bigint not null,
  run_lease     bigint not null,
  claim_slot    integer not null,
  batch_id      bigint not null,
  batch_index   integer not null,
  heartbeat_at  timestamptz not null,
  progress      jsonb,
  primary key (job_id, run_lease)
) with (fillfactor = 50);

-- Jobs that ended without success.
create table {{schema}}.terminal_jobs (
  job_id        bigint primary key,
  queue         text not null,
  priority      smallint not null,
  state         text not null check (state in ('failed', 'cancelled', 'discarded')),
  run_lease     bigint not null,
  attempt       integer not null,
  max_attempts  integer not null,
  kind          text not null,
  args          jsonb not null,
  progress      jsonb,
  errors        jsonb,
  created_at    timestamptz not null,
  finalized_at  timestamptz not null
);
create index terminal_jobs_finalized_at on {{schema}}.terminal_jobs (finalized_at);

{{#segments}}
create table {{schema}}.ready_entries_{{segment}} (
  queue         text not null,
  priority      smallint not null,
  xid           xid8 not null,       -- the inserting top-level transaction
  seq           bigint not null,
  job_id        bigint not null,
  run_lease     bigint not null,     -- leases drawn so far; the claim adds one
  attempt       integer not null,    -- attempts counted so far; the claim adds one
  max_attempts  integer not null,
  created_at    timestamptz not null,
  kind          text not null,
  args          jsonb not null,
  progress      jsonb,
  errors        jsonb,
  primary key (queue, priority, xid, seq)
);
create index ready_entries_{{segment}}_job_id on {{schema}}.ready_entries_{{segment}} (job_id);

create table {{schema}}.claim_batches_{{segment}} (
  batch_id      bigint primary key,
  queue         text not null,
  priority      smallint not null,
  receipt_base  bigint not null,     -- 62 random bits; item i carries receipt_base + i
  claimed_at    timestamptz not null,
  deadline_at   timestamptz,
  runtime_id    bigint not null,
  n             integer not null,
  cursor_xid    xid8 not null,       -- the lane's cursor after this claim
  cursor_seq    bigint not null,
  pending_xids  xid8[] not null,     -- transactions below the cursor that had not ended
  pending_seqs  bigint[] not null,
  job_ids       bigint[] not null,
  run_leases    bigint[] not null,
  xids          xid8[] not null,
  seqs          bigint[] not null
);
create index claim_batches_{{segment}}_lane on {{schema}}.claim_batches_{{segment}} (queue, priority, batch_id desc);

-- The primary key is the finalization guard: whoever inserts the row first ends the attempt, in any isolation level.
create table {{schema}}.closures_{{segment}} (
  batch_id      bigint not null,
  batch_index   integer not null,
  outcome       {{schema}}.outcome not null,
  closed_at     timestamptz not null,
  xid           xid8 not null,
  closer        bigint,              -- the flush's own id, kept over its retries; null when a caller finalized
  progress      jsonb,
  primary key (batch_id, batch_index)
);
{{/segments}}

-- What the hot functions return.
create type {{schema}}.claimed_attempt as (
  job_id        bigint,
  run_lease     bigint,
  claim_slot    integer,
  receipt_id    bigint,
  batch_id      bigint,
  batch_index   integer,
  attempt       integer,
  max_attempts  integer,
  priority      smallint,
  kind          text,
  args          jsonb,
  progress      jsonb,
  deadline_at   timestamptz,
  lane_busy     boolean
);

-- What complete_job returns: the portable receipt.
create type {{schema}}.finalization as (
  contract_version  integer,
  job_id            bigint,
  run_lease         bigint,
  claim_slot        integer,
  receipt_id        bigint,
  batch_id          bigint,
  batch_index       integer,
  outcome           text,
  finalized_at      timestamptz,
  finalized_xid     xid8
);

insert into {{schema}}.segments (slot, generation, state, opened_at)
select s, case s when 0 then 1 else 0 end, case s when 0 then 'open' else 'free' end, case s when 0 then clock_timestamp() end
from generate_series(0, {{ring}} - 1) s;
select setval({{schema_text segment_cursor}}, {{ring}});

insert into {{schema}}.meta
  (schema_version, minimum_contract, ring_size, origin_id, installation_id, fingerprint, system_identifier, database_oid, rendered_hash)
select 1, 1, {{ring}}, i.id, i.id, (hashtextextended(i.id::text, 0) & 524287)::integer, c.system_identifier, d.oid, ''
from gen_random_uuid() as i(id), pg_control_system() as c, pg_database d
where d.datname = current_database();
`
  }
]

/** @internal */
export const functions: ReadonlyArray<{ readonly name: string; readonly text: string }> = [
  {
    name: "000_guards.sql",
    text: `-- Guards that the other functions begin with.

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
`
  },
  {
    name: "010_enqueue.sql",
    text: `-- Enqueue, in the caller's transaction and in any isolation level. The tables it writes are chosen by a sequence, whose
-- value no snapshot hides; the shared lock lets maintenance prove that no writer is in flight in a segment.

-- One branch per segment: number the jobs and store them, the due ones in the ring and the later ones aside.
{{#segments}}
create or replace function {{schema}}.insert_jobs_{{segment}}(p_jobs jsonb) returns bigint[]
language plpgsql volatile as $$
declare
  v_xid xid8 := pg_current_xact_id();   -- top level, also inside a savepoint
  v_now timestamptz := clock_timestamp();
  v_ids bigint[];
begin
  with job as materialized (
    select j.ord, nextval({{schema_text job_ids}}) as job_id, nextval({{schema_text entry_seq}}) as seq,
           j.e ->> 'queue' as queue, coalesce((j.e -> 'opts' ->> 'priority')::smallint, 2::smallint) as priority,
           coalesce((j.e -> 'opts' ->> 'max_attempts')::integer, 25) as max_attempts,
           coalesce((j.e -> 'opts' ->> 'run_at')::timestamptz,
                    v_now + (j.e -> 'opts' ->> 'delay_ms')::bigint * interval '1 millisecond') as run_at,
           j.e ->> 'kind' as kind, j.e -> 'args' as args
    from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
    order by j.ord
  ), due as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args)
    select queue, priority, v_xid, seq, job_id, 0, 0, max_attempts, v_now, kind, args
    from job where run_at is null or run_at <= v_now
    order by seq
  ), later as (
    insert into {{schema}}.deferred_jobs
      (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, created_at)
    select job_id, queue, priority, 'scheduled', run_at, 0, 0, max_attempts, kind, args, v_now
    from job where run_at > v_now
  )
  select array_agg(job_id order by ord) into v_ids from job;
  return v_ids;
end $$;
{{/segments}}

-- The slot of the current segment, held for writing until the end of the transaction.
create or replace function {{schema}}.hold_current_segment() returns integer
language plpgsql volatile as $$
declare
  v_value bigint;
  v_again bigint;
begin
  loop
    select last_value into v_value from {{schema}}.segment_cursor;
    perform pg_advisory_xact_lock_shared(hashtextextended({{key segment}} || (v_value % {{ring}})::text, 0));
    select last_value into v_again from {{schema}}.segment_cursor;
    exit when v_again = v_value;
  end loop;
  return (v_value % {{ring}})::integer;
end $$;

-- Raises on the first job that breaks a rule, naming the field and the rule, before anything is written.
create or replace function {{schema}}.check_jobs(p_jobs jsonb) returns void
language plpgsql stable as $$
declare
  v_fault record;
begin
  if p_jobs is null or jsonb_typeof(p_jobs) <> 'array' then
    raise exception using errcode = '22023', message = 'jobs: expected a JSON array';
  end if;
  select j.ord - 1 as at, k.key into v_fault
  from jsonb_array_elements(p_jobs) with ordinality as j(e, ord)
  cross join lateral jsonb_object_keys(case when jsonb_typeof(j.e -> 'opts') = 'object' then j.e -> 'opts' else '{}' end) as k(key)
  where k.key not in ('priority', 'run_at', 'delay_ms', 'max_attempts', 'notify')
  limit 1;
  if found then
    raise exception using errcode = 'WA005', message = format('job %s: unknown option key %L', v_fault.at, v_fault.key),
      hint = 'Known keys: priority, run_at, delay_ms, max_attempts, notify.';
  end if;
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
      !~ '^[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})$'
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
end $$;

-- The one rule for the names of queues and kinds, the same as in TypeScript: 1 to 255 bytes, no control character.
create or replace function {{schema}}.name_fault(p_name text) returns text
language sql immutable as $$
  select case
    when p_name is null or p_name = '' then 'expected a non-empty text'
    when octet_length(p_name) > 255 then 'at most 255 bytes'
    when p_name ~ '[\\u0001-\\u001f\\u007f]' then 'no control characters'
  end
$$;

-- Many jobs in one call: [{"kind", "args", "queue", "opts": {…}}, …]; the ids come back in the same order.
create or replace function {{schema}}.insert_jobs(p_jobs jsonb) returns setof bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set standard_conforming_strings = on
as $$
declare
  v_slot integer;
  v_ids  bigint[];
begin
  perform {{schema}}.check_jobs(p_jobs);
  v_slot := {{schema}}.hold_current_segment();
  case v_slot
    {{#segments}}
    when {{segment}} then v_ids := {{schema}}.insert_jobs_{{segment}}(p_jobs);
    {{/segments}}
  end case;
  -- A hint, one per queue: PostgreSQL folds equal notifications of a transaction into one.
  perform pg_notify({{channel}}, q.queue)
  from (select distinct j.e ->> 'queue' as queue from jsonb_array_elements(p_jobs) as j(e)
        where coalesce(j.e -> 'opts' ->> 'notify', 'true') <> 'false') q;
  return query select unnest(v_ids);
end $$;

-- One job, for any driver.
create or replace function {{schema}}.insert_job(kind text, args jsonb, queue text default 'default', opts jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select i from {{schema}}.insert_jobs(jsonb_build_array(jsonb_build_object(
    'kind', insert_job.kind, 'args', insert_job.args, 'queue', insert_job.queue, 'opts', coalesce(insert_job.opts, '{}')))) as i);
end $$;
`
  },
  {
    name: "020_claim.sql",
    text: `-- Claim: one call takes the next entries of a queue, lane by lane, and records in one appended row the cursor, the receipts
-- and what was taken.

-- One branch per segment. Reads a lane in (xid, seq) order behind its cursor. The caller holds the lane's lock; the
-- snapshot is taken here, in a statement of its own, after that lock.
{{#segments}}
create or replace function {{schema}}.claim_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_runtime_id bigint, p_claim_slot integer, p_deadline interval)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile as $$
declare
  v_snapshot  pg_snapshot;
  v_last      record;
  v_cur_xid   xid8 := '0';
  v_cur_seq   bigint := 0;
  v_pend_x    xid8[] := '{}';
  v_pend_s    bigint[] := '{}';
  v_next_x    xid8[] := '{}';
  v_next_s    bigint[] := '{}';
  v_x         xid8[] := '{}';
  v_s         bigint[] := '{}';
  v_j         bigint[] := '{}';
  v_l         bigint[] := '{}';
  f_x         xid8[];
  f_s         bigint[];
  f_j         bigint[];
  f_l         bigint[];
  v_have      integer := 0;
  v_batch     bigint;
  v_base      bigint;
  v_claimed   timestamptz;
begin
  select b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs into v_last
  from {{schema}}.claim_batches_{{segment}} b
  where b.queue = p_queue and b.priority = p_priority
  order by b.batch_id desc limit 1;
  if found then
    v_cur_xid := v_last.cursor_xid;
    v_cur_seq := v_last.cursor_seq;
    v_pend_x := v_last.pending_xids;
    v_pend_s := v_last.pending_seqs;
  end if;
  v_snapshot := pg_current_snapshot();

  -- Transactions that had not ended when the cursor passed them: read those that have ended since.
  for k in 1 .. cardinality(v_pend_x) loop
    if v_have >= p_limit or not pg_visible_in_snapshot(v_pend_x[k], v_snapshot) then
      v_next_x := v_next_x || v_pend_x[k];
      v_next_s := v_next_s || v_pend_s[k];
      continue;
    end if;
    select coalesce(array_agg(e.xid order by e.seq), '{}'), coalesce(array_agg(e.seq order by e.seq), '{}'),
           coalesce(array_agg(e.job_id order by e.seq), '{}'), coalesce(array_agg(e.run_lease + 1 order by e.seq), '{}')
    into f_x, f_s, f_j, f_l
    from (select r.xid, r.seq, r.job_id, r.run_lease from {{schema}}.ready_entries_{{segment}} r
          where r.queue = p_queue and r.priority = p_priority and r.xid = v_pend_x[k] and r.seq > v_pend_s[k]
          order by r.seq limit p_limit - v_have) e;
    v_x := v_x || f_x;  v_s := v_s || f_s;  v_j := v_j || f_j;  v_l := v_l || f_l;
    v_have := v_have + cardinality(f_s);
    if v_have >= p_limit then  -- not read to the end: keep it, from here
      v_next_x := v_next_x || v_pend_x[k];
      v_next_s := v_next_s || coalesce(f_s[cardinality(f_s)], v_pend_s[k]);
    end if;
  end loop;

  -- Then forward from the cursor, range by range between the transactions in progress: their uncommitted entries are jumped
  -- over by one index probe instead of being walked again by every poll. One statement: the ranges are as many as the open
  -- transactions of the whole cluster. They come in order, so that the limit ends at the first entries.
  if v_have < p_limit then
    select array_agg(e.xid order by e.xid, e.seq), array_agg(e.seq order by e.xid, e.seq),
           array_agg(e.job_id order by e.xid, e.seq), array_agg(e.run_lease + 1 order by e.xid, e.seq)
    into f_x, f_s, f_j, f_l
    from (
      select r.xid, r.seq, r.job_id, r.run_lease
      from (
        select s.x as high, lag(s.x, 1, v_cur_xid) over in_order as low,
               case when row_number() over in_order = 1 then v_cur_seq else 9223372036854775807 end as low_seq
        from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s
        where s.x > v_cur_xid
        window in_order as (order by s.x)
        offset 0) g
      cross join lateral (
        select e.xid, e.seq, e.job_id, e.run_lease from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = p_priority and (e.xid, e.seq) > (g.low, g.low_seq) and e.xid < g.high
        order by e.xid, e.seq limit p_limit - v_have) r
      limit p_limit - v_have) e;
    if f_s is not null then
      v_x := v_x || f_x;  v_s := v_s || f_s;  v_j := v_j || f_j;  v_l := v_l || f_l;
      v_have := v_have + cardinality(f_s);
      v_cur_xid := f_x[cardinality(f_x)];
      v_cur_seq := f_s[cardinality(f_s)];
    end if;
    -- Whatever is in progress below the cursor may still commit entries behind it. This transaction's own id, drawn in an
    -- earlier lane of the same call, is in no snapshot's list, and it may enqueue after its claim.
    select v_next_x || coalesce(array_agg(s.x order by s.x), '{}'), v_next_s || coalesce(array_agg(0::bigint), '{}')
    into v_next_x, v_next_s
    from (select pg_snapshot_xip(v_snapshot) union all select pg_current_xact_id_if_assigned()) as s(x)
    where s.x < v_cur_xid and not s.x = any (v_next_x);
  end if;
  if v_have = 0 then
    return;
  end if;

  v_batch := nextval({{schema_text batch_seq}});
  -- the last 16 hex digits of a version 4 uuid: its two fixed variant bits fall to the mask, 62 random bits remain
  v_base := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_claimed := clock_timestamp();
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs)
  values (v_batch, p_queue, p_priority, v_base, v_claimed, v_claimed + p_deadline, p_runtime_id, v_have, v_cur_xid, v_cur_seq,
     v_next_x, v_next_s, v_j, v_l, v_x, v_s);
  return query
    select r.job_id, r.run_lease + 1, p_claim_slot | {{segment}}, v_base + u.i, v_batch, u.i::integer, r.attempt + 1,
           r.max_attempts, r.priority, r.kind, r.args, r.progress, v_claimed + p_deadline, false
    from unnest(v_x, v_s) with ordinality as u(x, s, i)
    -- OFFSET 0 keeps this a probe per key: flattened, a plan made while the segment was empty scans it for every key
    cross join lateral (
      select e.* from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = p_priority and e.xid = u.x and e.seq = u.s offset 0) r;
end $$;
{{/segments}}

-- Takes up to p_limit jobs of a queue, highest priority (lowest number) first. A lane that another claimer holds at this
-- moment is answered by one row with lane_busy: busy is not empty, and a caller that took it for empty would sleep on work.
create or replace function {{schema}}.claim(p_queue text, p_limit integer, p_runtime_id bigint)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_settings  record;
  v_slot      smallint;
  v_claim     integer;
  v_rows      integer;
  v_left      integer := p_limit;
  v_busy      boolean := false;
begin
  perform {{schema}}.require_read_committed();
  if pg_current_xact_id_if_assigned() is not null then
    raise exception using errcode = '25001', message = 'claim must be the first statement of its transaction that writes',
      detail = 'The transaction''s own id is in no list of transactions in progress, so its own uncommitted entries would count as visible.';
  end if;
  if p_limit is null or p_limit < 1 or p_limit > 10000 then
    raise exception using errcode = '22023', message = 'limit: expected an integer from 1 to 10000';
  end if;
  -- A claim that a crash can undo hands the same attempt out twice, so it is durable whatever the session says. A SET
  -- clause would not do: it ends before COMMIT.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  select m.fingerprint, q.paused, q.attempt_deadline into v_settings
  from {{schema}}.meta m left join {{schema}}.queues q on q.queue = p_queue;
  if v_settings.paused then
    return;
  end if;
  v_claim := (v_settings.fingerprint << 12) | (1 << 8);

  for v_priority in 1 .. 4 loop
    if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_priority || '/' || p_queue, 0)) then
      v_busy := true;
      continue;
    end if;
    for v_slot in select s.slot from {{schema}}.segments s where s.state in ('open', 'sealed') order by s.generation loop
      case v_slot
        {{#segments}}
        when {{segment}} then
          return query select * from {{schema}}.claim_{{segment}}(p_queue, v_priority::smallint, v_left, p_runtime_id, v_claim, v_settings.attempt_deadline);
        {{/segments}}
      end case;
      get diagnostics v_rows = row_count;
      v_left := v_left - v_rows;
      exit when v_left <= 0;
    end loop;
    exit when v_left <= 0;
  end loop;
  if v_busy and v_left > 0 then
    return query select null::bigint, null::bigint, null::integer, null::bigint, null::bigint, null::integer, null::integer,
      null::integer, null::smallint, null::text, null::jsonb, null::jsonb, null::timestamptz, true;
  end if;
end $$;
`
  },
  {
    name: "030_close.sql",
    text: `-- Closing attempts. Every close checks in the same call that its claim exists and that job id, run lease and receipt are the
-- item's: once a segment was pruned and reused, the closure's key alone is free again.
-- Plans here must not depend on statistics (a plan made while a segment was empty lives for hours): tables are reached by
-- LATERAL … OFFSET 0, which stays one index probe per key, and what remains to be joined are arrays, which are hashed.
-- A batch's arrays are fetched once per call (array || '{}' is the fetched copy), not once for each of its items.

-- Where a job goes when its attempt ended without success: aside, to run again, or to the terminal jobs. One row per item
-- that has just been closed by the caller of this function. Every path to another run passes this one exhaustion check.
{{#segments}}
create or replace function {{schema}}.dispose_{{segment}}(
  p_batch_ids bigint[], p_indexes integer[], p_outcomes {{schema}}.outcome[], p_details jsonb[])
returns void
language plpgsql volatile as $$
declare
  v_now timestamptz := clock_timestamp();
  v_released bigint[];
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.idx) as idxs, array_agg(i.outcome) as outcomes, array_agg(i.detail) as details
    from unnest(p_batch_ids, p_indexes, p_outcomes, p_details) as i(batch_id, idx, outcome, detail)
    group by i.batch_id
  ), item as materialized (
    select e.job_id, e.queue, e.priority, e.kind, e.args, e.created_at, e.run_lease + 1 as run_lease, e.max_attempts,
           i.outcome, coalesce(i.detail, '{}') as detail,
           -- snoozed and released attempts do not count
           case when i.outcome in ('snoozed', 'released') then e.attempt else e.attempt + 1 end as counted,
           i.outcome in ('failed', 'cancelled', 'discarded')
             or (i.outcome in ('retried', 'rescued') and e.attempt + 1 >= e.max_attempts) as ended,
           coalesce(i.detail -> 'progress', e.progress) as progress,
           case when i.detail ? 'error' then
             case when jsonb_array_length(coalesce(e.errors, '[]')) >= 20 then e.errors - 0 else coalesce(e.errors, '[]') end
             || jsonb_build_array(jsonb_build_object('attempt', e.attempt + 1, 'run_lease', e.run_lease + 1, 'at', v_now,
                                                     'outcome', i.outcome, 'error', i.detail -> 'error'))
           else e.errors end as errors,
           case when i.outcome = 'rescued' then  -- nobody chose a pause: it doubles from zero
             least(3600000, (power(2, least(e.attempt, 12)) - 1) * 1000)::bigint
           else coalesce((i.detail ->> 'delay_ms')::bigint, 0) end as delay_ms
    from asked a
    cross join lateral (
      select c.queue, c.priority, c.xids || '{}' as xids, c.seqs || '{}' as seqs
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
    cross join lateral unnest(a.idxs, a.outcomes, a.details) as i(idx, outcome, detail)
    cross join lateral (
      select r.* from {{schema}}.ready_entries_{{segment}} r
      where r.queue = b.queue and r.priority = b.priority and r.xid = b.xids[i.idx] and r.seq = b.seqs[i.idx] offset 0) e
  ), ended as (
    insert into {{schema}}.terminal_jobs
      (job_id, queue, priority, state, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, finalized_at)
    select job_id, queue, priority, case outcome when 'cancelled' then 'cancelled' when 'discarded' then 'discarded' else 'failed' end,
           run_lease, counted, max_attempts, kind, args, progress, errors, created_at, v_now
    from item where ended
    on conflict (job_id) do nothing
  ), again as (
    insert into {{schema}}.deferred_jobs
      (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at)
    select job_id, queue, priority, case outcome when 'snoozed' then 'snoozed' else 'retryable' end,
           v_now + delay_ms * interval '1 millisecond',
           run_lease, counted, max_attempts, kind, args, progress, errors, created_at
    from item where not ended
    on conflict (job_id) do nothing
    returning job_id, run_at
  )
  select array_agg(job_id) into v_released from again where run_at <= v_now;
  if v_released is not null then  -- runnable at once, not at the next tick
    perform {{schema}}.promote_jobs(v_released, cardinality(v_released));
  end if;
end $$;

create or replace function {{schema}}.close_{{segment}}(
  p_fingerprint integer, p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb, p_has_state boolean)
returns table (ord integer, answer text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_ords    integer[];
  v_taken   bigint[];
  v_idxs    integer[];
  v_is      boolean[];
  v_closed  integer[];
  v_rows    tid[];
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
    from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
    where i.slot & 255 = {{segment}} and i.slot >> 12 = p_fingerprint
    group by i.batch_id
  ), matched as materialized (
    select x.ord, a.batch_id, x.idx, x.job_id, x.run_lease
    from asked a
    cross join lateral (
      select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
    cross join lateral unnest(a.ords, a.idxs, a.job_ids, a.run_leases, a.receipts) as x(ord, idx, job_id, run_lease, receipt)
    where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt
  ), inserted as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, closer, progress)
    select m.batch_id, m.idx, p_outcomes[m.ord], clock_timestamp(), pg_current_xact_id(), p_closer,
           coalesce(p_details -> m.ord::text -> 'progress',
             case when p_has_state then (select s.progress from {{schema}}.attempt_state s
                                         where s.job_id = m.job_id and s.run_lease = m.run_lease) end)
    from matched m
    order by m.batch_id, m.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index, outcome
  )
  select array_agg(m.ord), array_agg(m.batch_id), array_agg(m.idx), array_agg(i.batch_id is not null),
         coalesce(array_agg(m.ord order by m.ord) filter (where i.batch_id is not null), '{}')
  into v_ords, v_taken, v_idxs, v_is, v_closed
  from matched m
  left join inserted i on i.batch_id = m.batch_id and i.batch_index = m.idx and i.outcome = p_outcomes[m.ord];

  return query select c, 'closed'::text from unnest(v_closed) c;
  -- What this statement did not insert is classified by another one: the first cannot see the row that it met.
  if cardinality(v_closed) < (select count(*) from unnest(p_slots) s where s & 255 = {{segment}}) then
    return query
      select i.ord::integer, case when met.closer = p_closer then 'repeated' else 'stale' end
      from unnest(p_slots) with ordinality as i(slot, ord)
      left join unnest(v_closed) as done(ord) on done.ord = i.ord
      left join (
        select m.ord, c.closer
        from unnest(v_ords, v_taken, v_idxs, v_is) as m(ord, batch_id, idx, is_closed)
        cross join lateral (
          select c.closer from {{schema}}.closures_{{segment}} c
          where c.batch_id = m.batch_id and c.batch_index = m.idx offset 0) c
        where not m.is_closed) met on met.ord = i.ord
      where i.slot & 255 = {{segment}} and done.ord is null;
  end if;

  if exists (select from unnest(v_closed) c where p_outcomes[c] <> 'completed') then
    perform {{schema}}.dispose_{{segment}}(d.batch_ids, d.indexes, d.outcomes, d.details)
    from (select array_agg(p_batch_ids[c]) as batch_ids, array_agg(p_indexes[c]) as indexes, array_agg(p_outcomes[c]) as outcomes,
                 array_agg(coalesce(p_details -> c::text, '{}')
                   || case when p_has_state and s.progress is not null and not coalesce(p_details -> c::text, '{}') ? 'progress'
                        then jsonb_build_object('progress', s.progress) else '{}' end) as details
          from unnest(v_closed) c
          left join lateral (
            select a.progress from {{schema}}.attempt_state a
            where p_has_state and a.job_id = p_job_ids[c] and a.run_lease = p_run_leases[c] offset 0) s on true
          where p_outcomes[c] <> 'completed') d;
  end if;
  if p_has_state then  -- two statements: a row that a beat moved in between is found where it is now
    v_rows := array(
      select a.ctid from unnest(v_closed) c
      cross join lateral (select a.ctid from {{schema}}.attempt_state a
                          where a.job_id = p_job_ids[c] and a.run_lease = p_run_leases[c] for update) a);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
  end if;
end $$;
{{/segments}}

-- Ends many attempts in one statement. Answers one row per item: closed (by this call), repeated (by an earlier try of this
-- same flush, whose answer was lost) or stale (anything else: the winner is not touched). p_closer is the flush's own id, the
-- same over its retries; p_details holds, under an item's ordinal, its error, progress and delay_ms.
create or replace function {{schema}}.close_attempts(
  p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb, p_has_state boolean)
returns table (ord integer, answer text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_nestloop = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
declare
  v_slot        integer;
  v_fingerprint integer;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  if exists (select from unnest(p_outcomes) o
             where o is null or o in ('rescued', 'materialized', 'gated', 'dead_lettered')) then
    raise exception using errcode = '22023', message = 'outcomes: not an outcome that a worker may report';
  end if;
  for v_slot in select distinct s & 255 from unnest(p_slots) s where s & 255 < {{ring}} order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        return query select * from {{schema}}.close_{{segment}}(v_fingerprint, p_closer, p_slots, p_batch_ids, p_indexes, p_job_ids,
          p_run_leases, p_receipts, p_outcomes, p_details, p_has_state);
      {{/segments}}
    end case;
  end loop;
  -- One token that is none must not fail the whole flush.
  return query
    select i.ord::integer, 'stale'::text from unnest(p_slots) with ordinality as i(slot, ord)
    where (i.slot & 255 < {{ring}}) is not true;
end $$;

-- Ends one attempt under its lock, taken in the try form: busy means that a finalization is in flight, whose end decides.
create or replace function {{schema}}.settle_attempt(
  p_closer bigint, p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint,
  p_outcome {{schema}}.outcome, p_detail jsonb)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform {{schema}}.require_read_committed();
  if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || p_job_id || '/' || p_run_lease, 0)) then
    return 'busy';
  end if;
  return (select c.answer from {{schema}}.close_attempts(p_closer, array[p_slot], array[p_batch_id], array[p_index],
    array[p_job_id], array[p_run_lease], array[p_receipt], array[p_outcome], jsonb_build_object('1', coalesce(p_detail, '{}')), true) c);
end $$;
`
  },
  {
    name: "040_complete_job.sql",
    text: `-- Caller-owned finalization: the completion of one exact attempt, inside the caller's transaction. It raises or it completed;
-- there is no third answer that a caller could ignore.

-- One branch per segment, reached through complete_job only. The attempt's lock is held.
{{#segments}}
create or replace function {{schema}}.complete_{{segment}}(
  p_job_id bigint, p_run_lease bigint, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb)
returns timestamptz
language plpgsql volatile as $$
declare
  v_claim     record;
  v_progress  jsonb := p_progress;
  v_at        timestamptz := clock_timestamp();
  v_rows      integer;
begin
  select b.job_ids[p_batch_index] as job_id, b.run_leases[p_batch_index] as run_lease, b.receipt_base + p_batch_index as receipt_id
  into v_claim
  from {{schema}}.claim_batches_{{segment}} b where b.batch_id = p_batch_id;
  if not found then
    return null;
  end if;
  if v_claim.job_id is distinct from p_job_id or v_claim.run_lease is distinct from p_run_lease
     or v_claim.receipt_id is distinct from p_receipt_id then
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, null, null);
  end if;
  if v_progress is null then
    select s.progress into v_progress from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
  end if;
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
  values (p_batch_id, p_batch_index, 'completed', v_at, pg_current_xact_id(), v_progress)
  on conflict (batch_id, batch_index) do nothing;
  get diagnostics v_rows = row_count;
  if v_rows = 0 then  -- another statement, which sees the row that this one met
    select c.outcome, c.closed_at into v_claim
    from {{schema}}.closures_{{segment}} c where c.batch_id = p_batch_id and c.batch_index = p_batch_index;
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_claim.outcome, v_claim.closed_at);
  end if;
  delete from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
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
  v_meta   record;
  v_at     timestamptz;
begin
  if job_id is null or run_lease is null or claim_slot is null or receipt_id is null or batch_id is null or batch_index is null
     or job_id < 1 or run_lease < 1 or claim_slot < 0 or receipt_id < 1 or batch_id < 1 or batch_index < 1
     or (claim_slot & 255) >= {{ring}} then
    raise exception using errcode = 'WA003', message = 'malformed token';
  end if;
  if (claim_slot >> 8) & 15 <> 1 then
    raise exception using errcode = 'WA004', message = format('contract version %s is not supported', (claim_slot >> 8) & 15);
  end if;
  if pg_column_size(progress) > 131072 then
    raise exception using errcode = '22023', message = 'progress: at most 64 KiB';
  end if;
  -- A token of another database, or of the database that this one was copied from, must not match by number (C-34).
  select m.fingerprint, m.system_identifier = c.system_identifier
         and m.database_oid = (select d.oid from pg_database d where d.datname = current_database()) as ours
  into v_meta
  from {{schema}}.meta m, pg_control_system() c;
  if claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then
    raise exception using errcode = 'WA003', message = 'unknown token: it is not of this installation';
  end if;
  if batch_id > (select last_value from {{schema}}.batch_seq) then
    raise exception using errcode = 'WA003', message = 'unknown token: its claim was never made';
  end if;

  perform pg_advisory_xact_lock(hashtextextended({{key attempt}} || job_id || '/' || run_lease, 0));
  case claim_slot & 255
    {{#segments}}
    when {{segment}} then v_at := {{schema}}.complete_{{segment}}(job_id, run_lease, receipt_id, batch_id, batch_index, progress);
    {{/segments}}
  end case;
  if v_at is null then
    -- The claim was made and its evidence is gone, or this transaction's snapshot is too old to see it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
      raise exception using errcode = '40001', message = 'the claim is not visible in this transaction''s snapshot';
    end if;
    perform {{schema}}.raise_stale(job_id, run_lease, null, null);
  end if;
  -- For the commit guard: survives this function, is undone by a rollback to a savepoint.
  perform set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '') || '[' || {{schema_name}} || '/' || receipt_id || ']', true);
  return row(1, job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, 'completed', v_at, pg_current_xact_id())::{{schema}}.finalization;
end $$;
`
  },
  {
    name: "050_evidence.sql",
    text: `-- What the database knows of attempts whose handlers have just exited. Nothing is changed; 'unknown' (its evidence is gone)
-- is never 'open'.

{{#segments}}
create or replace function {{schema}}.evidence_{{segment}}(
  p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[])
returns table (ord integer, status text, outcome text, closed_at timestamptz, closed_xid xid8, age_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
  return query
    with asked as materialized (
      select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.slot) as slots, array_agg(i.idx) as idxs,
             array_agg(i.job_id) as job_ids, array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
      from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
        as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
      where i.slot & 255 = {{segment}}
      group by i.batch_id
    )
    select i.ord,
           case when b.batch_id is null then 'unknown'
                when i.slot >> 12 <> p_fingerprint or b.job_ids[i.idx] is distinct from i.job_id
                  or b.run_leases[i.idx] is distinct from i.run_lease or b.receipt_base + i.idx is distinct from i.receipt
                then 'superseded'
                when c.batch_id is null then 'open'
                else 'closed' end,
           c.outcome::text, c.closed_at, c.xid,
           (extract(epoch from clock_timestamp() - coalesce(s.heartbeat_at, b.claimed_at)) * 1000)::bigint
    from asked a
    left join lateral (
      select c.batch_id, c.receipt_base, c.claimed_at, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b on true
    cross join lateral unnest(a.ords, a.slots, a.idxs, a.job_ids, a.run_leases, a.receipts)
      as i(ord, slot, idx, job_id, run_lease, receipt)
    left join lateral (select c.* from {{schema}}.closures_{{segment}} c
                       where c.batch_id = a.batch_id and c.batch_index = i.idx offset 0) c on true
    left join lateral (select s.heartbeat_at from {{schema}}.attempt_state s
                       where s.job_id = i.job_id and s.run_lease = i.run_lease offset 0) s on true;
end $$;
{{/segments}}

create or replace function {{schema}}.attempt_evidence(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[])
returns table (ord integer, status text, outcome text, closed_at timestamptz, closed_xid xid8, age_ms bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
  v_slot        integer;
  v_fingerprint integer;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(p_slots) s where s & 255 < {{ring}} order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        return query select * from {{schema}}.evidence_{{segment}}(v_fingerprint, p_slots, p_batch_ids, p_indexes, p_job_ids,
          p_run_leases, p_receipts);
      {{/segments}}
    end case;
  end loop;
  return query
    select i.ord::integer, 'unknown'::text, null::text, null::timestamptz, null::xid8, null::bigint
    from unnest(p_slots) with ordinality as i(slot, ord) where (i.slot & 255 < {{ring}}) is not true;
end $$;
`
  },
  {
    name: "060_heartbeat.sql",
    text: `-- Beats. One statement for all attempts of a runtime that are older than a beat, and one for the runtime itself.

-- Answers the attempts that are no longer the runtime's. A beat touches only rows that it can lock at once: a finalization in
-- flight holds its row, and one hung caller must not stop everybody's beats.
{{#segments}}
create or replace function {{schema}}.heartbeat_{{segment}}(
  p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_live integer[];
  v_lost integer[];
  v_rows tid[];
  v_new  jsonb;
  v_now  timestamptz := clock_timestamp();
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
    from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
    where i.slot & 255 = {{segment}} and i.slot >> 12 = p_fingerprint
    group by i.batch_id
  )
  select coalesce(array_agg(x.ord), '{}') into v_live
  from asked a
  cross join lateral (
    select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
  cross join lateral unnest(a.ords, a.idxs, a.job_ids, a.run_leases, a.receipts) as x(ord, idx, job_id, run_lease, receipt)
  left join lateral (
    select true as found from {{schema}}.closures_{{segment}} c
    where c.batch_id = a.batch_id and c.batch_index = x.idx offset 0) c on true
  where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt
    and c.found is null;
  v_lost := array(
    select i.ord::integer from unnest(p_slots) with ordinality as i(slot, ord) where i.slot & 255 = {{segment}}
    except select unnest(v_live));

  -- Rows that can be locked at once, then updated where they are: no join whose plan could depend on the table's size.
  v_rows := array(
    select s.ctid from unnest(v_live) l
    cross join lateral (
      select a.ctid from {{schema}}.attempt_state a
      where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] for update skip locked) s);
  select jsonb_object_agg(p_job_ids[l] || '/' || p_run_leases[l], p_progress -> l::text) into v_new
  from unnest(v_live) l where p_progress ? l::text;
  update {{schema}}.attempt_state s
  set heartbeat_at = v_now, progress = coalesce(v_new -> (s.job_id || '/' || s.run_lease), s.progress)
  where s.ctid = any (v_rows);

  insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at, progress)
  select p_job_ids[l], p_run_leases[l], p_slots[l], p_batch_ids[l], p_indexes[l], v_now, p_progress -> l::text
  from unnest(v_live) l
  left join lateral (
    select true as found from {{schema}}.attempt_state s
    where s.job_id = p_job_ids[l] and s.run_lease = p_run_leases[l] offset 0) s on true
  where s.found is null
  order by p_job_ids[l], p_run_leases[l]
  on conflict (job_id, run_lease) do nothing;

  return query
    select l, c.outcome::text
    from unnest(v_lost) l
    left join lateral (
      select c.outcome from {{schema}}.closures_{{segment}} c
      where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] offset 0) c on true;
end $$;
{{/segments}}

create or replace function {{schema}}.heartbeat(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[],
  p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
  v_slot        integer;
  v_fingerprint integer;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(p_slots) s where s & 255 < {{ring}} order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        return query select * from {{schema}}.heartbeat_{{segment}}(v_fingerprint, p_slots, p_batch_ids, p_indexes, p_job_ids,
          p_run_leases, p_receipts, p_progress);
      {{/segments}}
    end case;
  end loop;
  return query
    select i.ord::integer, null::text from unnest(p_slots) with ordinality as i(slot, ord)
    where (i.slot & 255 < {{ring}}) is not true;
end $$;

-- Registers a runtime and returns its id; with an id, renews its row (and restores it after somebody swept it).
create or replace function {{schema}}.beat_runtime(p_runtime_id bigint, p_name text, p_contract integer, p_capabilities jsonb)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := coalesce(p_runtime_id, nextval({{schema_text runtime_ids}}));
begin
  insert into {{schema}}.runtimes as r (runtime_id, name, contract, capabilities)
  values (v_id, p_name, p_contract, p_capabilities)
  on conflict (runtime_id) do update
  set beat_at = clock_timestamp(), capabilities = excluded.capabilities;
  return v_id;
end $$;

create or replace function {{schema}}.retire_runtime(p_runtime_id bigint) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ delete from {{schema}}.runtimes r where r.runtime_id = p_runtime_id $$;

-- Whether this database is the one that the installation was made for. A copy inside one cluster, or a database that kept its
-- transaction ids (pg_upgrade), is adopted under a new installation id, so that tokens of the original never match here. A
-- database whose stored transaction ids lie ahead of the server's own is refused: its cursors would hide new work.
create or replace function {{schema}}.adopt_database() returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_meta   record;
  v_here   record;
  v_ahead  boolean;
  v_id     uuid := gen_random_uuid();
begin
  perform {{schema}}.require_read_committed();
  select c.system_identifier, d.oid as database_oid into v_here
  from pg_control_system() c, pg_database d where d.datname = current_database();
  select m.* into v_meta from {{schema}}.meta m;
  if v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    return 'ours';
  end if;
  select m.* into v_meta from {{schema}}.meta m for update;
  if v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    return 'ours';
  end if;
  if v_meta.system_identifier <> v_here.system_identifier then
    select coalesce(bool_or(s.newest >= pg_snapshot_xmax(pg_current_snapshot())), false) into v_ahead
    from (
      {{#segments union all}}
      select greatest((select max(cursor_xid::text::numeric) from {{schema}}.claim_batches_{{segment}}),
                      (select max(xid::text::numeric) from {{schema}}.ready_entries_{{segment}}))::text::xid8 as newest
      {{/segments}}
    ) s;
    if v_ahead then
      return 'refused';
    end if;
  end if;
  update {{schema}}.meta m
  set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,
      system_identifier = v_here.system_identifier, database_oid = v_here.database_oid;
  return 'adopted';
end $$;
`
  },
  {
    name: "070_maintenance.sql",
    text: `-- Maintenance. Every step takes the leader's lock in the try form for its own transaction: one runtime at a time does the
-- work, and none can go on believing that it is the leader. A step that is not the leader's answers null.

create or replace function {{schema}}.lead() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(hashtextextended({{key leader}}, 0)) $$;

-- Moves jobs from deferred_jobs into the current segment: the named ones, or those that are due, oldest first.
{{#segments}}
create or replace function {{schema}}.promote_{{segment}}(p_job_ids bigint[], p_limit integer) returns text[]
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();  -- a volatile call in the condition would walk the whole index
  v_rows   tid[];
  v_queues text[];
begin
  if p_job_ids is null then
    v_rows := array(
      select d.ctid from {{schema}}.deferred_jobs d where d.run_at <= v_now
      order by d.run_at, d.job_id limit p_limit for update skip locked);
  else
    v_rows := array(
      select d.ctid from unnest(p_job_ids) as i(job_id)
      cross join lateral (
        select j.ctid from {{schema}}.deferred_jobs j where j.job_id = i.job_id for update skip locked) d);
  end if;
  with moved as (  -- where they are: no join whose plan could depend on the table's size
    delete from {{schema}}.deferred_jobs d where d.ctid = any (v_rows)
    returning d.*
  ), placed as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors)
    select m.queue, m.priority, pg_current_xact_id(), nextval({{schema_text entry_seq}}), m.job_id, m.run_lease, m.attempt,
           m.max_attempts, m.created_at, m.kind, m.args, m.progress, m.errors
    from (select * from moved order by run_at, job_id) m
    returning queue
  )
  select array_agg(queue) into v_queues from placed;
  return coalesce(v_queues, '{}');
end $$;
{{/segments}}

create or replace function {{schema}}.promote_jobs(p_job_ids bigint[], p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_slot   integer := {{schema}}.hold_current_segment();
  v_queues text[];
begin
  case v_slot
    {{#segments}}
    when {{segment}} then v_queues := {{schema}}.promote_{{segment}}(p_job_ids, p_limit);
    {{/segments}}
  end case;
  perform pg_notify({{channel}}, q) from (select distinct unnest(v_queues) as q) s;
  return cardinality(v_queues);
end $$;

-- Promotes what is due. Answers how many, and how long until the next one is due (null: none waits).
create or replace function {{schema}}.promote_due(p_limit integer, out promoted integer, out next_due_ms bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return;
  end if;
  promoted := 0;
  if exists (select from {{schema}}.deferred_jobs d where d.run_at <= v_now) then
    promoted := {{schema}}.promote_jobs(null, p_limit);
  end if;
  select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000))::bigint into next_due_ms
  from {{schema}}.deferred_jobs d order by d.run_at limit 1;
end $$;

-- Ends attempts that nobody beats for, or that passed their deadline. An attempt whose lock somebody holds is in the middle of
-- a finalization and is left alone. The crash counts as an attempt.
-- Every attempt is looked at once, when its claim reaches the staleness: by then it is closed, or has an attempt_state row (and
-- is found by that row from then on), or is rescued here. The mark moves over what was looked at, so neither settled history
-- nor a long attempt in the middle of it is walked again.
{{#segments}}
create or replace function {{schema}}.rescue_{{segment}}(p_staleness interval, p_limit integer, p_from bigint, out rescued integer, out done_to bigint)
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_stale  timestamptz := v_now - p_staleness;
  v_first  bigint;
  v_ids    bigint[];
  v_idx    integer[];
  v_jobs   bigint[];
  v_leases bigint[];
  v_detail jsonb[];
  v_rows   tid[];
begin
  select coalesce(max(b.batch_id), p_from) into done_to
  from {{schema}}.claim_batches_{{segment}} b where b.batch_id > p_from and b.claimed_at < v_stale;

  with unbeaten as materialized (  -- after a mass crash some: more than are rescued here, so the mark cannot pass the rest
    select b.batch_id, t.idx::integer, t.job_id, t.run_lease
    from (
      select c.batch_id, c.job_ids, c.run_leases from {{schema}}.claim_batches_{{segment}} c
      where c.batch_id > p_from and (c.claimed_at < v_stale or c.deadline_at < v_now)
      order by c.batch_id offset 0) b
    cross join lateral unnest(b.job_ids, b.run_leases) with ordinality as t(job_id, run_lease, idx)
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = b.batch_id and c.batch_index = t.idx offset 0) c on true
    left join lateral (
      select true as found from {{schema}}.attempt_state s
      where s.job_id = t.job_id and s.run_lease = t.run_lease offset 0) s on true
    where c.found is null and s.found is null
    limit p_limit + 1000
  ), beaten as materialized (
    select s.batch_id, s.batch_index, s.job_id, s.run_lease, s.progress
    from {{schema}}.attempt_state s
    cross join lateral (
      select b.deadline_at from {{schema}}.claim_batches_{{segment}} b where b.batch_id = s.batch_id offset 0) b
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
    where s.claim_slot & 255 = {{segment}} and (s.heartbeat_at < v_stale or b.deadline_at < v_now) and c.found is null
  ), held as materialized (
    select o.* from (
      select u.batch_id, u.idx, u.job_id, u.run_lease, null::jsonb as progress from unbeaten u
      union all select * from beaten
      order by 1, 2 offset 0) o
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || o.job_id || '/' || o.run_lease, 0))
    limit p_limit
  ), closed as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
    select h.batch_id, h.idx, 'rescued', v_now, pg_current_xact_id(), h.progress from held h order by h.batch_id, h.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  ), ended as materialized (
    select h.* from closed c join held h on h.batch_id = c.batch_id and h.idx = c.batch_index
  )
  select array_agg(e.batch_id), array_agg(e.idx), array_agg(e.job_id), array_agg(e.run_lease),
         array_agg(jsonb_build_object(
             'error', jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline'))
           || case when e.progress is null then '{}' else jsonb_build_object('progress', e.progress) end),
         (select min(u.batch_id) from unbeaten u
          where not exists (select from ended e where e.batch_id = u.batch_id and e.idx = u.idx))
  into v_ids, v_idx, v_jobs, v_leases, v_detail, v_first
  from ended e;
  done_to := least(done_to, v_first - 1);
  rescued := coalesce(cardinality(v_ids), 0);
  if rescued = 0 then
    return;
  end if;
  perform {{schema}}.dispose_{{segment}}(v_ids, v_idx, array_fill('rescued'::{{schema}}.outcome, array[rescued]), v_detail);
  v_rows := array(
    select s.ctid from unnest(v_jobs, v_leases) as u(job_id, run_lease)
    cross join lateral (
      select a.ctid from {{schema}}.attempt_state a
      where a.job_id = u.job_id and a.run_lease = u.run_lease for update) s);
  delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
end $$;
{{/segments}}

create or replace function {{schema}}.rescue_stale(p_staleness interval, p_limit integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  v_segment  record;
  v_answer   record;
  v_rescued  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  for v_segment in
    select s.slot, s.rescued_to from {{schema}}.segments s where s.state <> 'free'
    order by s.slot  -- as a flush comes to them, or they could wait for each other
  loop
    case v_segment.slot
      {{#segments}}
      when {{segment}} then
        select * into v_answer from {{schema}}.rescue_{{segment}}(p_staleness, p_limit - v_rescued, v_segment.rescued_to);
      {{/segments}}
    end case;
    v_rescued := v_rescued + v_answer.rescued;
    if v_answer.done_to > v_segment.rescued_to then
      update {{schema}}.segments s set rescued_to = v_answer.done_to where s.slot = v_segment.slot;
    end if;
    exit when v_rescued >= p_limit;
  end loop;
  return v_rescued;
end $$;

-- Rotation, one step a call, repeatable after a crash between any two: (1) a slot is committed as readable, (2) in a later
-- transaction the cursor moves to it, (3) older open slots are sealed. Answers what it did.
create or replace function {{schema}}.rotate(p_max_age interval, p_max_entries bigint) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_value    bigint;
  v_current  record;
  v_next     record;
  v_seq      bigint;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select last_value into v_value from {{schema}}.segment_cursor;
  select s.slot, s.generation into v_next from {{schema}}.segments s
  where s.state = 'open' and s.generation * {{ring}} + s.slot > v_value order by s.generation desc limit 1;
  if found then
    perform setval({{schema_text segment_cursor}}, v_next.generation * {{ring}} + v_next.slot);
    update {{schema}}.segments s set state = 'sealed', sealed_at = clock_timestamp()
    where s.state = 'open' and s.generation < v_next.generation;
    return 'advanced';
  end if;
  update {{schema}}.segments s set state = 'sealed', sealed_at = clock_timestamp()
  where s.state = 'open' and s.slot <> v_value % {{ring}};

  select last_value into v_seq from {{schema}}.entry_seq;
  select s.* into v_current from {{schema}}.segments s where s.slot = v_value % {{ring}};
  if v_seq <= v_current.opened_seq
     or (v_current.opened_at > clock_timestamp() - p_max_age and v_seq - v_current.opened_seq < p_max_entries) then
    return 'idle';
  end if;
  select s.slot into v_next from {{schema}}.segments s
  where s.state = 'free' order by (s.slot - v_current.slot + {{ring}}) % {{ring}} limit 1;
  if not found then
    return 'full';  -- the current segment grows until one is free; nothing fails and nothing waits
  end if;
  update {{schema}}.segments s
  set state = 'open', generation = v_current.generation + 1, opened_seq = v_seq, rescued_to = 0,
      opened_at = clock_timestamp(), sealed_at = null, drained_at = null
  where s.slot = v_next.slot;
  return 'opened';
end $$;

-- A sealed segment is drained once, for good, when no writer is in flight in it and every entry is claimed.
{{#segments}}
create or replace function {{schema}}.is_drained_{{segment}}() returns boolean
language plpgsql volatile as $$
begin
  return not exists (
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select from lane l
    left join lateral (
      select b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where b.queue = l.queue and b.priority = l.priority order by b.batch_id desc limit 1) b on true
    where b.cursor_xid is null
       or exists (select from {{schema}}.ready_entries_{{segment}} r
                  where r.queue = l.queue and r.priority = l.priority and (r.xid, r.seq) > (b.cursor_xid, b.cursor_seq))
       or exists (select from unnest(b.pending_xids, b.pending_seqs) as p(xid, seq)
                  cross join lateral (
                    select from {{schema}}.ready_entries_{{segment}} r
                    where r.queue = l.queue and r.priority = l.priority and r.xid = p.xid and r.seq > p.seq limit 1) r));
end $$;
{{/segments}}

create or replace function {{schema}}.drain_segments() returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_slot     smallint;
  v_value    bigint;
  v_drained  boolean;
  v_count    integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  for v_slot in select s.slot from {{schema}}.segments s where s.state = 'sealed' order by s.generation loop
    if not pg_try_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0)) then
      continue;  -- a transaction that enqueued here is still open
    end if;
    select last_value into v_value from {{schema}}.segment_cursor;
    if v_value % {{ring}} = v_slot then
      continue;
    end if;
    case v_slot  -- a statement of its own, so that its snapshot comes after the lock
      {{#segments}}
      when {{segment}} then v_drained := {{schema}}.is_drained_{{segment}}();
      {{/segments}}
    end case;
    if v_drained then
      -- Its claims are all committed now, and the mark may have passed one that committed late: look at all of them again, once.
      update {{schema}}.segments s set state = 'drained', drained_at = clock_timestamp(), rescued_to = 0 where s.slot = v_slot;
      v_count := v_count + 1;
    end if;
  end loop;
  return v_count;
end $$;

-- Truncates the oldest drained segment once its history has lived its time. Gives up quietly (55P03 is the caller's to
-- expect) when anything holds a lock on its tables.
{{#segments}}
create or replace function {{schema}}.is_prunable_{{segment}}(p_keep interval) returns boolean
language sql volatile as $$
  select not exists (
    select from {{schema}}.claim_batches_{{segment}} b cross join lateral generate_series(1, b.n) i
    where not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i)
  ) and coalesce((select max(c.closed_at) < clock_timestamp() - p_keep from {{schema}}.closures_{{segment}} c), true)
$$;

create or replace function {{schema}}.prune_{{segment}}(p_keep interval) returns boolean
language plpgsql volatile as $$
begin
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  -- in the order in which everybody else comes to them
  lock table {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}}, {{schema}}.ready_entries_{{segment}}
    in access exclusive mode;
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  truncate {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}};
  return true;
end $$;
{{/segments}}

create or replace function {{schema}}.prune_segment(p_keep interval) returns smallint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_oldest  record;
  v_pruned  boolean;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select s.slot, s.drained_at into v_oldest from {{schema}}.segments s where s.state = 'drained' order by s.generation limit 1;
  -- Cheap answers first: the proof reads the whole segment, and this is asked at every tick.
  if not found or v_oldest.drained_at > clock_timestamp() - p_keep
     or exists (select from {{schema}}.attempt_state a where a.claim_slot & 255 = v_oldest.slot) then
    return null;
  end if;
  perform set_config('lock_timeout', '100ms', true);
  case v_oldest.slot
    {{#segments}}
    when {{segment}} then v_pruned := {{schema}}.prune_{{segment}}(p_keep);
    {{/segments}}
  end case;
  if not v_pruned then
    return null;
  end if;
  update {{schema}}.segments s set state = 'free' where s.slot = v_oldest.slot;
  return v_oldest.slot;
end $$;

-- Rows that nobody will come back for: the state of attempts that are closed, and runtimes silent for a day.
create or replace function {{schema}}.sweep(p_runtime_silence interval) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_rows   integer;
  v_total  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  {{#segments}}
  delete from {{schema}}.attempt_state s
  where s.claim_slot & 255 = {{segment}}
    and (exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = s.batch_id and c.batch_index = s.batch_index)
         or not exists (select from {{schema}}.claim_batches_{{segment}} b where b.batch_id = s.batch_id));
  get diagnostics v_rows = row_count;
  v_total := v_total + v_rows;
  {{/segments}}
  delete from {{schema}}.runtimes r where r.beat_at < clock_timestamp() - p_runtime_silence;
  get diagnostics v_rows = row_count;
  return v_total + v_rows;
end $$;
`
  },
  {
    name: "080_views.sql",
    text: `-- What operators read. Nothing on a hot path uses these views.

create or replace view {{schema}}.ready_entries as
{{#segments union all}}
select {{segment}}::smallint as segment, r.* from {{schema}}.ready_entries_{{segment}} r
{{/segments}};

create or replace view {{schema}}.claim_batches as
{{#segments union all}}
select {{segment}}::smallint as segment, b.* from {{schema}}.claim_batches_{{segment}} b
{{/segments}};

create or replace view {{schema}}.closures as
{{#segments union all}}
select {{segment}}::smallint as segment, c.* from {{schema}}.closures_{{segment}} c
{{/segments}};

-- One row per attempt that the ring still remembers.
create or replace view {{schema}}.attempts as
{{#segments union all}}
select {{segment}}::smallint as segment, b.batch_id, t.idx::integer as batch_index, t.job_id, t.run_lease,
       b.receipt_base + t.idx as receipt_id, b.queue, b.priority, t.xid, t.seq, b.runtime_id, b.claimed_at, b.deadline_at,
       c.outcome, c.closed_at, c.progress, c.outcome is not null and c.closer is null and c.outcome = 'completed' as caller_owned
from {{schema}}.claim_batches_{{segment}} b
cross join lateral unnest(b.job_ids, b.run_leases, b.xids, b.seqs) with ordinality as t(job_id, run_lease, xid, seq, idx)
left join {{schema}}.closures_{{segment}} c on c.batch_id = b.batch_id and c.batch_index = t.idx
{{/segments}};

-- One row per job, in the state it is in now.
create or replace view {{schema}}.jobs as
select e.job_id, e.queue, e.priority, e.kind, e.args,
       case when a.job_id is null then 'available' when a.outcome is null then 'running' else a.outcome::text end as state,
       case when a.job_id is null then e.run_lease else a.run_lease end as run_lease,
       case when a.job_id is null then e.attempt else e.attempt + 1 end as attempt,
       e.max_attempts, coalesce(a.progress, e.progress) as progress, e.errors, e.created_at,
       null::timestamptz as run_at, a.claimed_at, a.closed_at as finalized_at
from {{schema}}.ready_entries e
left join {{schema}}.attempts a on a.segment = e.segment and a.xid = e.xid and a.seq = e.seq
where a.outcome is null or a.outcome = 'completed'
union all
select d.job_id, d.queue, d.priority, d.kind, d.args, d.state, d.run_lease, d.attempt, d.max_attempts, d.progress, d.errors,
       d.created_at, d.run_at, null, null
from {{schema}}.deferred_jobs d
union all
select t.job_id, t.queue, t.priority, t.kind, t.args, t.state, t.run_lease, t.attempt, t.max_attempts, t.progress, t.errors,
       t.created_at, null, null, t.finalized_at
from {{schema}}.terminal_jobs t;
`
  }
]
