-- What a claim and a flush cost. Placeholders as in 0001.

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
