-- The storage engine: a fixed ring of append-only segments, and the small mutable tables beside it.
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
