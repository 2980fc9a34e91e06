import type { Entry } from "../InFlight.js"

/** @internal How long a permit may wait for evidence, and what the database takes for abandoned; milliseconds. */
export interface Bounds {
  readonly budgetMillis: number
  readonly stalenessMillis: number
}

/** @internal What an attempt's time is counted from, on the monotonic clock. */
export type Times = Pick<Entry, "aliveAtMillis" | "deadlineAtMillis">

/** However old the last sign of life is (an event loop that was blocked, say), the database is asked once. */
const leastMillis = 1_000

/**
 * What is left of an attempt's budget: the configured one, at most until rescue may take the attempt, which is a staleness
 * after the last sign of life that the database told of, or the attempt's deadline (contract C-17.4). All of it is a
 * difference of readings of one monotonic clock: no clock of the worker is compared with the database's.
 *
 * @internal
 */
export const budgetLeft = (bounds: Bounds, times: Times, exitedAtMillis: number, nowMillis: number): number => {
  const rescueAt = Math.min(times.aliveAtMillis + bounds.stalenessMillis, times.deadlineAtMillis ?? Infinity)
  const until = Math.max(rescueAt, exitedAtMillis + leastMillis)
  return Math.min(exitedAtMillis + bounds.budgetMillis, until) - nowMillis
}
