-- Maintenance. Every step takes the leader's lock in the try form for its own transaction: one runtime at a time does the
-- work, and none can go on believing that it is the leader. A step that is not the leader's answers null.

create or replace function {{schema}}.lead() returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(hashtextextended({{key leader}}, 0)) $$;
