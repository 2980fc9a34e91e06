import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Runtime from "effect/Runtime"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { waitAtMost } from "./waitAtMost.js"

/**
 * A defect of the worker itself. It has stopped claiming; the permits of the attempts concerned stay taken, and their leases
 * are left to rescue.
 */
export class WorkerCrashed extends Schema.TaggedError<WorkerCrashed>("effect-awa/WorkerCrashed")("WorkerCrashed", {
  cause: Schema.Defect
}) {
  override get message(): string {
    return "The worker stopped: a defect in its own code"
  }
}

/** @internal */
export interface Supervisor {
  /** A loop of the worker, for as long as its scope lasts. */
  readonly fork: (loop: Effect.Effect<never>) => Effect.Effect<void>
  /** A claiming loop: ends with `stopClaiming`. */
  readonly forkClaimer: (loop: Effect.Effect<never>) => Effect.Effect<void>
  /** What cut an attempt's life short. A defect stops the worker; an interruption is the end of everything. */
  readonly failed: (cause: Cause.Cause<never>) => void
  /** Whether `stopClaiming` was called: what a claim still under way brings is given back. */
  readonly stopping: () => boolean
  /** Ends the claiming for good, and waits for the claim that is under way: its attempts are in flight by then. */
  readonly stopClaiming: Effect.Effect<void>
  readonly crash: Effect.Effect<never, WorkerCrashed>
}

/**
 * How long the end of the scope waits for a loop. A statement is never interrupted, and one that the database does not answer
 * may take minutes: it ends with its connection.
 */
const loopGrace = "2 seconds"

/** @internal Nothing that the worker forks can die unseen: a defect stops the claiming and fails `crash`. */
export const makeSupervisor: Effect.Effect<Supervisor, never, Scope.Scope> = Effect.gen(function* () {
  const crash = yield* Deferred.make<never, WorkerCrashed>()
  const scope = yield* Effect.scope
  const runtime = yield* Effect.runtime()
  const claimers: Array<Fiber.RuntimeFiber<never>> = []
  let stopping = false
  const stopClaiming = Effect.suspend(() => {
    stopping = true
    return Fiber.interruptAll(claimers)
  })

  const onExit = (exit: Exit.Exit<unknown>): Effect.Effect<void> => {
    if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) return Effect.void
    return Effect.logFatal("The worker stops: a defect in its own code", exit.cause).pipe(
      // from a daemon: the failing fiber may be one of those that are interrupted here
      Effect.zipRight(Effect.forkDaemon(stopClaiming)),
      Effect.zipRight(Deferred.fail(crash, new WorkerCrashed({ cause: Cause.squash(exit.cause) }))),
      Effect.asVoid
    )
  }
  const watched = <A>(effect: Effect.Effect<A>): Effect.Effect<A> => Effect.onExit(effect, onExit)
  const forkLoop = (loop: Effect.Effect<never>) => Effect.forkDaemon(Effect.interruptible(watched(loop)))

  return {
    fork: (loop) =>
      Effect.uninterruptible(
        Effect.flatMap(forkLoop(loop), (fiber) =>
          Scope.addFinalizer(scope, waitAtMost(Fiber.interrupt(fiber), loopGrace))
        )
      ),
    forkClaimer: (loop) =>
      Effect.uninterruptible(
        Effect.suspend(() =>
          stopping ? Effect.void : Effect.map(forkLoop(loop), (fiber) => void claimers.push(fiber))
        )
      ),
    failed: (cause) => void Runtime.runFork(runtime, onExit(Exit.failCause(cause))),
    stopping: () => stopping,
    stopClaiming,
    crash: Deferred.await(crash)
  }
})
