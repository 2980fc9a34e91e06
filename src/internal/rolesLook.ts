import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { MigrationFailed } from "../MigrationError.js"
import type { Connection } from "./migrateConnection.js"
import { limits } from "./migrateScript.js"

const step = "look at the roles"

const Owned = Schema.Struct({
  /** As ALTER says it: `table "awa".meta`. */
  object: Schema.String,
  /** As the manifest says it. */
  name: Schema.String,
  owner: Schema.String,
  /** Whether it belongs to the owner of the routines: what runs, and what reads for others. */
  runs: Schema.Boolean
})

const Role = Schema.Struct({
  name: Schema.String,
  login: Schema.Boolean,
  inherits: Schema.Boolean,
  /** Attributes that an owner must not have, as ALTER ROLE takes them away. */
  excess: Schema.Array(Schema.String),
  memberOf: Schema.Array(Schema.String),
  /** Who can be this role, or has what it has. The creator's edge of 16 and later, ADMIN alone, is not one of them. */
  members: Schema.Array(Schema.Struct({ name: Schema.String, inherits: Schema.Boolean })),
  settings: Schema.Array(Schema.String)
})

const Facts = Schema.Struct({
  major: Schema.Int,
  me: Schema.String,
  database: Schema.String,
  schemaOwner: Schema.NullOr(Schema.String),
  tablesOwner: Schema.NullOr(Schema.String),
  routinesOwner: Schema.NullOr(Schema.String),
  /** Triggers, rules and policies on what is here, but for the installation's own. */
  hooks: Schema.Array(Schema.String),
  ring: Schema.NullOr(Schema.Int),
  objects: Schema.Array(Owned),
  roles: Schema.Array(Role)
})

/** @internal What stands in the catalogs, before a plan. */
export interface Facts extends Schema.Schema.Type<typeof Facts> {}

/** Catalogs that everybody may read. What belongs to a table (its indexes, identity, row type) goes where the table goes. */
const factsSql = `select to_jsonb(f) as facts from (
select current_setting('server_version_num')::integer / 10000 as major, current_user::text as me,
  current_database()::text as database,
  (select pg_get_userbyid(c.relowner)::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1 and c.relname = 'meta' and c.relkind = 'r') as "tablesOwner",
  (select pg_get_userbyid(p.proowner)::text from pg_proc p
   where p.pronamespace = (select n.oid from pg_namespace n where n.nspname = $1) and p.proname = 'complete_job'
     and oidvectortypes(p.proargtypes) = 'bigint, bigint, integer, bigint, bigint, integer, jsonb') as "routinesOwner",
  array(select format('trigger %s on %s', t.tgname, c.oid::regclass) from pg_trigger t join pg_class c on c.oid = t.tgrelid
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = $1 and not t.tgisinternal
          and (t.tgname <> 'kept' or t.tgfoid not in (select p.oid from pg_proc p where p.pronamespace = n.oid and p.proname ~ '^check_expected_[0-9]+$'))
        union all
        select format('rule %s on %s', r.rulename, c.oid::regclass) from pg_rewrite r join pg_class c on c.oid = r.ev_class
        join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and r.rulename <> '_RETURN'
        union all
        select format('policy %s on %s', p.polname, c.oid::regclass) from pg_policy p join pg_class c on c.oid = p.polrelid
        join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1) as hooks,
  (select pg_get_userbyid(n.nspowner)::text from pg_namespace n where n.nspname = $1) as "schemaOwner",
  (select count(*)::integer from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where n.nspname = $1 and c.relkind = 'r' and c.relname ~ '^closures_[0-9]+$') as ring,
  coalesce((select jsonb_agg(to_jsonb(o) order by o.runs, o.object) from (
    select case c.relkind when 'S' then 'sequence ' when 'v' then 'view ' when 'c' then 'type ' else 'table ' end
             || c.oid::regclass as object, c.relname::text as name,
           pg_get_userbyid(c.relowner)::text as owner, c.relkind = 'v' as runs
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relkind in ('r', 'p', 'v', 'm', 'S', 'c')
      and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and c.relkind = 'S'
                        and d.deptype in ('a', 'i') and d.refclassid = 'pg_class'::regclass)
    union all
    select 'type ' || t.oid::regtype, t.typname::text, pg_get_userbyid(t.typowner)::text, false
    from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname = $1 and t.typtype in ('e', 'd')
    union all
    select 'routine ' || p.oid::regprocedure,
           format('%s(%s)', p.proname, replace(pg_get_function_identity_arguments(p.oid), format('%I.', $1), '{schema}.')), pg_get_userbyid(p.proowner)::text, true
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1) o), '[]') as objects,
  coalesce((select jsonb_agg(jsonb_build_object('name', r.rolname, 'login', r.rolcanlogin, 'inherits', r.rolinherit,
      'excess', array_remove(array[case when r.rolsuper then 'nosuperuser' end, case when r.rolcreatedb then 'nocreatedb' end,
        case when r.rolcreaterole then 'nocreaterole' end, case when r.rolbypassrls then 'nobypassrls' end,
        case when r.rolreplication then 'noreplication' end, case when r.rolcanlogin then 'nologin' end], null),
      'settings', array(select split_part(s, '=', 1) from pg_db_role_setting d cross join unnest(d.setconfig) s
        where d.setrole = r.oid and d.setdatabase = 0),
      'members', array(select jsonb_build_object('name', pg_get_userbyid(m.member),
          'inherits', coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, (select i.rolinherit from pg_roles i where i.oid = m.member)))
        from pg_auth_members m where m.roleid = r.oid
          and (coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true) or coalesce((to_jsonb(m) ->> 'set_option')::boolean, true))),
      'memberOf', array(select pg_get_userbyid(m.roleid)::text from pg_auth_members m where m.member = r.oid)))
    from pg_roles r where r.rolname::text = any (string_to_array($2, E'\\x1f'))), '[]') as roles) f`

/** @internal */
export const lookAtRoles = Effect.fnUntraced(function* (
  connection: Connection,
  schema: string,
  roles: ReadonlyArray<string>
): Effect.fn.Return<Facts, MigrationFailed> {
  const [row] = yield* connection.query(step, factsSql, [schema, roles.join("\u001f")], limits.statement)
  const { facts } = yield* Schema.decodeUnknown(Schema.Struct({ facts: Facts }))(row).pipe(
    Effect.mapError((error) => new MigrationFailed({ step, reason: error.message }))
  )
  return facts
})
