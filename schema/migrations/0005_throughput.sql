-- What a claim and a flush cost. Placeholders as in 0001.

-- Compressing the ids of a few hundred jobs costs more than the rest of a claim's insertion together, and saves 10 bytes a job.
-- What is nearly one value repeated (the leases, the transactions) still is compressed.
{{#segments}}
alter table {{schema}}.claim_batches_{{segment}}
  alter column job_ids set storage external,
  alter column seqs set storage external;
{{/segments}}

-- They answer otherwise now.
{{#segments}}
drop function if exists {{schema}}.read_lane_{{segment}}(text, smallint, integer, timestamptz, integer, xid8);
drop function if exists {{schema}}.claim_{{segment}}(text, smallint, integer, timestamptz, integer, xid8, bigint, integer, interval);
{{/segments}}
