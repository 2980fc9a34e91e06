import * as Effect from "effect/Effect"
import * as Random from "effect/Random"

const maximumMillis = 5_000

/**
 * The wait before try number `n + 1` of a statement that could not reach the database: doubling from 50 ms to 5 s, with full
 * jitter above a floor, so that a fleet does not return in step.
 *
 * @internal
 */
export const backoffMillis = (tries: number, floorMillis = 25): Effect.Effect<number> =>
  Effect.map(
    Random.nextIntBetween(0, Math.min(maximumMillis, 50 * Math.pow(2, Math.min(tries, 16))) + 1),
    (millis) => floorMillis + millis
  )

/** @internal */
export const backoff = (tries: number): Effect.Effect<void> => Effect.flatMap(backoffMillis(tries), Effect.sleep)
