import * as Schema from "effect/Schema"

const Routine = Schema.Struct({
  name: Schema.String,
  arguments: Schema.String,
  /** As ALTER and DROP say it, schema and quotes included. */
  object: Schema.String,
  owner: Schema.String,
  kind: Schema.String,
  definer: Schema.Boolean,
  language: Schema.String,
  volatility: Schema.String,
  strict: Schema.Boolean,
  leakproof: Schema.Boolean,
  parallel: Schema.String,
  settings: Schema.Array(Schema.String),
  result: Schema.NullOr(Schema.String),
  defaults: Schema.Int,
  bodyHash: Schema.String
})

const Relation = Schema.Struct({
  name: Schema.String,
  kind: Schema.Literal("table", "view", "sequence", "type", "other"),
  object: Schema.String,
  owner: Schema.String
})

const Grant = Schema.Struct({
  kind: Schema.Literal("routine", "relation", "schema"),
  name: Schema.String,
  /** As GRANT says it: `table "awa".meta`; of a column, `select (args)` is the privilege. */
  object: Schema.String,
  owner: Schema.String,
  privilege: Schema.String,
  /** Null is PUBLIC. */
  grantee: Schema.NullOr(Schema.String),
  grantor: Schema.String,
  grantable: Schema.Boolean
})

const Hook = Schema.Struct({ what: Schema.String, mend: Schema.String, expected: Schema.String })

const Role = Schema.Struct({
  name: Schema.String,
  superuser: Schema.Boolean,
  creates: Schema.Boolean,
  inherits: Schema.Boolean,
  excess: Schema.Array(Schema.String)
})

/** Before 16 there are no options: SET always, INHERIT as the member says. */
const Edge = Schema.Struct({
  role: Schema.String,
  member: Schema.String,
  grantor: Schema.NullOr(Schema.String),
  inherit: Schema.Boolean,
  set: Schema.Boolean,
  admin: Schema.Boolean,
  /** What CREATE ROLE gives its creator, a role with CREATEROLE, on 16 and later: granted by the bootstrap superuser. */
  implicit: Schema.Boolean
})

const Installed = Schema.Struct({
  major: Schema.Int,
  me: Schema.String,
  ring: Schema.Int,
  schemaOwner: Schema.String,
  tablesOwner: Schema.String,
  routinesOwner: Schema.String,
  routines: Schema.Array(Routine),
  relations: Schema.Array(Relation),
  hooks: Schema.Array(Hook),
  grants: Schema.Array(Grant),
  roles: Schema.Array(Role),
  edges: Schema.Array(Edge)
})

/** @internal What stands in catalogs that everybody may read. */
export interface Installed extends Schema.Schema.Type<typeof Installed> {}
/** @internal */
export interface Grant extends Schema.Schema.Type<typeof Grant> {}
/** @internal */
export interface Edge extends Schema.Schema.Type<typeof Edge> {}
/** @internal */
export const InstalledRow = Schema.Tuple(Schema.Struct({ installed: Schema.NullOr(Installed) }))

const relationKind =
  "case c.relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence' when 'c' then 'type' else 'other' end"

/** What the schema holds: `$1` is its name. Indexes, identities and row types go with their tables. */
const objects = `
  select c.oid, c.relname::text as name, ${relationKind} as kind,
         case c.relkind when 'S' then 'sequence ' when 'v' then 'view ' when 'c' then 'type ' when 'm' then 'materialized view '
           when 'f' then 'foreign table ' else 'table ' end || c.oid::regclass as object, c.relowner as owner, c.relacl as acl
  from pg_class c join here n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'c')
    and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and c.relkind = 'S'
                      and d.deptype in ('a', 'i') and d.refclassid = 'pg_class'::regclass)
  union all
  select null, t.typname::text, 'type', 'type ' || t.oid::regtype, t.typowner, null
  from pg_type t join here n on n.oid = t.typnamespace where t.typtype in ('e', 'd')`

/** The server quotes a name where it must, our texts always. */
const ofSchema = (types: string): string =>
  `replace(${types}, quote_ident(n.nspname) || '.', '"' || replace(n.nspname, '"', '""') || '".')`

const routines = `
  select p.proname::text as name, ${ofSchema("pg_get_function_identity_arguments(p.oid)")} as arguments, 'routine ' || p.oid::regprocedure as object,
         pg_get_userbyid(p.proowner)::text as owner, p.prokind as kind, p.prosecdef as definer, l.lanname::text as language,
         case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end as volatility,
         p.proisstrict as strict, p.proleakproof as leakproof, p.proparallel as parallel,
         coalesce((select jsonb_agg(c order by c collate "C") from unnest(p.proconfig) c), '[]') as settings,
         ${ofSchema("pg_get_function_result(p.oid)")} as result, p.pronargdefaults as defaults,
         encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') as "bodyHash"
  from pg_proc p join here n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang`

/** What runs when a table is written or read, beside the routines. */
const hooks = `
  select format('trigger %I on %s', t.tgname, t.tgrelid::regclass) as what,
         case when t.tgname = 'kept' and c.relname like 'expected\\_completions\\_%'
           then format('alter table %s enable always trigger kept', t.tgrelid::regclass)
           else format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass) end as mend,
         case when t.tgname = 'kept' and c.relname like 'expected\\_completions\\_%' then 'enabled always' else 'no such trigger' end as expected
  from pg_trigger t join pg_class c on c.oid = t.tgrelid join here n on n.oid = c.relnamespace
  where not t.tgisinternal and not (t.tgname = 'kept' and c.relname like 'expected\\_completions\\_%' and t.tgenabled = 'A')
  union all
  select format('rule %I on %s', r.rulename, r.ev_class::regclass), format('drop rule %I on %s', r.rulename, r.ev_class::regclass), 'no such rule'
  from pg_rewrite r join pg_class c on c.oid = r.ev_class join here n on n.oid = c.relnamespace where r.rulename <> '_RETURN'
  union all
  select format('row security on %s', c.oid::regclass),
         format('alter table %s disable row level security, no force row level security', c.oid::regclass), 'no row security'
  from pg_class c join here n on n.oid = c.relnamespace where c.relrowsecurity or c.relforcerowsecurity`

const named = (grants: string): string => `
  select g.kind, g.name, g.object, pg_get_userbyid(g.owner)::text as owner, lower(g.privilege_type) || g.suffix as privilege,
         case when g.grantee <> 0 then pg_get_userbyid(g.grantee)::text end as grantee, pg_get_userbyid(g.grantor)::text as grantor,
         g.is_grantable as grantable
  from (${grants}) g where g.grantee <> g.owner`

const grants = named(`
  select 'routine' as kind, format('%s(%s)', p.proname, ${ofSchema("pg_get_function_identity_arguments(p.oid)")}) as name,
         'routine ' || p.oid::regprocedure as object, p.proowner as owner, '' as suffix, a.*
  from pg_proc p join here n on n.oid = p.pronamespace cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
  union all
  select 'relation', o.name, case o.kind when 'sequence' then o.object else 'table ' || o.oid::regclass end, o.owner, '', a.*
  from objects o cross join lateral aclexplode(o.acl) a where o.kind <> 'type'
  union all
  select 'relation', c.relname::text, 'table ' || c.oid::regclass, c.relowner, format(' (%I)', t.attname), a.*
  from pg_attribute t join pg_class c on c.oid = t.attrelid join here n on n.oid = c.relnamespace cross join lateral aclexplode(t.attacl) a
  union all
  select 'schema', '', format('schema %I', n.nspname), n.nspowner, '', a.* from here n cross join lateral aclexplode(n.nspacl) a`)

const roles = `
  select r.rolname::text as name, r.rolsuper as superuser, r.rolcreaterole as creates, r.rolinherit as inherits,
         array_remove(array[case when r.rolsuper then 'nosuperuser' end, case when r.rolcreatedb then 'nocreatedb' end,
           case when r.rolcreaterole then 'nocreaterole' end, case when r.rolbypassrls then 'nobypassrls' end,
           case when r.rolreplication then 'noreplication' end, case when r.rolcanlogin then 'nologin' end], null) as excess
  from pg_roles r where r.rolname !~ '^pg_'`

/** By name in a jsonb: a server that has no such column gives null. */
const edges = `
  select pg_get_userbyid(m.roleid)::text as role, r.rolname::text as member,
         case when v.major >= 16 then pg_get_userbyid(m.grantor)::text end as grantor,
         coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, r.rolinherit) as inherit,
         coalesce((to_jsonb(m) ->> 'set_option')::boolean, true) as set, m.admin_option as admin,
         v.major >= 16 and m.grantor = 10 and r.rolcreaterole and m.admin_option and not (to_jsonb(m) ->> 'inherit_option')::boolean
           and not (to_jsonb(m) ->> 'set_option')::boolean as implicit
  from pg_auth_members m join pg_roles r on r.oid = m.member cross join version v`

const all = (from: string): string => `coalesce((select jsonb_agg(to_jsonb(x)) from (${from}) x), '[]')`

/** @internal `$1` is the name of the schema. Null without an installation: no table meta, no complete_job. */
export const installedSql = `with named as materialized (
  -- the names of objects and types are whole under this one, whatever the session's is; FROM comes before what is selected
  select set_config('search_path', 'pg_catalog, pg_temp', true)),
here as (select n.* from pg_namespace n where n.nspname = $1),
version as (select current_setting('server_version_num')::integer / 10000 as major),
objects as (${objects}),
found as (
  select (select count(*)::integer from objects o where o.kind = 'table' and o.name ~ '^closures_[0-9]+$') as ring,
         (select pg_get_userbyid(mode() within group (order by o.owner))::text from objects o where o.kind = 'table') as tables,
         (select pg_get_userbyid(mode() within group (order by p.proowner))::text from pg_proc p join here n on n.oid = p.pronamespace) as routines
  where exists (select from objects o where o.name = 'meta' and o.kind = 'table')
    and exists (select from pg_proc p join here n on n.oid = p.pronamespace)
)
select (select jsonb_build_object('major', v.major, 'me', current_user::text, 'ring', f.ring,
  'schemaOwner', pg_get_userbyid(n.nspowner)::text, 'tablesOwner', f.tables, 'routinesOwner', f.routines,
  'routines', ${all(routines)}, 'hooks', ${all(hooks)}, 'grants', ${all(grants)},
  'relations', ${all("select o.name, o.kind, o.object, pg_get_userbyid(o.owner)::text as owner from objects o")},
  'roles', ${all(roles)}, 'edges', ${all(edges)})
  from named, here n, version v, found f where f.ring > 0) as installed`
