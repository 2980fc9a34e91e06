/**
 * The storage as an operator sees it: the ring and its history, and what mends a database that was restored or copied.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { ClientConfig } from "pg"
import { type Connection, connect } from "./internal/migrateConnection.js"
import {
  blocker,
  BlockerRow,
  blockersOf,
  duration,
  Identity,
  identityOf,
  retention,
  RetentionRow,
  retentionOf,
  SegmentRow,
  segmentsOf
} from "./internal/storageRows.js"
import { checkSchema } from "./internal/migrateOptions.js"
import { actAsOwner } from "./internal/migrateOwners.js"
import { actAs } from "./internal/privileges.js"
import { quoteIdentifier } from "./internal/renderSql.js"
import type { MigrationFailed } from "./MigrationError.js"
import type { RebaseReport, StorageStatus } from "./StorageStatus.js"
import {
  InvalidStorageOption,
  RebaseBusy,
  RebaseRefused,
  type StorageError,
  StorageFailed,
  StorageMissing,
  StorageUnreachable
} from "./StorageError.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface StorageOptions {
  /** Where the database is, as a URL or as what the driver `pg` takes. */
  readonly url: Redacted.Redacted | ClientConfig
  /** The name of the schema; `awa` unless said otherwise. */
  readonly schema?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface RebaseOptions extends StorageOptions {
  /** How long to wait for each lock, while others use the tables; 10 seconds unless said otherwise. */
  readonly lockTimeout?: Duration.DurationInput | undefined
  /** How long ago the last beat of any runtime must be; the runtimes' own staleness, 60 seconds unless said otherwise. */
  readonly staleness?: Duration.DurationInput | undefined
  /** How long all of it may take; an hour unless said otherwise. */
  readonly timeout?: Duration.DurationInput | undefined
}

const applicationName = "effect-awa storage"

/** `undefined_function`, `invalid_schema_name`, `undefined_table`: an older installation, or none. */
const missing = ["42883", "3F000", "42P01"]

const toFailed =
  (operation: string, schema: string) =>
  (error: MigrationFailed): StorageFailed | StorageMissing =>
    error.sqlState !== undefined && missing.includes(error.sqlState)
      ? new StorageMissing({ schema })
      : new StorageFailed({ operation, sqlState: error.sqlState, reason: error.reason })

const open = (
  options: StorageOptions
): Effect.Effect<
  { readonly connection: Connection; readonly schema: string },
  InvalidStorageOption | StorageUnreachable,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    return { connection: yield* connect(options.url, applicationName), schema }
  }).pipe(
    Effect.catchTags({
      InvalidMigrationOption: ({ option, rule }) => new InvalidStorageOption({ option, rule }),
      MigrationConnectionFailed: ({ reason, sqlState }) => new StorageUnreachable({ sqlState, reason })
    })
  )

const millisOf = (
  option: string,
  duration: Duration.DurationInput,
  least: number
): Effect.Effect<number, InvalidStorageOption> => {
  const millis = Math.ceil(Duration.toMillis(duration))
  return millis >= least && millis <= 86_400_000
    ? Effect.succeed(millis)
    : Effect.fail(new InvalidStorageOption({ option, rule: `expected ${least} milliseconds to 1 day` }))
}

const decoded =
  <A, I>(operation: string, schema: Schema.Schema<A, I>) =>
  (rows: unknown): Effect.Effect<A, StorageFailed> =>
    Schema.decodeUnknown(schema)(rows).pipe(
      Effect.mapError((error) => new StorageFailed({ operation, reason: error.message }))
    )

/**
 * Looks at the ring; writes nothing.
 *
 * @example
 * ```ts
 * import { Console, Effect, Redacted } from "effect"
 * import { Storage } from "effect-awa"
 *
 * export const program = Storage.status({ url: Redacted.make("postgres://localhost/app") }).pipe(
 *   Effect.tap((status) => Console.log(`${status.freeSegments} of ${status.segments.length} segments are free`))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const status = (options: StorageOptions): Effect.Effect<StorageStatus, StorageError> =>
  Effect.gen(function* () {
    const { connection, schema } = yield* open(options)
    const quoted = quoteIdentifier(schema)
    const ask = (operation: string, sql: string, values: ReadonlyArray<string>) =>
      Effect.mapError(connection.query(operation, sql, values, 30_000), toFailed(operation, schema))
    // whatever isolation the role or the database begins with; the end of the connection ends it
    yield* Effect.mapError(
      connection.execute("look at the database", "begin isolation level read committed read only", 30_000),
      toFailed("look at the database", schema)
    )
    const [identity] = yield* Effect.flatMap(
      ask("look at the database", identityOf(quoted), []),
      decoded("look at the database", Identity)
    )
    const rows = yield* Effect.flatMap(
      ask("look at the ring", segmentsOf(quoted), [quoted]),
      decoded("look at the ring", Schema.Array(SegmentRow))
    )
    const [promised] = yield* Effect.flatMap(
      ask("look at the runtimes", retentionOf(quoted), []),
      decoded("look at the runtimes", RetentionRow)
    )
    const kept = retention(promised)
    const keep = Duration.min(kept?.completedHistory ?? Duration.hours(1), Duration.days(36_500))
    const blocking = yield* Effect.flatMap(
      ask("look for what blocks the ring", blockersOf(quoted), [`${Duration.toMillis(keep)} milliseconds`]),
      decoded("look for what blocks the ring", Schema.Array(BlockerRow))
    )
    const segments = rows.map((row) => ({
      ...row,
      opened: duration(row.opened),
      sealed: duration(row.sealed),
      drained: duration(row.drained)
    }))
    const ages = segments.flatMap(({ opened }) => (opened === undefined ? [] : [opened]))
    const status: StorageStatus = {
      schema,
      database: identity.fault !== null ? "refused" : identity.ours ? "ours" : "copy",
      fault: identity.fault ?? undefined,
      segments,
      freeSegments: segments.filter(({ state }) => state === "free").length,
      historyReach: ages.length === 0 ? undefined : ages.reduce((a, b) => Duration.max(a, b)),
      retention: kept,
      blockers: blocking.map(blocker)
    }
    return status
  }).pipe(Effect.scoped, Effect.withSpan("effect-awa.storage.status"))

const Rebased = Schema.Tuple(
  Schema.Struct({
    summary: Schema.Struct({
      reason: Schema.String,
      released: Schema.Int,
      leases: Schema.Int,
      parked: Schema.Int,
      kept_in_head: Schema.Int,
      moved: Schema.Int,
      segment: Schema.Int,
      drained: Schema.Int,
      truncated: Schema.NullOr(Schema.Struct({ segment: Schema.Int })),
      installation_id: Schema.String
    })
  })
)

/**
 * Makes a database that was restored from a dump, or copied table by table, this server's own (contract C-34): transaction
 * ids that were stored are another server's there, and sequences may have stayed behind, so runtimes refuse to start.
 *
 * Everything that has to run is kept, in its order: the jobs whose attempts were open when the copy was made run again
 * first, not counted as an attempt; jobs that wait for a time, ended jobs and history stay as they are. One transaction;
 * run it before anything enqueues or claims here, with the original out of use, or its unfinished jobs run in both.
 *
 * Fails with `RebaseRefused` when nothing is wrong, when a runtime's last beat is less than `staleness` ago (the copied
 * beats of a fresh dump count too: wait), or when a subscription still writes here; with `RebaseBusy` when others use the
 * tables.
 *
 * @example
 * ```ts
 * import { Effect, Redacted } from "effect"
 * import { Storage } from "effect-awa"
 *
 * export const program = Storage.rebase({ url: Redacted.make("postgres://localhost/restored") }).pipe(
 *   Effect.tap((report) => Effect.log(`${report.moved + report.released} jobs will run here`))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const rebase = (
  options: RebaseOptions
): Effect.Effect<RebaseReport, StorageError | RebaseRefused | RebaseBusy> =>
  Effect.gen(function* () {
    const lockMillis = yield* millisOf("lockTimeout", options.lockTimeout ?? "10 seconds", 1)
    const staleMillis = yield* millisOf("staleness", options.staleness ?? "60 seconds", 0)
    const millis = yield* millisOf("timeout", options.timeout ?? "1 hour", 1)
    const { connection, schema } = yield* open(options)
    const operation = "rebase the storage"
    const failed = toFailed(operation, schema)
    // All in one transaction, and no wish of the role or the database bounds it otherwise.
    const begin =
      `begin isolation level read committed; set local lock_timeout = ${lockMillis}; ` +
      `set local statement_timeout = ${millis}; set local idle_in_transaction_session_timeout = ${millis}; ` +
      "set local synchronous_commit = on; set local standard_conforming_strings = on"
    yield* Effect.mapError(connection.execute(operation, begin, 30_000), failed)
    const { owners } = yield* Effect.mapError(actAsOwner(connection, schema), failed)
    if (owners !== undefined) {
      yield* Effect.mapError(connection.execute(operation, actAs(owners.routines), 30_000), failed)
    }
    const [{ summary }] = yield* connection
      .query(
        operation,
        `select ${quoteIdentifier(schema)}.rebase_storage($1::text::interval) as summary`,
        [`${staleMillis} milliseconds`],
        millis + 5_000
      )
      .pipe(
        Effect.mapError((error) =>
          error.sqlState === "55000"
            ? new RebaseRefused({ reason: error.reason })
            : error.sqlState === "55P03"
              ? new RebaseBusy({ waitedMillis: lockMillis })
              : failed(error)
        ),
        Effect.flatMap(decoded(operation, Rebased))
      )
    const command = yield* Effect.mapError(connection.execute(operation, "commit", millis), failed)
    if (command !== "COMMIT") {
      return yield* new StorageFailed({ operation, reason: `COMMIT was answered by ${command}` })
    }
    const report: RebaseReport = {
      reason: summary.reason,
      released: summary.released,
      releasedLeases: summary.leases,
      parked: summary.parked,
      keptInHead: summary.kept_in_head,
      moved: summary.moved,
      segment: summary.segment,
      drainedSegments: summary.drained,
      truncatedSegment: summary.truncated?.segment,
      installationId: summary.installation_id
    }
    return report
  }).pipe(Effect.scoped, Effect.withSpan("effect-awa.storage.rebase"))
