/**
 * Installs the schema, and brings it up to date.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Redacted from "effect/Redacted"
import type { ClientConfig } from "pg"
import { connect } from "./internal/migrateConnection.js"
import { checkLockTimeout, checkRing, checkSchema, checkVersion } from "./internal/migrateOptions.js"
import { defaultRing, type Plan } from "./internal/migratePlan.js"
import { run } from "./internal/migrateRun.js"
import { latestVersion, makeScript } from "./internal/migrateScript.js"
import type { InvalidMigrationOption, MigrationError } from "./MigrationError.js"

/**
 * The schema version that this library installs: the number of its newest migration.
 *
 * @since 0.1.0
 * @category constants
 */
export const schemaVersion: number = latestVersion

/**
 * @since 0.1.0
 * @category models
 */
export interface MigrateOptions {
  /** Where the database is, as a URL or as what the driver `pg` takes. A transaction-mode pooler will do. */
  readonly url: Redacted.Redacted | ClientConfig
  /** The name of the schema; `awa` unless said otherwise. Any name that PostgreSQL allows, at most 63 bytes. */
  readonly schema?: string | undefined
  /** The number of segments of the ring, 4 to 64; 16 for a new installation, otherwise what is installed. */
  readonly ring?: number | undefined
  /** How long to wait while somebody else migrates this schema; 2 minutes unless said otherwise. */
  readonly lockTimeout?: Duration.DurationInput | undefined
}

/**
 * What was done.
 *
 * - `installed`: there was no installation, and now there is
 * - `upgraded`: the migrations after `previousVersion` were applied, the functions replaced
 * - `refreshed`: the functions were replaced, being others than this library's
 * - `unchanged`: everything was in place; nothing was written
 * - `newer`: the installed schema is newer than this library, or has the functions of a later release, and serves this library's
 *   contract; nothing was written
 *
 * @since 0.1.0
 * @category models
 */
export interface MigrationReport {
  readonly action: "installed" | "upgraded" | "refreshed" | "unchanged" | "newer"
  readonly schema: string
  /** The installed schema version. */
  readonly version: number
  /** The schema version before; 0 when there was none. */
  readonly previousVersion: number
  /** The number of segments of the ring. */
  readonly ring: number
  /** The migrations that were applied, by file name. */
  readonly applied: ReadonlyArray<string>
}

const describe = (plan: Plan): Pick<MigrationReport, "action" | "version" | "previousVersion"> => {
  switch (plan._tag) {
    case "Install":
      return { action: "installed", version: latestVersion, previousVersion: 0 }
    case "Upgrade":
      return { action: "upgraded", version: latestVersion, previousVersion: plan.from }
    case "Refresh":
      return { action: "refreshed", version: latestVersion, previousVersion: latestVersion }
    case "Nothing":
      return { action: plan.newer ? "newer" : "unchanged", version: plan.version, previousVersion: plan.version }
  }
}

/**
 * Installs the schema, or brings it up to date (contract C-62), in one transaction on one connection of its own. Safe to
 * run at every start and from any number of processes at once: they wait for each other, one of them does it. Installing
 * needs CREATE on the database, or an empty schema that the role owns; no superuser. Nothing is granted to anybody, and
 * what PUBLIC may execute by default is revoked in the same transaction (contract C-50).
 *
 * A schema of the same name that is not effect-awa's is `ForeignSchema`, a newer one that no longer serves this library
 * `SchemaTooNew`; neither is written to.
 *
 * @example
 * ```ts
 * import { Effect, Redacted } from "effect"
 * import { Migrations } from "effect-awa"
 *
 * export const program = Migrations.migrate({ url: Redacted.make("postgres://localhost/app") }).pipe(
 *   Effect.tap((report) => Effect.log(`${report.action}, schema version ${report.version}`))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const migrate = (options: MigrateOptions): Effect.Effect<MigrationReport, MigrationError> =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const ring = options.ring === undefined ? undefined : yield* checkRing(options.ring)
    const lockMillis = yield* checkLockTimeout(options.lockTimeout ?? "2 minutes")
    const connection = yield* connect(options.url)
    const { applied, plan } = yield* run(connection, { schema, ring, lockMillis })
    return { ...describe(plan), schema, ring: plan.ring, applied }
  }).pipe(Effect.scoped, Effect.withSpan("effect-awa.migrate"))

/**
 * @since 0.1.0
 * @category models
 */
export interface ScriptOptions {
  /** The name of the schema; `awa` unless said otherwise. */
  readonly schema?: string | undefined
  /** The number of segments of the ring, 4 to 64; 16 unless said otherwise. */
  readonly ring?: number | undefined
  /** The installed schema version that the script starts from; 0, nothing, unless said otherwise. */
  readonly from?: number | undefined
}

/**
 * What `migrate` would do, as one SQL script for teams that have a migration tool of their own. The same text for the same
 * options, always. It brings its own BEGIN, lock and COMMIT, has no client commands, and refuses a database in another
 * state than the one it is for.
 *
 * @example
 * ```ts
 * import { Either } from "effect"
 * import { Migrations } from "effect-awa"
 *
 * export const sql: string = Either.getOrThrow(Migrations.script({ schema: "jobs" }))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const script = (options: ScriptOptions = {}): Either.Either<string, InvalidMigrationOption> =>
  Either.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const ring = yield* checkRing(options.ring ?? defaultRing)
    const from = yield* checkVersion(options.from ?? 0)
    return makeScript({ schema, ring }, from, Duration.toMillis("2 minutes"))
  })
