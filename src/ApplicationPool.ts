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
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { ApplicationTransaction, type Finalizations } from "./ApplicationTransaction.js"
import { acquire, discard, guard, lastCommand, observe, within } from "./internal/applicationConnection.js"
import { guardedCommit, makeFinalizations } from "./internal/commitGuard.js"
import { type PoolMismatch, samePrimary, serverVersion } from "./internal/samePrimary.js"
import { isFatal, sqlStateOf } from "./internal/sqlState.js"
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
      if (state === undefined || ambiguous(state) || isFatal(cause)) {
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

/** How long an interrupted body may take to end by itself, before its connection is ended under it. */
const bodyGraceMillis = 250

/**
 * The body's exit. It runs in a fiber of its own, which is interrupted when the time is over or the caller is; a statement in
 * it that cannot be interrupted, and whose answer never comes, ends with the connection.
 */
const runBody = <A, E>(
  body: Effect.Effect<A, E>,
  connection: Connection,
  restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>,
  maximumMillis: number
): Effect.Effect<{ readonly exit: Exit.Exit<A, E | TransactionTooLong>; readonly clean: boolean }> =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(restore(body))
    const waited = yield* Effect.exit(restore(observe(fiber, maximumMillis)))
    if (Exit.isSuccess(waited) && Option.isSome(waited.value)) {
      yield* Fiber.inheritAll(fiber)
      return { exit: waited.value.value, clean: true }
    }
    fiber.unsafeInterruptAsFork(FiberId.none)
    const ended = yield* observe(fiber, bodyGraceMillis)
    if (Option.isNone(ended)) {
      yield* discard(connection)
      yield* Fiber.await(fiber)
    }
    return {
      exit: Exit.isFailure(waited)
        ? Exit.failCause(waited.cause)
        : Exit.fail(new TransactionTooLong({ millis: maximumMillis })),
      clean: Option.isSome(ended)
    }
  })

const makeTransaction =
  (client: SqlClient.SqlClient, version: number, maximumMillis: number): ApplicationPool["Type"]["transaction"] =>
  <A, E, R>(body: Effect.Effect<A, E, R>) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (Option.isSome(yield* Effect.serviceOption(SqlClient.TransactionConnection))) {
          return yield* new TransactionUnavailable({ reason: "a transaction is open already on this fiber" })
        }
        const acquired = yield* Effect.catchTag(
          acquire(client.reserve, restore, maximumMillis),
          "SqlError",
          (cause: SqlError) => new TransactionUnavailable({ reason: "no connection", cause })
        )
        if (Option.isNone(acquired)) {
          return yield* new TransactionUnavailable({ reason: "the application pool gave no connection in time" })
        }
        const { connection, release } = acquired.value
        return yield* Effect.ensuring(inTransaction(body, client, connection, restore, version, maximumMillis), release)
      })
    )

const inTransaction = <A, E, R>(
  body: Effect.Effect<A, E, R>,
  client: SqlClient.SqlClient,
  connection: Connection,
  restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>,
  version: number,
  maximumMillis: number
): Effect.Effect<A, E | TransactionError, Exclude<R, InTransaction>> =>
  Effect.gen(function* () {
    const began = yield* within(connection.executeRaw(beginText(version, maximumMillis), []), maximumMillis)
    if (Option.isNone(began) || Exit.isFailure(began.value)) {
      yield* discard(connection)
      return yield* new TransactionUnavailable({
        reason: "BEGIN failed",
        cause: Option.isSome(began) && Exit.isFailure(began.value) ? Cause.squash(began.value.cause) : undefined
      })
    }
    const own = guard(connection)
    const finalizations = makeFinalizations()
    const context = Context.make(ApplicationTransaction, {
      client,
      connection: own.connection,
      finalizations
    }).pipe(Context.add(SqlClient.SqlClient, client), Context.add(SqlClient.TransactionConnection, [own.connection, 0]))
    const ambient = yield* Effect.context<Exclude<R, InTransaction>>()
    const provided = Effect.provide(Effect.provide(body, context), ambient)
    const { clean, exit } = yield* runBody(provided, connection, restore, maximumMillis)
    own.close()
    if (Exit.isFailure(exit)) {
      if (clean) yield* rollback(connection)
      if (own.tainted()) yield* discard(connection)
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
    if (own.tainted()) yield* discard(connection)
    return exit.value
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
