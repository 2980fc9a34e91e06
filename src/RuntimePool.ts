/**
 * The runtime's own connections (contract C-30).
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Pg from "pg"
import * as Column from "./internal/column.js"
import { type Listener, openListener } from "./internal/listener.js"
import { pgTypes } from "./internal/pgTypes.js"
import { runtimePoolFault } from "./internal/poolOptions.js"
import { notifyChannel, quoteIdentifier } from "./internal/renderSql.js"
import { runtimeCall, type Statement } from "./internal/runtimeCall.js"
import { identity, sameInstallation } from "./internal/sameInstallation.js"
import { canHeal, sqlDetailOf, sqlMessageOf, sqlStateOf } from "./internal/sqlState.js"
import { startCheck } from "./internal/startCheck.js"
import { DatabaseError, PoolMisconfigured, type StartRefused } from "./PoolError.js"

/**
 * The runtime's own small pool. It is no `SqlClient`: an application statement cannot take one of its connections, and a
 * runtime statement cannot join a transaction that happens to be in context (contract C-30).
 *
 * @since 0.1.0
 * @category services
 */
export class RuntimePool extends Context.Tag("effect-awa/RuntimePool")<
  RuntimePool,
  {
    /** The schema's name as configured, not quoted. */
    readonly schema: string
    /** The schema's name, quoted for use in a statement. */
    readonly quotedSchema: string
    /** The id of the installation that the data began in; it survives copies and upgrades. */
    readonly origin: string
    /** How many connections it opens at most, the listening one included. */
    readonly connections: number
    /** One statement in a READ COMMITTED transaction of its own, bounded in time, uninterruptible. */
    readonly call: (statement: Statement) => Effect.Effect<ReadonlyArray<Column.Row>, DatabaseError>
    /** A connection of its own, outside the pool, that listens on the installation's channel. */
    readonly listen: (
      onNotification: (queue: string) => void
    ) => Effect.Effect<Listener<DatabaseError>, DatabaseError, Scope.Scope>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface RuntimePoolOptions {
  /**
   * Where the database is. A pooler may stand in between: nothing here relies on a session. Through one in transaction mode
   * LISTEN is not heard, and polling takes over unless `listenUrl` leads past it.
   */
  readonly url: Redacted.Redacted
  /** Where to listen, when `url` leads through a transaction-mode pooler: a direct or session-pooled url of the same database. */
  readonly listenUrl?: Redacted.Redacted | undefined
  /** The schema that effect-awa is installed in; `awa` unless said otherwise. */
  readonly schema?: string | undefined
  /** How many connections at most, from 1 to 10000; 6 unless said otherwise, one more is used for LISTEN. */
  readonly maxConnections?: number | undefined
  /** How long a statement waits for a connection; 5 seconds unless said otherwise, a day at most. */
  readonly connectTimeout?: Duration.DurationInput | undefined
  readonly applicationName?: string | undefined
  /** Whether to refuse an installation with an error of the contract's core, as `awa doctor --strict` finds it (contract C-53). */
  readonly strict?: boolean | undefined
}

const toDatabaseError =
  (operation: string) =>
  (cause: unknown): DatabaseError => {
    const state = Option.getOrUndefined(sqlStateOf(cause))
    return new DatabaseError({
      operation,
      sqlState: state,
      retryable: state === undefined || canHeal(state),
      reason: sqlMessageOf(cause),
      // of other errors it may hold what a job carries
      ...(state === "55000" ? { detail: sqlDetailOf(cause) } : {})
    })
  }

/**
 * Opens the pool and checks that an installation which serves this library's contract is there (contract C-62) and belongs
 * to this database (contract C-34).
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: RuntimePoolOptions
): Effect.fn.Return<RuntimePool["Type"], PoolMisconfigured | DatabaseError | StartRefused, Scope.Scope> {
  const fault = runtimePoolFault(options)
  if (fault !== undefined) return yield* new PoolMisconfigured(fault)
  const { listenUrl = options.url, maxConnections = 6, schema = "awa", url } = options
  const connection = {
    connectionString: Redacted.value(url),
    application_name: options.applicationName ?? "effect-awa runtime",
    connectionTimeoutMillis: Duration.toMillis(options.connectTimeout ?? "5 seconds"),
    keepAlive: true,
    types: pgTypes
  }
  const quotedSchema = quoteIdentifier(schema)
  let expected: string | undefined = undefined
  const pool = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const pool = new Pg.Pool({
        ...connection,
        max: maxConnections,
        pipeline: true,
        verify: sameInstallation(quotedSchema, () => expected)
      })
      pool.on("error", () => {}) // an idle connection's end; the next statement opens another
      return pool
    }),
    (pool) => Effect.promise(() => pool.end()).pipe(Effect.interruptible, Effect.timeoutOption("5 seconds"))
  )
  const call: RuntimePool["Type"]["call"] = (statement) => runtimeCall(pool, statement, toDatabaseError(statement.name))
  if (options.strict === true) {
    // what installs the schema is no part of a program that does not ask for this
    const { strictStart } = yield* Effect.promise(() => import("./internal/doctor/strictStart.js"))
    yield* strictStart({ call }, schema)
  }
  const origin = yield* startCheck({ call, schema, quotedSchema })
  const [found] = yield* call({ name: "identify-installation", text: identity(quotedSchema), values: [] })
  expected = Column.string(found?.[0])
  const channel = notifyChannel(schema)
  return {
    schema,
    quotedSchema,
    origin,
    connections: maxConnections + 1,
    call,
    listen: (onNotification) =>
      openListener({
        config: { ...connection, connectionString: Redacted.value(listenUrl) },
        channel,
        onNotification,
        onError: toDatabaseError("listen"),
        notify: (payload) =>
          call({ name: "probe-listen", text: "select pg_notify($1, $2)", values: [channel, payload] })
      })
  }
})

/**
 * The runtime pool of a program.
 *
 * @example
 * ```ts
 * import { Redacted } from "effect"
 * import { RuntimePool } from "effect-awa"
 *
 * export const RuntimePoolLive = RuntimePool.layer({ url: Redacted.make("postgres://localhost/app") })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: RuntimePoolOptions
): Layer.Layer<RuntimePool, PoolMisconfigured | DatabaseError | StartRefused> =>
  Layer.scoped(RuntimePool, make(options))

export {
  /**
   * @since 0.1.0
   * @category errors
   */
  DatabaseError,
  /**
   * @since 0.1.0
   * @category errors
   */
  PoolMisconfigured,
  /**
   * @since 0.1.0
   * @category errors
   */
  StartRefused
} from "./PoolError.js"
