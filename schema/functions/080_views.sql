-- What operators read. Nothing on a hot path uses these views.

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
