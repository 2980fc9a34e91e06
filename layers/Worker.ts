/**
 * A whole worker from its configuration: the runtime's own pool, the services, and the loops.
 *
 * @since 0.1.0
 */
import type { SqlError } from "@effect/sql/SqlError"
import { PgClient } from "@effect/sql-pg/PgClient"
import type * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import * as ApplicationPool from "../src/ApplicationPool.js"
import * as Claim from "../src/Claim.js"
import * as CompleteInTx from "../src/CompleteInTx.js"
import * as Completion from "../src/Completion.js"
import * as Heartbeat from "../src/Heartbeat.js"
import { listedHandlers } from "../src/internal/listedHandlers.js"
import { evidenceMillis, settingsOf } from "../src/internal/reconciliationOptions.js"
import { servicesFault } from "../src/internal/serviceOptions.js"
import { type Started, startedWorker } from "../src/internal/startedWorker.js"
import { waitAtMost } from "../src/internal/waitAtMost.js"
import { workerFault } from "../src/internal/workerOptions.js"
import * as Maintenance from "../src/Maintenance.js"
import * as Reconciliation from "../src/Reconciliation.js"
import * as RuntimePool from "../src/RuntimePool.js"
import * as SharedPool from "../src/SharedPool.js"
import * as Wakeup from "../src/Wakeup.js"
import * as Worker from "../src/Worker.js"
import { withinDeadline } from "./internal/shutdownDeadline.js"
import { stopSignals } from "./internal/stopSignals.js"
import { applicationRefusal, runtimeRefusal } from "./internal/writtenOptions.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface WorkerLayerOptions<Jobs extends ReadonlyArray<Worker.AnyJob>> extends Worker.WorkerOptions {
  /** The jobs that the worker serves; each needs its handler's layer. */
  readonly jobs: Jobs
  /** Where the runtime's own pool connects: a url of the application's database, direct or through a pooler. */
  readonly database: Config.Config<Redacted.Redacted>
  /** Where it listens, when `database` leads through a transaction-mode pooler; without it the worker polls there. */
  readonly listenDatabase?: Config.Config<Redacted.Redacted>
  /** The schema that effect-awa is installed in; `awa`. */
  readonly schema?: string
  /** The size of the runtime's pool, from 1 to 10000; 6. */
  readonly runtimeConnections?: number
  /** Whether to refuse to start on what `awa doctor --strict` calls an error of the contract's core (contract C-53); no. */
  readonly strict?: boolean
  /** How long an application transaction may be open; 5 seconds, a day at most. */
  readonly applicationTransaction?: Duration.DurationInput
  /**
   * How many application transactions are open at once, the others waiting for their turn as long as it takes. Unless it is said
   * they wait as for a connection of the pool, and fail when none comes in time.
   */
  readonly callerOwned?: number
  /** How many processes share the server's connections, and what happens when those do not suffice. */
  readonly budget?: ApplicationPool.BudgetOptions
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
  | RuntimePool.PoolMisconfigured
  | RuntimePool.StartRefused
  | Worker.WorkerMisconfigured
  | ApplicationPool.PoolMismatch
  | ApplicationPool.ConnectionBudgetExceeded

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
  const { applicationTransaction: maximumDuration, budget, callerOwned } = options
  const application = { maximumDuration, budget, callerOwned }
  const pools = Layer.unwrapEffect(
    Effect.gen(function* () {
      const url = yield* options.database
      const listenUrl = options.listenDatabase === undefined ? undefined : yield* options.listenDatabase
      const { runtimeConnections: maxConnections, schema, strict } = options
      const runtime = { url, listenUrl, schema, maxConnections, strict }
      const refusal = runtimeRefusal(runtime) ?? applicationRefusal(application)
      if (refusal !== undefined) return yield* refusal
      return Layer.provideMerge(ApplicationPool.layer(application), RuntimePool.layer(runtime))
    })
  )
  return assemble(options, pools)
}

/**
 * What a worker needs to be told when its connections come from a `SharedPool`, which says where the database is.
 *
 * @since 0.1.0
 * @category models
 */
export type SharedWorkerLayerOptions<Jobs extends ReadonlyArray<Worker.AnyJob>> = Omit<
  WorkerLayerOptions<Jobs>,
  "database" | "listenDatabase" | "schema" | "runtimeConnections" | "callerOwned"
>

/**
 * A worker whose connections and the program's own keep one bound: see `SharedPool.layer`, and its example. Refuses a
 * caller-owned concurrency that does not leave the runtime its reserve (contract C-32).
 *
 * @since 0.1.0
 * @category layers
 */
export const layerShared = <const Jobs extends ReadonlyArray<Worker.AnyJob>>(
  options: SharedWorkerLayerOptions<Jobs>
): Layer.Layer<Worker.Worker, WorkerLayerError, SharedPool.SharedPool | Worker.HandlesOf<Jobs>> =>
  Layer.unwrapEffect(
    Effect.map(SharedPool.SharedPool, ({ callerOwned, client, runtime }) => {
      const { applicationTransaction: maximumDuration, budget } = options
      const application = { maximumDuration, budget, callerOwned, mode: "shared" } as const
      const refusal = applicationRefusal(application)
      if (refusal !== undefined) return Layer.fail(refusal)
      const applicationPool = ApplicationPool.layer(application)
      const pools = Layer.provideMerge(applicationPool, RuntimePool.layer({ ...runtime, strict: options.strict }))
      return Layer.provide(assemble(options, pools), Layer.succeed(PgClient, client))
    })
  )

/** The services over both pools, and the loops over the services; nothing is opened before all options are found to be right. */
const assemble = <const Jobs extends ReadonlyArray<Worker.AnyJob>, E, R>(
  options: SharedWorkerLayerOptions<Jobs>,
  pools: Layer.Layer<RuntimePool.RuntimePool | ApplicationPool.ApplicationPool, E, R>
): Layer.Layer<Worker.Worker, E | RuntimePool.DatabaseError | Worker.WorkerMisconfigured, R | Worker.HandlesOf<Jobs>> =>
  Layer.unwrapEffect(
    Effect.flatMap(listedHandlers(options.jobs), (handlers) => {
      const fault = workerFault(handlers, options) ?? servicesFault(options)
      return fault === undefined ? Effect.succeed(working(options, pools)) : new Worker.WorkerMisconfigured(fault)
    })
  )

const working = <const Jobs extends ReadonlyArray<Worker.AnyJob>, E, R>(
  options: SharedWorkerLayerOptions<Jobs>,
  pools: Layer.Layer<RuntimePool.RuntimePool | ApplicationPool.ApplicationPool, E, R>
): Layer.Layer<
  Worker.Worker,
  E | RuntimePool.DatabaseError | Worker.WorkerMisconfigured,
  R | Worker.HandlesOf<Jobs>
> => {
  const reconciliation = { staleness: options.maintenance?.staleness ?? "60 seconds", ...options.reconciliation }
  const services = Layer.mergeAll(
    Claim.layer,
    CompleteInTx.layer,
    Heartbeat.layer,
    Completion.layer(options.completion),
    Reconciliation.layer(reconciliation),
    Maintenance.layer({
      ...options.maintenance,
      // never less than what this worker itself may still ask for
      evidence: Duration.max(options.maintenance?.evidence ?? 0, evidenceMillis(settingsOf(reconciliation)))
    }),
    Wakeup.layer({ ...options.wakeup, queues: Object.keys(options.queues) })
  )
  return Worker.layer({ ...options, name: options.name ?? `pid ${process.pid}` }).pipe(
    Layer.provide(Layer.provideMerge(services, pools))
  )
}

/** How long a stop may take that comes before a worker has started. */
const startingDeadline = Duration.seconds(10)

/** How long a start that is given up may take to notice: nothing of it has claimed a job. */
const startingGrace = Duration.seconds(1)

/**
 * Runs a worker until SIGTERM or SIGINT, or an interruption, stops it, or until a defect of its own made it stop, which is the
 * failure `WorkerCrashed`. `Layer.launch` would not notice the latter.
 *
 * A stop is graceful: claiming ends, handlers may finish within `shutdownGrace`, are interrupted, and every attempt is settled
 * or given back before the pools close (contract C-05). It comes to an end: after `shutdownDeadline` the process ends
 * whatever hangs, and a second signal ends it at once. What was running then is left to rescue, and counts as an attempt. A
 * signal during the start ends the start.
 *
 * With `NodeRuntime.runMain` the process exits with
 *
 * - `0` after a graceful stop, also when a handler ignored its interruption and was left to rescue
 * - `1` when it could not start, or after `WorkerCrashed`
 * - `124` when the stop outlasted the deadline (SIGKILL when a handler blocks the event loop)
 * - `130` or `143` when a second SIGINT or SIGTERM ended it. The same signal again within a second is the same one:
 *   `npm run` repeats the terminal's Ctrl-C
 *
 * An exception that nobody catches (in a timer of the program's own, say) is Node's to act on: the process dies at once, and
 * rescue takes over.
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
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const stopped = yield* stopSignals
      const scope = yield* Scope.make()
      let deadline = startingDeadline
      const claiming = yield* Deferred.make<Started>()
      const build = Effect.locally(Layer.buildWithScope(worker, scope), startedWorker, (started) => {
        deadline = Duration.max(deadline, started.shutdownDeadline)
        Deferred.unsafeDone(claiming, Exit.succeed(started))
      })
      // in a fiber of its own: a stop need not wait for a statement that the database does not answer
      const starting = yield* Effect.forkDaemon(Effect.interruptible(build))
      // it works, and may crash, while what else the program consists of is starting
      const crashed = Effect.flatMap(Deferred.await(claiming), ({ join }) => join)
      const serving = Effect.flatMap(Fiber.join(starting), (context) => {
        const started = Context.get(context, Worker.Worker)
        deadline = started.shutdownDeadline
        return started.join
      })
      const stopping = Effect.zipRight(stopped, Effect.interrupt)
      const exit = yield* Effect.exit(restore(Effect.raceFirst(Effect.raceFirst(serving, crashed), stopping)))
      const close = Effect.zipRight(waitAtMost(Fiber.interrupt(starting), startingGrace), Scope.close(scope, exit))
      yield* withinDeadline(deadline, close)
      return yield* exit
    }).pipe(Effect.scoped)
  )
