/**
 * Migrations as a layer: a program whose layers are built has its schema in place.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type { ClientConfig } from "pg"
import type { MigrationError } from "../src/MigrationError.js"
import * as Migrations from "../src/Migrations.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface MigrationsOptions {
  /** Where the database is; the environment's `AWA_DATABASE_URL` unless given. */
  readonly url?: Redacted.Redacted | ClientConfig | undefined
  /** The name of the schema; `awa` unless said otherwise. */
  readonly schema?: string | undefined
  /** The number of segments of a new installation's ring, 4 to 64; 16 unless said otherwise. */
  readonly ring?: number | undefined
  /** How long to wait while another process migrates; 2 minutes unless said otherwise. */
  readonly lockTimeout?: Duration.DurationInput | undefined
}

const migrate = (options: MigrationsOptions) =>
  Effect.gen(function* () {
    const url = options.url ?? (yield* Config.redacted("AWA_DATABASE_URL"))
    const report = yield* Migrations.migrate({ ...options, url })
    const written = report.action === "installed" || report.action === "upgraded" || report.action === "refreshed"
    yield* (
      written ? Effect.logInfo("effect-awa's schema migrated") : Effect.logDebug("effect-awa's schema is in place")
    ).pipe(
      Effect.annotateLogs({ action: report.action, schema: report.schema, version: report.version, ring: report.ring })
    )
  })

/**
 * Migrates when it is built (contract C-62), by `Migrations.migrate`: before everything that it is provided to, at every
 * start, from as many processes as there are. It provides nothing.
 *
 * @example
 * ```ts
 * import { Layer, Redacted } from "effect"
 * import { RuntimePool } from "effect-awa"
 * import * as Migrations from "effect-awa/layers/Migrations"
 *
 * const url = Redacted.make("postgres://localhost/app")
 *
 * export const RuntimePoolLive = RuntimePool.layer({ url }).pipe(Layer.provide(Migrations.layer({ url })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: MigrationsOptions = {}): Layer.Layer<never, MigrationError | ConfigError.ConfigError> =>
  Layer.effectDiscard(migrate(options))

/**
 * The same, from configuration.
 *
 * @example
 * ```ts
 * import { Config } from "effect"
 * import * as Migrations from "effect-awa/layers/Migrations"
 *
 * export const MigrationsLive = Migrations.layerConfig({
 *   url: Config.redacted("DATABASE_URL"),
 *   schema: Config.string("JOBS_SCHEMA").pipe(Config.withDefault("awa"))
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  config: Config.Config.Wrap<MigrationsOptions>
): Layer.Layer<never, MigrationError | ConfigError.ConfigError> =>
  Layer.unwrapEffect(Effect.map(Config.unwrap(config), layer))
