import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { MigrationFailed } from "../../MigrationError.js"
import type { Found } from "./finding.js"
import { skipped } from "./skipped.js"
import type { Connection } from "../migrateConnection.js"

/** @internal One statement of doctor's, its rows decoded. */
export interface Ask {
  <A, I>(
    step: string,
    sql: string,
    values: ReadonlyArray<string>,
    schema: Schema.Schema<A, I>
  ): Effect.Effect<A, MigrationFailed>
}

/** @internal In milliseconds. */
export const statementMillis = 30_000

/** @internal */
export const asking =
  (connection: Connection): Ask =>
  (step, sql, values, schema) =>
    Effect.flatMap(connection.query(step, sql, values, statementMillis), (rows) =>
      Effect.mapError(
        Schema.decodeUnknown(schema)(rows),
        (error) => new MigrationFailed({ step, reason: error.message })
      )
    )

/** @internal What the installation's own functions meet is what they meet at work. */
export const asAtWork = "set local row_security = on"

/** @internal Read only, whatever the session is set to; nothing of it outlives the transaction. */
export const beginLooking = [
  "begin isolation level read committed read only",
  "set local standard_conforming_strings = on",
  "set local search_path = pg_catalog, pg_temp",
  "set local row_security = off",
  "set local lock_timeout = 5000",
  `set local statement_timeout = ${statementMillis}`,
  `set local idle_in_transaction_session_timeout = ${statementMillis * 2}`
].join("; ")

/** @internal A statement that a broken installation refuses is a check that was not made, and the others go on. */
export interface Guard {
  (
    check: string,
    found: Effect.Effect<ReadonlyArray<Found>, MigrationFailed>
  ): Effect.Effect<ReadonlyArray<Found>, MigrationFailed>
}

/** @internal */
export const guarding =
  (connection: Connection): Guard =>
  (check, found) =>
    Effect.zipRight(connection.execute("guard", "savepoint guarded", statementMillis), found).pipe(
      Effect.catchIf(
        ({ sqlState }) => sqlState !== undefined,
        (error) =>
          Effect.as(connection.execute("guard", "rollback to guarded", statementMillis), [
            skipped(check, error.message)
          ])
      )
    )
