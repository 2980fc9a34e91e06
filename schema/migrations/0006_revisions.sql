-- Releases that change functions only. Placeholders as in 0001.

-- Which functions these are: a later release's have a higher number, and an earlier release leaves them alone.
alter table {{schema}}.meta add column functions_revision integer not null default 0;

-- They answer otherwise now.
{{#segments}}
drop function if exists {{schema}}.read_lane_{{segment}}(text, smallint, integer, timestamptz, integer, xid8);
drop function if exists {{schema}}.claim_{{segment}}(text, smallint, integer, timestamptz, integer, xid8, bigint, interval);
{{/segments}}
