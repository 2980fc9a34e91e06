import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { MigrationFailed } from "../MigrationError.js"
import type { Connection } from "./migrateConnection.js"
import type { Found } from "./migratePlan.js"
import { isOccupied, limits, revisionOf } from "./migrateScript.js"
import { quoteIdentifier } from "./renderSql.js"

/** One namespace only (F-36), and catalogs that everybody may read. */
const surroundings = `select
  exists (select from pg_namespace n where n.nspname = $1) as present,
  ${isOccupied("$1")} as occupied,
  (select count(*)::integer
   from pg_class c
   join pg_namespace n on n.oid = c.relnamespace
   join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
   join (values ('product', 'text'::regtype), ('schema_version', 'integer'), ('minimum_contract', 'integer'),
                ('ring_size', 'smallint'), ('rendered_hash', 'text')) w(name, type)
     on w.name = a.attname and w.type = a.atttypid
   where n.nspname = $1 and c.relname = 'meta' and c.relkind = 'r') = 5 as has_meta`

const Surroundings = Schema.Tuple(
  Schema.Struct({ present: Schema.Boolean, occupied: Schema.Boolean, has_meta: Schema.Boolean })
)

const Meta = Schema.Struct({
  product: Schema.String,
  schema_version: Schema.Int,
  minimum_contract: Schema.Int,
  ring_size: Schema.Int,
  rendered_hash: Schema.String,
  functions_revision: Schema.Int
})

const Metas = Schema.Array(Meta)

const decode =
  <A, I>(step: string, schema: Schema.Schema<A, I>) =>
  (rows: unknown): Effect.Effect<A, MigrationFailed> =>
    Schema.decodeUnknown(schema)(rows).pipe(
      Effect.mapError((error) => new MigrationFailed({ step, reason: error.message }))
    )

/**
 * What stands under the schema's name. A foreign `meta` is read only when it is a plain table of our shape, so that
 * looking runs nobody's code: no view, no policy (`row_security` is off).
 *
 * @internal
 */
export const look = Effect.fnUntraced(function* (
  connection: Connection,
  schema: string
): Effect.fn.Return<Found, MigrationFailed> {
  const step = "look at the schema"
  const [around] = yield* connection
    .query(step, surroundings, [schema], limits.statement)
    .pipe(Effect.flatMap(decode(step, Surroundings)))
  if (!around.present) return { _tag: "Absent" }
  if (!around.occupied) return { _tag: "Empty" }
  if (!around.has_meta) return { _tag: "Foreign", found: "it has objects, and no table meta of effect-awa" }

  const sql = `select product, schema_version, minimum_contract, ring_size, rendered_hash, ${revisionOf("m")} as functions_revision
from ${quoteIdentifier(schema)}.meta m limit 2`
  const rows = yield* connection.query(step, sql, [], limits.statement).pipe(Effect.flatMap(decode(step, Metas)))
  const [meta] = rows
  if (meta === undefined || rows.length > 1) {
    return { _tag: "Foreign", found: `its table meta has ${rows.length === 0 ? "no row" : "several rows"}` }
  }
  if (meta.product !== "effect-awa") {
    return { _tag: "Foreign", found: `its table meta is of product ${JSON.stringify(meta.product)}` }
  }
  return {
    _tag: "Installed",
    version: meta.schema_version,
    minimumContract: meta.minimum_contract,
    ring: meta.ring_size,
    renderedHash: meta.rendered_hash,
    revision: meta.functions_revision
  }
})
