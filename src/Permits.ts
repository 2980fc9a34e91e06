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
  /** Frees the permit of a settled attempt. A proof that was used before, or was not made here, is a defect. */
  readonly release: (settled: Settled) => Effect.Effect<void>
}

/**
 * Makes the permits of a queue. One fiber acquires at a time.
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
export const make = (total: number): Effect.Effect<Permits> =>
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
    const acquire = (limit: number): Effect.Effect<number> =>
      Effect.suspend(() => {
        if (free > 0) {
          const taken = Math.min(free, limit)
          free -= taken
          return Effect.succeed(taken)
        }
        waiting ??= Deferred.unsafeMake<void>(FiberId.none)
        return Effect.zipRight(Deferred.await(waiting), acquire(limit))
      })
    return {
      total,
      free: Effect.sync(() => free),
      acquire,
      surplus: (count) => Effect.sync(() => give(count)),
      release: (settled) =>
        Effect.sync(() => {
          if (!spend(settled)) throw new Error("a permit can be freed once, by the proof that its attempt is settled")
          give(1)
        })
    }
  })
