import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as FiberRef from "effect/FiberRef"
import * as FiberRefs from "effect/FiberRefs"
import * as HashMap from "effect/HashMap"
import * as Runtime from "effect/Runtime"
import * as RuntimeFlags from "effect/RuntimeFlags"
import type { ClaimedAttempt } from "../Claim.js"
import type { Completion } from "../Completion.js"
import type { RegisteredHandler } from "../Handlers.js"
import type { Entry, InFlight } from "../InFlight.js"
import type { Permits } from "../Permits.js"
import type { Reconciliation } from "../Reconciliation.js"
import type { Settled } from "../Settled.js"
import { attemptHandle, type Finalizing } from "./attemptHandle.js"
import { eventLoopTurn } from "./eventLoopTurn.js"
import { handlerFailure } from "./handlerFailure.js"
import { handlerEnding, handlerRun, plainlyCompleted, unknownKind } from "./handlerRun.js"
import { monotonicMillis } from "./monotonic.js"
import type { Supervisor } from "./workerSupervisor.js"

/** @internal */
export interface Living {
  readonly handlers: ReadonlyArray<RegisteredHandler>
  readonly finalizing: Finalizing
  readonly completion: Completion["Type"]
  readonly reconciliation: Reconciliation["Type"]
  readonly inFlight: InFlight
  readonly supervisor: Supervisor
  /** The worker's: what its attempts' fibers inherit. */
  readonly runtime: Runtime.Runtime<never>
}

/** @internal What is known of the claim that brought the attempts. */
export interface ClaimedWith {
  readonly atMillis: number
  readonly gated: boolean
}

/** A handler, and what the fiber of each of its attempts begins with. */
interface Served {
  readonly handler: RegisteredHandler
  readonly run: Runtime.Runtime<never>
  readonly annotations: HashMap.HashMap<string, unknown>
}

/** For so long handlers are begun at a stretch: what they do at once, before they first wait, holds up the beats and all else. */
const stretchMillis = 10

/**
 * The life of the attempts that a claim brought: run → settle → release. The order is the guarantee: only the proof from the
 * database frees the permit (contract C-17).
 *
 * A handler's fiber is the handler's alone, with its children: it can be interrupted at any time, and what follows its exit runs
 * outside of it, where no interruption reaches. An ordinary attempt that plainly succeeded needs no fiber from there on.
 *
 * @internal
 */
export const makeAttemptLife = (living: Living) => {
  const { completion, finalizing, inFlight, reconciliation, runtime, supervisor } = living
  const interruptible = Runtime.enableRuntimeFlag(runtime, RuntimeFlags.Interruption)
  const settling = Runtime.disableRuntimeFlag(runtime, RuntimeFlags.Interruption)
  const ambient = FiberRefs.getOrDefault(runtime.fiberRefs, FiberRef.currentLogAnnotations)
  const serve = (handler: RegisteredHandler): Served => {
    const context: Context.Context<never> = handler.contextIn(runtime.context)
    return {
      handler,
      run: Runtime.make({ ...interruptible, context }),
      annotations: HashMap.set<string, unknown>(ambient, "kind", handler.kind)
    }
  }
  const byKind = new Map(living.handlers.map((handler) => [handler.kind, serve(handler)]))

  /** No defect of ours may reach a handler's fiber or a flush, and none goes unseen. */
  const guarded = (entry: Entry, step: () => void): void => {
    try {
      step()
    } catch (defect) {
      cutShort(entry, Cause.die(defect))
    }
  }

  /** It is beaten for no more, and its lease left to rescue. Its permit stays taken. */
  const cutShort = (entry: Entry, cause: Cause.Cause<never>): void => {
    inFlight.remove(entry)
    supervisor.failed(cause)
  }

  const release = (entry: Entry, permits: Permits, proof: Exit.Exit<Settled>): void =>
    guarded(entry, () => {
      if (Exit.isFailure(proof)) return cutShort(entry, proof.cause)
      inFlight.remove(entry)
      permits.unsafeRelease(proof.value)
    })

  const settleBy = (entry: Entry, permits: Permits, settled: Effect.Effect<Settled>): void =>
    Runtime.runFork(settling)(settled).addObserver((proof) => release(entry, permits, proof))

  /** What became of the attempt, from the database: by evidence for a caller-owned one, by the flush for an ordinary one. */
  const settle = (entry: Entry, handler: RegisteredHandler, permits: Permits, exit: Exit.Exit<unknown, unknown>) => {
    entry.exited = true
    entry.fiber = undefined // what waits for a flush needs no more than its token
    const failure = handlerFailure(entry, handler, exit)
    if (failure !== undefined) Runtime.runFork(settling)(failure)
    if (handler.mode === "caller-owned") {
      return reconciliation.unsafeSettle(
        entry,
        handler,
        exit,
        (proof) => release(entry, permits, proof),
        (rest) => settleBy(entry, permits, rest)
      )
    }
    if (entry.interruption === "lost") return release(entry, permits, Exit.succeed(completion.lost("superseded")))
    const { token } = entry.attempt
    const ending = plainlyCompleted(entry, exit)
    if (ending !== undefined) {
      return completion.unsafeEnd({ token, ending, hasState: entry.hasState }, (proof) =>
        release(entry, permits, proof)
      )
    }
    const ended = Effect.flatMap(handlerEnding(entry, handler, exit), (ending) =>
      completion.end({ token, ending, hasState: entry.hasState })
    )
    return settleBy(entry, permits, ended)
  }

  const toldGated = new Set<string>()
  /** Caller-owned completion is disabled for the queue: the attempt is put aside without a run, and does not count (C-60). */
  const putAside = (entry: Entry): Effect.Effect<Settled> =>
    Effect.suspend(() => {
      const { queue, token } = entry.attempt
      entry.exited = true
      const tell = toldGated.has(queue)
        ? Effect.void
        : Effect.logWarning(`Caller-owned completion is disabled for the queue ${queue}: such jobs of it are put aside`)
      toldGated.add(queue)
      return Effect.zipRight(tell, completion.end({ token, ending: { outcome: "gated" }, hasState: entry.hasState }))
    })

  const begin = (entry: Entry, permits: Permits): void => {
    const { attempt } = entry
    const { annotations, handler, run } = byKind.get(attempt.kind) ?? serve(unknownKind(attempt.kind))
    if (entry.gated && handler.mode === "caller-owned") return settleBy(entry, permits, putAside(entry))
    // claimed while the worker stopped: given back without a run
    if (entry.interruption !== undefined) return settle(entry, handler, permits, Exit.interrupt(FiberId.none))
    const annotated = annotations.pipe(
      HashMap.set<string, unknown>("jobId", String(attempt.token.jobId)),
      HashMap.set<string, unknown>("attempt", attempt.attempt)
    )
    // its failure is a value, since it is the handler's to fail and ours to tell
    const exit = Effect.exit(handlerRun(handler, attemptHandle(entry, finalizing)))
    const fiber = Runtime.runFork(run)(exit, {
      updateRefs: (refs, fiberId) => {
        refs.locals.set(FiberRef.currentLogAnnotations, [[fiberId, annotated]]) // made for this fiber; `updateAs` would copy it
        return refs
      }
    })
    entry.fiber = fiber
    fiber.addObserver((exit) =>
      guarded(entry, () => settle(entry, handler, permits, Exit.isSuccess(exit) ? exit.value : exit))
    )
  }

  return (attempts: ReadonlyArray<ClaimedAttempt>, permits: Permits, claimed: ClaimedWith): Effect.Effect<void> => {
    const entries = attempts.map((attempt) => inFlight.add(attempt, claimed.atMillis))
    for (const entry of entries) {
      entry.gated = claimed.gated
      if (!claimed.gated) toldGated.delete(entry.attempt.queue)
    }
    const from = (first: number): Effect.Effect<void> => {
      const until = monotonicMillis() + stretchMillis
      for (let i = first; i < entries.length; i++) {
        const entry = entries[i]
        if (entry === undefined) continue
        if (supervisor.stopping()) entry.interruption ??= "shutdown"
        guarded(entry, () => begin(entry, permits))
        if (monotonicMillis() > until)
          return Effect.zipRight(
            eventLoopTurn,
            Effect.suspend(() => from(i + 1))
          )
      }
      return Effect.void
    }
    return Effect.suspend(() => from(0))
  }
}
