import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { type DatabaseError, StartRefused } from "../PoolError.js"
import type { RuntimePool } from "../RuntimePool.js"
import { awaCommand } from "./awaCommand.js"
import * as Column from "./column.js"
import { contractVersion, minimumSchemaVersion } from "./contractVersion.js"
import { quoteIdentifier } from "./renderSql.js"

type Connected = Pick<RuntimePool["Type"], "call" | "schema" | "quotedSchema">

const decodeMeta = Schema.decodeUnknownOption(
  Schema.Struct({
    product: Schema.Literal("effect-awa"),
    minimum_contract: Schema.Int,
    schema_version: Schema.Int,
    origin_id: Schema.String
  })
)

const foreign = (place: string) =>
  new StartRefused({
    reason: "schema-missing",
    detail: `${place} is not an installation of effect-awa`
  })

/** `wrong_object_type`: an index or a sequence is called so. */
const isForeign = (error: DatabaseError): boolean => error.sqlState === "42809"

/** The one row of `meta`, of whatever form it is: another product's table may be called so too. */
const readMeta = Effect.fnUntraced(function* ({ call, quotedSchema, schema }: Connected) {
  const [found] = yield* call({
    name: "find-schema",
    text: "select to_regclass($1)::text, current_database()::text",
    values: [`${quotedSchema}.meta`]
  })
  // the address may lead elsewhere than it is thought to
  const place = `schema ${quotedSchema} of the database ${quoteIdentifier(Column.string(found?.[1]))}`
  if (found?.[0] === null) {
    return yield* new StartRefused({
      reason: "schema-missing",
      detail: `nothing is installed in ${place}; run ${awaCommand("migrate", schema)}`
    })
  }
  const [row] = yield* call({
    name: "read-meta",
    text: `select to_jsonb(m) from ${quotedSchema}.meta m limit 1`,
    values: []
  }).pipe(Effect.mapError((error) => (isForeign(error) ? foreign(place) : error)))
  return yield* Effect.mapError(decodeMeta(row?.[0]), () => foreign(place))
})

/** Whose data these are, and whether they can be gone on from here (contract C-34). */
const adopt = Effect.fnUntraced(function* ({ call, quotedSchema, schema }: Connected) {
  const [adopted] = yield* call({ name: "adopt-database", text: `select ${quotedSchema}.adopt_database()`, values: [] })
  if (adopted?.[0] === "adopted") {
    yield* Effect.logWarning(
      "This database is a copy: it was given a new installation id, tokens of the original do not match here"
    )
  }
  if (adopted?.[0] === "refused") {
    const [fault] = yield* call({ name: "storage-fault", text: `select ${quotedSchema}.storage_fault()`, values: [] })
    return yield* new StartRefused({
      reason: "database-replaced",
      detail:
        "the data were restored or copied here from another database: " +
        `${Column.nullable(Column.string)(fault?.[0]) ?? "what was in the way is over, start again"}; ` +
        `run ${awaCommand("storage rebase", schema)}`
    })
  }
})

/**
 * Checks what is installed, and answers where its data began.
 *
 * @internal
 */
export const startCheck = (pool: Connected): Effect.Effect<string, DatabaseError | StartRefused> =>
  Effect.gen(function* () {
    const meta = yield* readMeta(pool)
    if (meta.minimum_contract > contractVersion) {
      return yield* new StartRefused({
        reason: "contract-unsupported",
        detail: `the installed schema serves contract versions from ${meta.minimum_contract}, this library speaks ${contractVersion}`
      })
    }
    if (meta.schema_version < minimumSchemaVersion) {
      return yield* new StartRefused({
        reason: "schema-outdated",
        detail: `schema version ${meta.schema_version} is installed, this library needs ${minimumSchemaVersion}; run ${awaCommand("migrate", pool.schema)}`
      })
    }
    yield* adopt(pool)
    return meta.origin_id
  })
