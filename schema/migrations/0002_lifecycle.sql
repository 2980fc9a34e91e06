-- What a job may go through besides running once: uniqueness, tombstones, spilled heads, leases and callbacks, dead letters.
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
-- row never wedges promotion, rescue or a flush. `redrive` brings them back.
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
