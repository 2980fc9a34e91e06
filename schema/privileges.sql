-- Whatever the current role owns of the schema gets exactly the privileges that manifest.json gives to the roles that are bound
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
