/**
 * A whole worker from its configuration: the runtime's own pool, the services, and the loops.
 *
 * @since 0.1.0
 */
import type { SqlError } from "@effect/sql/SqlError"
import type { PgClient } from "@effect/sql-pg/PgClient"
import type * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as ApplicationPool from "../src/ApplicationPool.js"
import * as Claim from "../src/Claim.js"
import * as CompleteInTx from "../src/CompleteInTx.js"
import * as Completion from "../src/Completion.js"
import * as Heartbeat from "../src/Heartbeat.js"
import * as Maintenance from "../src/Maintenance.js"
import * as Reconciliation from "../src/Reconciliation.js"
import * as RuntimePool from "../src/RuntimePool.js"
import * as Wakeup from "../src/Wakeup.js"
import * as Worker from "../src/Worker.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface WorkerLayerOptions<Jobs extends ReadonlyArray<Worker.AnyJob>> extends Worker.WorkerOptions {
  /** The jobs that the worker serves; each needs its handler's layer. */
  readonly jobs: Jobs
  /** Where the runtime's own pool connects: a direct or session-pooled url of the application's database. */
  readonly database: Config.Config<Redacted.Redacted>
  /** The schema that effect-awa is installed in; `awa`. */
  readonly schema?: string
  /** The size of the runtime's pool; 6. */
  readonly runtimeConnections?: number
  /** How long an application transaction may be open; 5 seconds. */
  readonly applicationTransaction?: Duration.DurationInput
  readonly wakeup?: Omit<Wakeup.WakeupOptions, "queues">
  readonly maintenance?: Maintenance.MaintenanceOptions
  readonly completion?: Completion.CompletionOptions
  readonly reconciliation?: Reconciliation.ReconciliationOptions
}

/**
 * @since 0.1.0
 * @category errors
 */
export type WorkerLayerError =
  | ConfigError.ConfigError
  | SqlError
  | RuntimePool.DatabaseError
  | RuntimePool.StartRefused
  | Worker.WorkerMisconfigured
  | ApplicationPool.PoolMismatch

/**
 * A worker. The application's pool is the `PgClient` of the program; the runtime's pool is opened here and nobody else can
 * reach it. Handlers and their own requirements are provided beside it.
 *
 * @example
 * ```ts
 * import { PgClient } from "@effect/sql-pg"
 * import { Config, Effect, Layer, Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as Worker from "effect-awa/layers/Worker"
 *
 * const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })
 * const GreetLive = Greet.toLayer((job) => Effect.log(`hello ${job.payload.name}`))
 * const database = Config.redacted("DATABASE_URL")
 *
 * export const Main = Worker.layer({ jobs: [Greet], queues: { default: { concurrency: 20 } }, database }).pipe(
 *   Layer.provide(GreetLive),
 *   Layer.provide(PgClient.layerConfig({ url: database }))
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <const Jobs extends ReadonlyArray<Worker.AnyJob>>(
  options: WorkerLayerOptions<Jobs>
): Layer.Layer<Worker.Worker, WorkerLayerError, PgClient | Worker.HandlesOf<Jobs>> => {
  const staleness = options.maintenance?.staleness ?? "60 seconds"
  const beat = options.beat ?? "15 seconds"
  if (Duration.toMillis(staleness) < 2 * Duration.toMillis(beat)) {
    return Layer.fail(
      new Worker.WorkerMisconfigured({
        option: "maintenance.staleness",
        rule: "at least two beats, or attempts that are alive are taken for abandoned"
      })
    )
  }
  const runtimePool = Layer.unwrapEffect(
    Effect.map(options.database, (url) =>
      RuntimePool.layer({ url, schema: options.schema, maxConnections: options.runtimeConnections })
    )
  )
  const pools = Layer.provideMerge(
    ApplicationPool.layer({ maximumDuration: options.applicationTransaction }),
    runtimePool
  )
  const services = Layer.mergeAll(
    Claim.layer,
    CompleteInTx.layer,
    Heartbeat.layer,
    Completion.layer(options.completion),
    Reconciliation.layer(options.reconciliation),
    Maintenance.layer(options.maintenance),
    Wakeup.layer({ ...options.wakeup, queues: Object.keys(options.queues) })
  )
  return Worker.layer({ ...options, name: options.name ?? `pid ${process.pid}` }).pipe(
    Layer.provide(Layer.provideMerge(services, pools))
  )
}

/**
 * Runs a worker until it is interrupted, which stops it gracefully, or until a defect of its own made it stop, which is the
 * failure `WorkerCrashed`. `Layer.launch` would not notice the latter.
 *
 * @example
 * ```ts
 * import { NodeRuntime } from "@effect/platform-node"
 * import type { Layer } from "effect"
 * import type { Worker } from "effect-awa"
 * import { launch } from "effect-awa/layers/Worker"
 *
 * export const start = (main: Layer.Layer<Worker.Worker>) => NodeRuntime.runMain(launch(main))
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const launch = <E, R>(
  worker: Layer.Layer<Worker.Worker, E, R>
): Effect.Effect<never, E | Worker.WorkerCrashed, R> =>
  Effect.scoped(Effect.flatMap(Layer.build(worker), (context) => Context.get(context, Worker.Worker).join))
