/**
 * The application's own connections (contract C-30, C-40, C-41).
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlError } from "@effect/sql/SqlError"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import { ApplicationTransaction, type Finalizations } from "./ApplicationTransaction.js"
import { discard, guarded, lastCommand, within } from "./internal/applicationConnection.js"
import { guardedCommit, makeFinalizations } from "./internal/commitGuard.js"
import { type PoolMismatch, samePrimary, serverVersion } from "./internal/samePrimary.js"
import { sqlStateOf } from "./internal/sqlState.js"
import {
  CommitUnknown,
  CompletionMissing,
  RolledBack,
  type TransactionError,
  TransactionTooLong,
  TransactionUnavailable
} from "./JobError.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"

/**
 * The application's pool: the program's own `PgClient`, proven to reach the same database as the runtime's pool (contract
 * C-34).
 *
 * @since 0.1.0
 * @category services
 */
export class ApplicationPool extends Context.Tag("effect-awa/ApplicationPool")<
  ApplicationPool,
  {
    readonly client: SqlClient.SqlClient
    /**
     * BEGIN · body · COMMIT. Inside the body every program over `SqlClient` joins the transaction. Committed only with every
     * completion that was tried in it in place; bounded in time on both sides; an interruption rolls it back.
     */
    readonly transaction: <A, E, R>(
      body: Effect.Effect<A, E, R>
    ) => Effect.Effect<A, E | TransactionError, Exclude<R, InTransaction>>
  }
>() {}

/**
 * What a transaction provides to its body.
 *
 * @since 0.1.0
 * @category models
 */
export type InTransaction = ApplicationTransaction | SqlClient.SqlClient | SqlClient.TransactionConnection

/**
 * @since 0.1.0
 * @category models
 */
export interface ApplicationPoolOptions {
  /** How long a transaction may be open; 5 seconds unless said otherwise. Waiting for a connection is bounded alike. */
  readonly maximumDuration?: Duration.DurationInput | undefined
}

/** A rollback that takes longer than this is not waited for: the connection is ended instead, and the server rolls back. */
const rollbackMillis = 2_000

/** How much later than the client the server ends a transaction, when the client has vanished. */
const serverSlackMillis = 1_000

/** States after which it is open whether COMMIT took effect: the backend was ended, or the answer came from elsewhere. */
const ambiguous = (state: string): boolean => /^(08|57P|58|XX)/.test(state)

const beginText = (version: number, maximumMillis: number): string => {
  const limit = maximumMillis + serverSlackMillis
  return (
    `begin; set local statement_timeout = ${limit}; set local idle_in_transaction_session_timeout = ${limit}` +
    (version >= 170000 ? `; set local transaction_timeout = ${limit}` : "")
  )
}

const rollback = (connection: Connection): Effect.Effect<void> =>
  Effect.flatMap(within(connection.executeRaw("rollback", []), rollbackMillis), (exit) =>
    Option.isSome(exit) && Exit.isSuccess(exit.value) ? Effect.void : discard(connection)
  )

const commit = (
  connection: Connection,
  finalizations: Finalizations,
  maximumMillis: number
): Effect.Effect<void, CommitUnknown | CompletionMissing | RolledBack> =>
  Effect.flatMap(
    within(connection.executeRaw(guardedCommit(finalizations), []), maximumMillis + 2 * serverSlackMillis),
    (answer): Effect.Effect<void, CommitUnknown | CompletionMissing | RolledBack> => {
      if (Option.isNone(answer)) {
        return Effect.zipRight(
          discard(connection),
          Effect.fail(new CommitUnknown({ cause: new Error("COMMIT was not answered in time") }))
        )
      }
      const exit = answer.value
      if (Exit.isSuccess(exit)) {
        const tag = lastCommand(exit.value)
        return tag === "COMMIT"
          ? Effect.void
          : Effect.fail(new RolledBack({ cause: new Error(`COMMIT answered ${tag}`) }))
      }
      const cause = Cause.squash(exit.cause)
      const state = Option.getOrUndefined(sqlStateOf(cause))
      if (state === undefined || ambiguous(state)) {
        return Effect.zipRight(discard(connection), Effect.fail(new CommitUnknown({ cause })))
      }
      return Effect.zipRight(
        rollback(connection),
        Effect.fail(
          state === "WA007"
            ? new CompletionMissing({
                sqlState: "WA007",
                reason: "a completion in it was rolled back with its savepoint"
              })
            : new RolledBack({ cause })
        )
      )
    }
  )

const makeTransaction =
  (client: SqlClient.SqlClient, version: number, maximumMillis: number): ApplicationPool["Type"]["transaction"] =>
  <A, E, R>(body: Effect.Effect<A, E, R>) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (Option.isSome(yield* Effect.serviceOption(SqlClient.TransactionConnection))) {
          return yield* new TransactionUnavailable({ reason: "a transaction is open already on this fiber" })
        }
        const scope = yield* Scope.make()
        const run = Effect.gen(function* () {
          const connection = yield* restore(Scope.extend(client.reserve, scope)).pipe(
            Effect.timeoutFail({
              duration: maximumMillis,
              onTimeout: () => new TransactionUnavailable({ reason: "the application pool gave no connection in time" })
            }),
            Effect.catchTag(
              "SqlError",
              (cause: SqlError) => new TransactionUnavailable({ reason: "no connection", cause })
            )
          )
          const began = yield* within(connection.executeRaw(beginText(version, maximumMillis), []), maximumMillis)
          if (Option.isNone(began) || Exit.isFailure(began.value)) {
            yield* discard(connection)
            return yield* new TransactionUnavailable({
              reason: "BEGIN failed",
              cause: Option.isSome(began) && Exit.isFailure(began.value) ? Cause.squash(began.value.cause) : undefined
            })
          }
          let open = true
          const own = guarded(connection, () => open)
          const finalizations = makeFinalizations()
          const context = Context.make(ApplicationTransaction, { client, connection: own, finalizations }).pipe(
            Context.add(SqlClient.SqlClient, client),
            Context.add(SqlClient.TransactionConnection, [own, 0])
          )
          const exit = yield* restore(Effect.provide(body, context)).pipe(
            Effect.timeoutFail({
              duration: maximumMillis,
              onTimeout: () => new TransactionTooLong({ millis: maximumMillis })
            }),
            Effect.exit
          )
          open = false
          if (Exit.isFailure(exit)) {
            yield* rollback(connection)
            // the driver cancels an interrupted statement by its backend's pid, perhaps only later: nobody else may have it
            if (Cause.isInterrupted(exit.cause) || isTooLong(exit.cause)) yield* discard(connection)
            return yield* exit
          }
          if (finalizations.failed()) {
            yield* rollback(connection)
            return yield* new CompletionMissing({
              sqlState: "WA007",
              reason: "a completion in it failed and the failure was swallowed"
            })
          }
          yield* commit(connection, finalizations, maximumMillis)
          return exit.value
        })
        const exit = yield* Effect.exit(run)
        yield* Scope.close(scope, exit)
        return yield* exit
      })
    )

const isTooLong = (cause: Cause.Cause<unknown>): boolean =>
  Option.match(Cause.failureOption(cause), {
    onNone: () => false,
    onSome: (error) => error instanceof TransactionTooLong
  })

/**
 * Makes the application pool from the program's `PgClient`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options?: ApplicationPoolOptions
): Effect.fn.Return<ApplicationPool["Type"], SqlError | DatabaseError | PoolMismatch, PgClient.PgClient | RuntimePool> {
  const client = yield* PgClient.PgClient
  const runtime = yield* RuntimePool
  yield* samePrimary(client, runtime)
  const version = yield* serverVersion(client)
  const maximumMillis = Duration.toMillis(options?.maximumDuration ?? "5 seconds")
  return { client, transaction: makeTransaction(client, version, maximumMillis) }
})

/**
 * The application pool of a program.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { SqlClient } from "@effect/sql"
 * import { ApplicationPool } from "effect-awa"
 *
 * export const renamed = Effect.gen(function*() {
 *   const pool = yield* ApplicationPool.ApplicationPool
 *   return yield* pool.transaction(
 *     Effect.flatMap(SqlClient.SqlClient, (sql) => sql`update invoices set state = 'paid' where id = 1`)
 *   )
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options?: ApplicationPoolOptions
): Layer.Layer<ApplicationPool, SqlError | DatabaseError | PoolMismatch, PgClient.PgClient | RuntimePool> =>
  Layer.effect(ApplicationPool, make(options))

export {
  /**
   * @since 0.1.0
   * @category errors
   */
  PoolMismatch
} from "./internal/samePrimary.js"
