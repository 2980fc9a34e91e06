-- Who may do what, and who did.

-- The roles that hold a capability (a class of schema/manifest.json). A migration grants nothing by itself: `roles apply`
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
