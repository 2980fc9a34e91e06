-- Caller-owned completion, switched on queue by queue while runtimes of two versions are at work (C-60).
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
