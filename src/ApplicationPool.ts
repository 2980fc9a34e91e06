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
import type * as RuntimeFlags from "effect/RuntimeFlags"
import { ApplicationTransaction } from "./ApplicationTransaction.js"
import { acquire, discard, guard, isIdle, within } from "./internal/applicationConnection.js"
import { makeFinalizations } from "./internal/commitGuard.js"
import { beginText } from "./internal/beginText.js"
import { checkBudget } from "./internal/connectionBudget.js"
import { monotonicMillis } from "./internal/monotonic.js"
import { sendBegin } from "./internal/pgClient.js"
import { applicationPoolFault } from "./internal/poolOptions.js"
import { type PoolMismatch, samePrimary, serverVersion } from "./internal/samePrimary.js"
import { runBody } from "./internal/transactionBody.js"
import { type Closing, commit, noClosing, rollback } from "./internal/transactionEnd.js"
import { type Held, makeTurns, type Turns } from "./internal/turns.js"
import { CompletionMissing, type TransactionError, TransactionUnavailable } from "./JobError.js"
import { type ConnectionBudgetExceeded, type DatabaseError, PoolMisconfigured } from "./PoolError.js"
import { RuntimePool } from "./RuntimePool.js"

/**
 * The connections that a program and its runtime may take; shown in `runtimes` (contract C-22, C-32, C-33).
 *
 * @since 0.1.0
 * @category models
 */
export interface Connections {
  /** `shared`: both sides together keep one bound (`SharedPool`). */
  readonly mode: "separate" | "shared"
  /** Of the application's pool. */
  readonly application: number
  /** Of the runtime's pool, and the one that listens. */
  readonly runtime: number
  /** How many transactions of `ApplicationPool.transaction` are open at once, if that is bounded besides. */
  readonly callerOwned?: number | undefined
}

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
    readonly connections: Connections
    /**
     * BEGIN · body · COMMIT. Inside the body every program over `SqlClient` joins the transaction. Committed only with every
     * completion that was tried in it in place; bounded in time on both sides; an interruption rolls it back.
     */
    readonly transaction: <A, E, R>(
      body: Effect.Effect<A, E, R>
    ) => Effect.Effect<A, E | TransactionError, Exclude<R, InTransaction>>
    /**
     * BEGIN · body · a last statement with COMMIT, in one round trip; its answer is the result. `waits` is told when the transaction
     * must wait for its turn, and when the wait has ended.
     */
    readonly transactionClosing: <A, E, R, B, EClosing>(
      body: Effect.Effect<A, E, R>,
      closing: (value: A) => Closing<B, EClosing>,
      waits?: (waiting: boolean) => void
    ) => Effect.Effect<B, E | EClosing | TransactionError, Exclude<R, InTransaction>>
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
  /** How long a transaction may be open; 5 seconds unless said otherwise, a day at most. Waiting for a connection is bounded alike. */
  readonly maximumDuration?: Duration.DurationInput | undefined
  /**
   * How many of the transactions are open at once. The others wait for their turn, as long as it takes, and hold nothing
   * meanwhile. Unless it is said, as many as the pool has connections, and a turn is waited for like a connection: no longer than
   * a transaction may be open.
   */
  readonly callerOwned?: number | undefined
  /** Whether the connections are part of one bound; set by whoever made it. `separate` unless said otherwise. */
  readonly mode?: Connections["mode"] | undefined
  readonly budget?: BudgetOptions | undefined
}

/**
 * The comparison of both pools with what the server gives (contract C-33): a line in the log at the start, a warning when it
 * is too much. Behind a pooler it compares the wrong things: what counts there is the pooler's own bound.
 *
 * @since 0.1.0
 * @category models
 */
export interface BudgetOptions {
  /** How many processes like this one run at the same time, during a rolling upgrade too; 1 unless said otherwise. */
  readonly processes?: number | undefined
  /** Fail with `ConnectionBudgetExceeded` instead of warning; `false` unless said otherwise. */
  readonly strict?: boolean | undefined
  /** The size of the application's pool, where its client does not say it: `PgClient.fromPool` does not. From 1 to 10000. */
  readonly applicationConnections?: number | undefined
}

/** What every transaction of a pool is made of. */
interface Makings {
  readonly client: SqlClient.SqlClient
  readonly begin: string
  readonly maximumMillis: number
  readonly turns: Turns
}

type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** Whether the caller of a transaction can be interrupted, and how its body can be where it can. */
interface Caller {
  readonly restore: Restore
  readonly runtimeFlags: RuntimeFlags.RuntimeFlags
}

const noConnection = (cause?: SqlError): TransactionUnavailable =>
  cause === undefined
    ? new TransactionUnavailable({ reason: "the application pool gave no connection in time" })
    : new TransactionUnavailable({ reason: "no connection", cause })

const makeTransaction =
  (makings: Makings): ApplicationPool["Type"]["transactionClosing"] =>
  (body, closing, waits) =>
    Effect.withFiberRuntime((fiber, { runtimeFlags }) =>
      Option.isSome(Context.getOption(fiber.currentContext, SqlClient.TransactionConnection))
        ? Effect.fail(new TransactionUnavailable({ reason: "a transaction is open already on this fiber" }))
        : Effect.uninterruptibleMask((restore) =>
            Effect.flatMap(makings.turns.take(restore, waits), (turn) =>
              turn === "late"
                ? Effect.fail(noConnection())
                : inTurn(makings, { restore, runtimeFlags }, turn, body, closing)
            )
          )
    )

/** With the connection that the turn came with, or one of the pool. */
const inTurn = <A, E, R, B, EClosing>(
  makings: Makings,
  caller: Caller,
  handedOn: Held | undefined,
  body: Effect.Effect<A, E, R>,
  closing: (value: A) => Closing<B, EClosing>
): Effect.Effect<B, E | EClosing | TransactionError, Exclude<R, InTransaction>> => {
  let held = handedOn
  let reusable = false
  const intact = (): void => {
    reusable = true
  }
  const transaction =
    handedOn === undefined
      ? Effect.flatMap(reserved(makings, caller.restore), (own) => {
          held = own
          return inTransaction(makings, caller, own.connection, body, closing, intact)
        })
      : inTransaction(makings, caller, handedOn.connection, body, closing, intact)
  return Effect.flatMap(Effect.exit(transaction), (exit) => Effect.zipRight(makings.turns.end(held, reusable), exit))
}

const reserved = ({ client, maximumMillis }: Makings, restore: Restore): Effect.Effect<Held, TransactionUnavailable> =>
  Effect.matchEffect(acquire(client.reserve, restore, maximumMillis), {
    onFailure: (cause) => Effect.fail(noConnection(cause)),
    onSuccess: (acquired) =>
      Option.isNone(acquired)
        ? Effect.fail(noConnection())
        : Effect.succeed({ ...acquired.value, sinceMillis: monotonicMillis() })
  })

/** `intact` is called when the connection is as it was before: committed, and touched by nobody any more. */
const inTransaction = <A, E, R, B, EClosing>(
  { begin, client, maximumMillis }: Makings,
  { restore, runtimeFlags }: Caller,
  connection: Connection,
  body: Effect.Effect<A, E, R>,
  closing: (value: A) => Closing<B, EClosing>,
  intact: () => void
): Effect.Effect<B, E | EClosing | TransactionError, Exclude<R, InTransaction>> => {
  const beginning = within(
    connection,
    (client, told) => sendBegin(client, maximumMillis, told),
    connection.executeRaw(begin, []),
    maximumMillis
  )
  return Effect.flatMap(beginning, (began) => {
    if (Option.isNone(began) || Exit.isFailure(began.value)) {
      const cause = Option.isSome(began) && Exit.isFailure(began.value) ? Cause.squash(began.value.cause) : undefined
      return Effect.zipRight(
        discard(connection),
        Effect.fail(new TransactionUnavailable({ reason: "BEGIN failed", cause }))
      )
    }
    const begunAt = monotonicMillis()
    const own = guard(connection)
    const finalizations = makeFinalizations()
    const context = Context.make(ApplicationTransaction, {
      client,
      connection: own.connection,
      finalizations
    }).pipe(Context.add(SqlClient.SqlClient, client), Context.add(SqlClient.TransactionConnection, [own.connection, 0]))
    const running = runBody(body, context, connection, restore, runtimeFlags, maximumMillis)
    return Effect.flatMap(running, ({ clean, exit }): Effect.Effect<B, E | EClosing | TransactionError> => {
      own.close()
      if (Exit.isFailure(exit)) {
        return Effect.zipRight(undone(connection, clean, own.tainted()), Effect.failCause(exit.cause))
      }
      if (finalizations.failed()) {
        const reason = "a completion in it failed and the failure was swallowed"
        return Effect.zipRight(rollback(connection), Effect.fail(new CompletionMissing({ sqlState: "WA007", reason })))
      }
      const left = Math.max(0, maximumMillis - (monotonicMillis() - begunAt))
      return Effect.flatMap(Effect.exit(commit(connection, finalizations, closing(exit.value), left)), (answer) => {
        if (own.tainted()) return Effect.zipRight(discard(connection), answer)
        if (Exit.isSuccess(answer) && isIdle(connection)) intact()
        return answer
      })
    })
  })
}

const undone = (connection: Connection, clean: boolean, tainted: boolean): Effect.Effect<void> =>
  Effect.zipRight(clean ? rollback(connection) : Effect.void, tainted ? discard(connection) : Effect.void)

type MakeError = SqlError | DatabaseError | PoolMismatch | PoolMisconfigured | ConnectionBudgetExceeded

/** What a pool of the driver holds unless it is told otherwise. */
const driversDefault = 10

/**
 * Makes the application pool from the program's `PgClient`, and compares both pools with what the server gives.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options?: ApplicationPoolOptions
): Effect.fn.Return<ApplicationPool["Type"], MakeError, PgClient.PgClient | RuntimePool> {
  const fault = applicationPoolFault(options)
  if (fault !== undefined) return yield* new PoolMisconfigured(fault)
  const { budget, callerOwned } = options ?? {}
  const maximumMillis = Duration.toMillis(options?.maximumDuration ?? "5 seconds")
  const client = yield* PgClient.PgClient
  const runtime = yield* RuntimePool
  yield* samePrimary(client, runtime)
  const version = yield* serverVersion(client)
  const connections: Connections = {
    mode: options?.mode ?? "separate",
    application: budget?.applicationConnections ?? client.config.maxConnections ?? driversDefault,
    runtime: runtime.connections,
    callerOwned
  }
  yield* checkBudget(runtime, connections, budget?.processes ?? 1, budget?.strict ?? false)
  const admission = callerOwned ?? (connections.mode === "shared" ? connections.application : undefined)
  // Where nothing bounds them, as many as there are connections: the others wait here, as long as they would in the pool.
  const size = budget?.applicationConnections ?? client.config.maxConnections
  const transactionClosing = makeTransaction({
    client,
    begin: beginText(version, maximumMillis),
    maximumMillis,
    turns:
      admission === undefined
        ? makeTurns(size ?? Number.POSITIVE_INFINITY, maximumMillis)
        : makeTurns(admission, undefined)
  })
  return { client, connections, transaction: (body) => transactionClosing(body, noClosing), transactionClosing }
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
): Layer.Layer<ApplicationPool, MakeError, PgClient.PgClient | RuntimePool> =>
  Layer.effect(ApplicationPool, make(options))

export {
  /**
   * @since 0.1.0
   * @category errors
   */
  PoolMismatch
} from "./internal/samePrimary.js"

export {
  /**
   * @since 0.1.0
   * @category errors
   */
  ConnectionBudgetExceeded
} from "./PoolError.js"
