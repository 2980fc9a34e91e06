-- What every installation ends with, as the owner of the tables.

-- Again with every installation: ENABLE TRIGGER ALL, which a restore of data alone ends with, takes ALWAYS away.
{{#segments}}
alter table {{schema}}.expected_completions_{{segment}} enable always trigger kept;
{{/segments}}
