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
  },
  {
    name: "0002_lifecycle.sql",
    text: `-- What a job may go through besides running once: uniqueness, tombstones, spilled heads, leases and callbacks, dead letters.
-- Placeholders as in 0001.

drop view if exists {{schema}}.jobs;
drop view if exists {{schema}}.attempts;
drop view if exists {{schema}}.closures;
drop view if exists {{schema}}.claim_batches;
drop view if exists {{schema}}.ready_entries;
{{#segments}}
drop function if exists {{schema}}.dispose_{{segment}}(bigint[], integer[], {{schema}}.outcome[], jsonb[]);
drop function if exists {{schema}}.insert_jobs_{{segment}}(jsonb);
drop function if exists {{schema}}.claim_{{segment}}(text, smallint, integer, bigint, integer, interval);
drop function if exists {{schema}}.promote_{{segment}}(bigint[], integer);
drop function if exists {{schema}}.rescue_{{segment}}(interval, integer, bigint);
{{/segments}}
drop function if exists {{schema}}.insert_jobs(jsonb);
drop function if exists {{schema}}.check_jobs(jsonb);
drop function if exists {{schema}}.promote_jobs(bigint[], integer);
drop function if exists {{schema}}.promote_due(integer);
drop function if exists {{schema}}.rescue_stale(interval, integer);
drop function if exists {{schema}}.rotate(interval, bigint);
drop function if exists {{schema}}.sweep(interval);

alter table {{schema}}.queues
  -- An entry of priority p counts as if it had come (p - 1) times this later.
  add column aging          interval not null default '1 minute' check (aging >= '0'),
  -- Whether jobs that failed for good go to dlq_entries instead of terminal_jobs.
  add column dead_letter    boolean not null default false,
  -- Fleet-wide: at most so many claims in any stretch of rate_interval.
  add column rate_limit     integer check (rate_limit > 0),
  add column rate_interval  interval check (rate_interval > '0'),
  add constraint queues_rate check ((rate_limit is null) = (rate_interval is null));

alter table {{schema}}.deferred_jobs
  add column xid              xid8 not null default '0',  -- the transaction that wrote run_at last
  add column unique_key       bytea,
  add column callback_result  jsonb;
alter table {{schema}}.deferred_jobs alter column xid drop default;
create index deferred_jobs_xid on {{schema}}.deferred_jobs (xid);

alter table {{schema}}.terminal_jobs add column unique_key bytea;

{{#segments}}
alter table {{schema}}.ready_entries_{{segment}}
  add column ready_at         timestamptz,  -- when it became runnable; null: when it was created
  -- One byte that says how long the job holds its key, then the 32 bytes of unique_claims.unique_key.
  add column unique_key       bytea,
  add column callback_result  jsonb;
-- Per item; null when no item of the batch has a key.
alter table {{schema}}.claim_batches_{{segment}} add column unique_keys bytea[];

-- Unclaimed entries that left the ring without a claim. Written under the lane's lock.
create table {{schema}}.ready_tombstones_{{segment}} (
  queue       text not null,
  priority    smallint not null,
  xid         xid8 not null,
  seq         bigint not null,
  job_id      bigint not null,
  reason      text not null check (reason in ('cancelled', 'deleted', 'reprioritized')),
  created_at  timestamptz not null,
  primary key (queue, priority, xid, seq)
);

-- What expect_completion promised of its transaction. Looked at once, when that transaction commits, and then in nobody's way
-- until its segment is truncated. The trigger is fired whatever session_replication_role says.
create table {{schema}}.expected_completions_{{segment}} (
  xid          xid8 not null,
  job_id       bigint not null,
  run_lease    bigint not null,
  receipt_id   bigint not null,
  batch_id     bigint not null,
  batch_index  integer not null
);
create function {{schema}}.check_expected_{{segment}}() returns trigger language plpgsql as $$ begin return null; end $$;
create constraint trigger kept after insert on {{schema}}.expected_completions_{{segment}}
  deferrable initially deferred for each row execute function {{schema}}.check_expected_{{segment}}();
alter table {{schema}}.expected_completions_{{segment}} enable always trigger kept;
{{/segments}}

-- Unclaimed entries that would have kept the oldest segment in the ring. A lane's head: claimed before the ring, by position.
create sequence {{schema}}.spill_positions as bigint cache 1;
create table {{schema}}.spilled_entries (
  queue            text not null,
  priority         smallint not null,
  position         bigint not null,
  job_id           bigint not null,
  run_lease        bigint not null,
  attempt          integer not null,
  max_attempts     integer not null,
  created_at       timestamptz not null,
  kind             text not null,
  args             jsonb not null,
  progress         jsonb,
  errors           jsonb,
  ready_at         timestamptz,
  unique_key       bytea,
  callback_result  jsonb,
  primary key (queue, priority, position)
);
create index spilled_entries_job_id on {{schema}}.spilled_entries (job_id);
-- The lanes that have a head. Everything at or below first_position is claimed: dead rows are jumped over, not walked.
create table {{schema}}.spill_heads (
  queue           text not null,
  priority        smallint not null,
  first_position  bigint not null,
  last_position   bigint not null,
  primary key (queue, priority)
);

-- Attempts that left the ring: they registered a callback, or ran longer than their segment. Same run lease, same token.
create table {{schema}}.leases (
  job_id             bigint not null,
  run_lease          bigint not null,
  receipt_id         bigint not null,
  claim_slot         integer not null,
  batch_id           bigint not null,
  batch_index        integer not null,
  runtime_id         bigint not null,
  -- running: a handler is at work; waiting: a handler waits for its callback; parked: no handler, the callback decides
  state              text not null check (state in ('running', 'waiting', 'parked')),
  queue              text not null,
  priority           smallint not null,
  attempt            integer not null,     -- this attempt included
  max_attempts       integer not null,
  created_at         timestamptz not null,
  claimed_at         timestamptz not null,
  deadline_at        timestamptz,
  heartbeat_at       timestamptz not null,
  kind               text not null,
  args               jsonb not null,
  progress           jsonb,
  errors             jsonb,
  unique_key         bytea,
  callback_id        uuid,
  callback_timeout   interval,
  callback_deadline  timestamptz,
  callback_answered  boolean not null default false,
  callback_result    jsonb,
  resumed_with       jsonb,                -- the answer that an earlier attempt was parked for
  callback_error     jsonb,                -- the answer was a failure
  primary key (job_id, run_lease)
) with (fillfactor = 70);
create unique index leases_callback_id on {{schema}}.leases (callback_id) where callback_id is not null;
-- Those that are beaten for are few and those that are parked may be many. A beat changes no column of either index.
create index leases_held on {{schema}}.leases (job_id, run_lease) where state <> 'parked';
create index leases_parked on {{schema}}.leases (callback_deadline) where state = 'parked';

-- The end of a lease, and what its job was: it reads back after its segment is gone. Insertion is the finalization guard.
create table {{schema}}.lease_closures (
  job_id        bigint not null,
  run_lease     bigint not null,
  receipt_id    bigint not null,
  outcome       {{schema}}.outcome not null,
  closed_at     timestamptz not null,
  xid           xid8 not null,
  closer        bigint,
  queue         text not null,
  priority      smallint not null,
  attempt       integer not null,
  max_attempts  integer not null,
  created_at    timestamptz not null,
  claimed_at    timestamptz not null,
  runtime_id    bigint not null,
  kind          text not null,
  args          jsonb not null,
  progress      jsonb,
  errors        jsonb,
  -- of the callback that was answered, so that an answer that is given again is known for one
  callback_id      uuid,
  callback_result  jsonb,
  primary key (job_id, run_lease)
);
create index lease_closures_closed_at on {{schema}}.lease_closures (closed_at);
create index lease_closures_callback_id on {{schema}}.lease_closures (callback_id) where callback_id is not null;

create table {{schema}}.dlq_entries (
  job_id            bigint primary key,
  queue             text not null,
  priority          smallint not null,
  reason            text not null,
  run_lease         bigint not null,
  attempt           integer not null,
  max_attempts      integer not null,
  kind              text not null,
  args              jsonb not null,
  progress          jsonb,
  errors            jsonb,
  created_at        timestamptz not null,
  dead_lettered_at  timestamptz not null,
  unique_key        bytea
);
create index dlq_entries_dead_lettered_at on {{schema}}.dlq_entries (dead_lettered_at);

-- Who holds a unique key. The index makes an enqueue wait for the end of the other transaction.
create table {{schema}}.unique_claims (
  unique_key  bytea primary key check (octet_length(unique_key) = 32),
  job_id      bigint not null,
  -- unclaimed: until the first claim; incomplete: until the job ends; successful: also after it completed; all: after any end
  states      smallint not null check (states between 0 and 3),
  expires_at  timestamptz,   -- a holder past it gives way to the next enqueue
  check (states < 2 or expires_at is not null)
);
create index unique_claims_expires_at on {{schema}}.unique_claims (expires_at) where expires_at is not null;

-- Jobs that could not be stored where they belong, and why. Nothing here can fail as the other tables can, so that one bad
-- row never wedges promotion, rescue or a flush. \`redrive\` brings them back.
create table {{schema}}.quarantined_jobs (
  job_id          bigint primary key,
  run_lease       bigint not null,
  queue           text not null,
  priority        smallint not null,
  attempt         integer not null,
  max_attempts    integer not null,
  kind            text not null,
  args            jsonb not null,
  progress        jsonb,
  errors          jsonb,
  created_at      timestamptz not null,
  unique_key      bytea,
  reason          text not null,
  quarantined_at  timestamptz not null
);

-- When VACUUM gives back the empty end of a table it locks everybody out of it. These grow and shrink all the time, and are
-- part of an enqueue, a claim or a flush.
alter table {{schema}}.deferred_jobs set (vacuum_truncate = off);
alter table {{schema}}.attempt_state set (vacuum_truncate = off);
alter table {{schema}}.unique_claims set (vacuum_truncate = off);
alter table {{schema}}.leases set (vacuum_truncate = off);
alter table {{schema}}.spilled_entries set (vacuum_truncate = off);
alter table {{schema}}.spill_heads set (vacuum_truncate = off);
alter table {{schema}}.runtimes set (vacuum_truncate = off);
alter table {{schema}}.segments set (vacuum_truncate = off);

-- What a segment that no writer can reach any more has entries of: {queue: bit p - 1 for priority p}. No row: unknown. Apart from
-- segments, whose row rescue rewrites at every tick: every claim reads this, and would wade through its dead versions.
create table {{schema}}.segment_lanes (
  slot   smallint primary key,
  lanes  jsonb not null
);

alter type {{schema}}.claimed_attempt add attribute callback_result jsonb;
-- Not an attempt: nothing more may be claimed for so long.
alter type {{schema}}.claimed_attempt add attribute retry_ms integer;

-- A job whose attempt has just been closed: what dispose_jobs moves on.
create type {{schema}}.ended_job as (
  job_id        bigint,
  run_lease     bigint,    -- of the attempt that ended
  queue         text,
  priority      smallint,
  attempt       integer,   -- of the attempt that ended, itself included
  max_attempts  integer,
  kind          text,
  args          jsonb,
  progress      jsonb,
  errors        jsonb,
  created_at    timestamptz,
  unique_key    bytea,
  outcome       {{schema}}.outcome,
  detail        jsonb      -- error, progress, delay_ms, reason, callback_result
);

-- Counting by queue and state up to a cap, and the queues that there are, without reading the tables.
create index deferred_jobs_queue on {{schema}}.deferred_jobs (queue, state);
create index terminal_jobs_queue on {{schema}}.terminal_jobs (queue, state);
create index dlq_entries_queue on {{schema}}.dlq_entries (queue);

-- Where a job is: what find_jobs answers, and what the operators' verbs act on.
create type {{schema}}.found_job as (
  job_id       bigint,
  place        text,      -- deferred, entry, head, attempt, lease, completed, terminal, dead, quarantined, past
  state        text,
  segment      smallint,
  queue        text,
  priority     smallint,  -- as stored: negative for an entry that was claimed from a lane's head
  xid          xid8,
  seq          bigint,
  run_lease    bigint,
  attempt      integer,
  claim_slot   integer,
  batch_id     bigint,
  batch_index  integer,
  receipt_id   bigint,
  unique_key   bytea
);

-- What a kind's payload looks like, for enqueues that ask for it to be checked, and what its definition says of its jobs.
create table {{schema}}.job_kinds (
  kind           text primary key,
  schema         jsonb not null,   -- JSON Schema of the payload as it is stored
  queue          text,
  priority       smallint,
  max_attempts   integer,
  registered_at  timestamptz not null default clock_timestamp()
);
`
  },
  {
    name: "0003_roles.sql",
    text: `-- Who may do what, and who did.

-- The roles that hold a capability (a class of schema/manifest.json). A migration grants nothing by itself: \`roles apply\`
-- records here what it was told, and every installation ends with exactly the manifest's grants to these roles.
create table {{schema}}.role_bindings (
  capability  text not null,
  role        name not null,
  bound_at    timestamptz not null default clock_timestamp(),
  bound_by    name not null default session_user,
  primary key (capability, role)
);

-- What operators asked for. The session's role, whatever it has set: the functions run as their owner.
create table {{schema}}.audit (
  audit_id      bigint generated always as identity primary key,
  at            timestamptz not null default clock_timestamp(),
  session_role  name not null default session_user,
  verb          text not null,
  detail        jsonb not null
);
`
  },
  {
    name: "0004_gating.sql",
    text: `-- Caller-owned completion, switched on queue by queue while runtimes of two versions are at work (C-60).
-- Placeholders as in 0001.

alter table {{schema}}.queues
  -- Whether complete_job serves the queue. A queue that nobody has said anything of is served.
  add column caller_owned boolean not null default true;

alter table {{schema}}.meta
  -- Whether it is off for any queue: complete_job reads this row anyway, and looks at the queue only then.
  add column any_gated boolean not null default false;

-- gated: put aside until caller-owned completion of the queue is enabled, with no due time (run_at is infinity).
alter table {{schema}}.deferred_jobs
  drop constraint deferred_jobs_state_check,
  add constraint deferred_jobs_state_check check (state in ('scheduled', 'retryable', 'snoozed', 'gated'));
create index deferred_jobs_gated on {{schema}}.deferred_jobs (queue, job_id) where state = 'gated';

-- Called otherwise now.
drop function if exists {{schema}}.require_token(bigint, bigint, integer, bigint, bigint, integer);
{{#segments}}
drop function if exists {{schema}}.complete_{{segment}}(bigint, bigint, bigint, bigint, integer, jsonb);
{{/segments}}
`
  },
  {
    name: "0005_throughput.sql",
    text: `-- What a claim and a flush cost. Placeholders as in 0001.

-- Compressing the ids of a few hundred jobs costs more than the rest of a claim's insertion together, and saves 10 bytes a job.
-- What is nearly one value repeated (the leases, the transactions) still is compressed.
{{#segments}}
alter table {{schema}}.claim_batches_{{segment}}
  alter column job_ids set storage external,
  alter column seqs set storage external;
{{/segments}}

-- A segment is written once and truncated whole: to vacuum what was inserted, for the sake of a visibility map that nobody reads, writes
-- every page to the WAL once more. Vacuuming for dead rows and against wraparound goes on.
{{#segments}}
alter table {{schema}}.ready_entries_{{segment}} set (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
alter table {{schema}}.claim_batches_{{segment}} set (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
alter table {{schema}}.closures_{{segment}} set (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
{{/segments}}

-- They answer otherwise now.
{{#segments}}
drop function if exists {{schema}}.read_lane_{{segment}}(text, smallint, integer, timestamptz, integer, xid8);
drop function if exists {{schema}}.claim_{{segment}}(text, smallint, integer, timestamptz, integer, xid8, bigint, integer, interval);
{{/segments}}

-- Whose database this is, proven once for many completions: where the full check held, prove_identity() writes down when that
-- server was started and which file meta was in. While both are still so, this is the same database of the same running server.
-- The file's path names the database, so CREATE DATABASE ... TEMPLATE, or a dump restored beside its original, has another one; and
-- any other server (a clone, a promoted standby, pg_upgrade, a dump taken elsewhere) and any restart has another start.
-- No proof refuses anything: one that is absent, or does not fit, costs the full check.
alter table {{schema}}.meta
  add column proven_start timestamptz,
  add column proven_path text;
`
  },
  {
    name: "0006_revisions.sql",
    text: `-- Releases that change functions only. Placeholders as in 0001.

-- Which functions these are: a later release's have a higher number, and an earlier release leaves them alone.
alter table {{schema}}.meta add column functions_revision integer not null default 0;

-- They answer otherwise now.
{{#segments}}
drop function if exists {{schema}}.read_lane_{{segment}}(text, smallint, integer, timestamptz, integer, xid8);
drop function if exists {{schema}}.claim_{{segment}}(text, smallint, integer, timestamptz, integer, xid8, bigint, interval);
{{/segments}}
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
-- job says \`unique\`: the search for unknown options finds that, and \`validate\`, by the way.
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
    when p_name ~ '[\\u0001-\\u001f\\u007f]' then 'no control characters'
  end
$$;

-- Many jobs in one call: [{"kind", "args", "queue", "opts": {…}}, …]. The answers come in the same order: the id and
-- \`inserted\`, or the id of the job that holds the unique key and \`existing\` or \`replaced\`.
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
-- Answers their ids in order; with \`unique\`, for a twin the id of the job that holds the key.
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
`
  },
  {
    name: "012_kinds.sql",
    text: `-- Kinds that are registered with the JSON Schema of their payload, so that an enqueue from any language can ask for its payload
-- to be checked (\`validate\`). Nothing of this is read for a job that does not ask.

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
        hint = 'Run \`awa kinds register\`.';
    end if;
    select * into v_found from {{schema}}.value_fault(v_job.schema, v_job.schema -> '$defs', v_job.args, 'args', 0, 0, 100000);
    if v_found.fault is not null then
      raise exception using errcode = '22023', message = format('job %s: %s', v_job.at, v_found.fault);
    end if;
  end loop;
end $$;

-- Registers kinds, all or none: [{"kind", "schema", "queue", "priority", "max_attempts"}, …]. Answers for each, in order, whether
-- it is new, and the keywords of its schema that \`validate\` does not check.
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
`
  },
  {
    name: "015_unique.sql",
    text: `-- Unique jobs: what a key is made of, who holds it, and what the enqueue of a twin does. The primary key of unique_claims is
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

-- The rule that the option \`unique\` breaks; null: none.
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

-- Gives the jobs that hold the keys of this call what the call says, where it says \`replace\` and they wait to run: scheduled
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
`
  },
  {
    name: "020_claim.sql",
    text: `-- Claim: one call takes the next entries of a queue and records in one appended row per lane the cursor, the receipts and
-- what was taken.

-- Reads on in a lane of one segment, in (xid, seq) order behind its cursor, and answers what is to be taken and where the
-- cursor is then. Nothing is written. The caller holds the lane's lock; the snapshot is taken here, in a statement of its
-- own, after that lock. With p_until it stops, after p_quantum entries, at the first one that became runnable later: another
-- lane is next. Nothing is taken of a transaction at or above p_below: it began after the caller looked at older segments, where
-- something that committed before it may have come since.
-- A lane's last batch is the first row at or after (queue, priority) in the order of the lane's index: with equality instead, the
-- order would be that of the batch's id, and a plan made when most batches are of one lane walks all of them for an empty lane.
-- Entries with a tombstone are passed and not taken, in ever longer steps, and so many at most: o_more says that it was ended by
-- that. A cursor that a timeout rolled back would come by the same ones in every claim.
{{#segments}}
create or replace function {{schema}}.read_lane_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_until timestamptz, p_quantum integer, p_below xid8,
  out o_moved boolean, out o_cursor_xid xid8, out o_cursor_seq bigint, out o_pending_xids xid8[], out o_pending_seqs bigint[],
  out o_rows tid[], out o_xids xid8[], out o_seqs bigint[], out o_job_ids bigint[], out o_run_leases bigint[], out o_keys bytea[],
  out o_key_count bigint, out o_more boolean)
language plpgsql volatile as $$
declare
  v_snapshot  pg_snapshot;
  v_last      record;
  v_tombs     boolean;
  v_pend_x    xid8[] := '{}';
  v_pend_s    bigint[] := '{}';
  f           record;
  v_have      integer := 0;
  v_step      integer := 0;
  v_dead      bigint := 0;
  v_cut       bigint;
begin
  o_moved := false;
  o_more := false;
  o_cursor_xid := '0';
  o_cursor_seq := 0;
  o_key_count := 0;
  o_pending_xids := '{}';  o_pending_seqs := '{}';
  o_rows := '{}';  o_xids := '{}';  o_seqs := '{}';  o_job_ids := '{}';  o_run_leases := '{}';  o_keys := '{}';
  select b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs into v_last
  from (
    select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
  where b.queue = p_queue and b.priority = p_priority;
  if found then
    o_cursor_xid := v_last.cursor_xid;
    o_cursor_seq := v_last.cursor_seq;
    v_pend_x := v_last.pending_xids;
    v_pend_s := v_last.pending_seqs;
  end if;
  v_snapshot := pg_current_snapshot();
  v_tombs := exists (select from {{schema}}.ready_tombstones_{{segment}} t where t.queue = p_queue and t.priority = p_priority);

  -- Transactions that had not ended when the cursor passed them: read those that have ended since.
  for k in 1 .. cardinality(v_pend_x) loop
    if v_have >= p_limit or o_more or not pg_visible_in_snapshot(v_pend_x[k], v_snapshot) then
      o_pending_xids := o_pending_xids || v_pend_x[k];
      o_pending_seqs := o_pending_seqs || v_pend_s[k];
      continue;
    end if;
    loop
      v_step := greatest(p_limit - v_have, v_step);
      select count(*) as looked, max(e.seq) as last_seq, count(e.unique_key) filter (where e.alive) as keys,
             coalesce(array_agg(e.ctid order by e.seq) filter (where e.alive), '{}') as r,
             coalesce(array_agg(e.xid order by e.seq) filter (where e.alive), '{}') as x,
             coalesce(array_agg(e.seq order by e.seq) filter (where e.alive), '{}') as s,
             coalesce(array_agg(e.job_id order by e.seq) filter (where e.alive), '{}') as j,
             coalesce(array_agg(e.run_lease + 1 order by e.seq) filter (where e.alive), '{}') as l,
             coalesce(array_agg(e.unique_key order by e.seq) filter (where e.alive), '{}') as u
      into f
      from (
        select a.*, count(*) filter (where a.alive) over (order by a.seq) as turns
        from (
          select r.ctid, r.xid, r.seq, r.job_id, r.run_lease, r.unique_key,
                 not v_tombs or not exists (  -- OFFSET 0 keeps this a probe per entry: all tombstones of the segment would be hashed anew in each step
                   select from {{schema}}.ready_tombstones_{{segment}} t
                   where t.queue = p_queue and t.priority = p_priority and t.xid = r.xid and t.seq = r.seq offset 0) as alive
          from {{schema}}.ready_entries_{{segment}} r
          where r.queue = p_queue and r.priority = p_priority and r.xid = v_pend_x[k] and r.seq > v_pend_s[k]
          order by r.seq limit v_step) a) e
      where e.turns <= p_limit - v_have;
      exit when f.looked = 0;  -- read to the end: the transaction is forgotten
      o_moved := true;
      v_pend_s[k] := f.last_seq;
      o_key_count := o_key_count + f.keys;
      o_rows := o_rows || f.r;  o_xids := o_xids || f.x;  o_seqs := o_seqs || f.s;  o_job_ids := o_job_ids || f.j;
      o_run_leases := o_run_leases || f.l;  o_keys := o_keys || f.u;
      v_have := v_have + cardinality(f.s);
      v_dead := v_dead + f.looked - cardinality(f.s);
      o_more := v_dead >= 10000;
      if v_have >= p_limit or o_more then  -- perhaps not read to the end: keep it, from here
        o_pending_xids := o_pending_xids || v_pend_x[k];
        o_pending_seqs := o_pending_seqs || v_pend_s[k];
        exit;
      end if;
      exit when f.looked < v_step;  -- read to the end as well
      v_step := least(1000, 4 * v_step);
    end loop;
  end loop;

  -- Then forward from the cursor, range by range between the transactions in progress: their uncommitted entries are jumped
  -- over by one index probe instead of being walked again by every poll. One statement: the ranges are as many as the open
  -- transactions of the whole cluster. They come in order, so that the limit ends at the first entries. Where there are tombstones
  -- another step may be needed.
  while v_have < p_limit and not o_more loop
    v_step := case when v_tombs then greatest(p_limit - v_have, v_step) else p_limit - v_have end;
    select count(*) as looked, count(e.unique_key) filter (where e.alive) as keys,
           array_agg(e.ctid) as r, array_agg(e.xid) as x, array_agg(e.seq) as s, array_agg(e.job_id) as j, array_agg(e.run_lease + 1) as l,
           array_agg(e.unique_key) as u, case when v_tombs then array_agg(e.alive) end as alive
    into f
    from (  -- sorted once, here: an ORDER BY in each aggregate would sort as often
      select n.ctid, n.xid, n.seq, n.job_id, n.run_lease, n.unique_key,
             not v_tombs or not exists (
               select from {{schema}}.ready_tombstones_{{segment}} t
               where t.queue = p_queue and t.priority = p_priority and t.xid = n.xid and t.seq = n.seq offset 0) as alive
      from (
       select r.* from (
        select s.x as high, lag(s.x, 1, o_cursor_xid) over in_order as low,
               case when row_number() over in_order = 1 then o_cursor_seq else 9223372036854775807 end as low_seq
        from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s
        where s.x > o_cursor_xid
        window in_order as (order by s.x)
        offset 0) g
      cross join lateral (
        select e.ctid, e.xid, e.seq, e.job_id, e.run_lease, e.unique_key from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = p_priority and (e.xid, e.seq) > (g.low, g.low_seq) and e.xid < least(g.high, p_below)
        order by e.xid, e.seq limit v_step) r
       limit v_step) n
      order by n.xid, n.seq) e;
    exit when f.looked = 0;
    v_cut := f.looked;
    if v_tombs then  -- more was read than is wanted
      select coalesce(min(c.i), f.looked) into v_cut
      from (select u.i, count(*) filter (where u.alive) over (order by u.i) as turns from unnest(f.alive) with ordinality as u(alive, i)) c
      where c.turns = p_limit - v_have;
    end if;
    if p_until is not null then
      -- What has a tombstone is no turn of this lane: it is passed whenever it was written, and what stands behind it is looked at.
      select coalesce(min(c.i) - 1, v_cut) into v_cut
      from (select u.x, u.s, u.i, coalesce(u.alive, true) as alive,
                   count(*) filter (where coalesce(u.alive, true)) over (order by u.i) as turns
            from unnest(f.x, f.s, f.alive) with ordinality as u(x, s, alive, i)) c
      cross join lateral (
        select coalesce(e.ready_at, e.created_at) as at from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = p_priority and e.xid = c.x and e.seq = c.s offset 0) r
      where c.i <= v_cut and c.alive and v_have + c.turns > p_quantum and r.at > p_until;
      exit when v_cut = 0;
    end if;
    o_moved := true;
    o_cursor_xid := f.x[v_cut];
    o_cursor_seq := f.s[v_cut];
    o_key_count := o_key_count + f.keys;
    if v_tombs then
      select o_rows || coalesce(array_agg(c.r order by c.i), '{}'), o_xids || coalesce(array_agg(c.x order by c.i), '{}'),
             o_seqs || coalesce(array_agg(c.s order by c.i), '{}'),
             o_job_ids || coalesce(array_agg(c.j order by c.i), '{}'), o_run_leases || coalesce(array_agg(c.l order by c.i), '{}'),
             o_keys || coalesce(array_agg(c.u order by c.i), '{}')
      into o_rows, o_xids, o_seqs, o_job_ids, o_run_leases, o_keys
      from unnest(f.r, f.x, f.s, f.j, f.l, f.u, f.alive) with ordinality as c(r, x, s, j, l, u, alive, i)
      where c.alive and c.i <= v_cut;
    else
      o_rows := o_rows || f.r[:v_cut];  o_xids := o_xids || f.x[:v_cut];  o_seqs := o_seqs || f.s[:v_cut];  o_job_ids := o_job_ids || f.j[:v_cut];
      o_run_leases := o_run_leases || f.l[:v_cut];  o_keys := o_keys || f.u[:v_cut];
    end if;
    v_dead := v_dead + v_cut - (cardinality(o_seqs) - v_have);
    v_have := cardinality(o_seqs);
    exit when v_cut < f.looked or f.looked < v_step;  -- its turn is over, and something was taken; or it was read to its end
    o_more := v_dead >= 10000;
    v_step := least(1000, 4 * v_step);
  end loop;

  -- Whatever is in progress below the cursor may still commit entries behind it. This transaction's own id, drawn in an
  -- earlier lane of the same call, is in no snapshot's list, and it may enqueue after its claim.
  select o_pending_xids || coalesce(array_agg(p.x order by p.x), '{}'), o_pending_seqs || coalesce(array_agg(0::bigint), '{}')
  into o_pending_xids, o_pending_seqs
  from (select pg_snapshot_xip(v_snapshot) union all select pg_current_xact_id_if_assigned()) as p(x)
  where p.x < o_cursor_xid and not p.x = any (o_pending_xids);
end $$;

-- Records what is taken next of a lane in one segment. o_rows are the entries, in the order of their places in the batch: where they
-- are, since nothing moves an entry while it is in the ring, and the caller reads them there instead of looking each one up again.
create or replace function {{schema}}.claim_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_until timestamptz, p_quantum integer, p_below xid8, p_runtime_id bigint,
  p_deadline interval,
  out o_rows tid[], out o_batch_id bigint, out o_receipt_base bigint, out o_deadline_at timestamptz, out o_more boolean)
language plpgsql volatile as $$
declare
  v_read     record;
  v_claimed  timestamptz;
  v_keys     bytea[];
begin
  select * into v_read from {{schema}}.read_lane_{{segment}}(p_queue, p_priority, p_limit, p_until, p_quantum, p_below);
  o_more := v_read.o_more;
  if not v_read.o_moved then
    return;
  end if;
  if v_read.o_key_count > 0 then
    perform {{schema}}.release_unique(v_read.o_keys, v_read.o_job_ids, 1::smallint);
    select array_agg(case when get_byte(k, 0) > 0 then k end order by i) into v_keys
    from unnest(v_read.o_keys) with ordinality as c(k, i) having bool_or(get_byte(k, 0) > 0);
  end if;
  o_rows := v_read.o_rows;
  o_batch_id := nextval({{schema_text batch_seq}});
  -- the last 16 hex digits of a version 4 uuid: its two fixed variant bits fall to the mask, 62 random bits remain
  o_receipt_base := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_claimed := clock_timestamp();
  o_deadline_at := v_claimed + p_deadline;
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs, unique_keys)
  values (o_batch_id, p_queue, p_priority, o_receipt_base, v_claimed, o_deadline_at, p_runtime_id, cardinality(o_rows),
     v_read.o_cursor_xid, v_read.o_cursor_seq, v_read.o_pending_xids, v_read.o_pending_seqs, v_read.o_job_ids, v_read.o_run_leases,
     v_read.o_xids, v_read.o_seqs, v_keys);
end $$;

-- A claim from a lane's head: the entry is copied into the current segment, which the caller holds, under the lane's negative
-- priority, where the ring's cursor does not come by, and its batch is there too. Its cursor is the position that was read.
create or replace function {{schema}}.claim_spilled_{{segment}}(
  p_queue text, p_priority smallint, p_limit integer, p_from bigint, p_runtime_id bigint, p_claim_slot integer, p_deadline interval)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile as $$
declare
  v_rows     tid[];
  v_xid      xid8;
  v_batch    bigint;
  v_base     bigint;
  v_claimed  timestamptz;
  v_j        bigint[];
  v_l        bigint[];
  v_s        bigint[];
  v_u        bytea[];
  v_keys     bytea[];
begin
  v_rows := array(
    select e.ctid from {{schema}}.spilled_entries e
    where e.queue = p_queue and e.priority = p_priority and e.position > p_from
    order by e.position limit p_limit);
  if cardinality(v_rows) = 0 then
    return;
  end if;
  v_xid := pg_current_xact_id();
  with taken as (
    delete from {{schema}}.spilled_entries e where e.ctid = any (v_rows) returning e.*
  ), copied as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at,
       unique_key, callback_result)
    select t.queue, -t.priority, v_xid, t.position, t.job_id, t.run_lease, t.attempt, t.max_attempts, t.created_at, t.kind, t.args,
           t.progress, t.errors, t.ready_at, t.unique_key, t.callback_result
    from taken t order by t.position
    returning seq, job_id, run_lease, unique_key
  )
  select array_agg(c.seq order by c.seq), array_agg(c.job_id order by c.seq), array_agg(c.run_lease + 1 order by c.seq),
         array_agg(c.unique_key order by c.seq),
         case when bool_or(get_byte(c.unique_key, 0) > 0)
           then array_agg(case when get_byte(c.unique_key, 0) > 0 then c.unique_key end order by c.seq) end
  into v_s, v_j, v_l, v_u, v_keys
  from copied c;
  if exists (select from unnest(v_u) k where k is not null) then
    perform {{schema}}.release_unique(v_u, v_j, 1::smallint);
  end if;
  v_batch := nextval({{schema_text batch_seq}});
  v_base := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_claimed := clock_timestamp();
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
     pending_xids, pending_seqs, job_ids, run_leases, xids, seqs, unique_keys)
  values (v_batch, p_queue, -p_priority, v_base, v_claimed, v_claimed + p_deadline, p_runtime_id, cardinality(v_s),
     '0', v_s[cardinality(v_s)], '{}', '{}', v_j, v_l, array_fill(v_xid, array[cardinality(v_s)]), v_s, v_keys);
  return query
    select r.job_id, r.run_lease + 1, p_claim_slot | {{segment}}, v_base + u.i, v_batch, u.i::integer, r.attempt + 1,
           r.max_attempts, p_priority, r.kind, r.args, r.progress, v_claimed + p_deadline, false, r.callback_result, null::integer
    from unnest(v_s) with ordinality as u(s, i)
    cross join lateral (
      select e.* from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = -p_priority and e.xid = v_xid and e.seq = u.s offset 0) r;
end $$;

-- The lanes of a queue that have something to claim in this segment, and since when their first entry could have run. A
-- hint for choosing among lanes: the claim reads again, under the lane's lock.
create or replace function {{schema}}.lanes_{{segment}}(p_queue text, p_lanes integer[], out priority integer, out head_at timestamptz)
returns setof record
language plpgsql volatile as $$
declare
  v_snapshot pg_snapshot := pg_current_snapshot();
begin
  return query
    select p.p, h.at
    from unnest(p_lanes) as p(p)
    left join lateral (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs
      from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (p_queue, p.p::smallint) order by b.queue, b.priority, b.batch_id desc limit 1) c
      on c.queue = p_queue and c.priority = p.p
    cross join lateral (
      select s.at from (
        select r.at from unnest(c.pending_xids, c.pending_seqs) as n(x, s)
        cross join lateral (
          select coalesce(e.ready_at, e.created_at) as at from {{schema}}.ready_entries_{{segment}} e
          where e.queue = p_queue and e.priority = p.p::smallint and e.xid = n.x and e.seq > n.s order by e.seq limit 1) r
        where pg_visible_in_snapshot(n.x, v_snapshot)
        union all
        select r.at from (
          select s.x as high, lag(s.x, 1, coalesce(c.cursor_xid, '0'::xid8)) over in_order as low,
                 case when row_number() over in_order = 1 then coalesce(c.cursor_seq, 0) else 9223372036854775807 end as low_seq
          from (select pg_snapshot_xip(v_snapshot) as x union all select pg_snapshot_xmax(v_snapshot)) s
          where s.x > coalesce(c.cursor_xid, '0'::xid8)
          window in_order as (order by s.x)
          offset 0) g
        cross join lateral (
          select coalesce(e.ready_at, e.created_at) as at from {{schema}}.ready_entries_{{segment}} e
          where e.queue = p_queue and e.priority = p.p::smallint and (e.xid, e.seq) > (g.low, g.low_seq) and e.xid < g.high
          order by e.xid, e.seq limit 1) r
      ) s limit 1) h;
end $$;

-- Whether an entry is claimed or moved away: at or below its lane's cursor, and not in what is left of a pending
-- transaction. Exact under the lane's lock. A tombstone is no claim.
create or replace function {{schema}}.is_claimed_{{segment}}(p_queue text, p_priority smallint, p_xid xid8, p_seq bigint) returns boolean
language sql volatile as $$
  select coalesce((
    select (p_xid, p_seq) <= (b.cursor_xid, b.cursor_seq)
       and not exists (select from unnest(b.pending_xids, b.pending_seqs) as n(x, s) where n.x = p_xid and p_seq > n.s)
    from (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (p_queue, p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
    where b.queue = p_queue and b.priority = p_priority), false)
    or p_priority < 0
$$;

-- The usual claim: one segment is read, one of its lanes has something, nothing of that lane was cancelled or has left the ring, and no
-- transaction that its cursor passed has ended since. A lane has something where there are entries: transactions that it waits for
-- have ended all the time, and most wrote nothing there. Then a look, the lane's lock and one statement do what claim and claim_N do by
-- fifteen, each of which costs the start of a plan. o_lanes is how many lanes may have something, or null where one of them has a head.
-- Where it is one and nothing was taken, another claimer holds it (o_busy), or what was taken for granted did not hold: nothing is
-- written, and it is claimed step by step. Nothing is taken of a transaction that began after the look: it may have come behind one of
-- another lane, which the look did not see. What is taken for granted is read under the lock and in the snapshot that reads the entries, so
-- pending is exactly what that snapshot has in progress below the new cursor; what is pending still is among it, with nothing taken of it.
-- Both statements read between the transactions in progress, as read_lane_N does, in the order of their ids.
create or replace function {{schema}}.claim_alone_{{segment}}(
  p_queue text, p_limit integer, p_runtime_id bigint, p_deadline interval,
  out o_lanes bigint, out o_busy boolean, out o_rows tid[], out o_batch_id bigint, out o_receipt_base bigint, out o_deadline_at timestamptz)
language plpgsql volatile as $$
declare
  v_priority  smallint;
  v_below     xid8;
begin
  o_busy := false;
  with now as materialized (
    select '0'::xid8 || s.xip as low, s.xip || pg_snapshot_xmax(pg_current_snapshot()) as high
    from (select array(select pg_snapshot_xip(pg_current_snapshot())) as xip offset 0) s
  )
  select case when not exists (select from {{schema}}.spill_heads h where h.queue = p_queue) then count(*) end, min(p.p),
         pg_snapshot_xmax(pg_current_snapshot())
  into o_lanes, v_priority, v_below
  from now n cross join unnest('{1,2,3,4}'::smallint[]) as p(p)
  left join lateral (
    select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, p.p) order by b.queue, b.priority, b.batch_id desc limit 1) l
    on l.queue = p_queue and l.priority = p.p
  where exists (
    select from unnest(l.pending_xids, l.pending_seqs) as w(x, s)
    cross join lateral (
      select from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = p.p and e.xid = w.x and e.seq > w.s limit 1) e
    where not w.x = any (n.low)) or exists (
    select from unnest(n.low, n.high) as g(low, high)
    cross join lateral (
      select from {{schema}}.ready_entries_{{segment}} e
      where e.queue = p_queue and e.priority = p.p and e.xid < g.high and (e.xid, e.seq) > (
        greatest(g.low, l.cursor_xid), case when g.low < l.cursor_xid then l.cursor_seq else 9223372036854775807 end)
      limit 1) e
    where g.high > coalesce(l.cursor_xid, '0'));
  if o_lanes is distinct from 1 then
    return;
  end if;
  if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_priority || '/' || p_queue, 0)) then
    o_busy := true;
    return;
  end if;
  with lane as materialized (
    select coalesce(l.cursor_xid, '0') as xid, coalesce(l.cursor_seq, 0) as seq, coalesce(l.pending_xids, '{}') as pending,
           array(select pg_snapshot_xip(pg_current_snapshot())) as in_progress
    from (select) one left join (
      select b.cursor_xid, b.cursor_seq, b.pending_xids
      from (
        select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids from {{schema}}.claim_batches_{{segment}} b
        where (b.queue, b.priority) >= (p_queue, v_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
      where b.queue = p_queue and b.priority = v_priority) l on true
    where not exists (select from {{schema}}.ready_tombstones_{{segment}} t where t.queue = p_queue and t.priority = v_priority)
      and not exists (select from {{schema}}.queues q where q.queue = p_queue and q.paused)
      and not exists (select from {{schema}}.spill_heads h where h.queue = p_queue and h.priority = v_priority)
  ), taken as materialized (
    select count(*)::integer as n, count(e.unique_key) as keys, array_agg(e.ctid) as rows, array_agg(e.xid) as xids,
           array_agg(e.seq) as seqs, array_agg(e.job_id) as job_ids, array_agg(e.run_lease + 1) as run_leases
    from (
      select r.*
      from lane l
      cross join lateral unnest('0'::xid8 || l.in_progress, l.in_progress || pg_snapshot_xmax(pg_current_snapshot())) as g(low, high)
      cross join lateral (
        select e.ctid, e.xid, e.seq, e.job_id, e.run_lease, e.unique_key from {{schema}}.ready_entries_{{segment}} e
        where e.queue = p_queue and e.priority = v_priority and e.xid < least(g.high, v_below) and (e.xid, e.seq) > (
          greatest(g.low, l.xid), case when g.low < l.xid then l.seq else 9223372036854775807 end)
        order by e.xid, e.seq limit p_limit) r
      where g.high > l.xid and l.pending <@ l.in_progress
      limit p_limit) e
  ), batch as (
    insert into {{schema}}.claim_batches_{{segment}}
      (batch_id, queue, priority, receipt_base, claimed_at, deadline_at, runtime_id, n, cursor_xid, cursor_seq,
       pending_xids, pending_seqs, job_ids, run_leases, xids, seqs)
    select nextval({{schema_text batch_seq}}), p_queue, v_priority,
           ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903,
           c.at, c.at + p_deadline, p_runtime_id, t.n, t.xids[t.n], t.seqs[t.n],
           p.xids, array_fill(0::bigint, array[cardinality(p.xids)]), t.job_ids, t.run_leases, t.xids, t.seqs
    from taken t
    cross join (select clock_timestamp() as at offset 0) c
    cross join lateral (
      select array(select x from lane l cross join lateral unnest(l.in_progress) x where x < t.xids[t.n] order by x) as xids offset 0) p
    where t.n > 0 and t.keys = 0
    returning batch_id, receipt_base, deadline_at
  )
  select t.rows, b.batch_id, b.receipt_base, b.deadline_at into o_rows, o_batch_id, o_receipt_base, o_deadline_at
  from batch b cross join taken t;
end $$;

-- The position that claims from a lane's head have come to, as far as this segment knows.
create or replace function {{schema}}.spilled_to_{{segment}}(p_queue text, p_priority smallint) returns bigint
language sql volatile as $$
  select b.cursor_seq
  from (
    select b.queue, b.priority, b.cursor_seq from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, -p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
  where b.queue = p_queue and b.priority = -p_priority
$$;

-- How many claims of a queue are younger than p_since: newest first, and no further than that.
create or replace function {{schema}}.claimed_since_{{segment}}(p_queue text, p_since timestamptz, out n bigint, out oldest timestamptz)
language plpgsql volatile as $$
declare
  v_batch record;
begin
  n := 0;
  for v_priority in -4 .. 4 loop
    for v_batch in
      select b.queue, b.priority, b.n, b.claimed_at from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (p_queue, v_priority::smallint) order by b.queue, b.priority, b.batch_id desc
    loop
      exit when v_batch.queue <> p_queue or v_batch.priority <> v_priority or v_batch.claimed_at <= p_since;
      continue when v_batch.n = 0;  -- no claim
      n := n + v_batch.n;
      oldest := least(oldest, v_batch.claimed_at);
    end loop;
  end loop;
end $$;
{{/segments}}

-- Everything that a claim may still take of a rate-limited queue; and, when that is nothing, in how many milliseconds it may
-- be more. The claims themselves are the account: no counter is written, and no process has a budget of its own.
create or replace function {{schema}}.rate_left(
  p_queue text, p_limit integer, p_interval interval, out remaining integer, out retry_ms integer)
language plpgsql volatile as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_slot    smallint;
  v_n       bigint;
  v_used    bigint := 0;
  v_at      timestamptz;
  v_oldest  timestamptz;
begin
  for v_slot in select s.slot from {{schema}}.segments s where s.state <> 'free' loop
    case v_slot
      {{#segments}}
      when {{segment}} then select * into v_n, v_at from {{schema}}.claimed_since_{{segment}}(p_queue, v_now - p_interval);
      {{/segments}}
    end case;
    v_used := v_used + v_n;
    v_oldest := least(v_oldest, v_at);
  end loop;
  remaining := greatest(0, p_limit - v_used);
  if remaining = 0 then
    retry_ms := greatest(1, ceil(extract(epoch from v_oldest + p_interval - v_now) * 1000));
  end if;
end $$;

-- Takes up to p_limit jobs of a queue. Among its lanes an entry of priority p counts as if it had become runnable (p - 1)
-- times the queue's aging later: no entry waits behind more than what came before that time, so none starves. Inside a lane
-- the order is FIFO. A lane that another claimer holds at this moment is answered by one row with lane_busy: busy is not
-- empty, and a caller that took it for empty would sleep on work. A queue at its rate limit is answered by one row with
-- retry_ms.
create or replace function {{schema}}.claim(p_queue text, p_limit integer, p_runtime_id bigint)
returns setof {{schema}}.claimed_attempt
language plpgsql volatile security definer
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
  v_settings   record;
  v_slots      smallint[];
  v_masks      integer[];                                                  -- of those: the lanes that it may have, a bit each
  v_bits       integer;
  v_slot       smallint;
  v_claim      integer;
  v_rows       integer;
  v_took       integer;
  v_left       integer := p_limit;
  v_busy       boolean := false;
  v_more       boolean := false;                                           -- behind many tombstones
  v_retry      integer;
  v_rate       integer;                                                    -- what the queue's rate leaves
  v_lanes      integer[] := '{1,2,3,4}';
  v_head_at    timestamptz[] := array_fill(null::timestamptz, array[4]);   -- by lane
  v_first      integer[] := array_fill(null::integer, array[4]);           -- its oldest segment, as a place in v_slots
  v_unseen     integer[];
  v_below      xid8;                                                       -- of transactions that had begun before the look
  v_from       bigint[] := array_fill(null::bigint, array[4]);             -- of a spilled head: claimed up to here
  v_to         bigint[] := array_fill(null::bigint, array[4]);             -- and it ends here
  v_locked     boolean[] := '{false,false,false,false}';
  v_lane       record;
  v_head       record;
  v_again      record;
  v_taken      record;
  v_at         timestamptz;
  v_position   bigint;
  v_p          integer;
  v_until      timestamptz;
  v_second     timestamptz;
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
  select m.fingerprint, q.paused, q.attempt_deadline, coalesce(q.aging, interval '1 minute') as aging, q.rate_limit, q.rate_interval,
         not coalesce(q.caller_owned, true) as gated
  into v_settings
  from {{schema}}.meta m left join {{schema}}.queues q on q.queue = p_queue;
  if v_settings.paused then
    return;
  end if;
  v_claim := (v_settings.fingerprint << 12) | (1 << 8);
  select coalesce(array_agg(s.slot order by s.generation), '{}'),
         array_agg(coalesce((l.lanes ->> p_queue)::integer, case when l.lanes is null then 15 else 0 end) order by s.generation)
  into v_slots, v_masks
  from {{schema}}.segments s
  left join lateral (select h.lanes from {{schema}}.segment_lanes h where h.slot = s.slot offset 0) l on true
  where s.state in ('open', 'sealed');

  if cardinality(v_slots) = 1 and v_settings.rate_limit is null then
    case v_slots[1]
      {{#segments}}
      when {{segment}} then
        select * into v_taken from {{schema}}.claim_alone_{{segment}}(p_queue, p_limit, p_runtime_id, v_settings.attempt_deadline);
        if v_taken.o_batch_id is not null then
          return query
            select e.job_id, e.run_lease + 1, v_claim | {{segment}}, v_taken.o_receipt_base + u.i, v_taken.o_batch_id, u.i::integer,
                   e.attempt + 1, e.max_attempts, e.priority, e.kind, e.args, e.progress, v_taken.o_deadline_at, false,
                   e.callback_result, null::integer
            from unnest(v_taken.o_rows) with ordinality as u(place, i)
            -- OFFSET 0 keeps this a fetch per place
            cross join lateral (select r.* from {{schema}}.ready_entries_{{segment}} r where r.ctid = u.place offset 0) e;
        end if;
      {{/segments}}
    end case;
    v_busy := v_taken.o_busy;
    if v_taken.o_lanes = 0 or v_busy or v_taken.o_batch_id is not null then
      v_left := p_limit - coalesce(cardinality(v_taken.o_rows), 0);
      v_lanes := '{}';
    end if;
  end if;

  if v_settings.rate_limit is not null then
    if not pg_try_advisory_xact_lock(hashtextextended({{key rate}} || p_queue, 0)) then
      v_left := 0;
      v_retry := 5;
    else
      select r.remaining, r.retry_ms into v_left, v_retry
      from {{schema}}.rate_left(p_queue, v_settings.rate_limit, v_settings.rate_interval) r;
      v_rate := v_left;
      v_left := least(v_left, p_limit);
    end if;
  end if;

  while v_left > 0 and cardinality(v_lanes) > 0 loop
    v_below := pg_snapshot_xmax(pg_current_snapshot());
    -- What the lanes have: of the segments the oldest first, and before them their heads. The heads are looked at last: what
    -- leaves the ring in between is in one of them.
    foreach v_p in array v_lanes loop
      v_head_at[v_p] := null;
      v_first[v_p] := null;
      v_from[v_p] := null;
      v_to[v_p] := null;
    end loop;
    v_unseen := v_lanes;  -- a lane is looked for until it is found: a backlog may stand in many segments
    for v_at_slot in 1 .. cardinality(v_slots) loop
      exit when cardinality(v_unseen) = 0;
      v_bits := 0;
      foreach v_p in array v_unseen loop
        v_bits := v_bits | (1 << (v_p - 1));
      end loop;
      continue when v_masks[v_at_slot] & v_bits = 0;
      case v_slots[v_at_slot]
        {{#segments}}
        when {{segment}} then
          for v_lane in select l.priority, l.head_at from {{schema}}.lanes_{{segment}}(p_queue, v_unseen) l loop
            v_head_at[v_lane.priority] := v_lane.head_at;
            v_first[v_lane.priority] := v_at_slot;
            v_unseen := array_remove(v_unseen, v_lane.priority);
          end loop;
        {{/segments}}
      end case;
    end loop;
    if exists (select from {{schema}}.spill_heads h where h.queue = p_queue) then
      for v_head in
        select h.priority, h.first_position, h.last_position from {{schema}}.spill_heads h
        where h.queue = p_queue and h.priority = any (v_lanes)
      loop
        v_from[v_head.priority] := v_head.first_position;
        v_to[v_head.priority] := v_head.last_position;
        foreach v_slot in array v_slots loop
          case v_slot
            {{#segments}}
            when {{segment}} then v_position := {{schema}}.spilled_to_{{segment}}(p_queue, v_head.priority);
            {{/segments}}
          end case;
          v_from[v_head.priority] := greatest(v_from[v_head.priority], v_position);
        end loop;
        if v_from[v_head.priority] >= v_head.last_position then
          v_from[v_head.priority] := null;
        else
          select coalesce(e.ready_at, e.created_at) into v_at from {{schema}}.spilled_entries e
          where e.queue = p_queue and e.priority = v_head.priority and e.position > v_from[v_head.priority]
          order by e.position limit 1;
          if found then
            v_head_at[v_head.priority] := v_at;
          else
            v_from[v_head.priority] := null;
          end if;
        end if;
      end loop;
    end if;

    -- The lane whose first entry is the next one, and how far it goes before another lane's.
    select l.p, l.at + (l.p - 1) * v_settings.aging, lead(l.at + (l.p - 1) * v_settings.aging) over in_order
    into v_p, v_at, v_second
    from unnest(v_lanes) as u(p) cross join lateral (select u.p, v_head_at[u.p] as at) l
    where l.at is not null
    window in_order as (order by l.at + (l.p - 1) * v_settings.aging, l.p)
    order by 2, 1 limit 1;
    exit when not found;
    v_until := v_second - (v_p - 1) * v_settings.aging;
    if not v_locked[v_p] then
      if not pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_p || '/' || p_queue, 0)) then
        v_busy := true;
        v_lanes := array_remove(v_lanes, v_p);
        continue;
      end if;
      v_locked[v_p] := true;
      -- Again, under the lock: whoever paused the queue and then found its lanes free may rely on it; and entries that left the
      -- ring for the lane's head since the look above come before those that are in the ring still.
      select exists (select from {{schema}}.queues q where q.queue = p_queue and q.paused) as paused,
             (select h.last_position from {{schema}}.spill_heads h where h.queue = p_queue and h.priority = v_p) as head_to
      into v_again;
      exit when v_again.paused;
      continue when v_again.head_to is distinct from v_to[v_p];
    end if;

    v_took := 0;
    if v_from[v_p] is not null then
      v_rows := case when v_until is null then v_left else greatest(1, v_left / 4) end;
      case {{schema}}.hold_current_segment()
        {{#segments}}
        when {{segment}} then
          return query select * from {{schema}}.claim_spilled_{{segment}}(p_queue, v_p::smallint, v_rows, v_from[v_p], p_runtime_id,
            v_claim, v_settings.attempt_deadline);
        {{/segments}}
      end case;
      get diagnostics v_took = row_count;
      v_left := v_left - v_took;
    end if;
    if v_took = 0 or v_until is null then
      for v_at_slot in coalesce(v_first[v_p], 1) .. cardinality(v_slots) loop
        exit when v_left <= 0;
        continue when v_masks[v_at_slot] & (1 << (v_p - 1)) = 0;
        case v_slots[v_at_slot]
          {{#segments}}
          when {{segment}} then
            select * into v_taken from {{schema}}.claim_{{segment}}(p_queue, v_p::smallint, v_left, v_until, greatest(1, v_left / 4),
              v_below, p_runtime_id, v_settings.attempt_deadline);
            return query
              select e.job_id, e.run_lease + 1, v_claim | {{segment}}, v_taken.o_receipt_base + u.i, v_taken.o_batch_id, u.i::integer,
                     e.attempt + 1, e.max_attempts, e.priority, e.kind, e.args, e.progress, v_taken.o_deadline_at, false,
                     e.callback_result, null::integer
              from unnest(v_taken.o_rows) with ordinality as u(place, i)
              -- OFFSET 0 keeps this a fetch per place
              cross join lateral (select r.* from {{schema}}.ready_entries_{{segment}} r where r.ctid = u.place offset 0) e;
          {{/segments}}
        end case;
        get diagnostics v_rows = row_count;
        v_left := v_left - v_rows;
        v_took := v_took + v_rows;
        v_more := v_taken.o_more;
        exit when v_more;
        -- it may have left something for another lane's turn: the next segment comes after that
        exit when v_until is not null and v_took > 0;
      end loop;
    end if;
    if v_more then  -- what was passed so far is to be committed
      v_busy := true;
      exit;
    end if;
    exit when v_second is null;  -- the look found nothing in any other lane; what came since brings its own hint
    if v_took = 0 then  -- somebody was faster
      v_lanes := array_remove(v_lanes, v_p);
    end if;
  end loop;
  if v_rate < p_limit and v_left <= 0 and v_retry is null then  -- it was the rate that ended this claim
    select r.retry_ms into v_retry
    from {{schema}}.rate_left(p_queue, v_settings.rate_limit, v_settings.rate_interval) r;
  end if;
  -- A row that is no attempt says the rest: that a lane was busy, when to come again, and in args that caller-owned completion is
  -- off for this queue, to those that have just taken something of it.
  if (v_busy and v_left > 0) or v_retry is not null or (v_settings.gated and v_left < p_limit) then
    return query select null::bigint, null::bigint, null::integer, null::bigint, null::bigint, null::integer, null::integer,
      null::integer, null::smallint, null::text, case when v_settings.gated then jsonb_build_object('gated', true) end, null::jsonb,
      null::timestamptz, v_busy, null::jsonb, v_retry;
  end if;
end $$;
`
  },
  {
    name: "028_dispose.sql",
    text: `-- Where a job goes when its attempt ended without success: aside, to run again; to the terminal jobs; to the dead letters.
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
`
  },
  {
    name: "030_close.sql",
    text: `-- Closing attempts. Every close checks in the same call that its claim exists and that job id, run lease and receipt are the
-- item's: once a segment was pruned and reused, the closure's key alone is free again.
-- Plans here must not depend on statistics (a plan made while a segment was empty lives for hours): tables are reached by
-- LATERAL … OFFSET 0, which stays one index probe per key, and what remains to be joined are arrays, which are hashed.
-- A batch's arrays are fetched once per call (array || '{}' is the fetched copy), not once for each of its items.

-- The jobs of items that have just been closed without success, from their ring entries, moved on.
{{#segments}}
create or replace function {{schema}}.dispose_{{segment}}(
  p_batch_ids bigint[], p_indexes integer[], p_outcomes {{schema}}.outcome[], p_details jsonb[])
returns void
language plpgsql volatile as $$
declare
  v_jobs {{schema}}.ended_job[];
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.idx) as idxs, array_agg(i.outcome) as outcomes, array_agg(i.detail) as details
    from unnest(p_batch_ids, p_indexes, p_outcomes, p_details) as i(batch_id, idx, outcome, detail)
    group by i.batch_id
  )
  select array_agg(row(e.job_id, e.run_lease + 1, e.queue, abs(e.priority), e.attempt + 1, e.max_attempts, e.kind, e.args, e.progress,
                       e.errors, e.created_at, e.unique_key, i.outcome,
                       -- an answer that nobody will give again stays with the job until it has ended
                       case when e.callback_result is not null then jsonb_build_object('callback_result', e.callback_result) else '{}' end
                       || coalesce(i.detail, '{}'))::{{schema}}.ended_job
                   order by e.job_id)
  into v_jobs
  from asked a
  cross join lateral (
    select c.queue, c.priority, c.xids || '{}' as xids, c.seqs || '{}' as seqs
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
  cross join lateral unnest(a.idxs, a.outcomes, a.details) as i(idx, outcome, detail)
  cross join lateral (
    select r.* from {{schema}}.ready_entries_{{segment}} r
    where r.queue = b.queue and r.priority = b.priority and r.xid = b.xids[i.idx] and r.seq = b.seqs[i.idx] offset 0) e;
  perform {{schema}}.dispose_jobs(v_jobs);
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
  v_keys    bytea[];
  v_holders bigint[];
  v_rest    integer[];
  v_answers text[];
  v_lease   integer[];
begin
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt) as receipts
    from unnest(p_slots, p_batch_ids, p_indexes, p_job_ids, p_run_leases, p_receipts) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt, ord)
    where i.slot & 255 = {{segment}} and i.slot >> 12 = p_fingerprint
    group by i.batch_id
  ), matched as materialized (
    select x.ord, a.batch_id, x.idx, x.job_id, x.run_lease, b.unique_keys[x.idx] as unique_key
    from asked a
    cross join lateral (
      select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases,
             case when c.unique_keys is not null then c.unique_keys || '{}' end as unique_keys
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
         coalesce(array_agg(m.ord order by m.ord) filter (where i.batch_id is not null), '{}'),
         array_agg(m.unique_key) filter (where m.unique_key is not null and i.outcome = 'completed'),
         array_agg(m.job_id) filter (where m.unique_key is not null and i.outcome = 'completed')
  into v_ords, v_taken, v_idxs, v_is, v_closed, v_keys, v_holders
  from matched m
  left join inserted i on i.batch_id = m.batch_id and i.batch_index = m.idx and i.outcome = p_outcomes[m.ord];

  return query select c, 'closed'::text from unnest(v_closed) c;
  -- What this statement did not insert is classified by another one: the first cannot see the row that it met. An attempt that
  -- was materialized, or whose claim is gone with its segment, is tried on its lease.
  if cardinality(v_closed) < (select count(*) from unnest(p_slots) s where s & 255 = {{segment}}) then
    select array_agg(i.ord::integer),
           array_agg(case when i.slot >> 12 = p_fingerprint and coalesce(met.outcome = 'materialized', true) then 'lease'
                          when met.closer = p_closer then 'repeated' else 'stale' end)
    into v_rest, v_answers
    from unnest(p_slots) with ordinality as i(slot, ord)
    left join unnest(v_closed) as done(ord) on done.ord = i.ord
    left join (
      select m.ord, c.closer, c.outcome
      from unnest(v_ords, v_taken, v_idxs, v_is) as m(ord, batch_id, idx, is_closed)
      cross join lateral (
        select c.closer, c.outcome from {{schema}}.closures_{{segment}} c
        where c.batch_id = m.batch_id and c.batch_index = m.idx offset 0) c
      where not m.is_closed) met on met.ord = i.ord
    where i.slot & 255 = {{segment}} and done.ord is null;
    return query select r.ord, r.answer from unnest(v_rest, v_answers) as r(ord, answer) where r.answer <> 'lease';
    v_lease := array(select r.ord from unnest(v_rest, v_answers) as r(ord, answer) where r.answer = 'lease');
    if cardinality(v_lease) > 0 then
      return query select * from {{schema}}.close_leases(p_closer, v_lease, p_job_ids, p_run_leases, p_receipts, p_outcomes, p_details);
    end if;
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
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
end $$;

-- What nearly every flush is: attempts that completed, with nothing else to say of them. By claim batch: p_lasts says where the items
-- of each batch end in the arrays of items. An attempt's receipt is its batch's base and its index, so one comparison is that of all of
-- them.
create or replace function {{schema}}.close_completed_{{segment}}(
  p_fingerprint integer, p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_receipt_bases bigint[], p_lasts integer[],
  p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[])
returns integer
language plpgsql volatile as $$
declare
  v_rows     integer;
  v_keys     bytea[];
  v_holders  bigint[];
begin
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, closer)
  select b.batch_id, x.idx, 'completed', clock_timestamp(), pg_current_xact_id(), p_closer
  from unnest(p_slots, p_batch_ids, p_receipt_bases, array[0] || p_lasts, p_lasts) as g(slot, batch_id, receipt_base, after, last)
  cross join lateral (
    select c.batch_id, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
    from {{schema}}.claim_batches_{{segment}} c
    where c.batch_id = g.batch_id and c.receipt_base = g.receipt_base offset 0) b
  cross join lateral unnest(p_indexes[g.after + 1:g.last], p_job_ids[g.after + 1:g.last], p_run_leases[g.after + 1:g.last])
    as x(idx, job_id, run_lease)
  where g.slot & 255 = {{segment}} and g.slot >> 12 = p_fingerprint
    and b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease
  order by b.batch_id, x.idx
  on conflict (batch_id, batch_index) do nothing;
  get diagnostics v_rows = row_count;
  -- the keys of those that it was which closed them
  select array_agg(b.unique_keys[x.idx]), array_agg(x.job_id) into v_keys, v_holders
  from unnest(p_slots, p_batch_ids, p_receipt_bases, array[0] || p_lasts, p_lasts) as g(slot, batch_id, receipt_base, after, last)
  cross join lateral (
    select c.batch_id, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases, c.unique_keys || '{}' as unique_keys
    from {{schema}}.claim_batches_{{segment}} c
    where c.batch_id = g.batch_id and c.receipt_base = g.receipt_base and c.unique_keys is not null offset 0) b
  cross join lateral unnest(p_indexes[g.after + 1:g.last], p_job_ids[g.after + 1:g.last], p_run_leases[g.after + 1:g.last])
    as x(idx, job_id, run_lease)
  cross join lateral (
    select from {{schema}}.closures_{{segment}} c
    where c.batch_id = b.batch_id and c.batch_index = x.idx and c.closer = p_closer and c.xid = pg_current_xact_id() offset 0) c
  where g.slot & 255 = {{segment}} and g.slot >> 12 = p_fingerprint
    and b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.unique_keys[x.idx] is not null;
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
  return v_rows;
end $$;
{{/segments}}

-- Ends many attempts in one statement. Answers one row per item: closed (by this call), repeated (by an earlier try of this
-- same flush, whose answer was lost) or stale (anything else: the winner is not touched). p_closer is the flush's own id, the
-- same over its retries and close_completed; p_details holds, under an item's ordinal, its error, progress and delay_ms.
create or replace function {{schema}}.close_attempts(
  p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb, p_has_state boolean)
returns table (ord integer, answer text)
language plpgsql volatile security definer
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
             where o is null or o in ('rescued', 'materialized')) then
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

-- Completes many attempts of which nothing else is to be said, and answers how many it closed. When these are not all, close_attempts
-- with the same p_closer says which ones were not, and why.
create or replace function {{schema}}.close_completed(
  p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_receipt_bases bigint[], p_lasts integer[], p_indexes integer[],
  p_job_ids bigint[], p_run_leases bigint[])
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_slot         integer;
  v_fingerprint  integer;
  v_closed       integer := 0;
begin
  perform {{schema}}.require_read_committed();
  select m.fingerprint into v_fingerprint from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(p_slots) s order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        v_closed := v_closed + {{schema}}.close_completed_{{segment}}(v_fingerprint, p_closer, p_slots, p_batch_ids, p_receipt_bases,
          p_lasts, p_indexes, p_job_ids, p_run_leases);
      {{/segments}}
      else null;  -- no token of ours
    end case;
  end loop;
  return v_closed;
end $$;

-- Ends one attempt under its lock, taken in the try form: busy means that a finalization is in flight, whose end decides.
create or replace function {{schema}}.settle_attempt(
  p_closer bigint, p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint,
  p_outcome {{schema}}.outcome, p_detail jsonb)
returns text
language plpgsql volatile security definer
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

-- One branch per segment, reached through complete_job only. The attempt's lock is held. The usual attempt is completed by the first
-- statement alone: each one more is a tenth of what a completion costs, and each expression a hundredth.
{{#segments}}
create or replace function {{schema}}.complete_{{segment}}(
  p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb)
returns timestamptz
language plpgsql volatile as $$
declare
  v_claim  record;
  v_other  record;
  v_at     timestamptz;
  v_rows   integer := 0;
begin
  -- Its claim is there with every field, in the database that the token is of; no key is to be given back, nothing is known of it but that
  -- it runs, and no queue is gated.
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
  select p_batch_id, p_batch_index, 'completed', clock_timestamp(), pg_current_xact_id(), p_progress
  from (select m.*, m.tableoid from {{schema}}.meta m limit 1) m
  cross join {{schema}}.claim_batches_{{segment}} b
  where m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid) and not m.any_gated
    and p_claim_slot >> 12 = m.fingerprint and (p_claim_slot >> 8) & 15 = 1
    and b.batch_id = p_batch_id and p_batch_index >= 1 and b.job_ids[p_batch_index] = p_job_id
    and b.run_leases[p_batch_index] = p_run_lease and b.receipt_base + p_batch_index = p_receipt_id
    and b.unique_keys[p_batch_index] is null
    and not exists (select from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease)
  on conflict (batch_id, batch_index) do nothing
  returning closed_at into v_at;
  if v_at is not null then
    return v_at;
  end if;
  -- Whatever it is that differs, all of it is looked at in full.
  perform {{schema}}.require_token(p_job_id, p_run_lease, p_claim_slot, p_receipt_id, p_batch_id, p_batch_index);
  v_at := clock_timestamp();
  select m.any_gated, b.batch_id is not null as found,
         b.job_ids[p_batch_index] as job_id, b.run_leases[p_batch_index] as run_lease, b.receipt_base + p_batch_index as receipt_id,
         b.unique_keys[p_batch_index] as unique_key, s.job_id is not null as has_state, s.progress
  into v_claim
  -- one row, as the plan must know: it would keep the others' rows for more
  from (select m.any_gated from {{schema}}.meta m limit 1) m
  left join {{schema}}.claim_batches_{{segment}} b on b.batch_id = p_batch_id
  left join {{schema}}.attempt_state s on s.job_id = p_job_id and s.run_lease = p_run_lease;
  if v_claim.job_id = p_job_id and v_claim.run_lease = p_run_lease and v_claim.receipt_id = p_receipt_id then
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
    values (p_batch_id, p_batch_index, 'completed', v_at, pg_current_xact_id(), coalesce(p_progress, v_claim.progress))
    on conflict (batch_id, batch_index) do nothing;
    get diagnostics v_rows = row_count;
    if v_rows = 0 then  -- another statement, which sees the row that this one met
      select c.outcome, c.closed_at into v_other
      from {{schema}}.closures_{{segment}} c where c.batch_id = p_batch_id and c.batch_index = p_batch_index;
      if v_other.outcome <> 'materialized' then
        perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_other.outcome, v_other.closed_at);
      end if;
    end if;
  end if;
  if v_rows = 0 then
    v_at := {{schema}}.complete_lease(p_job_id, p_run_lease, p_receipt_id, p_batch_id, p_batch_index, p_progress, v_claim.found);
    if v_at is null then
      return null;
    end if;
  else
    -- A beat since this transaction's snapshot would make the deletion fail, and with it every finalization that outlasts a beat:
    -- there the sweep takes the row.
    if v_claim.has_state and current_setting('transaction_isolation') like 'read %' then
      delete from {{schema}}.attempt_state s where s.job_id = p_job_id and s.run_lease = p_run_lease;
    end if;
    if v_claim.unique_key is not null then
      perform {{schema}}.release_unique(array[v_claim.unique_key], array[p_job_id], 2::smallint);
    end if;
  end if;
  if v_claim.any_gated then
    perform {{schema}}.require_caller_owned(p_job_id, p_run_lease, p_claim_slot, p_batch_id);
  end if;
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

-- Raises unless these fields can be a token of this installation.
create or replace function {{schema}}.require_token(
  p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer)
returns void
language plpgsql volatile as $$
declare
  v_meta  record;
begin
  if p_job_id is null or p_run_lease is null or p_claim_slot is null or p_receipt_id is null or p_batch_id is null or p_batch_index is null
     or p_job_id < 1 or p_run_lease < 1 or p_claim_slot < 0 or p_receipt_id < 1 or p_batch_id < 1 or p_batch_index < 1
     or (p_claim_slot & 255) >= {{ring}} then
    raise exception using errcode = 'WA003', message = 'malformed token';
  end if;
  if (p_claim_slot >> 8) & 15 <> 1 then
    raise exception using errcode = 'WA004', message = format('contract version %s is not supported', (p_claim_slot >> 8) & 15);
  end if;
  -- A token of another database, or of the database that this one was copied from, must not match by number (C-34).
  select m.fingerprint, m.system_identifier = c.system_identifier
         and m.database_oid = (select d.oid from pg_database d where d.datname = current_database()) as ours
  into v_meta
  from {{schema}}.meta m, pg_control_system() c;
  if p_claim_slot >> 12 <> v_meta.fingerprint or not v_meta.ours then
    raise exception using errcode = 'WA003', message = 'unknown token: it is not of this installation';
  end if;
  if p_batch_id > (select last_value from {{schema}}.batch_seq) then
    raise exception using errcode = 'WA003', message = 'unknown token: its claim was never made';
  end if;
end $$;

-- Raises when caller-owned completion is off for the queue of an attempt that this transaction has just completed.
create or replace function {{schema}}.require_caller_owned(p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_batch_id bigint)
returns void
language plpgsql volatile as $$
declare
  v_queue  text;
begin
  case p_claim_slot & 255
    {{#segments}}
    when {{segment}} then
      select b.queue into v_queue from {{schema}}.claim_batches_{{segment}} b where b.batch_id = p_batch_id;
    {{/segments}}
  end case;
  if v_queue is null then  -- a lease that outlived its claim
    select c.queue into v_queue from {{schema}}.lease_closures c where c.job_id = p_job_id and c.run_lease = p_run_lease;
  end if;
  if exists (select from {{schema}}.queues q where q.queue = v_queue and not q.caller_owned) then
    raise exception using errcode = 'WA006', message = format('caller-owned completion is disabled for the queue %s', v_queue);
  end if;
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
  v_at    timestamptz;
  v_note  text;
begin
  if pg_column_size(progress) > 131072 then
    raise exception using errcode = '22023', message = 'progress: at most 64 KiB';
  end if;
  -- As expressions, here and below: a PERFORM would be a statement each. A token of another version waits for nobody.
  if (claim_slot >> 8) & 15 = 1
     and pg_advisory_xact_lock(hashtextextended({{key attempt}} || job_id || '/' || run_lease, 0)) is null then
    null;
  end if;
  case claim_slot & 255
    {{#segments}}
    when {{segment}} then v_at := {{schema}}.complete_{{segment}}(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, progress);
    {{/segments}}
    else perform {{schema}}.require_token(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index);
  end case;
  if v_at is null then
    -- The claim was made and its evidence is gone, or this transaction's snapshot is too old to see it.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
      raise exception using errcode = '40001', message = 'the claim is not visible in this transaction''s snapshot';
    end if;
    perform {{schema}}.raise_stale(job_id, run_lease, null, null);
  end if;
  -- For the commit guard: survives this function, is undone by a rollback to a savepoint.
  v_note := set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '') || '[' || {{schema_name}} || '/' || receipt_id || ']', true);
  return row(1, job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, 'completed', v_at, pg_current_xact_id())::{{schema}}.finalization;
end $$;
`
  },
  {
    name: "041_complete_jobs.sql",
    text: `-- Caller-owned finalization of many attempts in one transaction of the caller: all of them are completed, or it raises. What one
-- attempt's completion means is 040's; here it is said once for all, and whatever is not plain is left to that.

-- One branch per segment, reached through complete_jobs only, which holds the attempts' locks. Answers which items it completed.
{{#segments}}
create or replace function {{schema}}.complete_jobs_{{segment}}(
  p_at timestamptz, p_job_ids bigint[], p_run_leases bigint[], p_claim_slots integer[], p_receipt_ids bigint[], p_batch_ids bigint[],
  p_batch_indexes integer[])
returns integer[]
language plpgsql volatile as $$
declare
  v_done     integer[];
  v_keys     bytea[];
  v_holders  bigint[];
  v_states   boolean;
  v_ords     integer[];
  v_batches  bigint[];
  v_idxs     integer[];
  v_rows     tid[];
  v_closed   integer;
begin
  -- The plain ones first: nothing is known of them but that they run, and no key is to be given back. Nearly always these are all.
  with asked as (
    select i.batch_id, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids, array_agg(i.run_lease) as run_leases,
           array_agg(i.receipt_id) as receipt_ids
    from unnest(p_claim_slots, p_batch_ids, p_batch_indexes, p_job_ids, p_run_leases, p_receipt_ids)
      as i(slot, batch_id, idx, job_id, run_lease, receipt_id)
    where i.slot & 255 = {{segment}}
    group by i.batch_id
  )
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid)
  select a.batch_id, x.idx, 'completed', p_at, pg_current_xact_id()
  from asked a
  cross join lateral (
    select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id and c.unique_keys is null offset 0) b
  cross join lateral unnest(a.idxs, a.job_ids, a.run_leases, a.receipt_ids) as x(idx, job_id, run_lease, receipt_id)
  where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt_id
    and not exists (select from {{schema}}.attempt_state t where t.job_id = x.job_id and t.run_lease = x.run_lease offset 0)
  order by a.batch_id, x.idx
  on conflict (batch_id, batch_index) do nothing;
  get diagnostics v_closed = row_count;
  v_done := array(select i.ord::integer from unnest(p_claim_slots) with ordinality as i(slot, ord) where i.slot & 255 = {{segment}});
  if v_closed = cardinality(v_done) then
    return v_done;
  end if;
  with asked as materialized (
    select i.batch_id, array_agg(i.ord::integer) as ords, array_agg(i.idx) as idxs, array_agg(i.job_id) as job_ids,
           array_agg(i.run_lease) as run_leases, array_agg(i.receipt_id) as receipt_ids
    from unnest(p_claim_slots, p_batch_ids, p_batch_indexes, p_job_ids, p_run_leases, p_receipt_ids) with ordinality
      as i(slot, batch_id, idx, job_id, run_lease, receipt_id, ord)
    where i.slot & 255 = {{segment}}
    group by i.batch_id
  ), matched as materialized (
    select x.ord, a.batch_id, x.idx, x.job_id, b.unique_keys[x.idx] as unique_key, s.job_id is not null as has_state, s.progress
    from asked a
    cross join lateral (
      select c.receipt_base, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases,
             case when c.unique_keys is not null then c.unique_keys || '{}' end as unique_keys
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b
    cross join lateral unnest(a.ords, a.idxs, a.job_ids, a.run_leases, a.receipt_ids) as x(ord, idx, job_id, run_lease, receipt_id)
    left join lateral (
      select t.job_id, t.progress from {{schema}}.attempt_state t
      where t.job_id = x.job_id and t.run_lease = x.run_lease offset 0) s on true
    where b.job_ids[x.idx] = x.job_id and b.run_leases[x.idx] = x.run_lease and b.receipt_base + x.idx = x.receipt_id
  ), inserted as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
    select m.batch_id, m.idx, 'completed', p_at, pg_current_xact_id(), m.progress
    from matched m
    order by m.batch_id, m.idx
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  )
  select array_agg(m.ord), array_agg(m.batch_id), array_agg(m.idx),
         array_agg(m.unique_key) filter (where m.unique_key is not null and i.batch_id is not null),
         array_agg(m.job_id) filter (where m.unique_key is not null and i.batch_id is not null),
         bool_or(m.has_state and i.batch_id is not null)
  into v_ords, v_batches, v_idxs, v_keys, v_holders, v_states
  from matched m left join inserted i on i.batch_id = m.batch_id and i.batch_index = m.idx;
  -- Of those whose every field is right, which stand for their places: those that this very call has closed. An earlier call of the same
  -- transaction has another time.
  v_done := array(
    select m.ord
    from unnest(v_ords, v_batches, v_idxs) as m(ord, batch_id, idx)
    cross join lateral (
      select from {{schema}}.closures_{{segment}} c
      where c.batch_id = m.batch_id and c.batch_index = m.idx and c.xid = pg_current_xact_id() and c.closed_at = p_at offset 0) c);
  -- where a beat since this transaction's snapshot would make the deletion fail, the sweep takes the rows
  if v_states and current_setting('transaction_isolation') like 'read %' then
    v_rows := array(
      select t.ctid from unnest(v_done) d
      cross join lateral (select a.ctid from {{schema}}.attempt_state a
                          where a.job_id = p_job_ids[d] and a.run_lease = p_run_leases[d] for update) t);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
  end if;
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
  return v_done;
end $$;
{{/segments}}

create or replace function {{schema}}.complete_jobs(
  job_ids bigint[], run_leases bigint[], claim_slots integer[], receipt_ids bigint[], batch_ids bigint[], batch_indexes integer[])
returns setof {{schema}}.finalization
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_nestloop = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_n      integer := cardinality(job_ids);
  v_known  record;
  v_item   record;
  v_slot   integer;
  v_done   integer[] := '{}';
  v_at     timestamptz;
  v_gated  boolean;
  v_one    timestamptz;
  v_times  timestamptz[] := '{}';  -- of those that were completed one by one
  v_note   text;
begin
  if not (v_n between 1 and 200 and cardinality(run_leases) = v_n and cardinality(claim_slots) = v_n and cardinality(receipt_ids) = v_n
          and cardinality(batch_ids) = v_n and cardinality(batch_indexes) = v_n
          and array_lower(job_ids, 1) = 1 and array_lower(run_leases, 1) = 1
          and (select max(array_ndims) from (values (array_ndims(job_ids)), (array_ndims(run_leases)), (array_ndims(claim_slots)),
               (array_ndims(receipt_ids)), (array_ndims(batch_ids)), (array_ndims(batch_indexes))) d(array_ndims)) = 1) is true then
    raise exception using errcode = '22023', message = 'expected six arrays of the same length, from 1 to 200';
  end if;
  select bool_and(i.j >= 1 and i.l >= 1 and i.r >= 1 and i.b >= 1 and i.x >= 1 and i.s >= 0 and i.s & 255 < {{ring}}
                  and (i.s >> 8) & 15 = 1 and i.s >> 12 = m.fingerprint and i.b <= q.last_value) is true
           and count(*) = v_n and not bool_or(i.j is null or i.l is null or i.r is null or i.b is null or i.x is null or i.s is null)
           and count(distinct i.r) = v_n as tokens,
         bool_and(m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid)) as ours
  into v_known
  from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) as i(j, l, s, r, b, x)
  cross join (select m.*, m.tableoid from {{schema}}.meta m limit 1) m cross join {{schema}}.batch_seq q;
  if (v_known.tokens and v_known.ours) is not true then  -- one by one, and in full: it says what is wrong, if anything is
    for v_item in
      select * from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) as i(j, l, s, r, b, x)
    loop
      perform {{schema}}.require_token(v_item.j, v_item.l, v_item.s, v_item.r, v_item.b, v_item.x);
    end loop;
    if (select count(distinct r) from unnest(receipt_ids) r) < v_n then
      raise exception using errcode = '22023', message = 'an attempt is named twice';
    end if;
  end if;

  -- In one order for all callers, that of their places: two that complete the same attempts wait for each other, and never both. Each is a
  -- place in the server's table of locks until the transaction ends, hence no more than 200.
  perform pg_advisory_xact_lock(o.key)
  from (select hashtextextended({{key attempt}} || i.j || '/' || i.l, 0) as key
        from unnest(job_ids, run_leases, claim_slots, batch_ids, batch_indexes) as i(j, l, s, b, x)
        order by i.s & 255, i.b, i.x, i.j, i.l) o;
  -- what is so now, when nobody else has these attempts
  v_at := clock_timestamp();
  select m.any_gated into v_gated from {{schema}}.meta m;
  for v_slot in select distinct s & 255 from unnest(claim_slots) s order by 1 loop
    case v_slot
      {{#segments}}
      when {{segment}} then
        v_done := v_done || {{schema}}.complete_jobs_{{segment}}(v_at, job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes);
      {{/segments}}
    end case;
  end loop;
  if cardinality(v_done) < v_n then
    -- What is no plain attempt of the ring: a lease, which is completed here, or an attempt that has ended, which raises.
    for v_item in
      select * from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) with ordinality as i(j, l, s, r, b, x, ord)
      where i.ord <> all (v_done) order by i.s & 255, i.b, i.x
    loop
      case v_item.s & 255
        {{#segments}}
        when {{segment}} then
          v_one := {{schema}}.complete_{{segment}}(v_item.j, v_item.l, v_item.s, v_item.r, v_item.b, v_item.x, null);
        {{/segments}}
      end case;
      if v_one is null then
        if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
          raise exception using errcode = '40001', message = 'the claim is not visible in this transaction''s snapshot';
        end if;
        perform {{schema}}.raise_stale(v_item.j, v_item.l, null, null);
      end if;
      v_times[v_item.ord] := v_one;
    end loop;
  end if;
  if v_gated then
    for v_item in select * from unnest(job_ids, run_leases, claim_slots, batch_ids) as i(j, l, s, b) loop
      perform {{schema}}.require_caller_owned(v_item.j, v_item.l, v_item.s, v_item.b);
    end loop;
  end if;
  -- for the commit guard, as complete_job's
  v_note := set_config('awa.finalized',
    coalesce(current_setting('awa.finalized', true), '')
      || (select string_agg('[' || {{schema_name}} || '/' || r || ']', '') from unnest(receipt_ids) r), true);
  return query
    select 1, i.j, i.l, i.s, i.r, i.b, i.x, 'completed'::text, coalesce(v_times[i.ord], v_at), pg_current_xact_id()
    from unnest(job_ids, run_leases, claim_slots, receipt_ids, batch_ids, batch_indexes) with ordinality as i(j, l, s, r, b, x, ord)
    order by i.ord;
end $$;
`
  },
  {
    name: "042_expect_completion.sql",
    text: `-- The guard for drivers whose nested transactions can swallow an error, or roll a completion back with a savepoint: called first
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
`
  },
  {
    name: "050_evidence.sql",
    text: `-- What the database knows of attempts whose handlers have just exited. Nothing is changed; 'unknown' (its evidence is gone)
-- is never 'open'. A lease is 'open' while a handler is at work on it or waits for its callback, and 'parked' when only its
-- callback can end it.

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
           case when l.state = 'parked' then 'parked'
                when l.state is not null then 'open'
                when d.outcome is not null then 'closed'
                when b.batch_id is null then 'unknown'
                when i.slot >> 12 <> p_fingerprint or b.job_ids[i.idx] is distinct from i.job_id
                  or b.run_leases[i.idx] is distinct from i.run_lease or b.receipt_base + i.idx is distinct from i.receipt
                then 'superseded'
                when c.batch_id is null then 'open'
                else 'closed' end,
           coalesce(d.outcome, case when l.state is null then c.outcome end)::text,
           coalesce(d.closed_at, case when l.state is null then c.closed_at end), coalesce(d.xid, case when l.state is null then c.xid end),
           (extract(epoch from clock_timestamp() - coalesce(l.heartbeat_at, s.heartbeat_at, b.claimed_at)) * 1000)::bigint
    from asked a
    left join lateral (
      select c.batch_id, c.receipt_base, c.claimed_at, c.job_ids || '{}' as job_ids, c.run_leases || '{}' as run_leases
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = a.batch_id offset 0) b on true
    cross join lateral unnest(a.ords, a.slots, a.idxs, a.job_ids, a.run_leases, a.receipts)
      as i(ord, slot, idx, job_id, run_lease, receipt)
    left join lateral (select c.* from {{schema}}.closures_{{segment}} c
                       where c.batch_id = a.batch_id and c.batch_index = i.idx offset 0) c on true
    left join lateral (select s.heartbeat_at from {{schema}}.attempt_state s
                       where s.job_id = i.job_id and s.run_lease = i.run_lease offset 0) s on true
    -- only for those that are not in the ring, or not any more
    cross join lateral (
      select i.slot >> 12 = p_fingerprint
             and (c.outcome = 'materialized' or b.job_ids[i.idx] is distinct from i.job_id
                  or b.run_leases[i.idx] is distinct from i.run_lease or b.receipt_base + i.idx is distinct from i.receipt) as elsewhere) o
    left join lateral (select l.state, l.heartbeat_at from {{schema}}.leases l
                       where o.elsewhere and l.job_id = i.job_id and l.run_lease = i.run_lease
                         and l.receipt_id = i.receipt offset 0) l on true
    left join lateral (select d.outcome, d.closed_at, d.xid from {{schema}}.lease_closures d
                       where o.elsewhere and d.job_id = i.job_id and d.run_lease = i.run_lease
                         and d.receipt_id = i.receipt offset 0) d on true;
end $$;
{{/segments}}

create or replace function {{schema}}.attempt_evidence(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[])
returns table (ord integer, status text, outcome text, closed_at timestamptz, closed_xid xid8, age_ms bigint)
language plpgsql volatile security definer
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

-- Answers the attempts that are no longer the runtime's, with the outcome that ended them, and as 'busy' those that are and
-- were not beaten for. A beat touches only rows that it can lock at once: a finalization in flight holds its row, and one hung
-- caller must not stop everybody's beats.
{{#segments}}
create or replace function {{schema}}.heartbeat_{{segment}}(
  p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[],
  p_receipts bigint[], p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_live   integer[];
  v_lost   integer[];
  v_locked integer[];
  v_fresh  integer[];
  v_moved  integer[];
  v_rows   tid[];
  v_new    jsonb;
  v_now    timestamptz := clock_timestamp();
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

  -- New rows first: only their insertion may wait (for whoever makes a lease of the attempt, or takes note of it), and it must
  -- not do so with the rows of other attempts in hand.
  with fresh as (
    insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at, progress)
    select p_job_ids[l], p_run_leases[l], p_slots[l], p_batch_ids[l], p_indexes[l], v_now, p_progress -> l::text
    from unnest(v_live) l
    left join lateral (
      select true as found from {{schema}}.attempt_state s
      where s.job_id = p_job_ids[l] and s.run_lease = p_run_leases[l] offset 0) s on true
    where s.found is null
    order by p_job_ids[l], p_run_leases[l]
    on conflict (job_id, run_lease) do nothing
    returning batch_id, batch_index
  )
  select coalesce(array_agg(l), '{}') into v_fresh
  from unnest(v_live) l join fresh f on f.batch_id = p_batch_ids[l] and f.batch_index = p_indexes[l];

  -- Then the rows that can be locked at once, updated where they are: no join whose plan could depend on the table's size.
  select coalesce(array_agg(l), '{}'), array_agg(s.ctid) into v_locked, v_rows
  from (select unnest(v_live) as l except select unnest(v_fresh)) old
  cross join lateral (
    select a.ctid from {{schema}}.attempt_state a
    where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] for update skip locked) s;
  select jsonb_object_agg(p_job_ids[l] || '/' || p_run_leases[l], p_progress -> l::text) into v_new
  from unnest(v_locked) l where p_progress ? l::text;
  update {{schema}}.attempt_state s
  set heartbeat_at = v_now, progress = coalesce(v_new -> (s.job_id || '/' || s.run_lease), s.progress)
  where s.ctid = any (v_rows);

  -- A new row may have waited for the transaction that made a lease of its attempt: then it belongs there.
  v_moved := array(
    select l from unnest(v_fresh) l
    cross join lateral (
      select from {{schema}}.closures_{{segment}} c
      where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] and c.outcome = 'materialized' offset 0) c);
  if cardinality(v_moved) > 0 then
    v_rows := array(
      select s.ctid from unnest(v_moved) l
      cross join lateral (
        select a.ctid from {{schema}}.attempt_state a where a.job_id = p_job_ids[l] and a.run_lease = p_run_leases[l] offset 0) s);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
  end if;

  return query select unnest(v_live), 'busy'::text except select unnest(v_locked || v_fresh), 'busy'::text;
  if cardinality(v_lost) + cardinality(v_moved) > 0 then
    v_moved := v_moved || array(
      select l from unnest(v_lost) l
      left join lateral (
        select c.outcome from {{schema}}.closures_{{segment}} c
        where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] offset 0) c on true
      where p_slots[l] >> 12 = p_fingerprint and coalesce(c.outcome = 'materialized', true));
    return query
      select l, c.outcome::text
      from (select unnest(v_lost) except select unnest(v_moved)) as ended(l)
      left join lateral (
        select c.outcome from {{schema}}.closures_{{segment}} c
        where c.batch_id = p_batch_ids[l] and c.batch_index = p_indexes[l] offset 0) c on true;
    return query select * from {{schema}}.heartbeat_leases(v_moved, p_job_ids, p_run_leases, p_receipts, p_progress);
  end if;
end $$;
{{/segments}}

create or replace function {{schema}}.heartbeat(
  p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[],
  p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile security definer
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
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := coalesce(p_runtime_id, nextval({{schema_text runtime_ids}}));
begin
  perform {{schema}}.prove_identity();  -- the server may have been started anew; before the row: so does who locks both tables
  insert into {{schema}}.runtimes as r (runtime_id, name, contract, capabilities)
  values (v_id, p_name, p_contract, p_capabilities)
  on conflict (runtime_id) do update
  set beat_at = clock_timestamp(), capabilities = excluded.capabilities;
  return v_id;
end $$;

create or replace function {{schema}}.retire_runtime(p_runtime_id bigint) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ delete from {{schema}}.runtimes r where r.runtime_id = p_runtime_id $$;
`
  },
  {
    name: "065_leases.sql",
    text: `-- Leases: the authority over attempts that left the ring, because they registered a callback or ran longer than their
-- segment. The receipt claim ends with the closure 'materialized'; job, run lease, receipt and token stay what they were.

-- Moves open attempts from the ring into leases. The closure comes first: it is the guard, and whoever closed the attempt
-- before has won. An attempt whose lock somebody holds is in the middle of a finalization and is left where it is.
{{#segments}}
create or replace function {{schema}}.materialize_attempts_{{segment}}(p_claim_slot integer, p_batch_ids bigint[], p_indexes integer[])
returns integer
language plpgsql volatile as $$
declare
  v_ids    bigint[];
  v_idx    integer[];
  v_jobs   bigint[];
  v_leases bigint[];
  v_rows   tid[];
  v_count  integer;
begin
  select array_agg(h.batch_id), array_agg(h.idx), array_agg(h.job_id), array_agg(h.run_lease)
  into v_ids, v_idx, v_jobs, v_leases
  from (
    select i.batch_id, i.idx, b.job_id, b.run_lease
    from unnest(p_batch_ids, p_indexes) as i(batch_id, idx)
    cross join lateral (
      select c.job_ids[i.idx] as job_id, c.run_leases[i.idx] as run_lease
      from {{schema}}.claim_batches_{{segment}} c where c.batch_id = i.batch_id offset 0) b
    order by i.batch_id, i.idx offset 0) h
  where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || h.job_id || '/' || h.run_lease, 0));

  with closed as (
    insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid)
    select i.batch_id, i.idx, 'materialized', clock_timestamp(), pg_current_xact_id()
    from unnest(v_ids, v_idx) as i(batch_id, idx)
    on conflict (batch_id, batch_index) do nothing
    returning batch_id, batch_index
  )
  select array_agg(h.batch_id), array_agg(h.idx), array_agg(h.job_id), array_agg(h.run_lease)
  into v_ids, v_idx, v_jobs, v_leases
  from (
    select i.batch_id, i.idx, i.job_id, i.run_lease
    from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)
    join closed c on c.batch_id = i.batch_id and c.batch_index = i.idx
    order by i.job_id, i.run_lease offset 0) h;
  if v_ids is null then
    return 0;
  end if;

  -- A beat that looked before the closure was there may be about to write: these rows make it wait, and look again.
  insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at)
  select i.job_id, i.run_lease, p_claim_slot, i.batch_id, i.idx, '-infinity'
  from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)
  on conflict (job_id, run_lease) do nothing;
  v_rows := array(
    select s.ctid from unnest(v_jobs, v_leases) as i(job_id, run_lease)
    cross join lateral (
      select a.ctid from {{schema}}.attempt_state a
      where a.job_id = i.job_id and a.run_lease = i.run_lease for update) s);

  with gone as (
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows)
    returning s.job_id, s.run_lease, s.heartbeat_at, s.progress
  )
  insert into {{schema}}.leases
    (job_id, run_lease, receipt_id, claim_slot, batch_id, batch_index, runtime_id, state, queue, priority, attempt, max_attempts,
     created_at, claimed_at, deadline_at, heartbeat_at, kind, args, progress, errors, unique_key, resumed_with)
  select g.job_id, g.run_lease, b.receipt_base + i.idx, p_claim_slot, i.batch_id, i.idx, b.runtime_id, 'running', b.queue,
         abs(b.priority), e.attempt + 1, e.max_attempts, e.created_at, b.claimed_at, b.deadline_at,
         greatest(b.claimed_at, g.heartbeat_at), e.kind, e.args, coalesce(g.progress, e.progress), e.errors, e.unique_key,
         e.callback_result
  from unnest(v_ids, v_idx, v_jobs, v_leases) as i(batch_id, idx, job_id, run_lease)
  join gone g on g.job_id = i.job_id and g.run_lease = i.run_lease
  cross join lateral (
    select c.queue, c.priority, c.receipt_base, c.claimed_at, c.deadline_at, c.runtime_id, c.xids[i.idx] as xid, c.seqs[i.idx] as seq
    from {{schema}}.claim_batches_{{segment}} c where c.batch_id = i.batch_id offset 0) b
  cross join lateral (
    select r.* from {{schema}}.ready_entries_{{segment}} r
    where r.queue = b.queue and r.priority = b.priority and r.xid = b.xid and r.seq = b.seq offset 0) e
  order by g.job_id, g.run_lease
  on conflict (job_id, run_lease) do nothing;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- The same, half by half when one of them is refused: that one stays where it is and keeps its segment, the others leave.
create or replace function {{schema}}.materialize_each_{{segment}}(p_claim_slot integer, p_batch_ids bigint[], p_indexes integer[])
returns integer
language plpgsql volatile as $$
declare
  v_half  integer := cardinality(p_batch_ids) / 2;
begin
  begin
    return {{schema}}.materialize_attempts_{{segment}}(p_claim_slot, p_batch_ids, p_indexes);
  exception when others then
    if not {{schema}}.stops_one(sqlstate) then
      raise;
    end if;
    if v_half = 0 then
      raise warning 'item % of batch % cannot leave its segment: % %', p_indexes[1], p_batch_ids[1], sqlstate, sqlerrm;
      return 0;
    end if;
  end;
  return {{schema}}.materialize_each_{{segment}}(p_claim_slot, p_batch_ids[:v_half], p_indexes[:v_half])
    + {{schema}}.materialize_each_{{segment}}(p_claim_slot, p_batch_ids[v_half + 1:], p_indexes[v_half + 1:]);
end $$;

-- The open attempts of a segment: those with mutable state, and those that rescue has not come to yet. A batch of none moved
-- its lane's head, and claimed nothing.
create or replace function {{schema}}.materialize_segment_{{segment}}(p_claim_slot integer, p_from bigint, p_limit integer)
returns integer
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_idx integer[];
begin
  select array_agg(o.batch_id), array_agg(o.idx) into v_ids, v_idx
  from (
    select s.batch_id, s.batch_index as idx
    from {{schema}}.attempt_state s
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
    where s.claim_slot & 255 = {{segment}} and c.found is null
    union
    select b.batch_id, t.idx::integer
    from (
      select c.batch_id, c.job_ids from {{schema}}.claim_batches_{{segment}} c
      where c.batch_id > p_from and c.n > 0 offset 0) b
    cross join lateral unnest(b.job_ids) with ordinality as t(job_id, idx)
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = b.batch_id and c.batch_index = t.idx offset 0) c on true
    where c.found is null
    order by 1, 2 limit p_limit) o;
  if v_ids is null then
    return 0;
  end if;
  return {{schema}}.materialize_each_{{segment}}(p_claim_slot, v_ids, v_idx);
end $$;
{{/segments}}

-- The tokens of this installation's attempts, but for the segment.
create or replace function {{schema}}.claim_slot_base() returns integer
language sql stable as $$ select (m.fingerprint << 12) | (1 << 8) from {{schema}}.meta m $$;

-- When the oldest drained segment has lived its time, what still runs in it leaves the ring, so that it can be pruned.
-- Answers how many left.
create or replace function {{schema}}.materialize_long(p_keep interval, p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_oldest  record;
  v_base    integer := {{schema}}.claim_slot_base();
  v_moved   integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select s.slot, s.drained_at, s.rescued_to into v_oldest
  from {{schema}}.segments s where s.state = 'drained' order by s.generation limit 1;
  if not found or v_oldest.drained_at > clock_timestamp() - p_keep then
    return 0;
  end if;
  case v_oldest.slot
    {{#segments}}
    when {{segment}} then v_moved := {{schema}}.materialize_segment_{{segment}}(v_base | {{segment}}, v_oldest.rescued_to, p_limit);
    {{/segments}}
  end case;
  return v_moved;
end $$;

-- The one end of leases: the closure, which is self-contained; the job's way on, or the release of its key; the row. The
-- receipts are matched here, and a parked lease only where the caller says so: its handler has no say any more.
create or replace function {{schema}}.end_leases(
  p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {{schema}}.outcome[], p_details jsonb[],
  p_closer bigint, p_parked boolean)
returns table (job_id bigint, run_lease bigint, receipt_id bigint, outcome {{schema}}.outcome, closed_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_rows      tid[];
  v_ended     bigint[];
  v_leases    bigint[];
  v_receipts  bigint[];
  v_outcomes  {{schema}}.outcome[];
  v_at        timestamptz := clock_timestamp();
  v_jobs      {{schema}}.ended_job[];
  v_keys      bytea[];
  v_holders   bigint[];
begin
  v_rows := array(
    select l.ctid
    from (select u.* from unnest(p_job_ids, p_run_leases, p_receipts) as u(job_id, run_lease, receipt_id)
          order by u.job_id, u.run_lease offset 0) u
    cross join lateral (
      select c.ctid from {{schema}}.leases c
      where c.job_id = u.job_id and c.run_lease = u.run_lease and c.receipt_id = u.receipt_id
        and (p_parked or c.state <> 'parked') for update) l);
  if cardinality(v_rows) = 0 then
    return;
  end if;
  with item as materialized (
    select distinct on (u.job_id, u.run_lease) u.job_id, u.run_lease, u.outcome, coalesce(u.detail, '{}') as detail, l.*
    from unnest(p_job_ids, p_run_leases, p_outcomes, p_details) with ordinality as u(job_id, run_lease, outcome, detail, ord)
    cross join lateral (
      select c.receipt_id, c.queue, c.priority, c.attempt, c.max_attempts, c.created_at, c.claimed_at, c.runtime_id, c.kind, c.args,
             c.progress, c.errors, c.unique_key, c.callback_id, c.callback_answered, c.callback_result, c.callback_error,
             c.resumed_with
      from {{schema}}.leases c
      where c.job_id = u.job_id and c.run_lease = u.run_lease and c.ctid = any (v_rows) offset 0) l
    where l.receipt_id = p_receipts[u.ord]
    order by u.job_id, u.run_lease, u.ord
  ), closed as (
    insert into {{schema}}.lease_closures
      (job_id, run_lease, receipt_id, outcome, closed_at, xid, closer, queue, priority, attempt, max_attempts, created_at, claimed_at,
       runtime_id, kind, args, progress, errors, callback_id, callback_result)
    select i.job_id, i.run_lease, i.receipt_id, i.outcome, v_at, pg_current_xact_id(), p_closer, i.queue, i.priority, i.attempt,
           i.max_attempts, i.created_at, i.claimed_at, i.runtime_id, i.kind, i.args, coalesce(i.detail -> 'progress', i.progress),
           i.errors, case when i.callback_answered then i.callback_id end, case when i.callback_answered then i.callback_result end
    from item i
    on conflict (job_id, run_lease) do nothing
    returning job_id, run_lease
  ), ended as (
    select i.* from item i join closed c on c.job_id = i.job_id and c.run_lease = i.run_lease
  )
  select array_agg(e.job_id), array_agg(e.run_lease), array_agg(e.receipt_id), array_agg(e.outcome),
         array_agg(row(e.job_id, e.run_lease, e.queue, e.priority, e.attempt, e.max_attempts, e.kind, e.args, e.progress, e.errors,
                       e.created_at, e.unique_key, e.outcome,
                       -- an answer that nobody will give again goes on with the job
                       case when e.callback_answered and e.callback_error is null
                         then jsonb_build_object('callback_result', coalesce(e.callback_result, 'null'))
                         when e.resumed_with is not null then jsonb_build_object('callback_result', e.resumed_with) else '{}' end
                       || e.detail)::{{schema}}.ended_job order by e.job_id) filter (where e.outcome <> 'completed'),
         array_agg(e.unique_key order by e.job_id) filter (where e.outcome = 'completed' and e.unique_key is not null),
         array_agg(e.job_id order by e.job_id) filter (where e.outcome = 'completed' and e.unique_key is not null)
  into v_ended, v_leases, v_receipts, v_outcomes, v_jobs, v_keys, v_holders
  from ended e;
  delete from {{schema}}.leases l where l.ctid = any (v_rows);
  perform {{schema}}.dispose_jobs(v_jobs);
  if v_keys is not null then
    perform {{schema}}.release_unique(v_keys, v_holders, 2::smallint);
  end if;
  return query select e.j, e.l, e.r, e.o, v_at from unnest(v_ended, v_leases, v_receipts, v_outcomes) as e(j, l, r, o);
end $$;

-- The items of a flush whose attempts are not in the ring any more, or never were. Answers as a flush does.
create or replace function {{schema}}.close_leases(
  p_closer bigint, p_ords integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {{schema}}.outcome[],
  p_details jsonb)
returns table (ord integer, answer text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_jobs      bigint[];
  v_receipts  bigint[];
  v_outcomes  {{schema}}.outcome[];
begin
  select array_agg(e.job_id), array_agg(e.receipt_id), array_agg(e.outcome) into v_jobs, v_receipts, v_outcomes
  from (
    select array_agg(p_job_ids[o]) as j, array_agg(p_run_leases[o]) as l, array_agg(p_receipts[o]) as r,
           array_agg(p_outcomes[o]) as o, array_agg(coalesce(p_details -> o::text, '{}')) as d
    from (select o from unnest(p_ords) o order by o offset 0) i) a
  cross join lateral {{schema}}.end_leases(a.j, a.l, a.r, a.o, a.d, p_closer, false) e;
  return query
    select o, case when done.outcome = p_outcomes[o] then 'closed' when c.closer = p_closer then 'repeated' else 'stale' end
    from unnest(p_ords) o
    left join unnest(v_jobs, v_receipts, v_outcomes) as done(job_id, receipt_id, outcome)
      on done.job_id = p_job_ids[o] and done.receipt_id = p_receipts[o]
    left join lateral (
      select l.closer from {{schema}}.lease_closures l
      where l.job_id = p_job_ids[o] and l.run_lease = p_run_leases[o] and l.receipt_id = p_receipts[o] offset 0) c on true;
end $$;

-- The completion of an attempt that is not in the ring any more, in the caller's transaction. Null when this transaction knows
-- nothing of it, which only a caller that found no claim either may take for an answer. The attempt's lock is held.
create or replace function {{schema}}.complete_lease(
  p_job_id bigint, p_run_lease bigint, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb,
  p_claim_found boolean)
returns timestamptz
language plpgsql volatile as $$
declare
  v_lease  record;
  v_at     timestamptz;
begin
  select l.state into v_lease
  from {{schema}}.leases l
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt_id
    and l.batch_id = p_batch_id and l.batch_index = p_batch_index
  for update;
  if found then
    if v_lease.state <> 'running' then
      raise exception using errcode = 'WA002',
        message = format('the attempt waits for a callback: job %s, run lease %s', p_job_id, p_run_lease);
    end if;
    select e.closed_at into v_at
    from {{schema}}.end_leases(array[p_job_id], array[p_run_lease], array[p_receipt_id], array['completed'::{{schema}}.outcome],
      array[case when p_progress is null then '{}' else jsonb_build_object('progress', p_progress) end], null, false) e;
    if found then
      return v_at;
    end if;
  end if;
  select c.outcome, c.closed_at into v_lease
  from {{schema}}.lease_closures c
  where c.job_id = p_job_id and c.run_lease = p_run_lease and c.receipt_id = p_receipt_id;
  if found then
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, v_lease.outcome, v_lease.closed_at);
  elsif p_claim_found then
    perform {{schema}}.raise_stale(p_job_id, p_run_lease, null, null);
  end if;
  return null;
end $$;

-- Beats for attempts that are leases. Answers those that are not beaten for, as \`heartbeat\` does.
create or replace function {{schema}}.heartbeat_leases(
  p_ords integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_progress jsonb)
returns table (ord integer, outcome text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_ords integer[];
  v_rows tid[];
  v_new  jsonb;
  v_now  timestamptz := clock_timestamp();
begin
  select coalesce(array_agg(o), '{}'), coalesce(array_agg(l.ctid), '{}') into v_ords, v_rows
  from unnest(p_ords) o
  cross join lateral (
    select c.ctid from {{schema}}.leases c
    where c.job_id = p_job_ids[o] and c.run_lease = p_run_leases[o] and c.receipt_id = p_receipts[o] and c.state <> 'parked'
    for update skip locked) l;
  select jsonb_object_agg(p_job_ids[o] || '/' || p_run_leases[o], p_progress -> o::text) into v_new
  from unnest(v_ords) o where p_progress ? o::text;
  update {{schema}}.leases l
  set heartbeat_at = v_now, progress = coalesce(v_new -> (l.job_id || '/' || l.run_lease), l.progress)
  where l.ctid = any (v_rows);
  return query
    select o, case when l.state = 'parked' then 'parked' when l.state is not null then 'busy' else c.outcome::text end
    from (select unnest(p_ords) except select unnest(v_ords)) as rest(o)
    left join lateral (
      select e.state from {{schema}}.leases e
      where e.job_id = p_job_ids[o] and e.run_lease = p_run_leases[o] and e.receipt_id = p_receipts[o] offset 0) l on true
    left join lateral (
      select e.outcome from {{schema}}.lease_closures e
      where e.job_id = p_job_ids[o] and e.run_lease = p_run_leases[o] and e.receipt_id = p_receipts[o] offset 0) c on true;
end $$;

-- Ends these leases, whose locks and rows are held, as rescued, and answers how many: as end_abandoned does in the ring.
create or replace function {{schema}}.end_abandoned_leases(
  p_jobs bigint[], p_leases bigint[], p_receipts bigint[], p_details jsonb[])
returns integer
language plpgsql volatile as $$
declare
  v_half   integer := cardinality(p_jobs) / 2;
  v_ended  integer;
begin
  begin
    select count(*) into v_ended
    from {{schema}}.end_leases(p_jobs, p_leases, p_receipts,
      array_fill('rescued'::{{schema}}.outcome, array[cardinality(p_jobs)]), p_details, null, true);
    return v_ended;
  exception when others then
    if not {{schema}}.stops_one(sqlstate) then
      raise;
    end if;
    if v_half = 0 then
      raise warning 'the attempt of job %, run lease %, cannot be ended: % %', p_jobs[1], p_leases[1], sqlstate, sqlerrm;
    end if;
  end;
  if v_half > 0 then
    return {{schema}}.end_abandoned_leases(p_jobs[:v_half], p_leases[:v_half], p_receipts[:v_half], p_details[:v_half])
      + {{schema}}.end_abandoned_leases(
          p_jobs[v_half + 1:], p_leases[v_half + 1:], p_receipts[v_half + 1:], p_details[v_half + 1:]);
  end if;
  update {{schema}}.leases l
  -- It rests: by what it is asked for, the deadline too, it is not looked at before.
  set heartbeat_at = clock_timestamp() + interval '1 minute',
      callback_deadline = case when l.state = 'parked' then greatest(l.callback_deadline, clock_timestamp() + interval '1 minute')
                          else l.callback_deadline end
  where l.job_id = p_jobs[1] and l.run_lease = p_leases[1];
  return 0;
end $$;

-- Ends leases that nobody beats for or that passed their deadline, and parked ones whose callback did not come in time. A
-- handler that waits sees the end of its waiting by itself; only when it has not done so for the staleness is it ended here.
create or replace function {{schema}}.rescue_leases(p_staleness interval, p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_now       timestamptz := clock_timestamp();
  v_stale     timestamptz := v_now - p_staleness;
  v_jobs      bigint[];
  v_leases    bigint[];
  v_receipts  bigint[];
  v_details   jsonb[];
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  select array_agg(h.job_id), array_agg(h.run_lease) into v_jobs, v_leases
  from (
    select c.job_id, c.run_lease
    from (
      (select l.job_id, l.run_lease from {{schema}}.leases l
       where l.state <> 'parked'
         and (l.heartbeat_at < v_stale or (l.deadline_at < v_now and l.heartbeat_at <= v_now) or (l.state = 'waiting' and l.callback_deadline < v_stale)))
      union all
      (select l.job_id, l.run_lease from {{schema}}.leases l
       where l.state = 'parked' and l.callback_deadline < v_now order by l.callback_deadline)
      offset 0) c
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || c.job_id || '/' || c.run_lease, 0))
    limit p_limit) h;
  -- Looked at again, under the lock: a beat or an answer may have come in between.
  select array_agg(l.job_id), array_agg(l.run_lease), array_agg(l.receipt_id),
         array_agg(jsonb_build_object('error', case
           when l.state <> 'running' and l.callback_deadline < v_now and (l.state = 'parked' or l.heartbeat_at >= v_stale)
             then jsonb_build_object('name', 'CallbackTimeout', 'message', 'the callback was not answered in time')
           else jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline')
           end))
  into v_jobs, v_leases, v_receipts, v_details
  from (select u.* from unnest(v_jobs, v_leases) as u(job_id, run_lease) order by u.job_id, u.run_lease offset 0) u
  cross join lateral (
    select c.* from {{schema}}.leases c
    where c.job_id = u.job_id and c.run_lease = u.run_lease
      and case when c.state = 'parked' then c.callback_deadline < v_now
          else c.heartbeat_at < v_stale or (c.deadline_at < v_now and c.heartbeat_at <= v_now) or (c.state = 'waiting' and c.callback_deadline < v_stale) end
    for update skip locked) l;
  return case when v_jobs is null then 0 else {{schema}}.end_abandoned_leases(v_jobs, v_leases, v_receipts, v_details) end;
end $$;

-- How long until the callback of a parked attempt times out, in milliseconds; null when none is parked.
create or replace function {{schema}}.next_callback_due() returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select greatest(0, ceil(extract(epoch from l.callback_deadline - clock_timestamp()) * 1000))::bigint
  from {{schema}}.leases l where l.state = 'parked' order by l.callback_deadline limit 1
$$;
`
  },
  {
    name: "066_callbacks.sql",
    text: `-- Callbacks: an attempt registers one and waits for its answer, with its handler (waiting) or without (parked). The answer
-- comes from outside, by an id that cannot be guessed. An attempt has one callback at a time; the next one replaces it.

-- The lease of a token, locked; for its own worker.
create or replace function {{schema}}.hold_lease(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint,
  out answer text, out lease {{schema}}.leases)
language plpgsql volatile as $$
begin
  perform {{schema}}.require_read_committed();
  if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || p_job_id || '/' || p_run_lease, 0)) then
    answer := 'busy';
    return;
  end if;
  select l.* into lease
  from {{schema}}.leases l
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt and l.batch_id = p_batch_id
    and l.batch_index = p_index and p_slot >> 12 = (select m.fingerprint from {{schema}}.meta m)
  for update;
  answer := case when found then 'held' else 'stale' end;
end $$;

-- Registers the attempt's callback and answers 'registered', with its id and when it times out; 'stale', or 'busy' when a
-- finalization is in flight. The attempt leaves the ring by it: what waits for the world outside may wait for long.
create or replace function {{schema}}.register_callback(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_timeout interval,
  out answer text, out callback_id uuid, out deadline timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
  v_held  record;
  v_base  integer := {{schema}}.claim_slot_base();
begin
  if p_timeout is null or p_timeout <= interval '0' or p_timeout > interval '100 years' then
    raise exception using errcode = '22023', message = 'timeout: expected a positive duration of at most 100 years';
  end if;
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  answer := v_held.answer;
  if answer = 'stale' and exists (
    select from {{schema}}.attempt_evidence(array[p_slot], array[p_batch_id], array[p_index], array[p_job_id], array[p_run_lease],
      array[p_receipt]) e where e.status = 'open')
  then
    case p_slot & 255
      {{#segments}}
      when {{segment}} then
        perform {{schema}}.materialize_attempts_{{segment}}(v_base | {{segment}}, array[p_batch_id], array[p_index]);
      {{/segments}}
    end case;
    answer := 'held';
  end if;
  if answer <> 'held' then
    return;
  end if;
  update {{schema}}.leases l
  set state = 'running', heartbeat_at = clock_timestamp(), callback_id = gen_random_uuid(), callback_timeout = p_timeout,
      callback_deadline = clock_timestamp() + p_timeout, callback_answered = false, callback_result = null, callback_error = null
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.receipt_id = p_receipt and l.state <> 'parked'
  returning l.callback_id, l.callback_deadline into callback_id, deadline;
  answer := case when found then 'registered' else 'stale' end;
end $$;

-- Begins a wait, and looks how it stands: 'waiting'; 'answered', with the result; 'failed', with the error; 'timed_out';
-- 'replaced' by a later callback; 'stale'; 'busy'. With any end of the wait the attempt is running again, and a callback that
-- timed out is no callback any more.
create or replace function {{schema}}.wait_callback(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid,
  out answer text, out result jsonb, out error jsonb, out left_ms bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_lease {{schema}}.leases;
  v_held  record;
begin
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  v_lease := v_held.lease;
  if v_held.answer <> 'held' or v_lease.state = 'parked' then
    answer := case when v_held.answer = 'busy' then 'busy' else 'stale' end;
    return;
  end if;
  if v_lease.callback_id is distinct from p_callback_id then
    answer := 'replaced';
    return;
  end if;
  left_ms := greatest(0, ceil(extract(epoch from v_lease.callback_deadline - clock_timestamp()) * 1000));
  answer := case when v_lease.callback_error is not null then 'failed' when v_lease.callback_answered then 'answered'
                 when left_ms = 0 then 'timed_out' else 'waiting' end;
  result := v_lease.callback_result;
  error := v_lease.callback_error;
  if answer = 'waiting' and v_lease.state = 'waiting' then
    return;
  end if;
  update {{schema}}.leases l
  set state = case when answer = 'waiting' then 'waiting' else 'running' end, heartbeat_at = clock_timestamp(),
      callback_id = case when answer <> 'timed_out' then l.callback_id end,
      callback_deadline = case when answer <> 'timed_out' then l.callback_deadline end
  where l.job_id = p_job_id and l.run_lease = p_run_lease;
end $$;

-- The handler waits no longer, and the callback stays registered: what comes now is kept.
create or replace function {{schema}}.stop_waiting(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_held record;
begin
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  if v_held.answer = 'held' and (v_held.lease).state = 'waiting' and (v_held.lease).callback_id = p_callback_id then
    update {{schema}}.leases l set state = 'running' where l.job_id = p_job_id and l.run_lease = p_run_lease;
  end if;
  return v_held.answer;
end $$;

-- The handler ends and leaves the attempt to its callback: 'parked'. When the answer is there already, the job goes on at once:
-- 'released' to run again with it, or 'retried' after a failure. Otherwise 'replaced', 'stale' or 'busy'. Repeatable.
create or replace function {{schema}}.park_attempt(
  p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid,
  p_progress jsonb)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
as $$
declare
  v_lease  {{schema}}.leases;
  v_held   record;
begin
  select h.* into v_held from {{schema}}.hold_lease(p_slot, p_batch_id, p_index, p_job_id, p_run_lease, p_receipt) h;
  v_lease := v_held.lease;
  if v_held.answer = 'stale' and exists (
    select from {{schema}}.attempt_evidence(array[p_slot], array[p_batch_id], array[p_index], array[p_job_id], array[p_run_lease],
      array[p_receipt]) e where e.status = 'open')
  then
    return 'replaced';  -- still in the ring: it never registered a callback
  end if;
  if v_held.answer <> 'held' then
    return v_held.answer;
  end if;
  if v_lease.callback_id is distinct from p_callback_id then
    return 'replaced';
  end if;
  update {{schema}}.leases l
  set state = 'parked', progress = coalesce(p_progress, l.progress)
  where l.job_id = p_job_id and l.run_lease = p_run_lease and l.state <> 'parked';
  if not v_lease.callback_answered then
    return 'parked';
  end if;
  return {{schema}}.leave_park(v_lease);
end $$;

-- The end of a parked lease whose callback was answered. The attempt is given back when the answer is a result; a failed one
-- counts, and the job rests as after a crash: nobody chose the pause.
create or replace function {{schema}}.leave_park(p_lease {{schema}}.leases) returns text
language plpgsql volatile as $$
declare
  v_outcome {{schema}}.outcome := case when p_lease.callback_error is null then 'released' else 'retried' end;
begin
  perform {{schema}}.end_leases(array[p_lease.job_id], array[p_lease.run_lease], array[p_lease.receipt_id], array[v_outcome],
    array[case when p_lease.callback_error is null then '{}' else jsonb_build_object(
      'error', p_lease.callback_error,
      'delay_ms', least(3600000, (power(2, least(p_lease.attempt - 1, 12)) - 1) * 1000)::bigint) end], null, true);
  return v_outcome;
end $$;

-- The lease of a callback, locked: 'open' when it waits for an answer, 'already' when it has one, 'unknown' when there is no
-- such callback (any more), 'busy' when a finalization of its attempt is in flight.
create or replace function {{schema}}.hold_callback(p_callback_id uuid, out answer text, out lease {{schema}}.leases)
language plpgsql volatile as $$
begin
  select l.* into lease from {{schema}}.leases l where l.callback_id = p_callback_id;
  if found then
    if not pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || lease.job_id || '/' || lease.run_lease, 0)) then
      answer := 'busy';
      return;
    end if;
    select l.* into lease from {{schema}}.leases l where l.callback_id = p_callback_id for update;  -- as it is under the lock
    if found then
      answer := case when lease.callback_answered then 'already' else 'open' end;
      return;
    end if;
  end if;
  if exists (select from {{schema}}.lease_closures c where c.callback_id = p_callback_id) then
    answer := 'already';
  elsif p_callback_id is not null and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception using errcode = '40001', message = 'the callback is not visible in this transaction''s snapshot';
  else
    answer := 'unknown';
  end if;
end $$;

-- The answer: the attempt goes on with this result. 'resumed', also when nobody waits yet: the result is kept. Or 'already',
-- 'unknown', 'busy' (try again).
create or replace function {{schema}}.resume_callback(callback_id uuid, result jsonb default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_held   record;
  v_lease  {{schema}}.leases;
begin
  perform {{schema}}.check_result(result);
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  v_lease := v_held.lease;
  update {{schema}}.leases l set callback_answered = true, callback_result = coalesce(result, 'null')
  where l.job_id = v_lease.job_id and l.run_lease = v_lease.run_lease
  returning l.* into v_lease;
  if v_lease.state = 'parked' then
    perform {{schema}}.leave_park(v_lease);
  else
    perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);
  end if;
  return 'resumed';
end $$;

-- The answer, and the end of the job with it: 'completed', whether or not a handler is still at work; whatever that does
-- afterwards is stale. Or 'already', 'unknown', 'busy' (try again).
create or replace function {{schema}}.complete_callback(callback_id uuid, result jsonb default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_held   record;
  v_lease  {{schema}}.leases;
begin
  perform {{schema}}.check_result(result);
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  v_lease := v_held.lease;
  update {{schema}}.leases l set callback_answered = true, callback_result = result
  where l.job_id = v_lease.job_id and l.run_lease = v_lease.run_lease;
  perform {{schema}}.end_leases(array[v_lease.job_id], array[v_lease.run_lease], array[v_lease.receipt_id],
    array['completed'::{{schema}}.outcome], array['{}'::jsonb], null, true);
  if v_lease.state <> 'parked' then
    perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);
  end if;
  return 'completed';
end $$;

-- The answer is a failure: 'failed'. A handler that waits decides what it means; a parked attempt has failed by it. Or
-- 'already', 'unknown', 'busy' (try again).
create or replace function {{schema}}.fail_callback(callback_id uuid, error text) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set standard_conforming_strings = on
as $$
#variable_conflict use_variable
declare
  v_held   record;
  v_lease  {{schema}}.leases;
begin
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  v_lease := v_held.lease;
  update {{schema}}.leases l
  set callback_answered = true,  -- what is stored of an error has at most 8 KiB: 2000 characters of at most 4 bytes
      callback_error = jsonb_build_object('name', 'CallbackFailed', 'message', left(coalesce(error, 'the callback failed'), 2000))
  where l.job_id = v_lease.job_id and l.run_lease = v_lease.run_lease
  returning l.* into v_lease;
  if v_lease.state = 'parked' then
    perform {{schema}}.leave_park(v_lease);
  else
    perform pg_notify({{channel}}, chr(1) || 'callback/' || callback_id);
  end if;
  return 'failed';
end $$;

-- The answer will come, and its time begins anew: 'extended'. Or 'already', 'unknown', 'busy' (try again).
create or replace function {{schema}}.heartbeat_callback(callback_id uuid) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  v_held record;
begin
  select h.* into v_held from {{schema}}.hold_callback(callback_id) h;
  if v_held.answer <> 'open' then
    return v_held.answer;
  end if;
  update {{schema}}.leases l set callback_deadline = clock_timestamp() + l.callback_timeout
  where l.job_id = (v_held.lease).job_id and l.run_lease = (v_held.lease).run_lease;
  return 'extended';
end $$;

-- The rule is 64 KiB of compact JSON; the stored text has spaces, hence twice that here.
create or replace function {{schema}}.check_result(p_result jsonb) returns void
language plpgsql immutable as $$
begin
  if octet_length(p_result::text) > 131072 then
    raise exception using errcode = '22023', message = 'result: at most 64 KiB';
  end if;
end $$;
`
  },
  {
    name: "068_workers.sql",
    text: `-- The calls for workers in other languages, written down in schema/CONTRACT.md: by name, with plain types, and with an attempt
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
      detail = {{schema}}.storage_fault(), hint = 'Run \`awa storage rebase\`.';
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
`
  },
  {
    name: "070_lead.sql",
    text: `-- Maintenance. Every step takes the leader's lock in the try form for its own transaction: one runtime at a time does the
-- work, and none can go on believing that it is the leader. A step that is not the leader's answers null.

create or replace function {{schema}}.lead() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(hashtextextended({{key leader}}, 0)) $$;
`
  },
  {
    name: "071_promote.sql",
    text: `-- Promotion: from deferred_jobs into the ring, when a job is due.
-- deferred_jobs is mutable: while some transaction pins the horizon, the index entries of what was promoted stay at the low end
-- of (run_at, job_id), and a promotion that began there would walk all of them every time. So a promoter remembers, in its own
-- memory, how far it came, and which transactions it could not see then (a mark). Without a mark it begins at the low end.

-- Moves these rows, which the caller has locked, into the current segment. Answers the queues, one for each job.
{{#segments}}
create or replace function {{schema}}.promote_{{segment}}(p_rows tid[]) returns text[]
language plpgsql volatile as $$
declare
  v_queues text[];
begin
  with moved as (  -- where they are: no join whose plan could depend on the table's size
    delete from {{schema}}.deferred_jobs d where d.ctid = any (p_rows)
    returning d.*
  ), placed as (
    insert into {{schema}}.ready_entries_{{segment}}
      (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors,
       ready_at, unique_key, callback_result)
    select m.queue, m.priority, pg_current_xact_id(), nextval({{schema_text entry_seq}}), m.job_id, m.run_lease, m.attempt,
           m.max_attempts, m.created_at, m.kind, m.args, m.progress, m.errors, m.run_at, m.unique_key, m.callback_result
    from (select * from moved order by run_at, job_id) m
    returning queue
  )
  select coalesce(array_agg(queue), '{}') into v_queues from placed;
  return v_queues;
end $$;
{{/segments}}

-- The same for whichever segment is current. Only the statements above may fail on a row: no lock is waited for here but that
-- of the segment, which the caller holds.
create or replace function {{schema}}.promote_into(p_slot integer, p_rows tid[]) returns text[]
language plpgsql volatile as $$
begin
  case p_slot
    {{#segments}}
    when {{segment}} then return {{schema}}.promote_{{segment}}(p_rows);
    {{/segments}}
  end case;
end $$;

-- Moves locked rows; one that cannot be stored in the ring goes into quarantine with the reason, and the others move. It is found
-- by halves: a subtransaction for every row of a large share would burden every snapshot of the server.
create or replace function {{schema}}.promote_rows(p_rows tid[]) returns integer
language plpgsql volatile as $$
declare
  v_slot    integer;
  v_queues  text[];
  v_reason  text;
  v_sorted  tid[];
begin
  if coalesce(cardinality(p_rows), 0) = 0 then
    return 0;
  end if;
  v_slot := {{schema}}.hold_current_segment();
  begin
    v_queues := {{schema}}.promote_into(v_slot, p_rows);
    perform pg_notify({{channel}}, q) from (select distinct unnest(v_queues) as q) s;
    return cardinality(v_queues);
  exception when others then
    if not {{schema}}.speaks_of_rows(sqlstate) then
      raise;
    end if;
    v_reason := format('%s, on its way into the ring: %s', sqlstate, left(sqlerrm, 1000));
  end;
  v_sorted := array(
    select d.ctid from {{schema}}.deferred_jobs d where d.ctid = any (p_rows) order by d.run_at, d.job_id);
  if cardinality(v_sorted) > 1 then
    return {{schema}}.promote_rows(v_sorted[:cardinality(v_sorted) / 2]) + {{schema}}.promote_rows(v_sorted[cardinality(v_sorted) / 2 + 1:]);
  end if;
  with refused as (
    delete from {{schema}}.deferred_jobs d where d.ctid = any (v_sorted) returning d.*
  )
  insert into {{schema}}.quarantined_jobs
    (job_id, run_lease, queue, priority, attempt, max_attempts, kind, args, progress, errors, created_at, unique_key, reason, quarantined_at)
  select r.job_id, r.run_lease, r.queue, r.priority, r.attempt, r.max_attempts, r.kind, r.args, r.progress, r.errors,
         r.created_at, r.unique_key, v_reason, clock_timestamp()
  from refused r;
  return 0;
end $$;

-- Moves the named jobs, due or not, into the ring at once. Answers how many: what another transaction holds is left alone.
create or replace function {{schema}}.promote_jobs(p_job_ids bigint[]) returns integer
language plpgsql volatile as $$
begin
  return {{schema}}.promote_rows(array(
    select d.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (
      select j.ctid from {{schema}}.deferred_jobs j where j.job_id = i.job_id for update skip locked) d));
end $$;

-- Makes due and moves jobs that were put aside, of this queue (null: of any), where caller-owned completion is enabled; in the
-- order of their ids, at most p_limit. Answers how many moved: what another transaction holds is left for the next call.
create or replace function {{schema}}.promote_gated(p_queue text, p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_rows  tid[];
  v_ids   bigint[];
begin
  if not exists (select from {{schema}}.deferred_jobs d where d.state = 'gated') then
    return 0;
  end if;
  v_rows := array(
    select g.tid
    from {{schema}}.queues q
    cross join lateral (
      select d.ctid as tid, d.job_id from {{schema}}.deferred_jobs d
      where d.state = 'gated' and d.queue = q.queue order by d.job_id limit p_limit for update skip locked) g
    where q.caller_owned and (p_queue is null or q.queue = p_queue)
    order by g.job_id limit p_limit);
  if cardinality(v_rows) = 0 then
    return 0;
  end if;
  with due as (
    update {{schema}}.deferred_jobs d set state = 'retryable', run_at = now.at, xid = pg_current_xact_id()
    from (select clock_timestamp() as at offset 0) now
    where d.ctid = any (v_rows)
    returning d.job_id
  )
  select array_agg(job_id) into v_ids from due;
  return {{schema}}.promote_jobs(v_ids);
end $$;

-- Where a mark is valid: in this table as it is in this run of the server. Whatever brings back rows that were gone (a restored
-- backup, a copy, another server after a failover) changes one of these.
create or replace function {{schema}}.mark_origin() returns text
language sql stable as $$
  select concat_ws('/', m.installation_id, d.oid, pg_relation_filenode({{schema_text deferred_jobs}}::regclass),
                   extract(epoch from pg_postmaster_start_time()))
  from {{schema}}.meta m, pg_database d where d.datname = current_database()
$$;

-- Promotes what is due, in the order of (run_at, job_id). Answers how many moved; how long until it pays to ask again (null: no
-- job waits; 0: more are due); and the mark for the promoter's next call, to be used when this transaction has committed.
-- A mark says: every row that its snapshot could see, and whose (run_at, job_id) is not above its position, is gone or among
-- its skipped (some other transaction held them). Whatever else is behind the position was written by a transaction that the
-- snapshot could not see, and who writes run_at writes xid: those rows are found by it. A mark that is none is as good as null.
create or replace function {{schema}}.promote_due(
  p_limit integer, p_mark jsonb default null, out promoted integer, out next_due_ms bigint, out mark jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
declare
  c_skipped   constant integer := 1000;  -- as many ids as a mark keeps
  v_now       timestamptz := clock_timestamp();  -- a volatile call in the condition would walk the whole index
  v_origin    text := {{schema}}.mark_origin();
  v_run_at    timestamptz := '-infinity';
  v_job_id    bigint := 0;
  v_seen      pg_snapshot;
  v_skipped   bigint[] := '{}';
  v_from      timestamptz;
  v_from_id   bigint;
  v_rows      tid[] := '{}';
  v_found     tid[];
  v_ids       bigint[];
  v_times     timestamptz[];
  v_held      tid[];
  v_held_ids  bigint[];
  v_kept      bigint[] := '{}';
  v_snapshot  pg_snapshot;
  v_left      integer;
  v_full      boolean := false;
begin
  perform {{schema}}.require_read_committed();
  if p_limit is null or p_limit < 1 then
    raise exception using errcode = '22023', message = 'limit: expected a positive integer';
  end if;
  mark := p_mark;
  if not {{schema}}.lead() then
    return;
  end if;

  if p_mark ->> 'origin' = v_origin then
    begin
      v_seen := (p_mark ->> 'snapshot')::pg_snapshot;
      v_run_at := (p_mark ->> 'run_at')::timestamptz;
      v_job_id := (p_mark ->> 'job_id')::bigint;
      v_skipped := array(select s::bigint from jsonb_array_elements_text(p_mark -> 'skipped') s);
    exception when data_exception then
      v_seen := null;
    end;
  end if;
  -- A clock that went back, or an id that this server has not given out: not a mark that can be relied on.
  if v_seen is null or v_run_at is null or v_job_id is null or v_run_at > v_now
     or pg_snapshot_xmax(v_seen) > pg_snapshot_xmax(pg_current_snapshot()) then
    v_seen := null;
    v_run_at := '-infinity';
    v_job_id := 0;
    v_skipped := '{}';
  end if;

  -- What was held by somebody before. Gone or put off: no longer of interest; free now: taken; else kept.
  if cardinality(v_skipped) > 0 then
    select array_agg(d.tid), array_agg(d.job_id) into v_found, v_ids
    from unnest(v_skipped) as i(job_id)
    cross join lateral (
      select j.ctid as tid, j.job_id from {{schema}}.deferred_jobs j where j.job_id = i.job_id and j.run_at <= v_now offset 0) d;
    if v_found is not null then
      select coalesce(array_agg(h.tid), '{}'), coalesce(array_agg(h.job_id), '{}') into v_rows, v_held_ids
      from (select d.ctid as tid, d.job_id from {{schema}}.deferred_jobs d
            where d.ctid = any (v_found) and d.run_at <= v_now limit p_limit for update skip locked) h;
      v_kept := array(select unnest(v_ids) except select unnest(v_held_ids));
    end if;
  end if;

  -- Upwards from the position, and behind it what the mark's snapshot could not see. OFFSET 0 keeps the latter from being
  -- looked for by run_at, which is where the dead entries are.
  v_left := p_limit - cardinality(v_rows);
  v_from := v_run_at;
  v_from_id := v_job_id;
  if v_left = 0 then
    promoted := {{schema}}.promote_rows(v_rows);
    next_due_ms := 0;
    mark := p_mark || jsonb_build_object('skipped', to_jsonb(v_kept));
    return;
  end if;
  select pg_current_snapshot(), array_agg(f.tid order by f.run_at, f.job_id), array_agg(f.job_id order by f.run_at, f.job_id),
         array_agg(f.run_at order by f.run_at, f.job_id)
  into v_snapshot, v_found, v_ids, v_times
  from (
    select u.tid, u.job_id, u.run_at
    from (
      (select d.ctid as tid, d.job_id, d.run_at from {{schema}}.deferred_jobs d
       where (d.run_at, d.job_id) > (v_run_at, v_job_id) and d.run_at <= v_now
       order by d.run_at, d.job_id limit v_left + 1)
      union all
      select l.tid, l.job_id, l.run_at
      from pg_snapshot_xip(v_seen) as x(xid)
      cross join lateral (
        select d.ctid as tid, d.job_id, d.run_at from {{schema}}.deferred_jobs d where d.xid = x.xid offset 0) l
      where pg_visible_in_snapshot(x.xid, pg_current_snapshot()) and (l.run_at, l.job_id) <= (v_run_at, v_job_id)
      union all
      select l.tid, l.job_id, l.run_at
      from (select d.ctid as tid, d.job_id, d.run_at from {{schema}}.deferred_jobs d
            -- bounded above: a restored row may bear an id that this server has not given out
            where d.xid >= pg_snapshot_xmax(v_seen) and d.xid < pg_snapshot_xmax(pg_current_snapshot()) offset 0) l
      where (l.run_at, l.job_id) <= (v_run_at, v_job_id)
    ) u
    order by u.run_at, u.job_id limit v_left + 1) f;
  if cardinality(v_found) > v_left then
    v_full := true;
    v_found := v_found[:v_left];
    v_ids := v_ids[:v_left];
    v_run_at := v_times[v_left];
    v_job_id := v_ids[v_left];
  else
    v_run_at := v_now;
    v_job_id := 9223372036854775807;
  end if;
  if cardinality(v_found) > 0 then
    select coalesce(array_agg(h.tid), '{}'), coalesce(array_agg(h.job_id), '{}') into v_held, v_held_ids
    from (select d.ctid as tid, d.job_id from {{schema}}.deferred_jobs d
          where d.ctid = any (v_found) and d.run_at <= v_now for update skip locked) h;
    v_rows := v_rows || v_held;
    v_kept := array(select unnest(v_kept) union select unnest(v_ids) except select unnest(v_held_ids));
  end if;

  if cardinality(v_kept) > c_skipped then
    -- More is held than a mark can name: it stays where it was, and what is free behind the held ones is taken all the same.
    v_rows := v_rows || array(
      select d.ctid from {{schema}}.deferred_jobs d where (d.run_at, d.job_id) > (v_from, v_from_id) and d.run_at <= v_now
        and not d.ctid = any (v_rows)
      order by d.run_at, d.job_id limit p_limit - cardinality(v_rows) for update skip locked);
    promoted := {{schema}}.promote_rows(v_rows);
    next_due_ms := case when cardinality(v_rows) = p_limit then 0 else 1000 end;
    return;
  end if;

  promoted := {{schema}}.promote_rows(v_rows);
  mark := jsonb_build_object('origin', v_origin, 'snapshot', v_snapshot::text, 'run_at', v_run_at, 'job_id', v_job_id,
                             'skipped', to_jsonb(v_kept));
  select least(greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000))::bigint, 9007199254740991) into next_due_ms
  from {{schema}}.deferred_jobs d
  where (d.run_at, d.job_id) > (v_run_at, v_job_id) and d.run_at < 'infinity' order by d.run_at, d.job_id limit 1;
  if v_full then
    next_due_ms := 0;
  elsif cardinality(v_kept) > 0 then  -- whoever holds them need not tell when it lets go
    next_due_ms := least(next_due_ms, 1000);
  end if;
end $$;
`
  },
  {
    name: "072_rescue.sql",
    text: `-- Rescue: the end of attempts that nobody is at work on any more.

-- Ends attempts that nobody beats for, or that passed their deadline. An attempt whose lock somebody holds is in the middle of
-- a finalization and is left alone. The crash counts as an attempt.
-- Every attempt is looked at once, when its claim reaches the staleness: by then it is closed, or has an attempt_state row (and
-- is found by that row from then on), or is rescued here, or its lock is held, and then it gets such a row. The mark moves over
-- what was looked at, so neither settled history nor a long attempt in the middle of it is walked again.

-- Ends these attempts, whose locks are held, and answers how many. The statement that closes them looks again: since they were
-- chosen a beat may have come. What cannot be moved on for something about one of them is ended by halves; the one stays open,
-- is told to the server's log, and rests as if it had been beaten for, so that it does not stand before the others for ever.
{{#segments}}
create or replace function {{schema}}.end_abandoned_{{segment}}(
  p_now timestamptz, p_stale timestamptz, p_ids bigint[], p_idx integer[], p_jobs bigint[], p_leases bigint[])
returns integer
language plpgsql volatile as $$
declare
  v_half    integer := cardinality(p_ids) / 2;
  v_ids     bigint[];
  v_idx     integer[];
  v_jobs    bigint[];
  v_leases  bigint[];
  v_detail  jsonb[];
  v_rows    tid[];
begin
  begin
    with closed as (
      insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
      select h.batch_id, h.idx, 'rescued', p_now, pg_current_xact_id(), s.progress
      from unnest(p_ids, p_idx, p_jobs, p_leases) as h(batch_id, idx, job_id, run_lease)
      cross join lateral (
        select c.claimed_at, c.deadline_at from {{schema}}.claim_batches_{{segment}} c where c.batch_id = h.batch_id offset 0) b
      left join lateral (
        select a.progress, a.heartbeat_at from {{schema}}.attempt_state a
        where a.job_id = h.job_id and a.run_lease = h.run_lease offset 0) s on true
      where coalesce(s.heartbeat_at, b.claimed_at) < p_stale
         or (b.deadline_at < p_now and coalesce(s.heartbeat_at, b.claimed_at) <= p_now)
      order by h.batch_id, h.idx
      on conflict (batch_id, batch_index) do nothing
      returning batch_id, batch_index, progress
    )
    select array_agg(h.batch_id), array_agg(h.idx), array_agg(h.job_id), array_agg(h.run_lease),
           array_agg(jsonb_build_object(
               'error', jsonb_build_object('name', 'AttemptAbandoned', 'message', 'no heartbeat within the staleness, or past the deadline'))
             || case when c.progress is null then '{}' else jsonb_build_object('progress', c.progress) end)
    into v_ids, v_idx, v_jobs, v_leases, v_detail
    from closed c
    join unnest(p_ids, p_idx, p_jobs, p_leases) as h(batch_id, idx, job_id, run_lease)
      on h.batch_id = c.batch_id and h.idx = c.batch_index;
    if v_ids is null then
      return 0;
    end if;
    perform {{schema}}.dispose_{{segment}}(
      v_ids, v_idx, array_fill('rescued'::{{schema}}.outcome, array[cardinality(v_ids)]), v_detail);
    -- A row that a beat holds at this moment is left to the sweep: nobody is waited for.
    v_rows := array(
      select s.ctid from unnest(v_jobs, v_leases) as u(job_id, run_lease)
      cross join lateral (
        select a.ctid from {{schema}}.attempt_state a
        where a.job_id = u.job_id and a.run_lease = u.run_lease for update skip locked) s);
    delete from {{schema}}.attempt_state s where s.ctid = any (v_rows);
    return cardinality(v_ids);
  exception when others then
    if not {{schema}}.stops_one(sqlstate) then
      raise;
    end if;
    if v_half = 0 then
      raise warning 'the attempt of job %, run lease %, cannot be ended: % %', p_jobs[1], p_leases[1], sqlstate, sqlerrm;
    end if;
  end;
  if v_half > 0 then
    return {{schema}}.end_abandoned_{{segment}}(p_now, p_stale, p_ids[:v_half], p_idx[:v_half], p_jobs[:v_half], p_leases[:v_half])
      + {{schema}}.end_abandoned_{{segment}}(
          p_now, p_stale, p_ids[v_half + 1:], p_idx[v_half + 1:], p_jobs[v_half + 1:], p_leases[v_half + 1:]);
  end if;
  insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at)
  values (p_jobs[1], p_leases[1], {{segment}}, p_ids[1], p_idx[1], p_now + interval '1 minute')  -- it rests, past its deadline too
  on conflict (job_id, run_lease) do update set heartbeat_at = excluded.heartbeat_at;
  return 0;
end $$;
{{/segments}}

-- Whether an error is one attempt's own, so that the others can go on without it: of what was to be stored, or of what is stored
-- and cannot be read.
create or replace function {{schema}}.stops_one(p_state text) returns boolean
language sql immutable as $$ select {{schema}}.speaks_of_rows(p_state) or p_state in ('XX001', 'XX002') $$;

-- p_beaten_…: the rows of attempt_state that belong to this segment; null where nobody asked for them.
{{#segments}}
create or replace function {{schema}}.rescue_{{segment}}(
  p_staleness interval, p_limit integer, p_from bigint, p_beaten_ids bigint[], p_beaten_idx integer[], p_beaten_jobs bigint[],
  p_beaten_leases bigint[], p_beaten_at timestamptz[], out rescued integer, out done_to bigint)
language plpgsql volatile as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_stale  timestamptz := v_now - p_staleness;
  v_until  bigint;
  v_first  bigint;
  v_ids    bigint[];
  v_idx    integer[];
  v_jobs   bigint[];
  v_leases bigint[];
  v_busy_ids     bigint[];
  v_busy_idx     integer[];
  v_busy_jobs    bigint[];
  v_busy_leases  bigint[];
  v_busy_at      timestamptz[];
begin
  -- The mark stops before the first batch that is not stale: of two claims at once the later id may be the earlier in time. And so
  -- the young ones, a whole staleness full of them, are not walked at every tick, but for their deadlines where the beaten are too.
  done_to := coalesce(
    (select b.batch_id from {{schema}}.claim_batches_{{segment}} b
     where b.batch_id > p_from and b.batch_id < coalesce(
       (select y.batch_id from {{schema}}.claim_batches_{{segment}} y
        where y.batch_id > p_from and y.claimed_at >= v_stale order by y.batch_id limit 1), 9223372036854775807)
     order by b.batch_id desc limit 1),
    p_from);
  v_until := case when p_beaten_ids is null then done_to else 9223372036854775807 end;

  with unbeaten as materialized (  -- after a mass crash some: more than are rescued here, so the mark cannot pass the rest
    select b.batch_id, t.idx::integer, t.job_id, t.run_lease, b.claimed_at
    from (
      select c.batch_id, c.job_ids, c.run_leases, c.claimed_at
      from {{schema}}.claim_batches_{{segment}} c
      -- most batches are closed to the last item: one range of the index tells, without a look at each
      cross join lateral (
        select count(*) as n from {{schema}}.closures_{{segment}} e
        where e.batch_id = c.batch_id and e.batch_index between 1 and c.n offset 0) e
      -- a row without attempts (n = 0) only moves a lane's cursor
      where c.batch_id > p_from and c.batch_id <= v_until and (c.claimed_at < v_stale or c.deadline_at < v_now) and e.n < c.n
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
    select s.batch_id, s.batch_index, s.job_id, s.run_lease
    from unnest(p_beaten_ids, p_beaten_idx, p_beaten_jobs, p_beaten_leases, p_beaten_at)
      as s(batch_id, batch_index, job_id, run_lease, heartbeat_at)
    cross join lateral (
      select b.deadline_at from {{schema}}.claim_batches_{{segment}} b where b.batch_id = s.batch_id offset 0) b
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
    where (s.heartbeat_at < v_stale or (b.deadline_at < v_now and s.heartbeat_at <= v_now)) and c.found is null
  ), held as materialized (
    select o.* from (
      select u.batch_id, u.idx, u.job_id, u.run_lease from unbeaten u
      union all select * from beaten
      order by 1, 2 offset 0) o
    where pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || o.job_id || '/' || o.run_lease, 0))
    limit p_limit
  ), busy as materialized (  -- tried and not had: all that is not held, up to the last one that is when the limit was reached
    select u.* from unbeaten u
    where not exists (select from held h where h.batch_id = u.batch_id and h.idx = u.idx)
      and ((select count(*) from held) < p_limit
           or (u.batch_id, u.idx) < (select h.batch_id, h.idx from held h order by h.batch_id desc, h.idx desc limit 1))
  )
  select h.ids, h.idx, h.jobs, h.leases, b.ids, b.idx, b.jobs, b.leases, b.at,
         least(
           (select min(u.batch_id) from unbeaten u
            where not exists (select from held e where e.batch_id = u.batch_id and e.idx = u.idx)
              and not exists (select from busy b where b.batch_id = u.batch_id and b.idx = u.idx)),
           -- cut off: behind the last one there are more
           (select max(u.batch_id) from unbeaten u having count(*) >= p_limit + 1000))
  into v_ids, v_idx, v_jobs, v_leases, v_busy_ids, v_busy_idx, v_busy_jobs, v_busy_leases, v_busy_at, v_first
  from (select array_agg(e.batch_id) as ids, array_agg(e.idx) as idx, array_agg(e.job_id) as jobs, array_agg(e.run_lease) as leases
        from held e) h
  cross join (select array_agg(u.batch_id) as ids, array_agg(u.idx) as idx, array_agg(u.job_id) as jobs,
                     array_agg(u.run_lease) as leases, array_agg(u.claimed_at) as at
              from busy u) b;
  done_to := least(done_to, v_first - 1);
  rescued := case when v_ids is null then 0 else {{schema}}.end_abandoned_{{segment}}(v_now, v_stale, v_ids, v_idx, v_jobs, v_leases) end;
  if v_busy_ids is not null then
    insert into {{schema}}.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at)
    select u.job_id, u.run_lease, {{segment}}, u.batch_id, u.idx, u.claimed_at
    from unnest(v_busy_ids, v_busy_idx, v_busy_jobs, v_busy_leases, v_busy_at) as u(batch_id, idx, job_id, run_lease, claimed_at)
    order by u.job_id, u.run_lease
    on conflict (job_id, run_lease) do nothing;
  end if;
end $$;
{{/segments}}

-- p_beaten: whether to look at the attempts that were beaten for as well, and at the deadlines of young ones. That is one pass over
-- attempt_state, dead rows included, and over the claims of a staleness, so a caller that ticks often asks for it every few seconds only.
create or replace function {{schema}}.rescue_stale(p_staleness interval, p_limit integer, p_beaten boolean default true) returns integer
language plpgsql volatile security definer
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
  v_ids      bigint[];
  v_idx      integer[];
  v_jobs     bigint[];
  v_leases   bigint[];
  v_at       timestamptz[];
  v_slots    integer[];
  v_rescued  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  if p_beaten then
    -- By position: in the order of the file, whatever is dead in it. Its indexes would be walked entry by entry.
    select array_agg(s.claim_slot & 255), array_agg(s.batch_id), array_agg(s.batch_index), array_agg(s.job_id),
           array_agg(s.run_lease), array_agg(s.heartbeat_at)
    into v_slots, v_ids, v_idx, v_jobs, v_leases, v_at
    from {{schema}}.attempt_state s where s.ctid >= '(0,0)';
  end if;
  for v_segment in
    select g.slot, g.rescued_to, case when p_beaten then coalesce(b.ids, '{}') end as ids, b.idx, b.jobs, b.leases, b.at
    from {{schema}}.segments g
    left join (
      select u.slot, array_agg(u.batch_id) as ids, array_agg(u.idx) as idx, array_agg(u.job_id) as jobs,
             array_agg(u.run_lease) as leases, array_agg(u.at) as at
      from unnest(v_slots, v_ids, v_idx, v_jobs, v_leases, v_at) as u(slot, batch_id, idx, job_id, run_lease, at)
      group by u.slot) b on b.slot = g.slot
    where g.state <> 'free'
    order by g.slot  -- as a flush comes to them, or they could wait for each other
  loop
    case v_segment.slot
      {{#segments}}
      when {{segment}} then
        select * into v_answer from {{schema}}.rescue_{{segment}}(p_staleness, p_limit - v_rescued, v_segment.rescued_to,
          v_segment.ids, v_segment.idx, v_segment.jobs, v_segment.leases, v_segment.at);
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

-- Attempts whose lock somebody holds, and who: mostly the transaction that completes them, open (pid) or prepared and forgotten
-- (gid). Rescue leaves them alone for as long as that lasts. Of the attempts in the ring those that were beaten for, or that
-- rescue came to and took note of.
create or replace function {{schema}}.attempt_locks()
returns table (job_id bigint, run_lease bigint, segment smallint, pid integer, gid text, since timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    with known as materialized (
      select k.job_id, k.run_lease, k.segment, hashtextextended({{key attempt}} || k.job_id || '/' || k.run_lease, 0) as key
      from (
        select s.job_id, s.run_lease, (s.claim_slot & 255)::smallint as segment from {{schema}}.attempt_state s
        union all
        select l.job_id, l.run_lease, null from {{schema}}.leases l) k
    ), lock as materialized (
      select l.*, (l.classid::bigint << 32) | l.objid::bigint as key from pg_locks l
    )
    select k.job_id, k.run_lease, k.segment, l.pid, p.gid, coalesce(a.xact_start, p.prepared)
    from known k
    join lock l on l.key = k.key
    left join pg_stat_activity a on a.pid = l.pid
    left join lock t on l.pid is null and t.pid is null and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      and t.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
    order by k.job_id, k.run_lease;
end $$;

-- The same with what only the asking role may see of other sessions: since when their transactions are open.
create or replace function {{schema}}.held_attempts()
returns table (job_id bigint, run_lease bigint, segment smallint, pid integer, gid text, since timestamptz)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select h.job_id, h.run_lease, h.segment, h.pid, h.gid, coalesce(h.since, a.xact_start)
  from {{schema}}.attempt_locks() h left join pg_stat_activity a on a.pid = h.pid order by h.job_id, h.run_lease
$$;
`
  },
  {
    name: "074_ring.sql",
    text: `-- The ring's turning: rotate, spill, drain, prune; and what keeps it from turning.

-- How long what became of an attempt must be kept for those that may still ask: the longest that any runtime says of its
-- reconciliation budget, staleness and watchers together. The runtimes that lead hand the greater of this and their history's
-- minimum to the functions below. A runtime that fell silent is asked for as long as its row is there.
create or replace function {{schema}}.evidence_keep() returns interval
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  -- whatever was written there: a number of the wrong size must not stop maintenance
  select trunc(greatest(0, least(coalesce(max((r.capabilities #>> '{maintenance,evidenceMillis}')::numeric), 0), 259200000)))::float8
         * interval '1 millisecond'
  from {{schema}}.runtimes r where jsonb_typeof(r.capabilities #> '{maintenance,evidenceMillis}') = 'number'
$$;

-- Rotation, one step a call, repeatable after a crash between any two: (1) a slot is committed as readable, (2) in a later
-- transaction the cursor moves to it, (3) older open slots are sealed. Answers what it did.
-- By size only while the free slots last: at the pace of the current segment they must cover the time until the oldest
-- history may be pruned, or a burst of work would shorten it to nothing and then fill the ring.
create or replace function {{schema}}.rotate(p_max_age interval, p_max_entries bigint, p_keep interval default '0') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_value    bigint;
  v_current  record;
  v_next     record;
  v_seq      bigint;
  v_age      interval;
  v_free     integer;
  v_wait     interval;
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
  v_age := clock_timestamp() - v_current.opened_at;
  if v_seq <= v_current.opened_seq or (v_age < p_max_age and v_seq - v_current.opened_seq < p_max_entries) then
    return 'idle';
  end if;
  if v_age < p_max_age then
    select count(*) filter (where s.state = 'free'),
           coalesce(min(s.drained_at) filter (where s.state = 'drained') + p_keep - clock_timestamp(), p_keep)
    into v_free, v_wait from {{schema}}.segments s;
    if (v_free - 1) * v_age < v_wait then
      return 'idle';
    end if;
  end if;
  select s.slot into v_next from {{schema}}.segments s
  where s.state = 'free' order by (s.slot - v_current.slot + {{ring}}) % {{ring}} limit 1;
  if not found then
    return 'full';  -- the current segment grows until one is free; nothing fails and nothing waits
  end if;
  delete from {{schema}}.segment_lanes l where l.slot = v_next.slot;
  update {{schema}}.segments s
  set state = 'open', generation = v_current.generation + 1, opened_seq = v_seq, rescued_to = 0,
      opened_at = clock_timestamp(), sealed_at = null, drained_at = null
  where s.slot = v_next.slot;
  return 'opened';
end $$;

-- Unclaimed entries that would keep the oldest segment in the ring move to their lane's head: a paused queue, or one that
-- nobody serves. It is a claim without attempts: read in the lane's order under its lock, and passed by the cursor of a batch
-- of no items that lists what was moved.
{{#segments}}
create or replace function {{schema}}.spill_{{segment}}(p_queue text, p_priority smallint, p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_read   record;
  v_first  bigint;
  v_last   bigint;
begin
  select * into v_read from {{schema}}.read_lane_{{segment}}(p_queue, p_priority, p_limit, null, 0, null);
  if not v_read.o_moved then
    return 0;
  end if;
  insert into {{schema}}.claim_batches_{{segment}}
    (batch_id, queue, priority, receipt_base, claimed_at, runtime_id, n, cursor_xid, cursor_seq, pending_xids, pending_seqs,
     job_ids, run_leases, xids, seqs)
  values (nextval({{schema_text batch_seq}}), p_queue, p_priority, 0, clock_timestamp(), 0, 0, v_read.o_cursor_xid, v_read.o_cursor_seq,
     v_read.o_pending_xids, v_read.o_pending_seqs, v_read.o_job_ids, '{}', v_read.o_xids, v_read.o_seqs);
  if cardinality(v_read.o_seqs) = 0 then
    return 0;
  end if;
  with moved as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select m.queue, m.priority, nextval({{schema_text spill_positions}}), m.job_id, m.run_lease, m.attempt, m.max_attempts, m.created_at,
           m.kind, m.args, m.progress, m.errors, m.ready_at, m.unique_key, m.callback_result
    from (
      select e.* from unnest(v_read.o_xids, v_read.o_seqs) with ordinality as u(x, s, i)
      cross join lateral (
        select r.* from {{schema}}.ready_entries_{{segment}} r
        where r.queue = p_queue and r.priority = p_priority and r.xid = u.x and r.seq = u.s offset 0) e
      order by u.i) m
    returning position
  )
  select min(position) - 1, max(position) into v_first, v_last from moved;
  insert into {{schema}}.spill_heads as h (queue, priority, first_position, last_position)
  values (p_queue, p_priority, v_first, v_last)
  on conflict (queue, priority) do update set last_position = excluded.last_position;
  return cardinality(v_read.o_seqs);
end $$;

create or replace function {{schema}}.spill_lanes_{{segment}}(p_limit integer) returns integer
language plpgsql volatile as $$
declare
  v_lane   record;
  v_moved  integer := 0;
begin
  for v_lane in
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select w.queue, w.priority from lane w where w.priority > 0
  loop
    if pg_try_advisory_xact_lock(hashtextextended({{key lane}} || v_lane.priority || '/' || v_lane.queue, 0)) then
      v_moved := v_moved + {{schema}}.spill_{{segment}}(v_lane.queue, v_lane.priority, p_limit - v_moved);
      exit when v_moved >= p_limit;
    end if;
  end loop;
  return v_moved;
end $$;
{{/segments}}

-- Spills from the oldest segment that is not drained, while no more than a quarter of the ring is free. Answers how many
-- entries moved; a full p_limit says that there are more.
create or replace function {{schema}}.spill_oldest(p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_slot   smallint;
  v_moved  integer := 0;
begin
  perform {{schema}}.require_read_committed();
  if not {{schema}}.lead() then
    return null;
  end if;
  if (select count(*) from {{schema}}.segments s where s.state = 'free') * 4 > {{ring}} then
    return 0;
  end if;
  select s.slot into v_slot from {{schema}}.segments s where s.state in ('sealed', 'open') order by s.generation limit 1;
  if v_slot = (select last_value % {{ring}} from {{schema}}.segment_cursor) then
    return 0;
  end if;
  case v_slot
    {{#segments}}
    when {{segment}} then v_moved := {{schema}}.spill_lanes_{{segment}}(p_limit);
    {{/segments}}
  end case;
  return v_moved;
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
    select from (select w.queue, w.priority from lane w where w.priority > 0 offset 0) l  -- the others are copies, claimed as they came
    left join lateral (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (l.queue, l.priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
      on b.queue = l.queue and b.priority = l.priority
    where exists (select from {{schema}}.ready_entries_{{segment}} r
                  where r.queue = l.queue and r.priority = l.priority
                    and (r.xid, r.seq) > (coalesce(b.cursor_xid, '0'::xid8), coalesce(b.cursor_seq, 0))
                    and not exists (
                      select from {{schema}}.ready_tombstones_{{segment}} t
                      where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq))
       or exists (select from unnest(b.pending_xids, b.pending_seqs) as p(xid, seq)
                  cross join lateral (
                    select from {{schema}}.ready_entries_{{segment}} r
                    where r.queue = l.queue and r.priority = l.priority and r.xid = p.xid and r.seq > p.seq
                      and not exists (
                        select from {{schema}}.ready_tombstones_{{segment}} t
                        where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq)
                    limit 1) r));
end $$;

-- The lanes of a segment, as segment_lanes has them; null when they are too many to be read by every claim.
create or replace function {{schema}}.lanes_held_{{segment}}() returns jsonb
language plpgsql volatile as $$
begin
  return (
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select case when sum(q.n) < 200 then coalesce(jsonb_object_agg(q.queue, q.mask) filter (where q.mask > 0), '{}') end
    from (
      select l.queue, count(*) as n, coalesce(bit_or(1 << (l.priority - 1)) filter (where l.priority > 0), 0) as mask
      from (select w.queue, w.priority from lane w limit 200) l group by l.queue) q);
end $$;
{{/segments}}

create or replace function {{schema}}.drain_segments() returns integer
language plpgsql volatile security definer
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
  v_lanes    jsonb;
  v_count    integer := 0;
  v_head     record;
  v_position bigint;
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
      -- Claims look no longer here for how far a lane's head was read.
      for v_head in select h.queue, h.priority, h.first_position from {{schema}}.spill_heads h order by h.queue, h.priority loop
        case v_slot
          {{#segments}}
          when {{segment}} then v_position := {{schema}}.spilled_to_{{segment}}(v_head.queue, v_head.priority);
          {{/segments}}
        end case;
        if v_position > v_head.first_position then
          update {{schema}}.spill_heads h set first_position = v_position
          where h.queue = v_head.queue and h.priority = v_head.priority and h.first_position < v_position;
        end if;
      end loop;
      delete from {{schema}}.spill_heads h where h.first_position >= h.last_position;  -- a claim looks for it no more
    elsif not exists (select from {{schema}}.segment_lanes l where l.slot = v_slot) then
      -- Nobody can add to it, so claims need not look here for a lane that it does not have: a backlog stands in many segments.
      case v_slot
        {{#segments}}
        when {{segment}} then v_lanes := {{schema}}.lanes_held_{{segment}}();
        {{/segments}}
      end case;
      if pg_column_size(v_lanes) <= 4096 then  -- more than that, and reading about them costs more than looking
        insert into {{schema}}.segment_lanes (slot, lanes) values (v_slot, v_lanes) on conflict (slot) do nothing;
      end if;
    end if;
  end loop;
  return v_count;
end $$;

-- Truncates the oldest drained segment once its history has lived its time. Gives up quietly (55P03 is the caller's to
-- expect) when anything holds a lock on its tables.
{{#segments}}
-- Counted batch by batch over the closures' own key, whose every entry belongs to an item: exact, and one range of the index
-- a batch. A join of items and closures was quadratic in the size of a batch.
create or replace function {{schema}}.is_prunable_{{segment}}(p_keep interval) returns boolean
language plpgsql volatile as $$
begin
  if exists (select from {{schema}}.closures_{{segment}} c
             where c.closed_at > clock_timestamp() - p_keep
               and c.outcome <> 'materialized') then  -- what became of those is told elsewhere
    return false;
  end if;
  return not exists (
    select from {{schema}}.claim_batches_{{segment}} b
    cross join lateral (
      select count(*) as n from {{schema}}.closures_{{segment}} c
      where c.batch_id = b.batch_id and c.batch_index between 1 and b.n offset 0) c
    where c.n < b.n);
end $$;

create or replace function {{schema}}.prune_{{segment}}(p_keep interval) returns boolean
language plpgsql volatile as $$
begin
  -- A cheap answer first: an attempt that is beaten for is open, unless its close and a beat passed each other.
  if exists (
    select from {{schema}}.attempt_state a
    cross join lateral (
      select true as found from {{schema}}.claim_batches_{{segment}} b where b.batch_id = a.batch_id offset 0) b
    left join lateral (
      select true as found from {{schema}}.closures_{{segment}} c
      where c.batch_id = a.batch_id and c.batch_index = a.batch_index offset 0) c on true
    where a.claim_slot & 255 = {{segment}} and c.found is null)
  then
    return false;
  end if;
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  -- in the order in which everybody else comes to them: a caller promises before it completes
  lock table {{schema}}.expected_completions_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
    {{schema}}.ready_entries_{{segment}}, {{schema}}.ready_tombstones_{{segment}} in access exclusive mode;
  if not {{schema}}.is_prunable_{{segment}}(p_keep) then
    return false;
  end if;
  truncate {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
    {{schema}}.ready_tombstones_{{segment}}, {{schema}}.expected_completions_{{segment}};
  -- What a beat left behind of an attempt that was being closed. None can come any more: a beat reads the claim first.
  delete from {{schema}}.attempt_state a where a.claim_slot & 255 = {{segment}};
  return true;
end $$;
{{/segments}}

create or replace function {{schema}}.prune_segment(p_keep interval) returns smallint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_memoize = off
set enable_hashjoin = off
set enable_mergejoin = off
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
  if not found or v_oldest.drained_at > clock_timestamp() - p_keep then
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

-- Who keeps the oldest segment in the ring, and why. For operators and health; no hot path asks.
--   writer: a transaction that enqueued there is still open (pid, or gid when it is prepared)
--   unclaimed: a lane has entries that nobody claimed; running: attempts are open
--   finalization: a transaction that ends an attempt here is open (pid, or gid when it is prepared)
--   history: completed history is younger than its minimum; lock: a session holds a lock on the segment's tables
{{#segments}}
create or replace function {{schema}}.blockers_{{segment}}(p_keep interval)
returns table (reason text, queue text, priority smallint, pid integer, gid text, since timestamptz, detail text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_key bigint := hashtextextended({{key segment}} || {{segment}}::text, 0);
begin
  return query
    select 'writer', null::text, null::smallint, l.pid, p.gid, coalesce(a.xact_start, p.prepared),
           case when p.gid is not null then 'a prepared transaction enqueued here' else 'a transaction that enqueued here is open' end
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_locks t on l.pid is null and t.pid is null and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      and t.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    where l.locktype = 'advisory' and l.objsubid = 1 and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid::bigint = (v_key >> 32) & 4294967295 and l.objid::bigint = v_key & 4294967295
      and l.mode = 'ShareLock' and l.granted;
  return query
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select 'unclaimed', l.queue, l.priority, null::integer, null::text, h.head_at, 'entries that nobody has claimed'
    from lane l cross join lateral {{schema}}.lanes_{{segment}}(l.queue, array[l.priority::integer]) h
    where l.priority > 0
    limit 100;
  return query
    select 'running', b.queue, abs(b.priority), null::integer, null::text, min(b.claimed_at), count(*) || ' attempts are open'
    from {{schema}}.claim_batches_{{segment}} b cross join lateral generate_series(1, b.n) i
    where not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i)
    group by b.queue, abs(b.priority);
  return query
    select 'finalization', null::text, null::smallint, h.pid, h.gid, h.since,
           format('holds the attempt of job %s, run lease %s', h.job_id, h.run_lease)
    from {{schema}}.attempt_locks() h where h.segment = {{segment}} limit 100;
  return query
    select 'history', null::text, null::smallint, null::integer, null::text, m.at, 'completed history is kept until ' || (m.at + p_keep)
    from (select max(c.closed_at) as at from {{schema}}.closures_{{segment}} c where c.outcome <> 'materialized') m
    where m.at > clock_timestamp() - p_keep;
  return query
    select 'lock', null::text, null::smallint, l.pid, p.gid, min(coalesce(a.xact_start, p.prepared)),
           string_agg(distinct l.mode, ', ') || ' on ' || string_agg(distinct l.relation::regclass::text, ', ')
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_locks t on l.pid is null and t.pid is null and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      and t.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.relation in ({{schema_text ready_entries_{{segment}}}}::regclass, {{schema_text claim_batches_{{segment}}}}::regclass,
        {{schema_text closures_{{segment}}}}::regclass, {{schema_text ready_tombstones_{{segment}}}}::regclass,
        {{schema_text expected_completions_{{segment}}}}::regclass)
      and exists (select from {{schema}}.segments s where s.slot = {{segment}} and s.state = 'drained')  -- before, it is in nobody's way
    group by l.pid, p.gid;
end $$;
{{/segments}}

create or replace function {{schema}}.ring_held(p_keep interval)
returns table (slot smallint, generation bigint, state text, reason text, queue text, priority smallint, pid integer, gid text,
  since timestamptz, detail text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_oldest record;
begin
  select s.slot, s.generation, s.state into v_oldest from {{schema}}.segments s
  where s.state in ('sealed', 'drained') order by s.generation limit 1;
  if not found then
    return;
  end if;
  case v_oldest.slot
    {{#segments}}
    when {{segment}} then
      return query select v_oldest.slot, v_oldest.generation, v_oldest.state, b.* from {{schema}}.blockers_{{segment}}(p_keep) b;
    {{/segments}}
  end case;
end $$;

-- The same with what only the asking role may see of other sessions: since when their transactions are open, and their state.
create or replace function {{schema}}.ring_blockers(p_keep interval)
returns table (slot smallint, generation bigint, state text, reason text, queue text, priority smallint, pid integer, gid text,
  since timestamptz, detail text)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select h.slot, h.generation, h.state, h.reason, h.queue, h.priority, h.pid, h.gid, coalesce(h.since, a.xact_start),
         case when h.reason = 'writer' and a.state is not null then h.detail || ': ' || a.state else h.detail end
  from {{schema}}.ring_held(p_keep) h left join pg_stat_activity a on a.pid = h.pid
$$;
`
  },
  {
    name: "078_sweep.sql",
    text: `-- Retention, in bounded shares: at most p_limit rows of a table in a call. Whatever another transaction holds waits for the next
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
`
  },
  {
    name: "080_views.sql",
    text: `-- What operators read. The views scan, the functions answer by id or up to a cap; nothing on a hot path uses either.

create or replace view {{schema}}.ready_entries as
{{#segments union all}}
select {{segment}}::smallint as segment, r.* from {{schema}}.ready_entries_{{segment}} r
{{/segments}};

create or replace view {{schema}}.ready_tombstones as
{{#segments union all}}
select {{segment}}::smallint as segment, t.* from {{schema}}.ready_tombstones_{{segment}} t
{{/segments}};

-- A row with n = 0 is no claim: it moved the lane's cursor over entries that left for spilled_entries or had a tombstone.
create or replace view {{schema}}.claim_batches as
{{#segments union all}}
select {{segment}}::smallint as segment, b.* from {{schema}}.claim_batches_{{segment}} b
{{/segments}};

create or replace view {{schema}}.closures as
{{#segments union all}}
select {{segment}}::smallint as segment, c.* from {{schema}}.closures_{{segment}} c
{{/segments}};

-- One row per attempt that is remembered. An attempt that left the ring for a lease is shown once, as the lease has it, and
-- has no segment. outcome null: it is open.
create or replace view {{schema}}.attempts as
{{#segments union all}}
select {{segment}}::smallint as segment, b.batch_id, t.idx::integer as batch_index, t.job_id, t.run_lease,
       b.receipt_base + t.idx as receipt_id, b.queue, abs(b.priority) as priority, t.xid, t.seq, b.runtime_id, b.claimed_at, b.deadline_at,
       c.outcome, c.closed_at, c.progress, c.outcome is not null and c.closer is null and c.outcome = 'completed' as caller_owned,
       e.attempt + 1 as attempt, e.kind
from {{schema}}.claim_batches_{{segment}} b
cross join lateral unnest(b.job_ids, b.run_leases, b.xids, b.seqs) with ordinality as t(job_id, run_lease, xid, seq, idx)
left join {{schema}}.closures_{{segment}} c on c.batch_id = b.batch_id and c.batch_index = t.idx
left join {{schema}}.ready_entries_{{segment}} e on e.queue = b.queue and e.priority = b.priority and e.xid = t.xid and e.seq = t.seq
where b.n > 0 and c.outcome is distinct from 'materialized'
{{/segments}}
union all
select null::smallint, l.batch_id, l.batch_index, l.job_id, l.run_lease, l.receipt_id, l.queue, abs(l.priority), null::xid8, null::bigint,
       l.runtime_id, l.claimed_at, l.deadline_at, null::{{schema}}.outcome, null::timestamptz, l.progress, false, l.attempt, l.kind
from {{schema}}.leases l
union all
select null::smallint, null::bigint, null::integer, c.job_id, c.run_lease, c.receipt_id, c.queue, abs(c.priority), null::xid8, null::bigint,
       c.runtime_id, c.claimed_at, null::timestamptz, c.outcome, c.closed_at, c.progress, c.closer is null and c.outcome = 'completed',
       c.attempt, c.kind
from {{schema}}.lease_closures c;

-- The items of a batch. A function, for what it says of itself: the statistics of arrays that were small once promise so few
-- items that all of a lane's batches would be walked again for each of its entries, instead of being hashed once.
create or replace function {{schema}}.batch_items(p_run_leases bigint[], p_xids xid8[], p_seqs bigint[])
returns table (run_lease bigint, xid xid8, seq bigint, idx bigint)
language plpgsql immutable rows 1000
as $$
begin
  return query select t.* from unnest(p_run_leases, p_xids, p_seqs) with ordinality as t(run_lease, xid, seq, idx);
end $$;

-- One row per job, in the state that it is in now: available, running, waiting, parked, scheduled, retryable, snoozed,
-- gated, completed, failed, cancelled, discarded, dead_lettered, quarantined. A completed job is here for as long as the ring (or
-- lease_closures) keeps it. run_at: when it is due; ready_at: since when it can be claimed; reason: of the dead letter or quarantine.
create or replace view {{schema}}.jobs as
{{#segments union all}}
select e.job_id, e.queue, abs(e.priority) as priority, e.kind, e.args,
       case when a.n is null then 'available' when c.outcome is null then 'running' else 'completed' end as state,
       coalesce(a.run_lease, e.run_lease) as run_lease, case when a.n is null then e.attempt else e.attempt + 1 end as attempt,
       e.max_attempts, coalesce(c.progress, s.progress, e.progress) as progress, e.errors, e.created_at,
       null::timestamptz as run_at, a.claimed_at, c.closed_at as finalized_at,
       case when a.n is null then coalesce(e.ready_at, e.created_at) end as ready_at, null::text as reason
from {{schema}}.ready_entries_{{segment}} e
left join (
  select b.n, b.batch_id, b.queue, b.priority, b.claimed_at, t.run_lease, t.xid, t.seq, t.idx::integer as idx
  from {{schema}}.claim_batches_{{segment}} b
  cross join lateral {{schema}}.batch_items(b.run_leases, b.xids, b.seqs) t
  offset 0
) a on a.queue = e.queue and a.priority = e.priority and a.xid = e.xid and a.seq = e.seq
left join {{schema}}.closures_{{segment}} c on c.batch_id = a.batch_id and c.batch_index = a.idx
left join {{schema}}.ready_tombstones_{{segment}} t
  on t.queue = e.queue and t.priority = e.priority and t.xid = e.xid and t.seq = e.seq
left join {{schema}}.attempt_state s on s.job_id = e.job_id and s.run_lease = a.run_lease and c.outcome is null
where t.job_id is null and (a.n is null or a.n > 0) and (c.outcome is null or c.outcome = 'completed')
{{/segments}}
union all
select h.job_id, h.queue, h.priority, h.kind, h.args, 'available', h.run_lease, h.attempt, h.max_attempts, h.progress, h.errors,
       h.created_at, null, null, null, coalesce(h.ready_at, h.created_at), null
from {{schema}}.spilled_entries h
union all
select l.job_id, l.queue, abs(l.priority), l.kind, l.args, l.state, l.run_lease, l.attempt, l.max_attempts, l.progress, l.errors,
       l.created_at, null, l.claimed_at, null, null, null
from {{schema}}.leases l
union all
select c.job_id, c.queue, abs(c.priority), c.kind, c.args, 'completed', c.run_lease, c.attempt, c.max_attempts, c.progress, c.errors,
       c.created_at, null, c.claimed_at, c.closed_at, null, null
from {{schema}}.lease_closures c where c.outcome = 'completed'
union all
select d.job_id, d.queue, d.priority, d.kind, d.args, d.state, d.run_lease, d.attempt, d.max_attempts, d.progress, d.errors,
       d.created_at, nullif(d.run_at, 'infinity'), null, null, null, null
from {{schema}}.deferred_jobs d
union all
select t.job_id, t.queue, t.priority, t.kind, t.args, t.state, t.run_lease, t.attempt, t.max_attempts, t.progress, t.errors,
       t.created_at, null, null, t.finalized_at, null, null
from {{schema}}.terminal_jobs t
union all
select q.job_id, q.queue, q.priority, q.kind, q.args, 'dead_lettered', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
       q.created_at, null, null, q.dead_lettered_at, null, q.reason
from {{schema}}.dlq_entries q
union all
select q.job_id, q.queue, q.priority, q.kind, q.args, 'quarantined', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
       q.created_at, null, null, q.quarantined_at, null, q.reason
from {{schema}}.quarantined_jobs q;

{{#segments}}
-- The batch that took an entry, found by halving: that an entry is claimed stays true over a lane's batches, so the first of
-- them for which it is so is the one. None and is_claimed: the entry was passed over (a tombstone, or moved to the lane's head).
create or replace function {{schema}}.batch_of_{{segment}}(
  p_queue text, p_priority smallint, p_xid xid8, p_seq bigint,
  out is_claimed boolean, out batch_id bigint, out batch_index integer, out receipt_id bigint, out run_lease bigint,
  out runtime_id bigint, out claimed_at timestamptz, out deadline_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_low   bigint;   -- not yet claimed as of this batch
  v_high  bigint;   -- claimed as of this one
  v_mid   bigint;
  v_batch record;
begin
  select b.batch_id into v_high
  from (
    select b.queue, b.priority, b.batch_id from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) >= (p_queue, p_priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
  where b.queue = p_queue and b.priority = p_priority;
  select b.batch_id - 1 into v_low
  from (
    select b.queue, b.priority, b.batch_id from {{schema}}.claim_batches_{{segment}} b
    where (b.queue, b.priority) <= (p_queue, p_priority) order by b.queue desc, b.priority desc, b.batch_id limit 1) b
  where b.queue = p_queue and b.priority = p_priority;
  v_mid := v_high;
  loop
    select b.batch_id,
           case when p_priority < 0 then p_seq <= b.cursor_seq  -- a claim from the head: its cursor is a position
           else (p_xid, p_seq) <= (b.cursor_xid, b.cursor_seq)
             and not exists (select from unnest(b.pending_xids, b.pending_seqs) as n(x, s) where n.x = p_xid and p_seq > n.s) end as claimed
    into v_batch
    from {{schema}}.claim_batches_{{segment}} b
    where b.queue = p_queue and b.priority = p_priority and b.batch_id <= v_mid and b.batch_id > v_low
    order by b.batch_id desc limit 1;
    if not found then
      v_low := v_mid;
    elsif v_batch.claimed then
      is_claimed := true;
      v_high := v_batch.batch_id;
    else
      v_low := v_mid;
    end if;
    exit when v_high is null or is_claimed is null or v_high - v_low <= 1;
    v_mid := v_low + (v_high - v_low) / 2;
  end loop;
  if is_claimed then
    select b.batch_id, t.idx::integer, b.receipt_base + t.idx, t.run_lease, b.runtime_id, b.claimed_at, b.deadline_at
    into batch_id, batch_index, receipt_id, run_lease, runtime_id, claimed_at, deadline_at
    from {{schema}}.claim_batches_{{segment}} b
    cross join lateral unnest(b.xids, b.seqs, b.run_leases) with ordinality as t(x, s, run_lease, idx)
    where b.batch_id = v_high and b.n > 0 and t.x = p_xid and t.s = p_seq;
  end if;
  is_claimed := coalesce(is_claimed, false);
end $$;

-- What this segment knows of some jobs, by their ids: every entry, the attempt that took it, and how that ended.
create or replace function {{schema}}.entries_of_{{segment}}(p_job_ids bigint[])
returns table (
  job_id bigint, queue text, priority smallint, xid xid8, seq bigint, run_lease bigint, attempt integer, unique_key bytea,
  tombstone text, is_claimed boolean, batch_id bigint, batch_index integer, receipt_id bigint, claimed_lease bigint, runtime_id bigint,
  claimed_at timestamptz, deadline_at timestamptz, outcome {{schema}}.outcome, closed_at timestamptz, closer bigint, progress jsonb)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query
    select e.job_id, e.queue, e.priority, e.xid, e.seq, e.run_lease, e.attempt, e.unique_key, t.reason, b.is_claimed, b.batch_id,
           b.batch_index, b.receipt_id, b.run_lease, b.runtime_id, b.claimed_at, b.deadline_at, c.outcome, c.closed_at, c.closer, c.progress
    from unnest(p_job_ids) as i(job_id)
    cross join lateral (
      select r.job_id, r.queue, r.priority, r.xid, r.seq, r.run_lease, r.attempt, r.unique_key
      from {{schema}}.ready_entries_{{segment}} r where r.job_id = i.job_id offset 0) e
    left join lateral (
      select s.reason from {{schema}}.ready_tombstones_{{segment}} s
      where s.queue = e.queue and s.priority = e.priority and s.xid = e.xid and s.seq = e.seq offset 0) t on true
    cross join lateral {{schema}}.batch_of_{{segment}}(e.queue, e.priority, e.xid, e.seq) b
    left join lateral (
      select s.outcome, s.closed_at, s.closer, s.progress from {{schema}}.closures_{{segment}} s
      where s.batch_id = b.batch_id and s.batch_index = b.batch_index offset 0) c on true;
end $$;
{{/segments}}

-- Where jobs are, by their ids, in one statement: a job that moves while it is looked for is in one place all the same.
-- place: deferred, entry (unclaimed), head (unclaimed, spilled), attempt, lease, completed, terminal, dead, quarantined, or past:
-- only its history is left.
create or replace function {{schema}}.find_jobs(p_job_ids bigint[]) returns setof {{schema}}.found_job
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    with ring as materialized (
      {{#segments union all}}
      select {{segment}}::smallint as segment, e.* from {{schema}}.entries_of_{{segment}}(p_job_ids) e
      {{/segments}}
    ), asked as materialized (
      select i.job_id from unnest(p_job_ids) as i(job_id)
    )
    select distinct on (f.job_id) f.job_id, f.place, f.state, f.segment, f.queue, f.priority, f.xid, f.seq, f.run_lease, f.attempt,
           f.claim_slot, f.batch_id, f.batch_index, f.receipt_id, f.unique_key
    from (
      select 1 as rank, d.job_id, 'deferred' as place, d.state, null::smallint as segment, d.queue, d.priority, null::xid8 as xid,
             null::bigint as seq, d.run_lease, d.attempt, null::integer as claim_slot, null::bigint as batch_id, null::integer as batch_index,
             null::bigint as receipt_id, d.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.deferred_jobs r where r.job_id = a.job_id offset 0) d
      union all
      select 1, h.job_id, 'head', 'available', null, h.queue, h.priority, null, h.position, h.run_lease, h.attempt, null, null, null, null, h.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.spilled_entries r where r.job_id = a.job_id offset 0) h
      union all
      select 1, l.job_id, 'lease', l.state, null, l.queue, l.priority, null, null, l.run_lease, l.attempt, l.claim_slot, l.batch_id,
             l.batch_index, l.receipt_id, l.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.leases r where r.job_id = a.job_id offset 0) l
      union all
      select 1, t.job_id, 'terminal', t.state, null, t.queue, t.priority, null, null, t.run_lease, t.attempt, null, null, null, null, t.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.terminal_jobs r where r.job_id = a.job_id offset 0) t
      union all
      select 1, t.job_id, 'dead', 'dead_lettered', null, t.queue, t.priority, null, null, t.run_lease, t.attempt, null, null, null, null, t.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.dlq_entries r where r.job_id = a.job_id offset 0) t
      union all
      select 2, t.job_id, 'quarantined', 'quarantined', null, t.queue, t.priority, null, null, t.run_lease, t.attempt, null, null, null, null, t.unique_key
      from asked a cross join lateral (select r.* from {{schema}}.quarantined_jobs r where r.job_id = a.job_id offset 0) t
      union all
      select 3, e.job_id, 'entry', 'available', e.segment, e.queue, e.priority, e.xid, e.seq, e.run_lease, e.attempt, null, null, null, null, e.unique_key
      from ring e where not e.is_claimed and e.tombstone is null
      union all
      select 3, e.job_id, 'attempt', 'running', e.segment, e.queue, e.priority, e.xid, e.seq, e.claimed_lease, e.attempt + 1,
             (m.fingerprint << 12) | (1 << 8) | e.segment, e.batch_id, e.batch_index, e.receipt_id, e.unique_key
      from ring e cross join {{schema}}.meta m where e.batch_id is not null and e.outcome is null
      union all
      select 4, e.job_id, 'completed', 'completed', e.segment, e.queue, e.priority, e.xid, e.seq, e.claimed_lease, e.attempt + 1, null, e.batch_id,
             e.batch_index, null, null
      from ring e where e.outcome = 'completed'
      union all
      select 4, c.job_id, 'completed', 'completed', null, c.queue, c.priority, null, null, c.run_lease, c.attempt, null, null, null, null, null
      from asked a
      cross join lateral (
        select r.* from {{schema}}.lease_closures r where r.job_id = a.job_id and r.outcome = 'completed' offset 0) c
      union all
      select 5, e.job_id, 'past', coalesce(e.outcome::text, e.tombstone), null, e.queue, e.priority, null, null, e.run_lease, e.attempt, null, null, null, null, null
      from ring e
      union all
      select 5, c.job_id, 'past', c.outcome::text, null, c.queue, c.priority, null, null, c.run_lease, c.attempt, null, null, null, null, null
      from asked a cross join lateral (select r.* from {{schema}}.lease_closures r where r.job_id = a.job_id offset 0) c
    ) f
    order by f.job_id, f.rank, f.run_lease desc;
end $$;

-- One job by its id, in the columns of the view jobs, without a scan. No row: nothing of it is left but perhaps its attempts.
create or replace function {{schema}}.job(p_job_id bigint)
returns table (
  job_id bigint, queue text, priority smallint, kind text, args jsonb, state text, run_lease bigint, attempt integer, max_attempts integer,
  progress jsonb, errors jsonb, created_at timestamptz, run_at timestamptz, claimed_at timestamptz, finalized_at timestamptz,
  ready_at timestamptz, reason text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    with f as materialized (
      select j.* from {{schema}}.find_jobs(array[p_job_id]) j
    )
    select e.job_id, e.queue, abs(e.priority), e.kind, e.args, f.state, f.run_lease, f.attempt, e.max_attempts,
           coalesce(e.closed_progress, s.progress, e.progress), e.errors, e.created_at, null::timestamptz, e.claimed_at, e.closed_at,
           case when f.place = 'entry' then coalesce(e.ready_at, e.created_at) end, null::text
    from f
    cross join lateral (
      {{#segments union all}}
      select r.*, b.claimed_at, c.closed_at, c.progress as closed_progress
      from {{schema}}.ready_entries_{{segment}} r
      left join {{schema}}.claim_batches_{{segment}} b on b.batch_id = f.batch_id
      left join {{schema}}.closures_{{segment}} c on c.batch_id = f.batch_id and c.batch_index = f.batch_index
      where f.segment = {{segment}} and r.queue = f.queue and r.priority = f.priority and r.xid = f.xid and r.seq = f.seq
      {{/segments}}
    ) e
    left join {{schema}}.attempt_state s on f.place = 'attempt' and s.job_id = f.job_id and s.run_lease = f.run_lease
    where f.segment is not null
    union all
    select h.job_id, h.queue, h.priority, h.kind, h.args, f.state, h.run_lease, h.attempt, h.max_attempts, h.progress, h.errors,
           h.created_at, null, null, null, coalesce(h.ready_at, h.created_at), null
    from f join {{schema}}.spilled_entries h on f.place = 'head' and h.queue = f.queue and h.priority = f.priority and h.position = f.seq
    union all
    select l.job_id, l.queue, abs(l.priority), l.kind, l.args, l.state, l.run_lease, l.attempt, l.max_attempts, l.progress, l.errors,
           l.created_at, null, l.claimed_at, null, null, null
    from f join {{schema}}.leases l on f.place = 'lease' and l.job_id = f.job_id and l.run_lease = f.run_lease
    union all
    select c.job_id, c.queue, abs(c.priority), c.kind, c.args, 'completed', c.run_lease, c.attempt, c.max_attempts, c.progress, c.errors,
           c.created_at, null, c.claimed_at, c.closed_at, null, null
    from f join {{schema}}.lease_closures c
      on f.place = 'completed' and f.segment is null and c.job_id = f.job_id and c.run_lease = f.run_lease
    union all
    select d.job_id, d.queue, d.priority, d.kind, d.args, d.state, d.run_lease, d.attempt, d.max_attempts, d.progress, d.errors,
           d.created_at, nullif(d.run_at, 'infinity'), null, null, null, null
    from f join {{schema}}.deferred_jobs d on f.place = 'deferred' and d.job_id = f.job_id
    union all
    select t.job_id, t.queue, t.priority, t.kind, t.args, t.state, t.run_lease, t.attempt, t.max_attempts, t.progress, t.errors,
           t.created_at, null, null, t.finalized_at, null, null
    from f join {{schema}}.terminal_jobs t on f.place = 'terminal' and t.job_id = f.job_id
    union all
    select q.job_id, q.queue, q.priority, q.kind, q.args, 'dead_lettered', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
           q.created_at, null, null, q.dead_lettered_at, null, q.reason
    from f join {{schema}}.dlq_entries q on f.place = 'dead' and q.job_id = f.job_id
    union all
    select q.job_id, q.queue, q.priority, q.kind, q.args, 'quarantined', q.run_lease, q.attempt, q.max_attempts, q.progress, q.errors,
           q.created_at, null, null, q.quarantined_at, null, q.reason
    from f join {{schema}}.quarantined_jobs q on f.place = 'quarantined' and q.job_id = f.job_id;
end $$;

-- Every attempt of a job that is remembered, in order. outcome null: it is open. authority: claim, or lease for one that left
-- the ring. error: what the job's own list has kept of it.
create or replace function {{schema}}.job_attempts(p_job_id bigint)
returns table (
  job_id bigint, run_lease bigint, attempt integer, authority text, queue text, priority smallint, runtime_id bigint,
  claimed_at timestamptz, deadline_at timestamptz, outcome text, closed_at timestamptz, progress jsonb, error jsonb, caller_owned boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    with ring as materialized (
      {{#segments union all}}
      select e.* from {{schema}}.entries_of_{{segment}}(array[p_job_id]) e
      {{/segments}}
    ), errors as materialized (
      select distinct on (2) x.e -> 'error' as error, (x.e ->> 'run_lease')::bigint as run_lease
      from {{schema}}.job(p_job_id) j cross join lateral jsonb_array_elements(j.errors) as x(e)
      order by 2
    )
    select a.job_id, a.run_lease, a.attempt, a.authority, a.queue, abs(a.priority), a.runtime_id, a.claimed_at, a.deadline_at,
           a.outcome::text, a.closed_at, a.progress, x.error, a.outcome = 'completed' and a.closer is null
    from (
      select e.job_id, e.claimed_lease as run_lease, e.attempt + 1 as attempt, 'claim' as authority, e.queue, e.priority, e.runtime_id, e.claimed_at,
             e.deadline_at, e.outcome, e.closed_at, coalesce(e.progress, s.progress) as progress, e.closer
      from ring e
      left join {{schema}}.attempt_state s on e.outcome is null and s.job_id = e.job_id and s.run_lease = e.claimed_lease
      where e.batch_id is not null and e.outcome is distinct from 'materialized'
      union all
      select l.job_id, l.run_lease, l.attempt, 'lease', l.queue, l.priority, l.runtime_id, l.claimed_at, l.deadline_at, null, null, l.progress, null
      from {{schema}}.leases l where l.job_id = p_job_id
      union all
      select c.job_id, c.run_lease, c.attempt, 'lease', c.queue, c.priority, c.runtime_id, c.claimed_at, null, c.outcome, c.closed_at, c.progress, c.closer
      from {{schema}}.lease_closures c where c.job_id = p_job_id
    ) a
    left join errors x on x.run_lease = a.run_lease
    order by a.run_lease;
end $$;

-- Counting, up to a cap: what is in no segment's past, and never more of it than asked for.
{{#segments}}
create or replace function {{schema}}.count_available_{{segment}}(p_cap integer)
returns table (queue text, n bigint)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query
    with recursive lane as (
      (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
      union all
      select n.queue, n.priority from lane l cross join lateral (
        select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
        where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
    )
    select l.queue, f.n + p.n
    from lane l
    left join lateral (
      select b.queue, b.priority, b.cursor_xid, b.cursor_seq, b.pending_xids, b.pending_seqs from {{schema}}.claim_batches_{{segment}} b
      where (b.queue, b.priority) >= (l.queue, l.priority) order by b.queue, b.priority, b.batch_id desc limit 1) b
      on b.queue = l.queue and b.priority = l.priority
    cross join lateral (
      select count(*) as n from (
        select from {{schema}}.ready_entries_{{segment}} r
        where r.queue = l.queue and r.priority = l.priority
          and (r.xid, r.seq) > (coalesce(b.cursor_xid, '0'::xid8), coalesce(b.cursor_seq, 0))
          and not exists (select from {{schema}}.ready_tombstones_{{segment}} t
                          where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq)
        limit p_cap + 1) r) f
    cross join lateral (
      select count(*) as n from (
        select from unnest(b.pending_xids, b.pending_seqs) as w(x, s)
        cross join lateral (
          select from {{schema}}.ready_entries_{{segment}} r
          where r.queue = l.queue and r.priority = l.priority and r.xid = w.x and r.seq > w.s
            and not exists (select from {{schema}}.ready_tombstones_{{segment}} t
                            where t.queue = r.queue and t.priority = r.priority and t.xid = r.xid and t.seq = r.seq)
          limit p_cap + 1) r
        limit p_cap + 1) r) p
    where l.priority > 0;
end $$;

-- Open attempts: of a batch, as many as it has items without closures; of a batch that rescue's mark has passed, those that
-- have a row in attempt_state. p_queue null: of all queues.
create or replace function {{schema}}.count_running_{{segment}}(p_queue text)
returns table (queue text, n bigint)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_from bigint;
begin
  select s.rescued_to into v_from from {{schema}}.segments s where s.slot = {{segment}};
  return query
    select o.queue, sum(o.n)::bigint
    from (
      select b.queue, b.n - c.closed as n
      from (select b.queue, b.batch_id, b.n from {{schema}}.claim_batches_{{segment}} b
            where b.batch_id > v_from and b.n > 0 and (p_queue is null or b.queue = p_queue) offset 0) b
      cross join lateral (
        select count(*) as closed from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id offset 0) c
      union all
      select b.queue, 1
      from {{schema}}.attempt_state s
      cross join lateral (
        select b.queue from {{schema}}.claim_batches_{{segment}} b
        where b.batch_id = s.batch_id and b.job_ids[s.batch_index] = s.job_id and b.run_leases[s.batch_index] = s.run_lease offset 0) b
      left join lateral (
        select true as found from {{schema}}.closures_{{segment}} c
        where c.batch_id = s.batch_id and c.batch_index = s.batch_index offset 0) c on true
      where s.claim_slot & 255 = {{segment}} and s.batch_id <= v_from and c.found is null and (p_queue is null or b.queue = p_queue)
    ) o
    group by o.queue having sum(o.n) > 0;
end $$;
{{/segments}}

-- How many jobs a queue has in each state that is not history: exact up to the cap; above it the cap, and is_exact false.
create or replace function {{schema}}.queue_counts(p_cap integer)
returns table (queue text, state text, n bigint, is_exact boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
begin
  if p_cap is null or p_cap < 1 or p_cap > 1000000 then
    raise exception using errcode = '22023', message = 'cap: expected an integer from 1 to 1000000';
  end if;
  return query
    with recursive deferred as (
      (select d.queue, d.state from {{schema}}.deferred_jobs d order by d.queue, d.state limit 1)
      union all
      select n.queue, n.state from deferred l cross join lateral (
        select d.queue, d.state from {{schema}}.deferred_jobs d
        where (d.queue, d.state) > (l.queue, l.state) order by d.queue, d.state limit 1) n
    ), terminal as (
      (select d.queue, d.state from {{schema}}.terminal_jobs d order by d.queue, d.state limit 1)
      union all
      select n.queue, n.state from terminal l cross join lateral (
        select d.queue, d.state from {{schema}}.terminal_jobs d
        where (d.queue, d.state) > (l.queue, l.state) order by d.queue, d.state limit 1) n
    ), dead as (
      (select d.queue from {{schema}}.dlq_entries d order by d.queue limit 1)
      union all
      select n.queue from dead l cross join lateral (
        select d.queue from {{schema}}.dlq_entries d where d.queue > l.queue order by d.queue limit 1) n
    )
    select c.queue, c.state, least(sum(c.n), p_cap)::bigint, sum(c.n) <= p_cap
    from (
      {{#segments union all}}
      select a.queue, 'available' as state, a.n from {{schema}}.count_available_{{segment}}(p_cap) a
      union all
      select r.queue, 'running', r.n from {{schema}}.count_running_{{segment}}(null) r
      {{/segments}}
      union all
      select h.queue, 'available', e.n
      from {{schema}}.spill_heads h
      cross join lateral (
        select count(*) as n from (
          select from {{schema}}.spilled_entries s
          where s.queue = h.queue and s.priority = h.priority and s.position > h.first_position limit p_cap + 1) s) e
      union all
      select l.queue, l.state, count(*) from {{schema}}.leases l group by l.queue, l.state
      union all
      select l.queue, l.state, e.n from deferred l
      cross join lateral (select count(*) as n from (
        select from {{schema}}.deferred_jobs d where d.queue = l.queue and d.state = l.state limit p_cap + 1) d) e
      union all
      select l.queue, l.state, e.n from terminal l
      cross join lateral (select count(*) as n from (
        select from {{schema}}.terminal_jobs d where d.queue = l.queue and d.state = l.state limit p_cap + 1) d) e
      union all
      select l.queue, 'dead_lettered', e.n from dead l
      cross join lateral (select count(*) as n from (
        select from {{schema}}.dlq_entries d where d.queue = l.queue limit p_cap + 1) d) e
      union all
      select q.queue, 'quarantined', count(*) from {{schema}}.quarantined_jobs q group by q.queue
    ) c
    where c.n > 0
    group by c.queue, c.state
    order by c.queue, c.state;
end $$;

-- The ring's slots. history_since (the same in every row): whatever became runnable since then still reads back, however it
-- ended. free_slots: how often the ring can turn before something must be pruned.
create or replace function {{schema}}.storage_health()
returns table (
  slot smallint, generation bigint, state text, is_current boolean, opened_at timestamptz, sealed_at timestamptz, drained_at timestamptz,
  bytes bigint, free_slots integer, history_since timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    with sizes as (
      {{#segments union all}}
      select {{segment}} as slot,
             pg_total_relation_size({{schema_text ready_entries_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text claim_batches_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text closures_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text ready_tombstones_{{segment}}}}::regclass)
             + pg_total_relation_size({{schema_text expected_completions_{{segment}}}}::regclass) as bytes
      {{/segments}}
    ), used as (
      -- generations go back without a gap from the newest: before a gap, something is missing
      select s.opened_at, s.generation, row_number() over (order by s.generation desc) as i, max(s.generation) over () as newest
      from {{schema}}.segments s where s.state <> 'free'
    )
    select s.slot, s.generation, s.state, s.slot = c.last_value % {{ring}}, s.opened_at, s.sealed_at, s.drained_at, z.bytes,
           (select count(*)::integer from {{schema}}.segments f where f.state = 'free'),
           (select min(u.opened_at) from used u where u.generation = u.newest - u.i + 1)
    from {{schema}}.segments s join sizes z on z.slot = s.slot cross join {{schema}}.segment_cursor c
    order by s.slot;
end $$;
`
  },
  {
    name: "090_admin.sql",
    text: `-- The operators' verbs. Each takes a list of job ids and answers one row per id. None waits for an application's transaction
-- or for a worker: what is locked at this moment is answered busy, and the caller asks again. They are to be called in a
-- transaction of their own, which holds the lanes' locks until it ends.

{{#segments}}
-- Lays tombstones on those of the entries that are still unclaimed, and answers what they hold. The lanes' locks are held, and
-- this statement's snapshot comes after them: a claim has either committed, and is seen, or comes later, and sees the tombstone.
create or replace function {{schema}}.bury_{{segment}}(
  p_queues text[], p_priorities smallint[], p_xids xid8[], p_seqs bigint[], p_reason text)
returns setof {{schema}}.ended_job
language plpgsql volatile as $$
begin
  return query
    with buried as (
      insert into {{schema}}.ready_tombstones_{{segment}} as t (queue, priority, xid, seq, job_id, reason, created_at)
      select e.queue, e.priority, e.xid, e.seq, e.job_id, p_reason, clock_timestamp()
      from unnest(p_queues, p_priorities, p_xids, p_seqs) as k(queue, priority, xid, seq)
      cross join lateral (
        select r.* from {{schema}}.ready_entries_{{segment}} r
        where r.queue = k.queue and r.priority = k.priority and r.xid = k.xid and r.seq = k.seq offset 0) e
      where not {{schema}}.is_claimed_{{segment}}(e.queue, e.priority, e.xid, e.seq)
      on conflict do nothing
      returning t.queue, t.priority, t.xid, t.seq
    )
    select e.job_id, e.run_lease, e.queue, e.priority, e.attempt, e.max_attempts, e.kind, e.args, e.progress, e.errors, e.created_at,
           e.unique_key, null::{{schema}}.outcome,
           jsonb_build_object('ready_at', coalesce(e.ready_at, e.created_at), 'xid', e.xid::text, 'seq', e.seq)
             || case when e.callback_result is null then '{}' else jsonb_build_object('callback_result', e.callback_result) end
    from buried b
    cross join lateral (
      select r.* from {{schema}}.ready_entries_{{segment}} r
      where r.queue = b.queue and r.priority = b.priority and r.xid = b.xid and r.seq = b.seq offset 0) e;
end $$;

-- Puts jobs into the current segment, which the caller holds, in another lane and in the order in which they could run.
create or replace function {{schema}}.place_entries_{{segment}}(p_jobs {{schema}}.ended_job[], p_priority smallint) returns void
language sql volatile as $$
  insert into {{schema}}.ready_entries_{{segment}}
    (queue, priority, xid, seq, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors,
     ready_at, unique_key, callback_result)
  select j.queue, p_priority, pg_current_xact_id(), nextval({{schema_text entry_seq}}), j.job_id, j.run_lease, j.attempt, j.max_attempts,
         j.created_at, j.kind, j.args, j.progress, j.errors, (j.detail ->> 'ready_at')::timestamptz, j.unique_key,
         j.detail -> 'callback_result'
  from (select u.* from unnest(p_jobs) u
        order by (u.detail ->> 'ready_at')::timestamptz, (u.detail ->> 'xid')::xid8, (u.detail ->> 'seq')::bigint) j
$$;
{{/segments}}

-- Who asked for what: the role that the session began as, since these functions run as their owner.
create or replace function {{schema}}.record_audit(p_verb text, p_detail jsonb) returns void
language sql volatile as $$
  insert into {{schema}}.audit (session_role, verb, detail) values (session_user, p_verb, p_detail)
$$;

-- The ids as asked for, each once.
create or replace function {{schema}}.asked_ids(p_job_ids bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  if p_job_ids is null then
    raise exception using errcode = '22023', message = 'job_ids: expected a list of ids';
  end if;
  if cardinality(p_job_ids) > 1000 then
    raise exception using errcode = '22023', message = 'job_ids: at most 1000 in one call';
  end if;
  return array(select distinct i from unnest(p_job_ids) i where i is not null order by i);
end $$;

-- Those of the lanes ('<priority>/<queue>') whose locks were to be had at once; held until the transaction ends.
create or replace function {{schema}}.hold_lanes(p_lanes text[]) returns text[]
language sql volatile as $$
  select coalesce(array_agg(l.lane), '{}') from (select distinct u as lane from unnest(p_lanes) u offset 0) l
  where pg_try_advisory_xact_lock(hashtextextended({{key lane}} || l.lane, 0))
$$;

-- Takes jobs that nobody has claimed out of where they are: from the ring under a tombstone, from a lane's head, from
-- deferred_jobs. Answers those that were taken, and what they hold; the others have moved, or somebody holds a lock.
create or replace function {{schema}}.take_waiting(p_found {{schema}}.found_job[], p_reason text) returns {{schema}}.ended_job[]
language plpgsql volatile as $$
declare
  v_jobs   {{schema}}.ended_job[] := '{}';
  v_part   {{schema}}.ended_job[];
  v_lanes  text[];
  v_rows   tid[];
  v_at     record;
begin
  v_rows := array(
    select d.ctid from unnest(p_found) f
    cross join lateral (
      select r.ctid from {{schema}}.deferred_jobs r where r.job_id = f.job_id for update skip locked) d
    where f.place = 'deferred');
  with taken as (
    delete from {{schema}}.deferred_jobs d where d.ctid = any (v_rows) returning d.*
  )
  select coalesce(array_agg(row(t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress,
                                t.errors, t.created_at, t.unique_key, null, '{}')::{{schema}}.ended_job), '{}')
  into v_jobs from taken t;

  v_lanes := {{schema}}.hold_lanes(array(select f.priority || '/' || f.queue from unnest(p_found) f where f.place in ('entry', 'head')));
  for v_at in
    select f.segment, array_agg(f.queue) as queues, array_agg(f.priority) as priorities, array_agg(f.xid) as xids, array_agg(f.seq) as seqs
    from unnest(p_found) f
    where f.place = 'entry' and f.priority || '/' || f.queue = any (v_lanes)
    group by f.segment order by f.segment
  loop
    case v_at.segment
      {{#segments}}
      when {{segment}} then
        v_part := array(select b from {{schema}}.bury_{{segment}}(v_at.queues, v_at.priorities, v_at.xids, v_at.seqs, p_reason) b);
      {{/segments}}
    end case;
    v_jobs := v_jobs || v_part;
  end loop;

  v_rows := array(
    select h.ctid from unnest(p_found) f
    cross join lateral (
      select r.ctid from {{schema}}.spilled_entries r
      where r.queue = f.queue and r.priority = f.priority and r.position = f.seq and r.job_id = f.job_id for update skip locked) h
    where f.place = 'head' and f.priority || '/' || f.queue = any (v_lanes));
  with taken as (
    delete from {{schema}}.spilled_entries s where s.ctid = any (v_rows) returning s.*
  )
  select array_agg(row(t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors,
                       t.created_at, t.unique_key, null,
                       jsonb_build_object('ready_at', coalesce(t.ready_at, t.created_at), 'xid', '0', 'seq', t.position)
                         || case when t.callback_result is null then '{}'
                              else jsonb_build_object('callback_result', t.callback_result) end)::{{schema}}.ended_job)
  into v_part from taken t;
  return v_jobs || v_part;
end $$;

-- Ends running attempts as cancelled; answers the jobs whose attempt this call ended. An attempt whose lock is held is in the
-- middle of a finalization: its end decides. A flush in flight is waited for, but not long.
create or replace function {{schema}}.cancel_attempts(p_found {{schema}}.found_job[]) returns bigint[]
language plpgsql volatile
set lock_timeout = '250ms'
as $$
declare
  v_held  {{schema}}.found_job[];
  v_one   {{schema}}.found_job;
  v_done  bigint[] := '{}';
begin
  v_held := array(
    select f from unnest(p_found) f
    where case when f.place in ('attempt', 'lease')
            then pg_try_advisory_xact_lock(hashtextextended({{key attempt}} || f.job_id || '/' || f.run_lease, 0)) else false end);
  if cardinality(v_held) = 0 then
    return v_done;
  end if;
  begin
    return {{schema}}.close_cancelled(v_held);
  exception when lock_not_available or deadlock_detected then
    null;
  end;
  foreach v_one in array v_held loop
    begin
      v_done := v_done || {{schema}}.close_cancelled(array[v_one]);
    exception when lock_not_available or deadlock_detected then
      null;
    end;
  end loop;
  return v_done;
end $$;

create or replace function {{schema}}.close_cancelled(p_held {{schema}}.found_job[]) returns bigint[]
language plpgsql volatile as $$
declare
  -- a flush id of its own: 62 random bits
  v_closer  bigint := ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17, 16))::bit(64)::bigint & 4611686018427387903;
  v_detail  constant jsonb := '{"error": {"name": "Cancelled", "message": "cancelled by an operator"}}';
  v_done    bigint[];
begin
  select coalesce(array_agg(h.job_ids[c.ord]), '{}') into v_done
  from (select -- of this installation, also where a lease is of the one that this was copied from
               array_agg({{schema}}.claim_slot_base() | (u.claim_slot & 255) order by u.ord) as slots,
               array_agg(u.batch_id order by u.ord) as batch_ids,
               array_agg(u.batch_index order by u.ord) as indexes, array_agg(u.job_id order by u.ord) as job_ids,
               array_agg(u.run_lease order by u.ord) as run_leases, array_agg(u.receipt_id order by u.ord) as receipts,
               array_agg('cancelled'::{{schema}}.outcome) as outcomes, jsonb_object_agg(u.ord, v_detail) as details
        from (select p.*, row_number() over (order by p.job_id) as ord from unnest(p_held) p where p.state <> 'parked') u
        having count(*) > 0) h
  cross join lateral {{schema}}.close_attempts(v_closer, h.slots, h.batch_ids, h.indexes, h.job_ids, h.run_leases, h.receipts, h.outcomes,
                                               h.details, true) c
  where c.answer = 'closed';
  -- and those that are parked: no flush comes to them
  return v_done || coalesce((
    select array_agg(e.job_id)
    from (select array_agg(u.job_id) as job_ids, array_agg(u.run_lease) as run_leases, array_agg(u.receipt_id) as receipts,
                 array_agg('cancelled'::{{schema}}.outcome) as outcomes, array_agg(v_detail) as details
          from (select p.* from unnest(p_held) p where p.state = 'parked' order by p.job_id) u having count(*) > 0) h
    cross join lateral {{schema}}.end_leases(h.job_ids, h.run_leases, h.receipts, h.outcomes, h.details, v_closer, true) e), '{}');
end $$;

-- Cancels jobs, wherever they are. cancelled; busy: a lock was held or the job was on the move, ask again; finished: it is over,
-- or it is dead-lettered or quarantined and does not run by itself; unknown. A running handler is told by a notification, and
-- whatever it reports later is stale.
create or replace function {{schema}}.cancel_jobs(p_job_ids bigint[])
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_ids      bigint[];
  v_found    {{schema}}.found_job[];
  v_jobs     {{schema}}.ended_job[];
  v_done     bigint[];
  v_stopped  bigint[];
begin
  perform {{schema}}.require_read_committed();
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('cancel', jsonb_build_object('job_ids', v_ids));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);

  v_jobs := {{schema}}.take_waiting(v_found, 'cancelled');
  if cardinality(v_jobs) > 0 then
    select array_agg(row(j.job_id, j.run_lease, j.queue, j.priority, j.attempt, j.max_attempts, j.kind, j.args, j.progress, j.errors,
                         j.created_at, j.unique_key, 'cancelled', '{}')::{{schema}}.ended_job), array_agg(j.job_id)
    into v_jobs, v_done from unnest(v_jobs) j;
    -- also the keys that are held until the first claim
    perform {{schema}}.release_unique(u.keys, u.job_ids, 3::smallint)
    from (select array_agg(j.unique_key) as keys, array_agg(j.job_id) as job_ids from unnest(v_jobs) j where j.unique_key is not null) u
    where u.keys is not null;
    perform {{schema}}.dispose_jobs(v_jobs);
  end if;

  v_stopped := {{schema}}.cancel_attempts(v_found);
  perform pg_notify({{channel}}, E'\\x01cancel/' || f.job_id || '/' || f.run_lease)
  from unnest(v_found) f where f.job_id = any (v_stopped);

  return query
    select i.i, case when i.i = any (v_done) or i.i = any (v_stopped) then 'cancelled'
                     when f.place is null then 'unknown'
                     when f.place in ('deferred', 'entry', 'head', 'attempt', 'lease') then 'busy'
                     else 'finished' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- Removes jobs that do not run. deleted; running: cancel it first; busy: ask again; finished: it completed, and its history goes
-- with its segment; unknown.
create or replace function {{schema}}.delete_jobs(p_job_ids bigint[])
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_ids    bigint[];
  v_found  {{schema}}.found_job[];
  v_jobs   {{schema}}.ended_job[];
  v_over   {{schema}}.ended_job[];
  v_done   bigint[];
begin
  perform {{schema}}.require_read_committed();
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('delete', jsonb_build_object('job_ids', v_ids));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);
  v_jobs := {{schema}}.take_waiting(v_found, 'deleted');
  v_over := {{schema}}.take_over(array(select f.job_id from unnest(v_found) f where f.place in ('terminal', 'dead', 'quarantined')));
  select array_agg(j.job_id) into v_done from unnest(v_jobs || v_over) j;
  perform {{schema}}.release_unique(u.keys, u.job_ids, 4::smallint)  -- however long they would be held
  from (select array_agg(j.unique_key) as keys, array_agg(j.job_id) as job_ids from unnest(v_jobs || v_over) j
        where j.unique_key is not null) u
  where u.keys is not null;
  return query
    select i.i, case when i.i = any (v_done) then 'deleted'
                     when f.place is null then 'unknown'
                     when f.place in ('attempt', 'lease') then 'running'
                     when f.place in ('completed', 'past') then 'finished'
                     else 'busy' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- Takes jobs that ended out of terminal_jobs, dlq_entries and quarantined_jobs, as far as their rows can be locked at once.
create or replace function {{schema}}.take_over(p_job_ids bigint[]) returns {{schema}}.ended_job[]
language plpgsql volatile as $$
declare
  v_jobs  {{schema}}.ended_job[];
  v_rows  tid[];
  v_dead  tid[];
  v_quar  tid[];
begin
  v_rows := array(
    select t.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (select r.ctid from {{schema}}.terminal_jobs r where r.job_id = i.job_id for update skip locked) t);
  v_dead := array(
    select t.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (select r.ctid from {{schema}}.dlq_entries r where r.job_id = i.job_id for update skip locked) t);
  v_quar := array(
    select t.ctid from unnest(p_job_ids) as i(job_id)
    cross join lateral (select r.ctid from {{schema}}.quarantined_jobs r where r.job_id = i.job_id for update skip locked) t);
  with ended as (
    delete from {{schema}}.terminal_jobs t where t.ctid = any (v_rows) returning t.*
  ), dead as (
    delete from {{schema}}.dlq_entries t where t.ctid = any (v_dead) returning t.*
  ), quarantined as (
    delete from {{schema}}.quarantined_jobs t where t.ctid = any (v_quar) returning t.*
  )
  select coalesce(array_agg(row(j.job_id, j.run_lease, j.queue, j.priority, j.attempt, j.max_attempts, j.kind, j.args, j.progress,
                                j.errors, j.created_at, j.unique_key, null, '{}')::{{schema}}.ended_job), '{}')
  into v_jobs
  from (
    select t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors, t.created_at, t.unique_key
    from ended t
    union all
    select t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors, t.created_at, t.unique_key
    from dead t
    union all
    select t.job_id, t.run_lease, t.queue, t.priority, t.attempt, t.max_attempts, t.kind, t.args, t.progress, t.errors, t.created_at, t.unique_key
    from quarantined t
  ) j;
  return v_jobs;
end $$;

-- Gives jobs that do not run yet another priority. In the ring: a tombstone on the old entry, and a new one at the end of the
-- other lane. reprioritized; unchanged: it has that priority; running; busy: ask again; finished; unknown.
create or replace function {{schema}}.reprioritize_jobs(p_job_ids bigint[], p_priority integer)
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_ids    bigint[];
  v_found  {{schema}}.found_job[];
  v_jobs   {{schema}}.ended_job[];
  v_rows   tid[];
  v_done   bigint[];
begin
  perform {{schema}}.require_read_committed();
  if p_priority is null or p_priority not between 1 and 4 then
    raise exception using errcode = '22023', message = 'priority: expected an integer from 1 to 4';
  end if;
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('reprioritize', jsonb_build_object('job_ids', v_ids, 'priority', p_priority));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);
  v_rows := array(
    select d.ctid from unnest(v_found) f
    cross join lateral (select r.ctid from {{schema}}.deferred_jobs r where r.job_id = f.job_id for update skip locked) d
    where f.place = 'deferred' and f.priority <> p_priority);
  with changed as (
    update {{schema}}.deferred_jobs d set priority = p_priority where d.ctid = any (v_rows) returning d.job_id
  )
  select array_agg(c.job_id) into v_done from changed c;

  v_jobs := {{schema}}.take_waiting(
    array(select f from unnest(v_found) f where f.place in ('entry', 'head') and f.priority <> p_priority), 'reprioritized');
  if cardinality(v_jobs) > 0 then
    case {{schema}}.hold_current_segment()
      {{#segments}}
      when {{segment}} then perform {{schema}}.place_entries_{{segment}}(v_jobs, p_priority::smallint);
      {{/segments}}
    end case;
    perform pg_notify({{channel}}, q.queue) from (select distinct j.queue from unnest(v_jobs) j) q;
    v_done := v_done || array(select j.job_id from unnest(v_jobs) j);
  end if;
  return query
    select i.i, case when i.i = any (v_done) then 'reprioritized'
                     when f.place is null then 'unknown'
                     when f.place in ('attempt', 'lease') then 'running'
                     when f.place not in ('deferred', 'entry', 'head') then 'finished'
                     when f.priority = p_priority then 'unchanged'
                     else 'busy' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- Runs jobs again that ended without success, or that are quarantined: at once, with all their attempts before them. The run
-- lease goes on, so nothing an old attempt says can be taken for a new one's; the errors stay. redriven; duplicate: another
-- job holds its unique key now; live: it is not over; finished: it completed; busy: ask again; refused: it cannot be stored;
-- unknown.
create or replace function {{schema}}.redrive_jobs(p_job_ids bigint[])
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
set lock_timeout = '250ms'
as $$
#variable_conflict use_column
declare
  v_ids      bigint[];
  v_found    {{schema}}.found_job[];
  v_over     bigint[];
  v_one      bigint;
  v_did      record;
  v_done     bigint[] := '{}';
  v_doubled  bigint[] := '{}';
  v_refused  bigint[] := '{}';
begin
  perform {{schema}}.require_read_committed();
  v_ids := {{schema}}.asked_ids(p_job_ids);
  perform {{schema}}.record_audit('redrive', jsonb_build_object('job_ids', v_ids));
  v_found := array(select f from {{schema}}.find_jobs(v_ids) f);
  v_over := array(select f.job_id from unnest(v_found) f where f.place in ('terminal', 'dead', 'quarantined'));
  if cardinality(v_over) > 0 then
    begin
      select * into v_did from {{schema}}.run_again(v_over);
      v_done := v_did.done;
      v_doubled := v_did.doubled;
    exception when others then
      if not ({{schema}}.speaks_of_rows(sqlstate) or sqlstate in ('55P03', '40P01')) then
        raise;
      end if;
      -- Somebody was waited for once: a wait for each of them would be as long as the list.
      perform set_config('lock_timeout', '5ms', true);
      foreach v_one in array v_over loop
        begin
          select * into v_did from {{schema}}.run_again(array[v_one]);
          v_done := v_done || v_did.done;
          v_doubled := v_doubled || v_did.doubled;
        exception when others then
          if {{schema}}.speaks_of_rows(sqlstate) then
            v_refused := v_refused || v_one;
          elsif sqlstate not in ('55P03', '40P01') then
            raise;
          end if;
        end;
      end loop;
    end;
  end if;
  return query
    select i.i, case when i.i = any (v_done) then 'redriven'
                     when i.i = any (v_doubled) then 'duplicate'
                     when i.i = any (v_refused) then 'refused'
                     when f.place is null then 'unknown'
                     when f.place in ('completed', 'past') then 'finished'
                     when f.place in ('terminal', 'dead', 'quarantined') then 'busy'
                     else 'live' end
    from unnest(v_ids) as i(i) left join unnest(v_found) f on f.job_id = i.i
    order by i.i;
end $$;

-- The jobs that a unique key does not stop: out of where they ended, into deferred_jobs, and from there into the ring. A key is
-- taken again until the job's next end, whatever its preset was, since the window is over with the first life; one that the
-- job still holds (all: after any end) is kept as it is.
create or replace function {{schema}}.run_again(p_job_ids bigint[], out done bigint[], out doubled bigint[])
language plpgsql volatile as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_jobs  {{schema}}.ended_job[];
  v_held  bigint[];
  v_keys  bytea[];
  v_took  bigint[];  -- the jobs that this call gave a key
  v_more  bigint[];
begin
  select array_agg(k.job_id), array_agg(substr(k.unique_key, 2)) into v_held, v_keys
  from unnest(p_job_ids) as i(job_id)
  cross join lateral (
    (select r.job_id, r.unique_key from {{schema}}.terminal_jobs r where r.job_id = i.job_id)
    union all (select r.job_id, r.unique_key from {{schema}}.dlq_entries r where r.job_id = i.job_id)
    union all (select r.job_id, r.unique_key from {{schema}}.quarantined_jobs r where r.job_id = i.job_id)) k
  where k.unique_key is not null;
  with taken as (
    insert into {{schema}}.unique_claims (unique_key, job_id, states, expires_at)
    select k.unique_key, min(k.job_id), 1, null from unnest(v_held, v_keys) as k(job_id, unique_key)
    group by k.unique_key order by k.unique_key
    on conflict (unique_key) do nothing
    returning job_id
  )
  select array_agg(t.job_id) into v_took from taken t;
  -- A holder past its window gives way, also when it is the job itself: whether a sweep came by makes no difference. Nobody
  -- else's row is locked: the end of its job must find it free to release it.
  with taken as (
    update {{schema}}.unique_claims u set job_id = k.job_id, states = 1, expires_at = null
    from (select n.unique_key, min(n.job_id) as job_id from unnest(v_held, v_keys) as n(job_id, unique_key) group by n.unique_key) k
    where u.unique_key = k.unique_key and u.expires_at < v_now
    returning u.job_id
  )
  select array_agg(t.job_id) into v_more from taken t;
  -- another statement, which sees the holders
  select coalesce(array_agg(k.job_id), '{}') into doubled
  from unnest(v_held, v_keys) as k(job_id, unique_key)
  left join lateral (select u.job_id from {{schema}}.unique_claims u where u.unique_key = k.unique_key offset 0) u on true
  where u.job_id is distinct from k.job_id;

  v_jobs := {{schema}}.take_over(array(select i from unnest(p_job_ids) i where i <> all (doubled)));
  select coalesce(array_agg(j.job_id), '{}') into done from unnest(v_jobs) j;
  -- A key taken for a job whose row was locked is given back. One that the job had before is not: whoever holds its row may
  -- have made it run again.
  delete from {{schema}}.unique_claims u
  using unnest(v_held, v_keys) as k(job_id, unique_key)
  where u.unique_key = k.unique_key and u.job_id = k.job_id and u.states = 1 and k.job_id <> all (done) and k.job_id = any (v_took || v_more);

  insert into {{schema}}.deferred_jobs
    (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, progress, errors, created_at, xid, unique_key)
  select j.job_id, j.queue, j.priority, 'retryable', v_now, j.run_lease, 0, j.max_attempts, j.kind, j.args, j.progress, j.errors,
         j.created_at, pg_current_xact_id(), set_byte(j.unique_key, 0, u.states)
  from unnest(v_jobs) j
  left join lateral (
    select c.states from {{schema}}.unique_claims c where c.unique_key = substr(j.unique_key, 2) offset 0) u on true;
  if cardinality(done) > 0 then
    perform {{schema}}.promote_jobs(done);
  end if;
end $$;

-- Runs again what a filter selects: of dead letters (dlq), terminal jobs or quarantined ones; null selects all. In order of
-- ids above p_after, so that a caller goes on from the last id that was answered, past those that stay.
create or replace function {{schema}}.redrive_where(
  p_source text, p_queue text, p_kind text, p_before timestamptz, p_after bigint, p_limit integer)
returns table (job_id bigint, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  perform {{schema}}.require_read_committed();
  if p_limit is null or p_limit < 1 or p_limit > 1000 then
    raise exception using errcode = '22023', message = 'limit: expected an integer from 1 to 1000';
  end if;
  case p_source
    when 'dlq' then
      v_ids := array(
        select t.job_id from {{schema}}.dlq_entries t
        where t.job_id > coalesce(p_after, 0) and (p_queue is null or t.queue = p_queue) and (p_kind is null or t.kind = p_kind)
          and (p_before is null or t.dead_lettered_at < p_before)
        order by t.job_id limit p_limit);
    when 'terminal' then
      v_ids := array(
        select t.job_id from {{schema}}.terminal_jobs t
        where t.job_id > coalesce(p_after, 0) and (p_queue is null or t.queue = p_queue) and (p_kind is null or t.kind = p_kind)
          and (p_before is null or t.finalized_at < p_before)
        order by t.job_id limit p_limit);
    when 'quarantined' then
      v_ids := array(
        select t.job_id from {{schema}}.quarantined_jobs t
        where t.job_id > coalesce(p_after, 0) and (p_queue is null or t.queue = p_queue) and (p_kind is null or t.kind = p_kind)
          and (p_before is null or t.quarantined_at < p_before)
        order by t.job_id limit p_limit);
    else
      raise exception using errcode = '22023', message = 'source: expected dlq, terminal or quarantined';
  end case;
  return query select r.job_id, r.answer from {{schema}}.redrive_jobs(v_ids) r;
end $$;

-- Claims take nothing of a paused queue; what runs goes on. Answers whether this changed anything.
create or replace function {{schema}}.pause_queue(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  perform {{schema}}.record_audit('pause', jsonb_build_object('queue', p_queue));
  insert into {{schema}}.queues as q (queue, paused) values (p_queue, true)
  on conflict (queue) do update set paused = true where not q.paused;
  return found;
end $$;

create or replace function {{schema}}.resume_queue(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update {{schema}}.queues q set paused = false where q.queue = p_queue and q.paused;
  if not found then
    return false;
  end if;
  perform {{schema}}.record_audit('resume', jsonb_build_object('queue', p_queue));
  perform pg_notify({{channel}}, p_queue);
  return true;
end $$;

-- Settings of a queue: what is named is set, null is none (or the default), what is not named stays. Lengths of time are
-- milliseconds. Answers the queue as it is then.
create or replace function {{schema}}.set_queue(p_queue text, p_settings jsonb) returns {{schema}}.queues
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key    text;
  v_queue  {{schema}}.queues;
  v_known  constant text[] := '{aging_ms,dead_letter,attempt_deadline_ms,rate_limit,rate_interval_ms}';
begin
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  if p_settings is null or jsonb_typeof(p_settings) <> 'object' then
    raise exception using errcode = '22023', message = 'settings: expected an object';
  end if;
  select k into v_key from jsonb_object_keys(p_settings) k where not k = any (v_known) order by k limit 1;
  if found then
    raise exception using errcode = 'WA005', message = format('unknown setting %L', v_key),
      hint = 'Known settings: ' || array_to_string(v_known, ', ') || '.';
  end if;
  if p_settings ->> 'aging_ms' !~ '^[0-9]{1,12}$' then
    raise exception using errcode = '22023', message = 'aging_ms: expected a whole number of milliseconds, not negative';
  end if;
  if jsonb_typeof(p_settings -> 'dead_letter') not in ('boolean', 'null') then
    raise exception using errcode = '22023', message = 'dead_letter: expected a boolean';
  end if;
  if p_settings ->> 'attempt_deadline_ms' !~ '^0*[1-9][0-9]{0,11}$' then
    raise exception using errcode = '22023', message = 'attempt_deadline_ms: expected a whole number of milliseconds above 0';
  end if;
  if p_settings ->> 'rate_limit' !~ '^0*[1-9][0-9]{0,8}$' then
    raise exception using errcode = '22023', message = 'rate_limit: expected a whole number from 1 to 999999999';
  end if;
  if p_settings ->> 'rate_interval_ms' !~ '^0*[1-9][0-9]{0,11}$' then
    raise exception using errcode = '22023', message = 'rate_interval_ms: expected a whole number of milliseconds above 0';
  end if;
  insert into {{schema}}.queues (queue) values (p_queue) on conflict (queue) do nothing;
  select q.* into v_queue from {{schema}}.queues q where q.queue = p_queue for update;
  if p_settings ? 'aging_ms' then
    v_queue.aging := coalesce((p_settings ->> 'aging_ms')::bigint * interval '1 millisecond', interval '1 minute');
  end if;
  if p_settings ? 'dead_letter' then
    v_queue.dead_letter := coalesce((p_settings ->> 'dead_letter')::boolean, false);
  end if;
  if p_settings ? 'attempt_deadline_ms' then
    v_queue.attempt_deadline := (p_settings ->> 'attempt_deadline_ms')::bigint * interval '1 millisecond';
  end if;
  if p_settings ? 'rate_limit' then
    v_queue.rate_limit := (p_settings ->> 'rate_limit')::integer;
  end if;
  if p_settings ? 'rate_interval_ms' then
    v_queue.rate_interval := (p_settings ->> 'rate_interval_ms')::bigint * interval '1 millisecond';
  end if;
  if (v_queue.rate_limit is null) <> (v_queue.rate_interval is null) then
    raise exception using errcode = '22023', message = case when v_queue.rate_limit is null
      then 'rate_limit: expected together with rate_interval_ms' else 'rate_interval_ms: expected together with rate_limit' end;
  end if;
  update {{schema}}.queues q
  set aging = v_queue.aging, dead_letter = v_queue.dead_letter, attempt_deadline = v_queue.attempt_deadline,
      rate_limit = v_queue.rate_limit, rate_interval = v_queue.rate_interval
  where q.queue = p_queue;
  perform {{schema}}.record_audit('set', jsonb_build_object('queue', p_queue, 'settings', p_settings));
  perform pg_notify({{channel}}, p_queue);
  return v_queue;
end $$;

-- The live runtimes that claim of a queue and do not advertise caller-owned completion of this contract version, or a later one,
-- as a list; null when there are none. One that does not say what it claims may claim anything.
create or replace function {{schema}}.caller_owned_laggards(p_queue text, p_staleness interval) returns jsonb
language sql volatile as $$
  select jsonb_agg(jsonb_build_object('runtime_id', r.runtime_id::text, 'name', r.name, 'beat_at', r.beat_at,
                                      'callerOwned', r.capabilities -> 'callerOwned') order by r.runtime_id)
  from {{schema}}.runtimes r
  where r.beat_at > clock_timestamp() - p_staleness
    and coalesce(jsonb_typeof(r.capabilities -> 'queues') <> 'array' or r.capabilities -> 'queues' ? p_queue, true)
    and not case when jsonb_typeof(r.capabilities -> 'callerOwned') = 'number'
              then (r.capabilities ->> 'callerOwned')::numeric >= 1 else false end
$$;

-- Makes complete_job serve a queue, once every live runtime that claims of it can (C-60); a runtime that has not beaten for the
-- staleness is none. What was put aside runs again, p_limit jobs in a call: answers how many, and is called again until it is
-- fewer (a sweep comes for what is left). 55000: refused, with the runtimes that are in the way as DETAIL.
create or replace function {{schema}}.enable_caller_owned(
  p_queue text, p_staleness interval default '60 seconds', p_limit integer default 1000)
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
  v_laggards jsonb;
begin
  perform {{schema}}.require_read_committed();
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  if p_staleness is null or p_staleness <= interval '0' then
    raise exception using errcode = '22023', message = 'staleness: expected a length of time above 0';
  end if;
  if p_limit is null or p_limit < 1 or p_limit > 10000 then
    raise exception using errcode = '22023', message = 'limit: expected an integer from 1 to 10000';
  end if;
  perform from {{schema}}.meta m for no key update;  -- one at a time, or any_gated would miss what another one is about to say
  if exists (select from {{schema}}.queues q where q.queue = p_queue and not q.caller_owned) then
    v_laggards := {{schema}}.caller_owned_laggards(p_queue, p_staleness);
    if v_laggards is not null then
      raise exception using errcode = '55000', detail = v_laggards::text,
        message = format('caller-owned completion of the queue %s cannot be enabled: %s', p_queue, (
          select string_agg(format('%s (runtime %s)', l ->> 'name', l ->> 'runtime_id'), ', ' order by o)
          from jsonb_array_elements(v_laggards) with ordinality as u(l, o))
          || case when jsonb_array_length(v_laggards) = 1 then ' does' else ' do' end || ' not advertise it'),
        hint = 'Upgrade or stop them. One that died is forgotten when it has not beaten for the staleness.';
    end if;
    perform {{schema}}.record_audit('enable_caller_owned', jsonb_build_object('queue', p_queue));
    update {{schema}}.queues q set caller_owned = true where q.queue = p_queue;
    update {{schema}}.meta m set any_gated = exists (select from {{schema}}.queues q where not q.caller_owned);
  end if;
  return {{schema}}.promote_gated(p_queue, p_limit);
end $$;

-- Makes complete_job refuse a queue (WA006): its caller-owned jobs are put aside as they are claimed, or when they try to complete.
-- Ordinary ones go on. Answers whether this changed anything.
create or replace function {{schema}}.disable_caller_owned(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_changed boolean;
begin
  perform {{schema}}.require_read_committed();
  if {{schema}}.name_fault(p_queue) is not null then
    raise exception using errcode = '22023', message = 'queue: ' || {{schema}}.name_fault(p_queue);
  end if;
  perform from {{schema}}.meta m for no key update;
  perform {{schema}}.record_audit('disable_caller_owned', jsonb_build_object('queue', p_queue));
  insert into {{schema}}.queues as q (queue, caller_owned) values (p_queue, false)
  on conflict (queue) do update set caller_owned = false where q.caller_owned;
  v_changed := found;
  update {{schema}}.meta m set any_gated = true where not m.any_gated;
  return v_changed;
end $$;

-- Whether anything of a queue is at work: an attempt that is open, with a handler (a parked one has none), or a claim that is
-- being made at this moment. Asked again and again after a pause until it is not so.
create or replace function {{schema}}.queue_running(p_queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_memoize = off
set enable_bitmapscan = off
as $$
declare
  v_slot  smallint;
  v_found boolean;
begin
  perform {{schema}}.require_read_committed();
  if cardinality({{schema}}.hold_lanes(array(select p || '/' || p_queue from generate_series(1, 4) p))) < 4
     or exists (select from {{schema}}.leases l where l.queue = p_queue and l.state <> 'parked') then
    return true;
  end if;
  for v_slot in select s.slot from {{schema}}.segments s where s.state <> 'free' order by s.generation desc loop
    case v_slot
      {{#segments}}
      when {{segment}} then v_found := exists (select from {{schema}}.count_running_{{segment}}(p_queue));
      {{/segments}}
    end case;
    if v_found then
      return true;
    end if;
  end loop;
  return false;
end $$;
`
  },
  {
    name: "094_adopt.sql",
    text: `-- Whether this database is the one that the installation was made for, and whether what is stored fits this server. A copy
-- brings numbers of another server with it: transaction ids that a cursor here would compare with its own, and rows whose
-- sequences may have stayed behind (a copy by COPY or by a subscription does not bring them).

-- The greatest numbers in one segment, by one index probe a lane. A cursor is never past the last entry of its lane; copies of
-- spilled entries, under negative priorities, are numbered by their position in the head.
{{#segments}}
create or replace function {{schema}}.newest_{{segment}}(out xid xid8, out seq bigint, out spilled bigint, out job_id bigint, out batch_id bigint)
language sql stable as $$
  with recursive lane as (
    (select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r order by r.queue, r.priority limit 1)
    union all
    select n.queue, n.priority from lane l cross join lateral (
      select r.queue, r.priority from {{schema}}.ready_entries_{{segment}} r
      where (r.queue, r.priority) > (l.queue, l.priority) order by r.queue, r.priority limit 1) n
  ), last as (
    select l.priority, e.xid, e.seq from lane l cross join lateral (
      select r.xid, r.seq from {{schema}}.ready_entries_{{segment}} r
      where r.queue = l.queue and r.priority = l.priority order by r.xid desc, r.seq desc limit 1) e
  )
  select max(l.xid), max(l.seq) filter (where l.priority > 0), max(l.seq) filter (where l.priority < 0),
         (select max(r.job_id) from {{schema}}.ready_entries_{{segment}} r),
         (select max(b.batch_id) from {{schema}}.claim_batches_{{segment}} b)
  from last l
$$;
{{/segments}}

-- Whether a transaction of this database that holds an id as old as p_xid is still open, a prepared one included.
create or replace function {{schema}}.is_open_since(p_xid xid8) returns boolean
language sql volatile as $$
  select exists (
    select from (
      select l.transactionid from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
      where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted and a.pid <> pg_backend_pid()
        and a.datid = (select d.oid from pg_database d where d.datname = current_database())
      union all
      select p.transaction from pg_prepared_xacts p where p.database = current_database()) o
    -- a 32-bit id is within 2^31 of xmax
    where ((s.xmax - o.transactionid::text::bigint + 2147483648) & 4294967295) - 2147483648 >= s.xmax - p_xid::text::bigint)
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax) s
$$;

-- What of the stored numbers this server cannot go on from; null when nothing is. Index probes only: every runtime asks this
-- when it starts. Sequences are read live and tables by the statement's snapshot, so a busy installation never looks wrong.
create or replace function {{schema}}.storage_fault() returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  v_here     record;
  v_stored   record;
  v_behind   record;
  v_value    bigint;
  v_again    bigint;
begin
  perform {{schema}}.require_read_committed();
  select m.system_identifier = c.system_identifier as same_cluster, m.database_oid = d.oid as same_database into v_here
  from {{schema}}.meta m, pg_control_system() c, pg_database d where d.datname = current_database();

  -- The transaction ids of segments that are only history mean nothing to anybody.
  select max(n.xid) filter (where s.state in ('open', 'sealed')) as xid, coalesce(max(n.seq), 0) as seq, max(n.spilled) as spilled, coalesce(max(n.job_id), 0) as job_id, coalesce(max(n.batch_id), 0) as batch_id,
         pg_snapshot_xmin(pg_current_snapshot()) as xmin, pg_snapshot_xmax(pg_current_snapshot()) as xmax
  into v_stored
  from (
    {{#segments union all}}
    select {{segment}} as slot, * from {{schema}}.newest_{{segment}}()
    {{/segments}}
  ) n
  join {{schema}}.segments s on s.slot = n.slot;
  if v_stored.xid >= v_stored.xmax and v_stored.xid is distinct from pg_current_xact_id_if_assigned() then
    return format('the newest stored transaction id, %s, lies ahead of this server''s, which come to %s', v_stored.xid, v_stored.xmax);
  end if;
  -- A cursor hides what a transaction older than itself commits later. In another cluster the same number may even be in use.
  if not v_here.same_cluster and v_stored.xid >= v_stored.xmin
     or not v_here.same_database and {{schema}}.is_open_since(v_stored.xid) then
    return format('a transaction is open that is not newer than the newest stored transaction id, %s', v_stored.xid);
  end if;

  select s.name, s.next, s.stored into v_behind
  from (
    select 'job_ids' as name, q.last_value + q.is_called::integer as next,
           greatest(v_stored.job_id, (select max(j.job_id) from {{schema}}.deferred_jobs j), (select max(j.job_id) from {{schema}}.terminal_jobs j),
                    (select max(j.job_id) from {{schema}}.dlq_entries j), (select max(j.job_id) from {{schema}}.quarantined_jobs j),
                    (select max(j.job_id) from {{schema}}.spilled_entries j), (select max(j.job_id) from {{schema}}.leases j),
                    (select max(j.job_id) from {{schema}}.lease_closures j)) as stored
    from {{schema}}.job_ids q
    union all
    select 'batch_seq', q.last_value + q.is_called::integer,
           greatest(v_stored.batch_id, (select max(a.batch_id) from {{schema}}.attempt_state a), (select max(l.batch_id) from {{schema}}.leases l))
    from {{schema}}.batch_seq q
    union all
    select 'entry_seq', q.last_value + q.is_called::integer,
           greatest(v_stored.seq, (select max(s.opened_seq) - 1 from {{schema}}.segments s where s.state <> 'free'))
    from {{schema}}.entry_seq q
    union all
    select 'spill_positions', q.last_value + q.is_called::integer, greatest(v_stored.spilled, (select max(h.last_position) from {{schema}}.spill_heads h))
    from {{schema}}.spill_positions q
    union all
    select 'runtime_ids', q.last_value + q.is_called::integer, (select max(r.runtime_id) from {{schema}}.runtimes r) from {{schema}}.runtime_ids q
  ) s
  where s.next <= s.stored limit 1;
  if found then
    return format('the sequence %s is behind the tables: it would give %s next, and %s is stored', v_behind.name, v_behind.next, v_behind.stored);
  end if;

  loop
    select last_value into v_value from {{schema}}.segment_cursor;
    if exists (select from {{schema}}.segments s
               where s.slot = v_value % {{ring}} and s.generation = v_value / {{ring}} and s.state = 'open') then
      return null;
    end if;
    select last_value into v_again from {{schema}}.segment_cursor;  -- or it has moved on in between
    if v_again = v_value then
      return format('segment_cursor, %s, names no open segment', v_value);
    end if;
  end loop;
end $$;

-- Writes the proof that spares completions the full check, when there is none that fits, and when the full check holds in this
-- very statement. Waits for nobody: whoever holds the row is done before the next beat. Under a snapshot that is kept, the row
-- might be newer than it, which would be an error.
create or replace function {{schema}}.prove_identity() returns void
language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') like 'read %' and exists (
       select from {{schema}}.meta m
       where (m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid)) is not true) then
    with ours as materialized (
      select m.singleton from {{schema}}.meta m
      where m.system_identifier = (select c.system_identifier from pg_control_system() c)
        and m.database_oid = (select d.oid from pg_database d where d.datname = current_database())
        and (m.proven_start = pg_postmaster_start_time() and m.proven_path = pg_relation_filepath(m.tableoid)) is not true
      for no key update skip locked)
    update {{schema}}.meta m
    set proven_start = pg_postmaster_start_time(), proven_path = pg_relation_filepath(m.tableoid)
    from ours where m.singleton = ours.singleton;
  end if;
end $$;

-- Asked by every runtime at its start. 'ours': nothing to do. 'adopted': this is a copy that can go on as it is (createdb -T, a
-- dump restored into its own cluster, pg_upgrade), and from now on it is an installation of its own, so that tokens of the
-- original never match here. 'refused': storage_fault() says why, rebase_storage() mends it; new jobs would be hidden by
-- restored cursors, or old numbers be given out again.
create or replace function {{schema}}.adopt_database() returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_here   record;
  v_meta   record;
  v_fault  text := {{schema}}.storage_fault();
  v_id     uuid := gen_random_uuid();
begin
  select c.system_identifier, d.oid as database_oid into v_here
  from pg_control_system() c, pg_database d where d.datname = current_database();
  select m.* into v_meta from {{schema}}.meta m;
  if v_meta.system_identifier <> v_here.system_identifier or v_meta.database_oid <> v_here.database_oid then
    select m.* into v_meta from {{schema}}.meta m for update;  -- another runtime may be here before us
    v_fault := {{schema}}.storage_fault();
  end if;
  if v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    if v_fault is null then
      perform {{schema}}.prove_identity();
    end if;
    return case when v_fault is null then 'ours' else 'refused' end;
  end if;
  if v_fault is not null then
    return 'refused';
  end if;
  update {{schema}}.meta m
  set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,
      system_identifier = v_here.system_identifier, database_oid = v_here.database_oid;
  perform {{schema}}.prove_identity();
  return 'adopted';
end $$;
`
  },
  {
    name: "095_rebase.sql",
    text: `-- Rebase: makes what was restored or copied into this database this server's own. Everything that has to run is appended to the
-- cold heads of its lanes, whose order is a number of this server and not a transaction id; the old segments stay as history.

-- The attempts of one segment that nobody has ended.
{{#segments}}
create or replace function {{schema}}.open_attempts_{{segment}}()
returns table (batch_id bigint, batch_index integer, queue text, priority smallint, job_id bigint, run_lease bigint, xid xid8, seq bigint)
language sql stable as $$
  select b.batch_id, i.idx::integer, b.queue, b.priority, i.job_id, i.run_lease, i.xid, i.seq
  from {{schema}}.claim_batches_{{segment}} b
  cross join lateral unnest(b.job_ids, b.run_leases, b.xids, b.seqs) with ordinality as i(job_id, run_lease, xid, seq, idx)
  where b.n > 0
    and not exists (select from {{schema}}.closures_{{segment}} c where c.batch_id = b.batch_id and c.batch_index = i.idx)
$$;

-- Moves the unclaimed entries of one segment to the heads of their lanes, in lane order, and answers how many; null when there is
-- nothing at all in the segment. Exactly those that no claim took (whatever cursors and pending lists say: their transaction ids
-- may be another server's) and that have no tombstone. They are listed in batches without attempts, as a spill lists them.
create or replace function {{schema}}.rebase_{{segment}}(p_now timestamptz) returns bigint
language plpgsql volatile as $$
declare
  v_here   bigint := pg_current_xact_id()::text::bigint;
  v_moved  bigint;
begin
  insert into {{schema}}.closures_{{segment}} (batch_id, batch_index, outcome, closed_at, xid, progress)
  select a.batch_id, a.batch_index, 'released', p_now, pg_current_xact_id(), s.progress
  from {{schema}}.open_attempts_{{segment}}() a
  left join {{schema}}.attempt_state s on s.job_id = a.job_id and s.run_lease = a.run_lease;

  with taken as (
    select b.queue, b.priority, i.xid, i.seq
    from {{schema}}.claim_batches_{{segment}} b cross join lateral unnest(b.xids, b.seqs) as i(xid, seq)
    union all
    select t.queue, t.priority, t.xid, t.seq from {{schema}}.ready_tombstones_{{segment}} t
  ), left_over as materialized (
    select e.*, v_here - ((v_here - e.xmin::text::bigint) & 4294967295) as written_by
    from {{schema}}.ready_entries_{{segment}} e
    where not exists (select from taken t where t.queue = e.queue and t.priority = e.priority and t.xid = e.xid and t.seq = e.seq)
  ), restorers as (  -- who wrote rows of a transaction that this server has not had yet; the rest of those rows are as old
    select distinct l.written_by from left_over l where l.xid::text::bigint > l.written_by
  ), in_order as materialized (  -- what was enqueued here since has lower transaction ids perhaps, and comes behind
    select l.*, row_number() over (partition by l.queue, l.priority order by l.written_by not in (select r.written_by from restorers r), l.xid, l.seq) as place
    from left_over l
  ), moved as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select o.queue, abs(o.priority), nextval({{schema_text spill_positions}}), o.job_id, o.run_lease, o.attempt, o.max_attempts, o.created_at,
           o.kind, o.args, o.progress, o.errors, o.ready_at, o.unique_key, o.callback_result
    from (select * from in_order order by queue, priority, place) o
    returning 1
  ), listed as (  -- no attempts: n = 0
    insert into {{schema}}.claim_batches_{{segment}}
      (batch_id, queue, priority, receipt_base, claimed_at, runtime_id, n, cursor_xid, cursor_seq, pending_xids, pending_seqs,
       job_ids, run_leases, xids, seqs)
    select nextval({{schema_text batch_seq}}), g.queue, g.priority, 0, p_now, 0, 0, last.xid, last.seq, '{}', '{}',
           g.job_ids, '{}', g.xids, g.seqs
    from (
      select o.queue, o.priority, array_agg(o.job_id order by o.place) as job_ids, array_agg(o.xid order by o.place) as xids, array_agg(o.seq order by o.place) as seqs
      from in_order o group by o.queue, o.priority, (o.place - 1) / 10000) g
    cross join lateral (
      select e.xid, e.seq from {{schema}}.ready_entries_{{segment}} e
      where e.queue = g.queue and e.priority = g.priority order by e.xid desc, e.seq desc limit 1) last
  )
  select count(*) into v_moved from moved;
  if v_moved = 0 and not exists (select from {{schema}}.ready_entries_{{segment}})
     and not exists (select from {{schema}}.claim_batches_{{segment}}) then
    return null;
  end if;
  return v_moved;
end $$;
{{/segments}}

-- One transaction, so a crash leaves either nothing or all; only sequences have moved, and upwards. It waits, as long as the
-- session's lock_timeout says, until nobody writes, and keeps everybody out.
--
-- Refused as 55000 when it is not needed, when a subscription still writes here, and when a runtime may be at work. The rows of
-- runtimes are copied with the rest and nothing in them tells where they were written, so their age decides: a runtime that beat
-- within p_staleness, by this server's clock, may be alive. After a restore of what was dumped a moment ago that is a wait.
create or replace function {{schema}}.rebase_storage(p_staleness interval default '1 minute') returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- Nothing is known of restored tables: hash joins do not become quadratic by it.
set enable_nestloop = off
set jit = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_here       record;
  v_meta       record;
  v_fault      text;
  v_now        timestamptz;
  v_beat       record;
  v_subscriber text;
  v_error      jsonb := jsonb_build_object('name', 'DatabaseRestored', 'message', 'the attempt was open when the database was copied');
  v_released   bigint;
  v_leases     bigint;
  v_head       bigint;
  v_below      bigint;
  v_last       bigint;
  v_slot       smallint;
  v_rows       bigint;
  v_moved      bigint := 0;
  v_fresh      record;
  v_truncated  jsonb;
  v_id         uuid := gen_random_uuid();
begin
  perform {{schema}}.require_read_committed();
  -- Nobody leads, nobody enqueues (who waits for this lock looks for the current segment again), nobody else is in the tables.
  perform pg_advisory_xact_lock(hashtextextended({{key leader}}, 0));
  for v_slot in 0 .. {{ring}} - 1 loop
    perform pg_advisory_xact_lock(hashtextextended({{key segment}} || v_slot, 0));
  end loop;
  lock table {{schema}}.meta, {{schema}}.segments, {{schema}}.runtimes, {{schema}}.deferred_jobs, {{schema}}.leases,
    {{schema}}.lease_closures, {{schema}}.attempt_state, {{schema}}.spill_heads, {{schema}}.spilled_entries in access exclusive mode;
  {{#segments}}
  lock table {{schema}}.expected_completions_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
    {{schema}}.ready_entries_{{segment}}, {{schema}}.ready_tombstones_{{segment}} in access exclusive mode;
  {{/segments}}

  v_fault := {{schema}}.storage_fault();
  v_now := clock_timestamp();
  select c.system_identifier, d.oid as database_oid into v_here
  from pg_control_system() c, pg_database d where d.datname = current_database();
  select m.* into v_meta from {{schema}}.meta m;
  if v_fault is null and v_meta.system_identifier = v_here.system_identifier and v_meta.database_oid = v_here.database_oid then
    raise exception using errcode = '55000', message = 'there is nothing to rebase: what is stored is this database''s own, and fits this server';
  end if;
  select r.name, r.beat_at into v_beat from {{schema}}.runtimes r order by r.beat_at desc limit 1;
  if v_beat.beat_at > v_now - p_staleness then
    raise exception using errcode = '55000', message = format('a runtime may be at work: %s beat at %s', v_beat.name, v_beat.beat_at),
      hint = format('Stop all runtimes. The row may also have been copied: try again in %s.', v_beat.beat_at + p_staleness - v_now);
  end if;
  select s.subname into v_subscriber
  from pg_subscription s join pg_subscription_rel r on r.srsubid = s.oid join pg_class c on c.oid = r.srrelid
  where s.subenabled and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = {{schema_name}}) limit 1;
  if found then
    raise exception using errcode = '55000', message = format('the subscription %I still writes into these tables', v_subscriber),
      hint = 'Drop it, or disable it, when it has caught up.';
  end if;

  -- Sequences first: what follows draws from them.
  perform setval({{schema_text job_ids}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(r.job_id) from {{schema}}.ready_entries_{{segment}} r),
      {{/segments}}
      (select max(j.job_id) from {{schema}}.deferred_jobs j), (select max(j.job_id) from {{schema}}.terminal_jobs j),
      (select max(j.job_id) from {{schema}}.dlq_entries j), (select max(j.job_id) from {{schema}}.quarantined_jobs j),
      (select max(j.job_id) from {{schema}}.spilled_entries j), (select max(j.job_id) from {{schema}}.leases j),
      (select max(j.job_id) from {{schema}}.lease_closures j), (select max(u.job_id) from {{schema}}.unique_claims u)) as newest) s,
    {{schema}}.job_ids q where s.newest >= q.last_value;
  perform setval({{schema_text batch_seq}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(b.batch_id) from {{schema}}.claim_batches_{{segment}} b),
      {{/segments}}
      (select max(a.batch_id) from {{schema}}.attempt_state a), (select max(l.batch_id) from {{schema}}.leases l)) as newest) s,
    {{schema}}.batch_seq q where s.newest >= q.last_value;
  perform setval({{schema_text entry_seq}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(r.seq) from {{schema}}.ready_entries_{{segment}} r where r.priority > 0),
      {{/segments}}
      (select max(s.opened_seq) from {{schema}}.segments s)) as newest) s,
    {{schema}}.entry_seq q where s.newest >= q.last_value;
  perform setval({{schema_text spill_positions}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(r.seq) from {{schema}}.ready_entries_{{segment}} r where r.priority < 0),
      {{/segments}}
      (select max(e.position) from {{schema}}.spilled_entries e), (select max(h.last_position) from {{schema}}.spill_heads h)) as newest) s,
    {{schema}}.spill_positions q where s.newest >= q.last_value;
  perform setval({{schema_text runtime_ids}}, s.newest) from (
    select greatest(
      {{#segments}}
      (select max(b.runtime_id) from {{schema}}.claim_batches_{{segment}} b),
      {{/segments}}
      (select max(r.runtime_id) from {{schema}}.runtimes r), (select max(l.runtime_id) from {{schema}}.leases l),
      (select max(c.runtime_id) from {{schema}}.lease_closures c)) as newest) s,
    {{schema}}.runtime_ids q where s.newest >= q.last_value;

  -- A lane's order: what had been claimed, in the order of its claims; then the head as it was; then what the ring held.
  select q.last_value - (not q.is_called)::integer into v_below from {{schema}}.spill_positions q;
  with interrupted as materialized (
    {{#segments}}
    select a.batch_id, a.batch_index, a.queue, a.priority, a.job_id, a.run_lease, e.attempt, e.max_attempts, e.created_at, e.kind, e.args,
           coalesce(s.progress, e.progress) as progress, e.errors, e.ready_at, e.unique_key, e.callback_result
    from {{schema}}.open_attempts_{{segment}}() a
    join {{schema}}.ready_entries_{{segment}} e on e.queue = a.queue and e.priority = a.priority and e.xid = a.xid and e.seq = a.seq
    left join {{schema}}.attempt_state s on s.job_id = a.job_id and s.run_lease = a.run_lease
    union all
    {{/segments}}
    -- A handler that waited for its callback is gone like any other; a parked attempt has none.
    select l.batch_id, l.batch_index, l.queue, l.priority, l.job_id, l.run_lease, l.attempt - 1, l.max_attempts, l.created_at, l.kind, l.args,
           l.progress, l.errors, null, l.unique_key,
           -- an answer that nobody will give again goes on with the job
           case when l.callback_answered and l.callback_error is null then coalesce(l.callback_result, 'null') else l.resumed_with end
    from {{schema}}.leases l where l.state <> 'parked'
  ), placed as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select i.queue, abs(i.priority), nextval({{schema_text spill_positions}}), i.job_id, i.run_lease, i.attempt, i.max_attempts, i.created_at,
           i.kind, i.args, i.progress,
           case when jsonb_array_length(coalesce(i.errors, '[]')) >= 20 then i.errors - 0 else coalesce(i.errors, '[]') end
             || jsonb_build_array(jsonb_build_object('attempt', i.attempt + 1, 'run_lease', i.run_lease, 'at', v_now, 'outcome', 'released',
                                                     'error', v_error)),
           coalesce(i.ready_at, i.created_at),
           case when get_byte(i.unique_key, 0) > 0 then i.unique_key end, i.callback_result
    from (select * from interrupted order by batch_id, batch_index) i
    returning 1
  )
  select count(*) into v_released from placed;
  with gone as (
    delete from {{schema}}.leases l where l.state <> 'parked' returning l.*
  ), ended as (
    insert into {{schema}}.lease_closures
      (job_id, run_lease, receipt_id, outcome, closed_at, xid, queue, priority, attempt, max_attempts, created_at, claimed_at, runtime_id,
       kind, args, progress, errors, callback_id, callback_result)
    select g.job_id, g.run_lease, g.receipt_id, 'released', v_now, pg_current_xact_id(), g.queue, g.priority, g.attempt, g.max_attempts,
           g.created_at, g.claimed_at, g.runtime_id, g.kind, g.args, g.progress, g.errors,
           case when g.callback_answered then g.callback_id end, case when g.callback_answered then g.callback_result end
    from gone g
    on conflict (job_id, run_lease) do nothing
    returning 1
  )
  select count(*) into v_leases from ended;
  with head as (
    delete from {{schema}}.spilled_entries e where e.position <= v_below returning e.*
  ), again as (
    insert into {{schema}}.spilled_entries
      (queue, priority, position, job_id, run_lease, attempt, max_attempts, created_at, kind, args, progress, errors, ready_at, unique_key,
       callback_result)
    select h.queue, h.priority, nextval({{schema_text spill_positions}}), h.job_id, h.run_lease, h.attempt, h.max_attempts, h.created_at,
           h.kind, h.args, h.progress, h.errors, h.ready_at, h.unique_key, h.callback_result
    from (select * from head order by queue, priority, position) h
    returning 1
  )
  select count(*) into v_head from again;
  for v_slot in select s.slot from {{schema}}.segments s
    order by s.state = 'free', s.generation loop  -- a free one has rows when an earlier rebase was undone: they came last
    case v_slot
      {{#segments}}
      when {{segment}} then v_rows := {{schema}}.rebase_{{segment}}(v_now);
      {{/segments}}
    end case;
    v_moved := v_moved + coalesce(v_rows, 0);
    -- Whatever state was copied: a segment that holds something is history, one that holds nothing is free.
    update {{schema}}.segments s
    set state = case when v_rows is null then 'free' else 'drained' end, rescued_to = 0,
        sealed_at = case when v_rows is not null then coalesce(s.sealed_at, v_now) end,
        drained_at = case when v_rows is not null then coalesce(s.drained_at, v_now) end
    where s.slot = v_slot;
  end loop;
  delete from {{schema}}.segment_lanes;
  delete from {{schema}}.spill_heads;
  insert into {{schema}}.spill_heads (queue, priority, first_position, last_position)
  select e.queue, e.priority, min(e.position) - 1, max(e.position) from {{schema}}.spilled_entries e group by e.queue, e.priority;

  -- The mutable rest.
  delete from {{schema}}.attempt_state;
  delete from {{schema}}.runtimes;
  update {{schema}}.deferred_jobs d set xid = '0' where d.xid >= pg_snapshot_xmin(pg_current_snapshot());

  -- A segment to go on in, of a generation above all: a free one, or else the oldest, whose history then ends here.
  select last_value into v_last from {{schema}}.segment_cursor;
  select s.slot, s.state, s.generation as old_generation, n.generation into v_fresh
  from {{schema}}.segments s,
    (select greatest(max(g.generation), v_last / {{ring}}) + 1 as generation from {{schema}}.segments g) n
  order by s.state = 'free' desc, case when s.state <> 'free' then s.generation end, (s.slot - v_last % {{ring}} + {{ring}}) % {{ring}}
  limit 1;
  if v_fresh.state <> 'free' then
    v_truncated := jsonb_build_object('segment', v_fresh.slot, 'generation', v_fresh.old_generation);
    case v_fresh.slot
      {{#segments}}
      when {{segment}} then
        truncate {{schema}}.ready_entries_{{segment}}, {{schema}}.claim_batches_{{segment}}, {{schema}}.closures_{{segment}},
          {{schema}}.ready_tombstones_{{segment}}, {{schema}}.expected_completions_{{segment}};
      {{/segments}}
    end case;
  end if;
  update {{schema}}.segments s
  set state = 'open', generation = v_fresh.generation, opened_seq = (select q.last_value from {{schema}}.entry_seq q), rescued_to = 0,
      opened_at = v_now, sealed_at = null, drained_at = null
  where s.slot = v_fresh.slot;
  update {{schema}}.meta m
  set installation_id = v_id, fingerprint = (hashtextextended(v_id::text, 0) & 524287)::integer,
      system_identifier = v_here.system_identifier, database_oid = v_here.database_oid;
  -- Last: no rollback takes this back. Until COMMIT it names no open segment, which the next look at this database notices.
  perform setval({{schema_text segment_cursor}}, v_fresh.generation * {{ring}} + v_fresh.slot);
  return jsonb_build_object(
    'reason', coalesce(v_fault, 'the database is another one than the installation was made for'),
    'released', v_released, 'leases', v_leases, 'kept_in_head', v_head, 'moved', v_moved,
    'parked', (select count(*) from {{schema}}.leases),
    'segment', v_fresh.slot, 'generation', v_fresh.generation, 'truncated', v_truncated,
    'drained', (select count(*) from {{schema}}.segments s where s.state = 'drained'), 'installation_id', v_id);
end $$;
`
  }
]

/** @internal */
export const closing: ReadonlyArray<{ readonly name: string; readonly text: string }> = [
  {
    name: "010_triggers.sql",
    text: `-- What every installation ends with, as the owner of the tables.

-- Again with every installation: ENABLE TRIGGER ALL, which a restore of data alone ends with, takes ALWAYS away.
{{#segments}}
alter table {{schema}}.expected_completions_{{segment}} enable always trigger kept;
{{/segments}}
`
  }
]

/** @internal Of the functions: higher with every change of them. */
export const functionsRevision: number = 2

/** @internal */
export const privilegesText = `-- Whatever the current role owns of the schema gets exactly the privileges that manifest.json gives to the roles that are bound
-- (C-52): nothing on columns, and no grant option, which would let its holder give away more. Run by the owner of the tables and,
-- where that is another one, by the owner of the routines. An installation that has neither bindings nor an owner of its own for
-- its routines keeps what somebody granted by hand; PUBLIC loses everything always. Writes only what differs.
-- The rows of wanted: holder is a capability; owner, who owns the routines; anybody, who is bound; or contract, who is bound to
-- more than finalizing.

do $$
declare
  v_schema   constant oid := (select n.oid from pg_namespace n where n.nspname = {{schema_name}});
  v_me       constant oid := (select r.oid from pg_roles r where r.rolname = current_user);
  v_owner    constant oid := (select p.proowner from pg_proc p where p.pronamespace = v_schema and p.proname = 'complete_job'
    and oidvectortypes(p.proargtypes) = 'bigint, bigint, integer, bigint, bigint, integer, jsonb');
  v_tables   constant oid := (select c.relowner from pg_class c where c.relnamespace = v_schema and c.relname = 'meta');
  v_exact    constant boolean := v_owner <> v_tables or exists (select from {{schema}}.role_bindings);
  v_missing  text;
  v_one      record;
begin
  if v_owner = v_me and exists (
       select from pg_proc p cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
       where p.pronamespace = v_schema and p.proowner = v_me and a.grantee = 0) then
    revoke all on all routines in schema {{schema}} from public;
  end if;
  for v_one in
    with wanted(kind, name, privilege, holder) as (values
      {{wanted_privileges}}
    ), holders(holder, role) as (
      select b.capability, r.oid from {{schema}}.role_bindings b join pg_roles r on r.rolname = b.role
      union
      select 'anybody', r.oid from {{schema}}.role_bindings b join pg_roles r on r.rolname = b.role
      union
      select 'contract', r.oid from {{schema}}.role_bindings b join pg_roles r on r.rolname = b.role
      where b.capability not in ('finalizer', 'batch_finalizer', 'expectation')
      union
      select 'owner', v_owner where v_owner <> v_me
    ), owned(kind, name, object, acl) as (
      select 'routine',
             format('%s(%s)', p.proname, replace(pg_get_function_identity_arguments(p.oid), format('%I.', {{schema_name}}), '{schema}.')),
             'routine ' || p.oid::regprocedure, coalesce(p.proacl, acldefault('f', p.proowner))
      from pg_proc p where p.pronamespace = v_schema and p.proowner = v_me
      union all
      select 'relation', c.relname::text, case c.relkind when 'S' then 'sequence ' else 'table ' end || c.oid::regclass, c.relacl
      from pg_class c where c.relnamespace = v_schema and c.relowner = v_me and c.relkind in ('r', 'p', 'v', 'm', 'S')
      union all
      -- a table's row type too: a column of that type elsewhere would keep the table from being altered
      select 'type', '', 'type ' || t.oid::regtype, coalesce(t.typacl, acldefault('T', t.typowner))
      from pg_type t where t.typnamespace = v_schema and t.typowner = v_me and t.typtype in ('c', 'd', 'e')
      union all
      select 'schema', '', format('schema %I', n.nspname), n.nspacl from pg_namespace n where n.oid = v_schema and n.nspowner = v_me
    ), granted as (
      select o.object, a.privilege_type as privilege, a.grantee as role, a.is_grantable as excess
      from owned o cross join lateral aclexplode(o.acl) a where a.grantee <> v_me and a.grantor = v_me
      union all
      select 'table ' || c.oid::regclass, a.privilege_type, a.grantee, true
      from pg_class c join pg_attribute t on t.attrelid = c.oid cross join lateral aclexplode(t.attacl) a
      where c.relnamespace = v_schema and c.relowner = v_me and a.grantee <> v_me
    ), due as (
      select o.object, w.privilege, h.role from owned o join wanted w using (kind, name) join holders h using (holder)
      where h.role <> v_me
    )
    select 0 as step, 'revoke' as verb, 'from' as link, g.object, g.privilege, g.role, ' cascade' as rest
    from granted g left join due d using (object, privilege, role)
    where (v_exact or g.role = 0) and (g.excess or d.object is null)
    union
    select 1, 'grant', 'to', d.object, d.privilege, d.role, ''
    from due d where not exists (
      select from granted g where g.object = d.object and g.privilege = d.privilege and g.role = d.role and not g.excess)
      or exists (select from granted g where g.object = d.object and g.privilege = d.privilege and g.role = d.role and g.excess)
    order by 1
  loop
    execute format('%s %s on %s %s %s%s', v_one.verb, v_one.privilege, v_one.object, v_one.link,
      case when v_one.role = 0 then 'public' else quote_ident(pg_get_userbyid(v_one.role)) end, v_one.rest);
  end loop;
  -- A name that is written otherwise than in the manifest would lose its privileges without a word.
  if v_owner = v_me then
    select w.name into v_missing
    from (values
      {{wanted_privileges}}
    ) w(kind, name, privilege, holder)
    where w.kind = 'routine' and not exists (
      select from pg_proc p where p.pronamespace = v_schema and p.proowner = v_me
        and w.name = format('%s(%s)', p.proname, replace(pg_get_function_identity_arguments(p.oid), format('%I.', {{schema_name}}), '{schema}.')))
    limit 1;
    if found then
      raise exception using errcode = '55000', message = format('schema %I: no routine %s of its owner', {{schema_name}}, v_missing);
    end if;
  end if;
end $$;
`

/** @internal */
export const manifestText = `{
  "description": "Every routine of the schema. {schema} stands for the quoted schema, {segment} for each segment of the ring. The class says who needs EXECUTE; PUBLIC never has it, and a migration grants nothing.",
  "classes": {
    "contract": "whoever talks to the schema, to learn whether it may and whose it is",
    "producer": "roles that enqueue",
    "finalizer": "roles that complete a job in their own transaction",
    "batch_finalizer": "roles that complete many jobs in one transaction of theirs",
    "expectation": "finalizers whose driver can swallow an error: expect_completion beside complete_job",
    "executor": "runtimes that claim and run jobs, in any language: worker_* for other ones, which need finalizer besides",
    "maintenance": "the runtime that leads; together with executor",
    "callback": "roles that answer callbacks by their ids",
    "admin_reader": "operators and what shows them the state of the queue",
    "admin_mutator": "operators that cancel, redrive, pause; together with admin_reader",
    "migrator": "the owner of the schema only",
    "internal": "nobody: reached from a routine of another class only"
  },
  "relations": [
    {
      "name": "outcome",
      "kind": "type",
      "owner": [],
      "grants": {}
    },
    {
      "name": "claimed_attempt",
      "kind": "type",
      "owner": [],
      "grants": {}
    },
    {
      "name": "finalization",
      "kind": "type",
      "owner": [],
      "grants": {}
    },
    {
      "name": "ended_job",
      "kind": "type",
      "owner": [],
      "grants": {}
    },
    {
      "name": "found_job",
      "kind": "type",
      "owner": [],
      "grants": {}
    },
    {
      "name": "job_ids",
      "kind": "sequence",
      "owner": ["usage", "select", "update"],
      "grants": {}
    },
    {
      "name": "runtime_ids",
      "kind": "sequence",
      "owner": ["usage", "select", "update"],
      "grants": {}
    },
    {
      "name": "entry_seq",
      "kind": "sequence",
      "owner": ["usage", "select", "update"],
      "grants": {}
    },
    {
      "name": "batch_seq",
      "kind": "sequence",
      "owner": ["usage", "select", "update"],
      "grants": {}
    },
    {
      "name": "spill_positions",
      "kind": "sequence",
      "owner": ["usage", "select", "update"],
      "grants": {}
    },
    {
      "name": "segment_cursor",
      "kind": "sequence",
      "owner": ["select", "update"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "meta",
      "kind": "table",
      "owner": ["select", "update"],
      "grants": {
        "executor": ["select"],
        "admin_reader": ["select"]
      }
    },
    {
      "name": "segments",
      "kind": "table",
      "owner": ["select", "update"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "queues",
      "kind": "table",
      "owner": ["select", "insert", "update"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "runtimes",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "deferred_jobs",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "attempt_state",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "leases",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "spill_heads",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "unique_claims",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "terminal_jobs",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "spilled_entries",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "lease_closures",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "dlq_entries",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {}
    },
    {
      "name": "quarantined_jobs",
      "kind": "table",
      "owner": ["select", "insert", "update", "delete"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "segment_lanes",
      "kind": "table",
      "owner": ["select", "insert", "delete"],
      "grants": {}
    },
    {
      "name": "role_bindings",
      "kind": "table",
      "owner": ["select"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "audit",
      "kind": "table",
      "owner": ["select", "insert", "delete"],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "ready_entries_{segment}",
      "kind": "table",
      "owner": ["select", "insert", "truncate"],
      "grants": {}
    },
    {
      "name": "claim_batches_{segment}",
      "kind": "table",
      "owner": ["select", "insert", "truncate"],
      "grants": {}
    },
    {
      "name": "closures_{segment}",
      "kind": "table",
      "owner": ["select", "insert", "truncate"],
      "grants": {}
    },
    {
      "name": "ready_tombstones_{segment}",
      "kind": "table",
      "owner": ["select", "insert", "truncate"],
      "grants": {}
    },
    {
      "name": "expected_completions_{segment}",
      "kind": "table",
      "owner": ["select", "insert", "truncate"],
      "grants": {}
    },
    {
      "name": "ready_entries",
      "kind": "view",
      "owner": [],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "ready_tombstones",
      "kind": "view",
      "owner": [],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "claim_batches",
      "kind": "view",
      "owner": [],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "closures",
      "kind": "view",
      "owner": [],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "attempts",
      "kind": "view",
      "owner": [],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "jobs",
      "kind": "view",
      "owner": [],
      "grants": {
        "admin_reader": ["select"]
      }
    },
    {
      "name": "job_kinds",
      "kind": "table",
      "owner": ["select", "insert", "update"],
      "grants": {
        "admin_reader": ["select"]
      }
    }
  ],
  "routines": [
    {
      "name": "require_read_committed",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "require_contract",
      "arguments": "version integer",
      "class": "contract",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "insert_jobs_{segment}",
      "arguments": "p_jobs jsonb, p_ids bigint[], p_keys bytea[], p_answers text[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "insert_batch_{segment}",
      "arguments": "p_kind text, p_args jsonb, p_queue text, p_priority smallint, p_max_attempts integer, p_run_at timestamp with time zone, p_now timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "hold_current_segment",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "check_jobs",
      "arguments": "p_jobs jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "name_fault",
      "arguments": "p_name text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "insert_jobs",
      "arguments": "p_jobs jsonb",
      "class": "producer",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "insert_batch",
      "arguments": "kind text, args jsonb, queue text, opts jsonb",
      "class": "producer",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "insert_job",
      "arguments": "kind text, args jsonb, queue text, opts jsonb",
      "class": "producer",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "trim_numbers",
      "arguments": "p_value jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "canonical_json",
      "arguments": "p_value jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "unique_key",
      "arguments": "p_kind text, p_queue text, p_args jsonb, p_unique jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "unique_fault",
      "arguments": "p_unique jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "check_unique",
      "arguments": "p_jobs jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "claim_unique",
      "arguments": "p_jobs jsonb, OUT ids bigint[], OUT keys bytea[], OUT answers text[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "replace_jobs",
      "arguments": "p_jobs jsonb, p_ids bigint[], p_answers text[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "claim_alone_{segment}",
      "arguments": "p_queue text, p_limit integer, p_runtime_id bigint, p_deadline interval, OUT o_lanes bigint, OUT o_busy boolean, OUT o_rows tid[], OUT o_batch_id bigint, OUT o_receipt_base bigint, OUT o_deadline_at timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "claim_{segment}",
      "arguments": "p_queue text, p_priority smallint, p_limit integer, p_until timestamp with time zone, p_quantum integer, p_below xid8, p_runtime_id bigint, p_deadline interval, OUT o_rows tid[], OUT o_batch_id bigint, OUT o_receipt_base bigint, OUT o_deadline_at timestamp with time zone, OUT o_more boolean",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "claim",
      "arguments": "p_queue text, p_limit integer, p_runtime_id bigint",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "dispose_{segment}",
      "arguments": "p_batch_ids bigint[], p_indexes integer[], p_outcomes {schema}.outcome[], p_details jsonb[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "close_{segment}",
      "arguments": "p_fingerprint integer, p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {schema}.outcome[], p_details jsonb, p_has_state boolean",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "close_completed_{segment}",
      "arguments": "p_fingerprint integer, p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_receipt_bases bigint[], p_lasts integer[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "close_attempts",
      "arguments": "p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {schema}.outcome[], p_details jsonb, p_has_state boolean",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "close_completed",
      "arguments": "p_closer bigint, p_slots integer[], p_batch_ids bigint[], p_receipt_bases bigint[], p_lasts integer[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[]",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "settle_attempt",
      "arguments": "p_closer bigint, p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_outcome {schema}.outcome, p_detail jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "complete_{segment}",
      "arguments": "p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "raise_stale",
      "arguments": "p_job_id bigint, p_run_lease bigint, p_outcome {schema}.outcome, p_closed_at timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "require_token",
      "arguments": "p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "require_caller_owned",
      "arguments": "p_job_id bigint, p_run_lease bigint, p_claim_slot integer, p_batch_id bigint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "complete_job",
      "arguments": "job_id bigint, run_lease bigint, claim_slot integer, receipt_id bigint, batch_id bigint, batch_index integer, progress jsonb",
      "class": "finalizer",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "complete_jobs_{segment}",
      "arguments": "p_at timestamp with time zone, p_job_ids bigint[], p_run_leases bigint[], p_claim_slots integer[], p_receipt_ids bigint[], p_batch_ids bigint[], p_batch_indexes integer[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "complete_jobs",
      "arguments": "job_ids bigint[], run_leases bigint[], claim_slots integer[], receipt_ids bigint[], batch_ids bigint[], batch_indexes integer[]",
      "class": "batch_finalizer",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "expect_completion",
      "arguments": "job_id bigint, run_lease bigint, claim_slot integer, receipt_id bigint, batch_id bigint, batch_index integer",
      "class": "expectation",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "check_expected_{segment}",
      "arguments": "",
      "class": "internal",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "evidence_{segment}",
      "arguments": "p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "attempt_evidence",
      "arguments": "p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[]",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "heartbeat_{segment}",
      "arguments": "p_fingerprint integer, p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_progress jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "heartbeat",
      "arguments": "p_slots integer[], p_batch_ids bigint[], p_indexes integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_progress jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "beat_runtime",
      "arguments": "p_runtime_id bigint, p_name text, p_contract integer, p_capabilities jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "retire_runtime",
      "arguments": "p_runtime_id bigint",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "adopt_database",
      "arguments": "",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "prove_identity",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "lead",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "promote_{segment}",
      "arguments": "p_rows tid[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "promote_into",
      "arguments": "p_slot integer, p_rows tid[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "promote_rows",
      "arguments": "p_rows tid[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "promote_jobs",
      "arguments": "p_job_ids bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "promote_gated",
      "arguments": "p_queue text, p_limit integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "mark_origin",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "promote_due",
      "arguments": "p_limit integer, p_mark jsonb, OUT promoted integer, OUT next_due_ms bigint, OUT mark jsonb",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "rescue_{segment}",
      "arguments": "p_staleness interval, p_limit integer, p_from bigint, p_beaten_ids bigint[], p_beaten_idx integer[], p_beaten_jobs bigint[], p_beaten_leases bigint[], p_beaten_at timestamp with time zone[], OUT rescued integer, OUT done_to bigint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "rescue_stale",
      "arguments": "p_staleness interval, p_limit integer, p_beaten boolean",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "end_abandoned_{segment}",
      "arguments": "p_now timestamp with time zone, p_stale timestamp with time zone, p_ids bigint[], p_idx integer[], p_jobs bigint[], p_leases bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "stops_one",
      "arguments": "p_state text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "held_attempts",
      "arguments": "",
      "class": "admin_reader",
      "securityDefiner": false,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "attempt_locks",
      "arguments": "",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "evidence_keep",
      "arguments": "",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "rotate",
      "arguments": "p_max_age interval, p_max_entries bigint, p_keep interval",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "is_drained_{segment}",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "lanes_held_{segment}",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "drain_segments",
      "arguments": "",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "is_prunable_{segment}",
      "arguments": "p_keep interval",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "prune_{segment}",
      "arguments": "p_keep interval",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "prune_segment",
      "arguments": "p_keep interval",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "orphans_{segment}",
      "arguments": "p_rows tid[], p_batch_ids bigint[], p_idx integer[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "sweep",
      "arguments": "p_runtime_silence interval, p_terminal interval, p_dead_letter interval, p_history interval, p_limit integer",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "place_jobs",
      "arguments": "p_jobs {schema}.ended_job[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "dispose_jobs",
      "arguments": "p_jobs {schema}.ended_job[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "speaks_of_rows",
      "arguments": "p_state text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "release_unique",
      "arguments": "p_keys bytea[], p_job_ids bigint[], p_states smallint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "blockers_{segment}",
      "arguments": "p_keep interval",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "claim_spilled_{segment}",
      "arguments": "p_queue text, p_priority smallint, p_limit integer, p_from bigint, p_runtime_id bigint, p_claim_slot integer, p_deadline interval",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "claimed_since_{segment}",
      "arguments": "p_queue text, p_since timestamp with time zone, OUT n bigint, OUT oldest timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "is_claimed_{segment}",
      "arguments": "p_queue text, p_priority smallint, p_xid xid8, p_seq bigint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "lanes_{segment}",
      "arguments": "p_queue text, p_lanes integer[], OUT priority integer, OUT head_at timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "rate_left",
      "arguments": "p_queue text, p_limit integer, p_interval interval, OUT remaining integer, OUT retry_ms integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "read_lane_{segment}",
      "arguments": "p_queue text, p_priority smallint, p_limit integer, p_until timestamp with time zone, p_quantum integer, p_below xid8, OUT o_moved boolean, OUT o_cursor_xid xid8, OUT o_cursor_seq bigint, OUT o_pending_xids xid8[], OUT o_pending_seqs bigint[], OUT o_rows tid[], OUT o_xids xid8[], OUT o_seqs bigint[], OUT o_job_ids bigint[], OUT o_run_leases bigint[], OUT o_keys bytea[], OUT o_key_count bigint, OUT o_more boolean",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "ring_blockers",
      "arguments": "p_keep interval",
      "class": "admin_reader",
      "securityDefiner": false,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "ring_held",
      "arguments": "p_keep interval",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "spill_lanes_{segment}",
      "arguments": "p_limit integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "spill_oldest",
      "arguments": "p_limit integer",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "spill_{segment}",
      "arguments": "p_queue text, p_priority smallint, p_limit integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "spilled_to_{segment}",
      "arguments": "p_queue text, p_priority smallint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "materialize_attempts_{segment}",
      "arguments": "p_claim_slot integer, p_batch_ids bigint[], p_indexes integer[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "materialize_each_{segment}",
      "arguments": "p_claim_slot integer, p_batch_ids bigint[], p_indexes integer[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "materialize_segment_{segment}",
      "arguments": "p_claim_slot integer, p_from bigint, p_limit integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "claim_slot_base",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "materialize_long",
      "arguments": "p_keep interval, p_limit integer",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "end_leases",
      "arguments": "p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {schema}.outcome[], p_details jsonb[], p_closer bigint, p_parked boolean",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "close_leases",
      "arguments": "p_closer bigint, p_ords integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_outcomes {schema}.outcome[], p_details jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "complete_lease",
      "arguments": "p_job_id bigint, p_run_lease bigint, p_receipt_id bigint, p_batch_id bigint, p_batch_index integer, p_progress jsonb, p_claim_found boolean",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "heartbeat_leases",
      "arguments": "p_ords integer[], p_job_ids bigint[], p_run_leases bigint[], p_receipts bigint[], p_progress jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "rescue_leases",
      "arguments": "p_staleness interval, p_limit integer",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "end_abandoned_leases",
      "arguments": "p_jobs bigint[], p_leases bigint[], p_receipts bigint[], p_details jsonb[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "hold_lease",
      "arguments": "p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, OUT answer text, OUT lease {schema}.leases",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "ref_name",
      "arguments": "p_ref text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "register_callback",
      "arguments": "p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_timeout interval, OUT answer text, OUT callback_id uuid, OUT deadline timestamp with time zone",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "wait_callback",
      "arguments": "p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid, OUT answer text, OUT result jsonb, OUT error jsonb, OUT left_ms bigint",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "stop_waiting",
      "arguments": "p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "park_attempt",
      "arguments": "p_slot integer, p_batch_id bigint, p_index integer, p_job_id bigint, p_run_lease bigint, p_receipt bigint, p_callback_id uuid, p_progress jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "leave_park",
      "arguments": "p_lease {schema}.leases",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "check_result",
      "arguments": "p_result jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "hold_callback",
      "arguments": "p_callback_id uuid, OUT answer text, OUT lease {schema}.leases",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "resume_callback",
      "arguments": "callback_id uuid, result jsonb",
      "class": "callback",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "complete_callback",
      "arguments": "callback_id uuid, result jsonb",
      "class": "callback",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "fail_callback",
      "arguments": "callback_id uuid, error text",
      "class": "callback",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "heartbeat_callback",
      "arguments": "callback_id uuid",
      "class": "callback",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "next_callback_due",
      "arguments": "",
      "class": "maintenance",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "batch_of_{segment}",
      "arguments": "p_queue text, p_priority smallint, p_xid xid8, p_seq bigint, OUT is_claimed boolean, OUT batch_id bigint, OUT batch_index integer, OUT receipt_id bigint, OUT run_lease bigint, OUT runtime_id bigint, OUT claimed_at timestamp with time zone, OUT deadline_at timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "entries_of_{segment}",
      "arguments": "p_job_ids bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "find_jobs",
      "arguments": "p_job_ids bigint[]",
      "class": "internal",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "job",
      "arguments": "p_job_id bigint",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "job_attempts",
      "arguments": "p_job_id bigint",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "count_available_{segment}",
      "arguments": "p_cap integer",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "count_running_{segment}",
      "arguments": "p_queue text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "queue_counts",
      "arguments": "p_cap integer",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "storage_health",
      "arguments": "",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "bury_{segment}",
      "arguments": "p_queues text[], p_priorities smallint[], p_xids xid8[], p_seqs bigint[], p_reason text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "place_entries_{segment}",
      "arguments": "p_jobs {schema}.ended_job[], p_priority smallint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "record_audit",
      "arguments": "p_verb text, p_detail jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "asked_ids",
      "arguments": "p_job_ids bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "hold_lanes",
      "arguments": "p_lanes text[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "take_waiting",
      "arguments": "p_found {schema}.found_job[], p_reason text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "cancel_attempts",
      "arguments": "p_found {schema}.found_job[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "close_cancelled",
      "arguments": "p_held {schema}.found_job[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "cancel_jobs",
      "arguments": "p_job_ids bigint[]",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "delete_jobs",
      "arguments": "p_job_ids bigint[]",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "take_over",
      "arguments": "p_job_ids bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "reprioritize_jobs",
      "arguments": "p_job_ids bigint[], p_priority integer",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "redrive_jobs",
      "arguments": "p_job_ids bigint[]",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "run_again",
      "arguments": "p_job_ids bigint[], OUT done bigint[], OUT doubled bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "redrive_where",
      "arguments": "p_source text, p_queue text, p_kind text, p_before timestamp with time zone, p_after bigint, p_limit integer",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "pause_queue",
      "arguments": "p_queue text",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "resume_queue",
      "arguments": "p_queue text",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "set_queue",
      "arguments": "p_queue text, p_settings jsonb",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "caller_owned_laggards",
      "arguments": "p_queue text, p_staleness interval",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "enable_caller_owned",
      "arguments": "p_queue text, p_staleness interval, p_limit integer",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "disable_caller_owned",
      "arguments": "p_queue text",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "queue_running",
      "arguments": "p_queue text",
      "class": "admin_reader",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "newest_{segment}",
      "arguments": "OUT xid xid8, OUT seq bigint, OUT spilled bigint, OUT job_id bigint, OUT batch_id bigint",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "is_open_since",
      "arguments": "p_xid xid8",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "storage_fault",
      "arguments": "",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "open_attempts_{segment}",
      "arguments": "",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "rebase_{segment}",
      "arguments": "p_now timestamp with time zone",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "rebase_storage",
      "arguments": "p_staleness interval",
      "class": "migrator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "batch_items",
      "arguments": "p_run_leases bigint[], p_xids xid8[], p_seqs bigint[]",
      "class": "admin_reader",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "worker_tokens",
      "arguments": "p_attempts jsonb, OUT slots integer[], OUT batch_ids bigint[], OUT indexes integer[], OUT job_ids bigint[], OUT run_leases bigint[], OUT receipts bigint[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "worker_check_ends",
      "arguments": "p_outcomes text[], p_details jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "worker_detail",
      "arguments": "p_detail jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "worker_register",
      "arguments": "name text, contract integer",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "worker_retire",
      "arguments": "worker_id bigint",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "worker_claim",
      "arguments": "worker_id bigint, queue text, max_jobs integer",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "worker_beat",
      "arguments": "worker_id bigint, attempts jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "worker_evidence",
      "arguments": "attempts jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "worker_settle",
      "arguments": "attempt jsonb, outcome text, detail jsonb",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "worker_close",
      "arguments": "attempts jsonb, flush_id bigint",
      "class": "executor",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    },
    {
      "name": "schema_look",
      "arguments": "p_schema jsonb, OUT fault text, OUT unchecked text[]",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "value_fault",
      "arguments": "p_schema jsonb, p_defs jsonb, p_value jsonb, p_path text, p_depth integer, p_nested integer, INOUT p_left integer, OUT fault text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "path_step",
      "arguments": "p_key text",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "check_payloads",
      "arguments": "p_jobs jsonb",
      "class": "internal",
      "securityDefiner": false,
      "searchPath": null,
      "grants": []
    },
    {
      "name": "register_kinds",
      "arguments": "kinds jsonb",
      "class": "admin_mutator",
      "securityDefiner": true,
      "searchPath": "pg_catalog, pg_temp",
      "grants": []
    }
  ]
}
`
