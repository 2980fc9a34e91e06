import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { MigrationFailed } from "../MigrationError.js"
import type { Connection } from "./migrateConnection.js"
import { limits, type Owners } from "./migrateScript.js"
import { actAs } from "./privileges.js"

const step = "look at the owners"

/**
 * Catalogs that everybody may read. A role that could not become the owner goes on as itself, and is told by the server. Who has
 * `meta` decides, whatever else its owner has made or dropped.
 */
const ownersSql = `select pg_get_userbyid(c.relowner)::text as tables, pg_get_userbyid(p.proowner)::text as routines,
  current_user::text as me, current_setting('is_superuser') = 'on' as super,
  pg_has_role(current_user, c.relowner, case when current_setting('server_version_num')::integer < 160000 then 'member' else 'set' end) as may
from pg_namespace n
join pg_class c on c.relnamespace = n.oid and c.relname = 'meta' and c.relkind = 'r'
left join pg_proc p on p.pronamespace = n.oid and p.proname = 'complete_job'
  and oidvectortypes(p.proargtypes) = 'bigint, bigint, integer, bigint, bigint, integer, jsonb'
where n.nspname = $1`

const Rows = Schema.Array(
  Schema.Struct({
    tables: Schema.String,
    routines: Schema.NullOr(Schema.String),
    me: Schema.String,
    super: Schema.Boolean,
    may: Schema.Boolean
  })
)

interface Acting {
  readonly ownsTables: boolean
  /** Both owners, where they differ. */
  readonly owners: Owners | undefined
}

/**
 * From here on the migrator is the owner of the tables, where that is another role.
 *
 * @internal
 */
export const actAsOwner = Effect.fnUntraced(function* (
  connection: Connection,
  schema: string
): Effect.fn.Return<Acting, MigrationFailed> {
  const rows = yield* connection.query(step, ownersSql, [schema], limits.statement)
  const [found] = yield* Schema.decodeUnknown(Rows)(rows).pipe(
    Effect.mapError((error) => new MigrationFailed({ step, reason: error.message }))
  )
  if (found === undefined) return { ownsTables: false, owners: undefined }
  const { may, me, routines, tables } = found
  if (tables !== me && found.super) {
    // The owner's triggers would run as the superuser: SET LOCAL ROLE is no boundary, whoever is inside can reset it.
    return yield* new MigrationFailed({
      step,
      reason: `schema ${JSON.stringify(schema)} belongs to ${JSON.stringify(tables)}: a superuser does not migrate it, connect as its migrator or owner`
    })
  }
  if (tables !== me && may) yield* connection.execute(step, actAs(tables), limits.statement)
  return {
    ownsTables: tables === me || may,
    owners: routines === null || routines === tables ? undefined : { tables, routines }
  }
})
