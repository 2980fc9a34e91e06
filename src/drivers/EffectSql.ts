/**
 * Completing an attempt in a transaction of your own `@effect/sql` client (`sql.withTransaction`), and in whatever joins it:
 * `Model`, sql-drizzle, sql-kysely. `job.finalize` needs none of this; it is for transactions that are opened elsewhere.
 *
 * A nested `withTransaction` is a savepoint. One whose failure is caught outside it would keep the outer rows without their
 * completion; COMMIT fails with `WA007` instead. `withTransaction` reports a failed COMMIT as a defect; the runtime asks the
 * database what became of the attempt, as after every exit.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import { SqlError } from "@effect/sql/SqlError"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import { ApplicationTransaction } from "../ApplicationTransaction.js"
import * as Driver from "../Driver.js"
import { endedAfter } from "../internal/applicationConnection.js"
import { makeFinalizations } from "../internal/commitGuard.js"
import {
  AttemptParked,
  CallerOwnedDisabled,
  type CompleteError,
  StaleAttempt,
  TokenRejected,
  TransactionUnavailable
} from "../JobError.js"

const queryOf =
  (connection: Connection, runtime: Runtime.Runtime<never>): Driver.Query =>
  async (text, values) => {
    const exit = await Runtime.runPromiseExit(runtime)(connection.execute(text, [...values], undefined))
    if (Exit.isFailure(exit)) throw Cause.squash(exit.cause) // the error itself, which carries the SQLSTATE
    return exit.value.map((row: Readonly<Record<string, unknown>>) => row)
  }

/** The connection, on which `complete_job` is asked in time: nothing interrupts it. */
const completing = (connection: Connection, inTime: ReturnType<typeof endedAfter>): Connection => ({
  execute: (sql, params, transform) => connection.execute(sql, params, transform),
  executeRaw: (sql, params) => connection.executeRaw(sql, params),
  executeStream: (sql, params, transform) => connection.executeStream(sql, params, transform),
  executeValues: (sql, params) => inTime(connection.executeValues(sql, params)),
  executeUnprepared: (sql, params, transform) => connection.executeUnprepared(sql, params, transform)
})

/** How much later than the server the client gives up: a statement that the server ends still has to answer. */
const slackMillis = 2_000

const known = [StaleAttempt, AttemptParked, CallerOwnedDisabled, TokenRejected, TransactionUnavailable]

const isKnown = (error: unknown): error is CompleteError | TransactionUnavailable =>
  known.some((known) => error instanceof known)

/**
 * Lets the effect complete this attempt in the transaction that is open on this fiber (`job.completeInTx`), and makes COMMIT
 * fail unless it does. First in the transaction: fails with `TransactionUnavailable` where none is open, and inside a nested one.
 *
 * @example
 * ```ts
 * import { SqlClient } from "@effect/sql"
 * import { Effect, Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as EffectSql from "effect-awa/drivers/EffectSql"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = Charge.toLayerCallerOwned((job) =>
 *   Effect.gen(function* () {
 *     const sql = yield* SqlClient.SqlClient
 *     const work = sql`update invoices set state = 'paid' where id = ${job.payload.invoice}`
 *     return yield* sql.withTransaction(EffectSql.inTransaction(job, Effect.zipRight(work, job.completeInTx)))
 *   })
 * )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const inTransaction = <A, E, R>(
  attempt: Driver.Finalizable<string>,
  body: Effect.Effect<A, E, R>,
  options?: {
    /** The server ends the transaction in which a statement or a pause takes longer, from 17 on all of it; 5 seconds (C-40). */
    readonly maximumDuration?: Duration.DurationInput
  }
): Effect.Effect<
  A,
  E | TransactionUnavailable | CompleteError | SqlError,
  Exclude<R, ApplicationTransaction> | SqlClient.SqlClient
> =>
  Effect.gen(function* () {
    const maximumMillis = Duration.toMillis(options?.maximumDuration ?? "5 seconds")
    const client = yield* SqlClient.SqlClient
    const open = yield* Effect.serviceOption(SqlClient.TransactionConnection)
    if (Option.isNone(open)) {
      return yield* new TransactionUnavailable({ reason: "no transaction is open on this fiber" })
    }
    const [connection, depth] = open.value
    if (depth > 0) {
      return yield* new TransactionUnavailable({ reason: "the transaction that is open on this fiber is a savepoint" })
    }
    const runtime = yield* Effect.runtime()
    const inTime = endedAfter(connection, maximumMillis + slackMillis)
    yield* Effect.uninterruptible(
      inTime(
        Effect.tryPromise({
          try: () => Driver.expectCompletion(queryOf(connection, runtime), attempt, { maximumMillis }),
          catch: (cause) =>
            isKnown(cause) ? cause : new SqlError({ message: "the completion could not be expected", cause })
        })
      )
    )
    return yield* Effect.provideService(body, ApplicationTransaction, {
      client,
      connection: completing(connection, inTime),
      finalizations: makeFinalizations()
    })
  })
