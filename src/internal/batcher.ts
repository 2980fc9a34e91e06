import type * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"

/** @internal An item that somebody waits for. The first answer counts. */
export interface Pending<A, B> {
  readonly item: A
  readonly answer: (answer: B) => void
  readonly die: (cause: Cause.Cause<never>) => void
}

/**
 * Gathers what many fibers ask for within a few milliseconds and asks the database once. While one batch is under way the
 * next one gathers, so a busy runtime never waits for the linger. `run` answers each item when it can, and may leave a slow
 * one to a fiber of its own; it retries by itself, since an item without an answer is a permit that must not be freed. A
 * defect in it reaches everybody who still waits.
 *
 * The queue needs no bound of its own: each waiting fiber holds a permit.
 *
 * @internal
 */
export const makeBatcher = <A, B>(options: {
  readonly maxSize: number
  readonly lingerMillis: number
  readonly run: (batch: ReadonlyArray<Pending<A, B>>) => Effect.Effect<void>
}): Effect.Effect<(item: A) => Effect.Effect<B>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const queue = yield* Queue.unbounded<Pending<A, B>>()
    const flush = Effect.gen(function* () {
      let batch = Array.from(yield* Queue.takeBetween(queue, 1, options.maxSize))
      // what was taken is answered: only the wait for work may be interrupted
      if (batch.length < options.maxSize && options.lingerMillis > 0) {
        yield* Effect.uninterruptible(Effect.sleep(options.lingerMillis))
        batch = batch.concat(Array.from(yield* Queue.takeUpTo(queue, options.maxSize - batch.length)))
      }
      yield* Effect.uninterruptible(
        answering(
          batch,
          Effect.suspend(() => options.run(batch))
        )
      )
    })
    yield* Effect.forkScoped(Effect.forever(flush))
    return (item) =>
      Effect.suspend(() => {
        const deferred = Deferred.unsafeMake<B>(FiberId.none)
        queue.unsafeOffer({
          item,
          answer: (answer) => Deferred.unsafeDone(deferred, Effect.succeed(answer)),
          die: (cause) => Deferred.unsafeDone(deferred, Effect.failCause(cause))
        })
        return Deferred.await(deferred)
      })
  })

/** @internal Runs an effect on behalf of a batch: its defect is the defect of all who still wait. */
export const answering = <A, B>(
  batch: ReadonlyArray<Pending<A, B>>,
  effect: Effect.Effect<void>
): Effect.Effect<void> =>
  Effect.catchAllCause(effect, (cause) =>
    Effect.sync(() => {
      for (const pending of batch) pending.die(cause)
    })
  )
