import * as Schema from "effect/Schema"
import { quoteIdentifier } from "../renderSql.js"
import type { Found } from "./finding.js"
import { type Binding, transaction } from "./subject.js"

/** The names that applications call, perhaps without the schema's. */
const called = ["complete_job", "complete_jobs", "expect_completion", "insert_job", "insert_jobs", "insert_batch"]

/** Each role that calls them, with the search_path that its sessions begin with here, and what stands outside of ours. */
export const shadowsSql = `select
  coalesce((select jsonb_agg(jsonb_build_object('role', r.rolname, 'path', coalesce(
      (select substr(c, 13) from pg_db_role_setting s cross join unnest(s.setconfig) c
       where s.setrole in (0, r.oid) and s.setdatabase in (0, d.oid) and c like 'search\\_path=%'
       order by s.setrole <> 0 desc, s.setdatabase <> 0 desc limit 1),
      '"$user", public')))
    from pg_roles r where r.rolname = any (string_to_array($2, E'\\x1f'))), '[]') as roles,
  coalesce((select jsonb_agg(jsonb_build_object('schema', n.nspname, 'name', p.proname, 'object', 'routine ' || p.oid::regprocedure))
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname <> $1 and p.proname = any ('{${called.join()}}')), '[]') as routines,
  coalesce((select jsonb_agg(n.nspname) from pg_namespace n cross join lateral aclexplode(n.nspacl) a
    where a.grantee = 0 and a.privilege_type = 'CREATE'), '[]') as open
from pg_database d where d.datname = current_database()`

/** @internal */
export const Shadows = Schema.Tuple(
  Schema.Struct({
    /** The schemas that anybody may create in. */
    open: Schema.Array(Schema.String),
    roles: Schema.Array(Schema.Struct({ role: Schema.String, path: Schema.String })),
    routines: Schema.Array(Schema.Struct({ schema: Schema.String, name: Schema.String, object: Schema.String }))
  })
)

/** @internal The schemas of a search_path, as PostgreSQL reads it. */
export const schemasOf = (path: string, role: string): ReadonlyArray<string> =>
  [...path.matchAll(/"((?:[^"]|"")*)"|([^\s,"]+)/g)].map(([, quoted, plain]) => {
    const name = quoted === undefined ? (plain ?? "").toLowerCase() : quoted.replaceAll('""', '"')
    return name === "$user" ? role : name
  })

/** @internal Whose calls a name of ours may be meant for: everybody who completes or enqueues. */
export const callers = (bindings: ReadonlyArray<Binding>): ReadonlyArray<string> => [
  ...new Set(
    bindings
      .filter(({ capability }) => ["producer", "finalizer", "batch_finalizer", "expectation"].includes(capability))
      .map(({ role }) => role)
  )
]

/**
 * Routines outside the schema that a call without the schema's name would reach: a wrapper, or an overload (C-54).
 *
 * @internal
 */
export const checkShadows = ([{ open, roles, routines }]: typeof Shadows.Type): ReadonlyArray<Found> => [
  ...open.flatMap((schema): ReadonlyArray<Found> => {
    const reached = roles.filter(({ path, role }) => schemasOf(path, role).includes(schema)).map(({ role }) => role)
    return reached.length === 0
      ? []
      : [
          {
            code: "path-writable",
            object: schema,
            found: `PUBLIC may create in ${schema}, on the search_path of ${reached.join(", ")}`,
            expected: "no CREATE of PUBLIC there",
            sql: transaction(`revoke create on schema ${quoteIdentifier(schema)} from public`)
          }
        ]
  }),
  ...routines.flatMap(({ name, object, schema }): ReadonlyArray<Found> => {
    const reached = roles.filter(({ path, role }) => schemasOf(path, role).includes(schema)).map(({ role }) => role)
    return reached.length === 0
      ? []
      : [
          {
            code: "routine-shadow",
            object: name,
            found: `${object}, on the search_path of ${reached.join(", ")}`,
            expected: `no other ${name} there`,
            sql: transaction(`drop ${object}`),
            advice: "or take its schema from the search_path of these roles; the library itself always names its schema"
          }
        ]
  })
]
