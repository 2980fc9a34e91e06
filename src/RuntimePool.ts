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
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Pg from "pg"
import * as Column from "./internal/column.js"
import { contractVersion } from "./internal/contractVersion.js"
import { type Listener, openListener } from "./internal/listener.js"
import { pgTypes } from "./internal/pgTypes.js"
import { quoteIdentifier } from "./internal/renderSql.js"
import { runtimeCall, type Statement } from "./internal/runtimeCall.js"
import { canHeal, sqlMessageOf, sqlStateOf } from "./internal/sqlState.js"

/**
 * A runtime statement failed. `retryable` tells whether the same statement can succeed later: the database was out of
 * reach, restarting, busy, or a lock was not to be had. Whether the statement took effect is unknown when no SQLSTATE came.
 *
 * @since 0.1.0
 * @category errors
 */
export class DatabaseError extends Schema.TaggedError<DatabaseError>("effect-awa/DatabaseError")("DatabaseError", {
  operation: Schema.String,
  sqlState: Schema.optional(Schema.String),
  retryable: Schema.Boolean,
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.operation}: ${this.reason}${this.sqlState === undefined ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * The runtime refuses to start on this database, and has written nothing (contract C-34, C-62).
 *
 * - `schema-missing`: nothing is installed under this schema name; run `awa migrate`
 * - `contract-unsupported`: the installed schema no longer serves this library's contract version
 * - `database-replaced`: the data were restored into another server whose transaction ids lie behind the stored ones
 *
 * @since 0.1.0
 * @category errors
 */
export class StartRefused extends Schema.TaggedError<StartRefused>("effect-awa/StartRefused")("StartRefused", {
  reason: Schema.Literal("schema-missing", "contract-unsupported", "database-replaced"),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.reason}: ${this.detail}`
  }
}

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
    /** One statement in a READ COMMITTED transaction of its own, bounded in time, uninterruptible. */
    readonly call: (statement: Statement) => Effect.Effect<ReadonlyArray<Column.Row>, DatabaseError>
    /** A connection of its own that listens on the installation's channel. */
    readonly listen: (onNotification: (queue: string) => void) => Effect.Effect<Listener, DatabaseError, Scope.Scope>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface RuntimePoolOptions {
  /** Where the database is. A direct or session-pooled connection; LISTEN does not pass a transaction-mode pooler. */
  readonly url: Redacted.Redacted
  /** The schema that effect-awa is installed in; `awa` unless said otherwise. */
  readonly schema?: string | undefined
  /** How many connections at most; 6 unless said otherwise, one more is used for LISTEN. */
  readonly maxConnections?: number | undefined
  /** How long a statement waits for a connection; 5 seconds unless said otherwise. */
  readonly connectTimeout?: Duration.DurationInput | undefined
  readonly applicationName?: string | undefined
}

const toDatabaseError =
  (operation: string) =>
  (cause: unknown): DatabaseError => {
    const state = Option.getOrUndefined(sqlStateOf(cause))
    return new DatabaseError({
      operation,
      sqlState: state,
      retryable: state === undefined || canHeal(state),
      reason: sqlMessageOf(cause)
    })
  }

type Connected = Pick<RuntimePool["Type"], "call" | "quotedSchema">

/** Checks what is installed, and answers where its data began. */
const verify = Effect.fnUntraced(function* (pool: Connected) {
  const installed = yield* pool.call({
    name: "find-schema",
    text: "select to_regclass($1)::text",
    values: [`${pool.quotedSchema}.meta`]
  })
  if (installed[0]?.[0] === null) {
    return yield* new StartRefused({
      reason: "schema-missing",
      detail: `nothing is installed in schema ${pool.quotedSchema}; run \`awa migrate\``
    })
  }
  const [meta] = yield* pool.call({
    name: "read-meta",
    text: `select product, minimum_contract, origin_id::text from ${pool.quotedSchema}.meta`,
    values: []
  })
  if (meta?.[0] !== "effect-awa") {
    return yield* new StartRefused({
      reason: "schema-missing",
      detail: `schema ${pool.quotedSchema} is not an installation of effect-awa`
    })
  }
  const minimum = Column.number(meta[1])
  if (minimum > contractVersion) {
    return yield* new StartRefused({
      reason: "contract-unsupported",
      detail: `the installed schema serves contract versions from ${minimum}, this library speaks ${contractVersion}`
    })
  }
  const [adopted] = yield* pool.call({
    name: "adopt-database",
    text: `select ${pool.quotedSchema}.adopt_database()`,
    values: []
  })
  if (adopted?.[0] === "adopted") {
    yield* Effect.logWarning(
      "This database is a copy: it was given a new installation id, tokens of the original do not match here"
    )
  }
  if (adopted?.[0] === "refused") {
    return yield* new StartRefused({
      reason: "database-replaced",
      detail: "the stored transaction ids lie ahead of this server's own; the data were restored into another server"
    })
  }
  return Column.string(meta[2])
})

/**
 * Opens the pool and checks that an installation which serves this library's contract is there (contract C-62) and belongs
 * to this database (contract C-34).
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: RuntimePoolOptions
): Effect.fn.Return<RuntimePool["Type"], DatabaseError | StartRefused, Scope.Scope> {
  const schema = options.schema ?? "awa"
  const connection = {
    connectionString: Redacted.value(options.url),
    application_name: options.applicationName ?? "effect-awa runtime",
    connectionTimeoutMillis: Duration.toMillis(options.connectTimeout ?? "5 seconds"),
    keepAlive: true,
    types: pgTypes
  }
  const pool = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const pool = new Pg.Pool({ ...connection, max: options.maxConnections ?? 6, pipeline: true })
      pool.on("error", () => {}) // an idle connection's end; the next statement opens another
      return pool
    }),
    (pool) => Effect.promise(() => pool.end()).pipe(Effect.interruptible, Effect.timeoutOption("5 seconds"))
  )
  const connected: Connected = {
    quotedSchema: quoteIdentifier(schema),
    call: (statement) => runtimeCall(pool, statement, toDatabaseError(statement.name))
  }
  const origin = yield* verify(connected)
  return {
    ...connected,
    schema,
    origin,
    listen: (onNotification) => openListener(connection, schema, onNotification, toDatabaseError("listen"))
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
export const layer = (options: RuntimePoolOptions): Layer.Layer<RuntimePool, DatabaseError | StartRefused> =>
  Layer.scoped(RuntimePool, make(options))
