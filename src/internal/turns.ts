import type { Connection } from "@effect/sql/SqlConnection"
import * as Effect from "effect/Effect"
import { monotonicMillis } from "./monotonic.js"

/** A connection that was reserved for transactions, one after the other. */
export interface Held {
  readonly connection: Connection
  /** Gives it back to the pool. */
  readonly release: Effect.Effect<void>
  readonly sinceMillis: number
}

/**
 * How long a connection goes from one transaction to the next: the application's own statements wait for the pool, which must get
 * it back now and then.
 */
const handedOnMillis = 50

/**
 * The turns of transactions, so many at once and the others in the order in which they came. A turn that ends while others wait
 * hands its connection on, past the pool.
 *
 * Not a semaphore: Effect's resumes every waiter for each permit that is freed, and all but one of them wait again, which is
 * most of what a worker does when two hundred handlers want twenty connections.
 *
 * @internal
 */
export interface Turns {
  /** Waits for a turn, for at most so long if a time is given; the connection that is handed on with it, if there is one. */
  readonly take: (
    restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>,
    /** Told when the turn is not to be had at once, and when the wait has ended. */
    waits?: (waiting: boolean) => void
  ) => Effect.Effect<Held | undefined | "late">
  /** Ends a turn. `reusable`: nothing is open on the connection, and nobody else will touch it. */
  readonly end: (held: Held | undefined, reusable: boolean) => Effect.Effect<void>
}

/** @internal */
export const makeTurns = (bound: number, patienceMillis: number | undefined): Turns => {
  const waiting = new Set<(held: Held | undefined) => void>()
  let taken = 0

  const next = (): ((held: Held | undefined) => void) | undefined => {
    for (const give of waiting) {
      waiting.delete(give)
      return give
    }
    return undefined
  }

  const end: Turns["end"] = (held, reusable) =>
    Effect.suspend(() => {
      if (held !== undefined && reusable && monotonicMillis() - held.sinceMillis < handedOnMillis) {
        const give = next()
        if (give !== undefined) {
          give(held)
          return Effect.void
        }
      }
      const free = Effect.sync(() => {
        const give = next()
        if (give === undefined) taken--
        else give(undefined)
      })
      return held === undefined ? free : Effect.zipRight(held.release, free)
    })

  const wait = (waits: ((waiting: boolean) => void) | undefined) =>
    Effect.async<Held | undefined | "late">((resume) => {
      let given: { readonly held: Held | undefined } | undefined
      const give = (held: Held | undefined): void => {
        clearTimeout(timer)
        waits?.(false)
        given = { held }
        resume(Effect.succeed(held))
      }
      const timer =
        patienceMillis === undefined
          ? undefined
          : setTimeout(() => {
              waiting.delete(give)
              waits?.(false)
              resume(Effect.succeed("late" as const))
            }, patienceMillis)
      waiting.add(give)
      waits?.(true)
      return Effect.suspend(() => {
        clearTimeout(timer)
        waiting.delete(give)
        waits?.(false)
        return given === undefined ? Effect.void : end(given.held, true) // it came, and its fiber was interrupted before it had it
      })
    })

  return {
    end,
    take: (restore, waits) =>
      Effect.suspend(() => {
        if (taken === bound) return restore(wait(waits))
        taken++
        return Effect.succeed(undefined)
      })
  }
}
