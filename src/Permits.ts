/**
 * The bounded right to run attempts.
 *
 * @since 0.1.0
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import { spend } from "./internal/makeSettled.js"
import type { Settled } from "./Settled.js"

/**
 * The permits of one queue. They are not a semaphore: nothing frees a permit on "any exit". A permit that carried an
 * attempt is freed by that attempt's `Settled` and by nothing else, so a defect on the way keeps it taken (contract C-17).
 *
 * @since 0.1.0
 * @category models
 */
export interface Permits {
  readonly total: number
  /** How many are free. */
  readonly free: Effect.Effect<number>
  /** Waits until one is free, then takes all that are, at most `limit`. Interruptible while it waits. */
  readonly acquire: (limit: number) => Effect.Effect<number>
  /** Hands back permits that no attempt was claimed for. */
  readonly surplus: (count: number) => Effect.Effect<void>
  /** The same at once; the defect is thrown. */
  readonly unsafeSurplus: (count: number) => void
  /** Frees the permit of a settled attempt. A proof that was used before, or was not made here, is a defect. */
  readonly release: (settled: Settled) => Effect.Effect<void>
  /** The same at once; the defect is thrown. */
  readonly unsafeRelease: (settled: Settled) => void
}

/**
 * Makes the permits of a queue. With `within`, which all queues of a runtime share, a permit is one of each, so that the
 * runtime as a whole runs no more than its own total. One fiber acquires of a queue's own at a time.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Permits } from "effect-awa"
 *
 * export const taken = Effect.flatMap(Permits.make(20), (permits) => permits.acquire(5))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (total: number, within?: Permits): Effect.Effect<Permits> =>
  Effect.sync(() => {
    let free = total
    let waiting: Deferred.Deferred<void> | undefined
    const give = (count: number): void => {
      free += count
      if (free > total) throw new Error(`more permits were freed than were taken: ${free} of ${total}`)
      if (free > 0 && waiting !== undefined) {
        Deferred.unsafeDone(waiting, Effect.void)
        waiting = undefined
      }
    }
    const acquireOwn = (limit: number): Effect.Effect<number> =>
      Effect.suspend(() => {
        if (free > 0) {
          const taken = Math.min(free, limit)
          free -= taken
          return Effect.succeed(taken)
        }
        waiting ??= Deferred.unsafeMake<void>(FiberId.none)
        return Effect.zipRight(Deferred.await(waiting), acquireOwn(limit))
      })
    const unsafeSurplus = (count: number): void => {
      give(count)
      within?.unsafeSurplus(count)
    }
    const unsafeRelease = (settled: Settled): void => {
      if (!spend(settled)) throw new Error("a permit can be freed once, by the proof that its attempt is settled")
      unsafeSurplus(1)
    }
    // One's own first: only its own fiber waits for those, while what a full queue held of the runtime's would starve the others.
    const acquire = (limit: number): Effect.Effect<number> =>
      within === undefined
        ? acquireOwn(limit)
        : Effect.uninterruptibleMask((restore) =>
            Effect.flatMap(restore(acquireOwn(limit)), (own) =>
              restore(within.acquire(own)).pipe(
                Effect.onInterrupt(() => Effect.sync(() => give(own))),
                Effect.tap((shared) => Effect.sync(() => give(own - shared)))
              )
            )
          )
    return {
      total,
      free: Effect.sync(() => free),
      acquire,
      surplus: (count) => Effect.sync(() => unsafeSurplus(count)),
      unsafeSurplus,
      release: (settled) => Effect.sync(() => unsafeRelease(settled)),
      unsafeRelease
    }
  })
