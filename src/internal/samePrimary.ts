import type { SqlClient } from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { DatabaseError, RuntimePool } from "../RuntimePool.js"
import * as Column from "./column.js"

/**
 * The application's pool and the runtime's pool reach different databases, or one of them a standby (contract C-34). A
 * completion could then never commit together with the application's rows.
 */
export class PoolMismatch extends Schema.TaggedError<PoolMismatch>("effect-awa/PoolMismatch")("PoolMismatch", {
  application: Schema.String,
  runtime: Schema.String
}) {
  override get message(): string {
    return (
      `The application pool reaches ${this.application}, the runtime pool ${this.runtime}. Give your PgClient and the ` +
      "runtime's `database` (or url) the same primary database"
    )
  }
}

const identity =
  "select c.system_identifier || '/' || d.oid || ' (' || d.datname || ')' || " +
  "case when pg_is_in_recovery() then ', a standby' else '' end " +
  "from pg_control_system() c, pg_database d where d.datname = current_database()"

/** One value from the application's client, read past its own transformations. */
const applicationValue = (client: SqlClient, text: string): Effect.Effect<string, SqlError> =>
  Effect.scoped(Effect.flatMap(client.reserve, (connection) => connection.executeValues(text, []))).pipe(
    Effect.flatMap((rows) => {
      const value = rows[0]?.[0]
      return typeof value !== "string"
        ? Effect.fail(new SqlError({ message: "the database gave no answer", cause: text }))
        : Effect.succeed(value)
    })
  )

/** @internal */
export const samePrimary = (
  client: SqlClient,
  runtime: RuntimePool["Type"]
): Effect.Effect<void, SqlError | DatabaseError | PoolMismatch> =>
  Effect.gen(function* () {
    const ours = yield* runtime.call({ name: "identify-database", text: identity, values: [] })
    const runtimeIdentity = Column.string(ours[0]?.[0])
    const application = yield* applicationValue(client, identity)
    if (application !== runtimeIdentity || application.endsWith("a standby")) {
      return yield* new PoolMismatch({ application, runtime: runtimeIdentity })
    }
  })

/** @internal */
export const serverVersion = (client: SqlClient): Effect.Effect<number, SqlError> =>
  Effect.map(applicationValue(client, "select current_setting('server_version_num')"), Number)
