/**
 * A job's life, top to bottom.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberRef from "effect/FiberRef"
import * as Layer from "effect/Layer"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { ApplicationPool } from "./ApplicationPool.js"
import { Claim } from "./Claim.js"
import { CompleteInTx } from "./CompleteInTx.js"
import { Completion } from "./Completion.js"
import type { Handles, RegisteredHandler } from "./Handlers.js"
import { Heartbeat } from "./Heartbeat.js"
import * as InFlight from "./InFlight.js"
import { InstalledSchema } from "./InstalledSchema.js"
import { makeAttemptLife } from "./internal/attemptLife.js"
import { keepClaiming } from "./internal/claimLoop.js"
import { makeCallbackWaits } from "./internal/callbackWaits.js"
import { listedHandlers } from "./internal/listedHandlers.js"
import { startedWorker } from "./internal/startedWorker.js"
import { makeTokenBucket } from "./internal/tokenBucket.js"
import { waitAtMost } from "./internal/waitAtMost.js"
import { keepBeating, keepCancelling, keepMaintaining } from "./internal/workerLoops.js"
import { checkOptions, stopTimes, type WorkerMisconfigured } from "./internal/workerOptions.js"
import { stopInFlight } from "./internal/workerStop.js"
import { makeSupervisor, type WorkerCrashed } from "./internal/workerSupervisor.js"
import { Maintenance } from "./Maintenance.js"
import * as Permits from "./Permits.js"
import { Reconciliation } from "./Reconciliation.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"
import { Wakeup, type WakeupMode } from "./Wakeup.js"

/**
 * A running worker.
 *
 * @since 0.1.0
 * @category services
 */
export class Worker extends Context.Tag("effect-awa/Worker")<
  Worker,
  {
    readonly runtimeId: bigint
    /** How many attempts are in flight. */
    readonly inFlight: Effect.Effect<number>
    /** The permits of each queue: how many there are, and how many no attempt holds. */
    readonly permits: Effect.Effect<ReadonlyArray<PermitCount>>
    /** How many attempts are in flight no more and watched, since no evidence came for them in time (contract C-17.4). */
    readonly unresolved: Effect.Effect<number>
    /**
     * Stops claiming, for good, and waits until every attempt in flight is settled, however long that takes. For a deploy:
     * drain, then close the scope.
     */
    readonly drain: Effect.Effect<void>
    /** The time within which the end of its scope should be over; `launch` ends the process then. */
    readonly shutdownDeadline: Duration.Duration
    /** How the worker learns of work: by notifications, or by polling alone (contract C-22). */
    readonly wakeup: Effect.Effect<WakeupMode>
    /** Fails when a defect of the worker itself made it stop; otherwise never ends. */
    readonly join: Effect.Effect<never, WorkerCrashed>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface PermitCount {
  readonly queue: string
  readonly free: number
  readonly total: number
}

/**
 * How a worker serves one queue. What the whole fleet may do is a setting of the queue in the database: `Admin.setQueue`.
 *
 * @since 0.1.0
 * @category models
 */
export interface QueueOptions {
  /** How many attempts of the queue this worker runs at once, from 1 to 10000. */
  readonly concurrency: number
  /**
   * A token bucket of this worker alone: it claims at most `limit` jobs at once, and `limit` in each `interval` from then on.
   * Two workers with this limit claim twice as many. The limit is from 1 to 1000000, the interval from 1 millisecond to 24 days.
   */
  readonly rateLimit?: { readonly limit: number; readonly interval: Duration.DurationInput }
}

/**
 * @since 0.1.0
 * @category models
 */
export interface WorkerOptions {
  /** The queues to work on. */
  readonly queues: Readonly<Record<string, QueueOptions>>
  /** How many attempts of all its queues together this worker runs at once, from 1 to 10000; as many as its queues allow. */
  readonly concurrency?: number
  /** Shown in `runtimes`. */
  readonly name?: string
  /** How long handlers may go on when the worker stops, before they are interrupted; 30 seconds, 7 days at most. */
  readonly shutdownGrace?: Duration.DurationInput
  /** How long interrupted handlers may take to end and be settled, before their leases are left to rescue; 10 seconds, 7 days at most. */
  readonly interruptGrace?: Duration.DurationInput
  /**
   * How long the stop of the whole process may take, from the signal on; both graces and 25 seconds unless said otherwise, and
   * never less than the graces, 24 days at most. `launch` ends the process then, whatever hangs. Keep it below what your platform waits
   * before it kills: Kubernetes' `terminationGracePeriodSeconds` is 30 seconds unless you say more.
   */
  readonly shutdownDeadline?: Duration.DurationInput
  /** How often attempts and the runtime are renewed; 15 seconds. From 10 milliseconds to a day, as both ticks. Keep it well below the staleness. */
  readonly beat?: Duration.DurationInput
  /** The pause between two maintenance ticks while work is under way; 1 second. */
  readonly busyTick?: Duration.DurationInput
  /** The longest pause between two maintenance ticks; 30 seconds. */
  readonly idleTick?: Duration.DurationInput
}

/**
 * A kind that a worker can be asked to serve: a `Job`.
 *
 * @since 0.1.0
 * @category models
 */
export interface AnyJob {
  readonly kind: string
  readonly handler: Effect.Effect<RegisteredHandler, never, unknown>
}

type Services =
  RuntimePool | ApplicationPool | Claim | Completion | CompleteInTx | Reconciliation | Heartbeat | Wakeup | Maintenance

/**
 * Starts a worker for these handlers. It stops with the scope: stops claiming, lets handlers finish within the grace,
 * interrupts them, settles every attempt, then leaves (contract C-05).
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  handlers: ReadonlyArray<RegisteredHandler>,
  options: WorkerOptions
): Effect.fn.Return<Worker["Type"], DatabaseError | WorkerMisconfigured, Services | Scope.Scope> {
  const applicationPool = yield* ApplicationPool
  yield* checkOptions(handlers, options, applicationPool.connections)
  const runtimePool = yield* RuntimePool
  const claim = yield* Claim
  const completion = yield* Completion
  const reconciliation = yield* Reconciliation
  const heartbeat = yield* Heartbeat
  const wakeup = yield* Wakeup
  const maintenance = yield* Maintenance
  const inFlight = InFlight.make()
  const finalizing = {
    pool: applicationPool,
    completeInTx: yield* CompleteInTx,
    origin: runtimePool.origin,
    callbacks: yield* makeCallbackWaits(runtimePool, wakeup),
    waits: inFlight.waits
  }
  const self = {
    name: options.name ?? "effect-awa",
    queues: Object.keys(options.queues),
    maintenance: maintenance.settings,
    connections: applicationPool.connections,
    wakeup: wakeup.mode
  }
  const { deadline, grace, interruptGrace } = stopTimes(options)

  const runtimeId = yield* Effect.acquireRelease(
    heartbeat.register(self),
    (runtimeId) => waitAtMost(Effect.ignore(heartbeat.retire(runtimeId)), "2 seconds") // swept in time when the database is out of reach
  )
  const supervisor = yield* makeSupervisor
  yield* supervisor.fork(
    keepBeating(heartbeat, inFlight, runtimeId, self, Duration.decode(options.beat ?? "15 seconds"))
  )
  yield* supervisor.fork(yield* keepCancelling(heartbeat, wakeup, inFlight))
  yield* supervisor.fork(
    keepMaintaining(maintenance, wakeup, inFlight, {
      busyTick: Duration.decode(options.busyTick ?? "1 second"),
      idleTick: Duration.decode(options.idleTick ?? "30 seconds")
    })
  )

  const runtime = yield* Effect.runtime()
  const admit = makeAttemptLife({
    handlers,
    finalizing,
    completion,
    reconciliation,
    inFlight,
    supervisor,
    runtime: Runtime.provideService(runtime, InstalledSchema, runtimePool.schema)
  })

  // ---- its end ------------------------------------------------------------------------------------------------------

  const tell = yield* FiberRef.get(startedWorker)
  tell({ shutdownDeadline: deadline, join: supervisor.crash })
  const { stopClaiming } = supervisor
  yield* Effect.addFinalizer(() => stopInFlight({ inFlight, heartbeat, stopClaiming, grace, interruptGrace }))
  const whole = options.concurrency === undefined ? undefined : yield* Permits.make(options.concurrency)
  const permitsByQueue: Array<readonly [string, Permits.Permits]> = []
  for (const [queue, { concurrency, rateLimit }] of Object.entries(options.queues)) {
    const permits = yield* Permits.make(concurrency, whole)
    permitsByQueue.push([queue, permits])
    const bucket =
      rateLimit === undefined ? undefined : yield* makeTokenBucket(rateLimit.limit, Duration.decode(rateLimit.interval))
    yield* supervisor.forkClaimer(
      keepClaiming({ claim, wakeup, runtimeId, queue, permits, bucket, waiting: inFlight.waitingIn(queue), admit })
    )
  }
  return {
    runtimeId,
    inFlight: Effect.sync(inFlight.size),
    unresolved: reconciliation.unresolved,
    permits: Effect.forEach(permitsByQueue, ([queue, { free, total }]) =>
      Effect.map(free, (free) => ({ queue, free, total }))
    ),
    drain: Effect.zipRight(supervisor.stopClaiming, inFlight.empty),
    shutdownDeadline: deadline,
    wakeup: wakeup.mode,
    join: supervisor.crash
  }
})

/**
 * The evidence that a worker for these jobs requires.
 *
 * @since 0.1.0
 * @category models
 */
export type HandlesOf<Jobs extends ReadonlyArray<AnyJob>> = {
  readonly [K in keyof Jobs]: Jobs[K] extends { readonly kind: infer Kind extends string } ? Handles<Kind> : never
}[number]

/**
 * A worker for these jobs. A kind without a handler does not compile: its `Handles<Kind>` stays in the requirements.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <const Jobs extends ReadonlyArray<AnyJob>>(
  options: WorkerOptions & { readonly jobs: Jobs }
): Layer.Layer<Worker, DatabaseError | WorkerMisconfigured, Services | HandlesOf<Jobs>> =>
  Layer.scoped(
    Worker,
    Effect.flatMap(listedHandlers(options.jobs), (handlers) => make(handlers, options))
  )

export {
  /**
   * @since 0.1.0
   * @category errors
   */
  WorkerMisconfigured
} from "./internal/workerOptions.js"

export {
  /**
   * @since 0.1.0
   * @category errors
   */
  WorkerCrashed
} from "./internal/workerSupervisor.js"
