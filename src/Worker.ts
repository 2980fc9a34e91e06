/**
 * A job's life, top to bottom.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { ApplicationPool } from "./ApplicationPool.js"
import { Claim, type ClaimedAttempt } from "./Claim.js"
import { CompleteInTx } from "./CompleteInTx.js"
import { Completion } from "./Completion.js"
import type { Handles, RegisteredHandler } from "./Handlers.js"
import { Heartbeat } from "./Heartbeat.js"
import * as InFlight from "./InFlight.js"
import { attemptHandle } from "./internal/attemptHandle.js"
import { backoff } from "./internal/backoff.js"
import { handlerEnding, handlerExit, unknownKind } from "./internal/handlerRun.js"
import { keepBeating, keepMaintaining, stopInFlight } from "./internal/workerLoops.js"
import { checkOptions, type WorkerMisconfigured } from "./internal/workerOptions.js"
import { makeSupervisor, type WorkerCrashed } from "./internal/workerSupervisor.js"
import { Maintenance } from "./Maintenance.js"
import * as Permits from "./Permits.js"
import { Reconciliation } from "./Reconciliation.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"
import type { Settled } from "./Settled.js"
import { Wakeup } from "./Wakeup.js"

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
    /** Stops claiming, for good, and waits until every attempt in flight is settled. */
    readonly drain: Effect.Effect<void>
    /** Fails when a defect of the worker itself made it stop; otherwise never ends. */
    readonly join: Effect.Effect<never, WorkerCrashed>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface WorkerOptions {
  /** The queues to work on, each with the number of attempts that may run at once. */
  readonly queues: Readonly<Record<string, { readonly concurrency: number }>>
  /** Shown in `runtimes`. */
  readonly name?: string
  /** How long handlers may go on when the worker stops, before they are interrupted; 30 seconds. */
  readonly shutdownGrace?: Duration.DurationInput
  /** How long interrupted handlers may take to end and be settled, before their leases are left to rescue; 10 seconds. */
  readonly interruptGrace?: Duration.DurationInput
  /** How often attempts and the runtime are renewed; 15 seconds. Keep it well below the staleness. */
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

/** The most that one claim takes; a longer batch holds its lane longer than the round trip saves. */
const maxClaim = 500

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
  yield* checkOptions(handlers, options)
  const runtimePool = yield* RuntimePool
  const finalizing = {
    pool: yield* ApplicationPool,
    completeInTx: yield* CompleteInTx,
    origin: runtimePool.origin
  }
  const claim = yield* Claim
  const completion = yield* Completion
  const reconciliation = yield* Reconciliation
  const heartbeat = yield* Heartbeat
  const wakeup = yield* Wakeup
  const maintenance = yield* Maintenance

  const byKind = new Map(handlers.map((handler) => [handler.kind, handler]))
  const inFlight = InFlight.make()
  const name = options.name ?? "effect-awa"
  const grace = Duration.decode(options.shutdownGrace ?? "30 seconds")
  const interruptGrace = Duration.decode(options.interruptGrace ?? "10 seconds")

  const runtimeId = yield* Effect.acquireRelease(
    heartbeat.register(name),
    (runtimeId) => Effect.ignore(heartbeat.retire(runtimeId)) // swept in time when the database is out of reach
  )
  const supervisor = yield* makeSupervisor
  yield* supervisor.fork(
    keepBeating(heartbeat, inFlight, runtimeId, name, Duration.decode(options.beat ?? "15 seconds"))
  )
  yield* supervisor.fork(
    keepMaintaining(maintenance, wakeup, inFlight, {
      busyTick: Duration.decode(options.busyTick ?? "1 second"),
      idleTick: Duration.decode(options.idleTick ?? "30 seconds")
    })
  )

  // ---- a job's life -------------------------------------------------------------------------------------------------

  /** What became of the attempt, from the database: by evidence for a caller-owned one, by the flush for an ordinary one. */
  const settle = (
    entry: InFlight.Entry,
    handler: RegisteredHandler,
    exit: Exit.Exit<unknown, unknown>
  ): Effect.Effect<Settled> => {
    if (handler.mode === "caller-owned") return reconciliation.settle(entry, handler, exit)
    if (entry.interruption === "lost") return Effect.succeed(completion.lost("superseded"))
    return Effect.flatMap(handlerEnding(entry, handler, exit), (ending) =>
      completion.end({ token: entry.attempt.token, ending, hasState: entry.hasState })
    )
  }

  /** run → settle → release. The order is the guarantee: only the proof from the database frees the permit. */
  const life = (entry: InFlight.Entry, permits: Permits.Permits): Effect.Effect<void> => {
    const handler = byKind.get(entry.attempt.kind) ?? unknownKind(entry.attempt.kind)
    return handlerExit(handler, attemptHandle(entry, finalizing), runtimePool.schema).pipe(
      Effect.flatMap((exit) => {
        entry.exited = true
        return settle(entry, handler, exit)
      }),
      // also when a defect or the end of everything cut it short: it is beaten for no more, and its lease left to rescue
      Effect.ensuring(Effect.sync(() => inFlight.remove(entry))),
      Effect.flatMap(permits.release)
    )
  }

  const start = (attempt: ClaimedAttempt, permits: Permits.Permits): Effect.Effect<void> =>
    Effect.suspend(() => {
      const entry = inFlight.add(attempt, performance.now())
      return Effect.map(supervisor.forkAttempt(life(entry, permits)), (fiber) => {
        entry.fiber = fiber
      })
    })

  /** One claim. Between its statement and its fibers nothing may cut in: the attempts would be orphans for a whole lease. */
  const claimOnce = (
    queue: string,
    permits: Permits.Permits
  ): Effect.Effect<"more" | "busy" | "empty", DatabaseError> =>
    Effect.uninterruptible(
      Effect.gen(function* () {
        const slots = yield* Effect.interruptible(permits.acquire(maxClaim))
        const claimed = yield* Effect.tapError(claim.take(queue, slots, runtimeId), () => permits.surplus(slots))
        yield* permits.surplus(slots - claimed.attempts.length)
        yield* Effect.forEach(claimed.attempts, (attempt) => start(attempt, permits), { discard: true })
        return claimed.attempts.length === slots ? "more" : claimed.busy ? "busy" : "empty"
      })
    )

  const keepClaiming = (queue: string, permits: Permits.Permits) => {
    const next = (failures: number, busy: number): Effect.Effect<never> =>
      Effect.matchEffect(claimOnce(queue, permits), {
        onFailure: (error) =>
          (failures === 0 ? Effect.logWarning : Effect.logDebug)(
            `Claiming from ${queue} failed and is tried again`,
            error
          ).pipe(Effect.zipRight(backoff(failures)), Effect.zipRight(Effect.suspend(() => next(failures + 1, 0)))),
        onSuccess: (found) => {
          switch (found) {
            case "more":
              return next(0, 0)
            case "empty":
              return Effect.zipRight(
                wakeup.wait(queue),
                Effect.suspend(() => next(0, 0))
              )
            case "busy": // not empty: whoever holds the lane may leave work behind, and no hint tells
              return Effect.zipRight(
                Effect.sleep(Math.min(100, 2 ** busy) * (1 + Math.random())),
                Effect.suspend(() => next(0, busy + 1))
              )
          }
        }
      })
    return next(0, 0)
  }

  // ---- its end ------------------------------------------------------------------------------------------------------

  yield* Effect.addFinalizer(() =>
    Effect.zipRight(supervisor.stopClaiming, stopInFlight(inFlight, grace, interruptGrace))
  )
  for (const [queue, { concurrency }] of Object.entries(options.queues)) {
    const permits = yield* Permits.make(concurrency)
    yield* supervisor.forkClaimer(keepClaiming(queue, permits))
  }
  return {
    runtimeId,
    inFlight: Effect.sync(inFlight.size),
    drain: Effect.zipRight(supervisor.stopClaiming, inFlight.empty),
    join: supervisor.crash
  }
})

/** The handlers of these jobs: each kind that is listed must have one. */
const handlersOf = <const Jobs extends ReadonlyArray<AnyJob>>(
  jobs: Jobs
): Effect.Effect<ReadonlyArray<RegisteredHandler>, never, HandlesOf<Jobs>> =>
  // eslint-disable-next-line @typescript-eslint/consistent-type-assertions -- the union of the elements' requirements is lost in the array's element type
  Effect.forEach(jobs, (job) => job.handler) as Effect.Effect<ReadonlyArray<RegisteredHandler>, never, HandlesOf<Jobs>>

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
    Effect.flatMap(handlersOf(options.jobs), (handlers) => make(handlers, options))
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
