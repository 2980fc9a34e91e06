/**
 * The attempts that this runtime holds, by attempt (contract C-03).
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import type { ClaimedAttempt } from "./Claim.js"

/**
 * Why the runtime interrupted a handler.
 *
 * @since 0.1.0
 * @category models
 */
export type Interruption = "lost" | "shutdown"

/**
 * One attempt in flight. Mutable, and touched by the worker's own fibers only.
 *
 * @since 0.1.0
 * @category models
 */
export interface Entry {
  readonly attempt: ClaimedAttempt
  /** When its claim was asked for; this and the other times are the process's monotonic clock's. */
  readonly claimedAtMillis: number
  /** When the database takes the attempt back, if it has a deadline. */
  readonly deadlineAtMillis: number | undefined
  /** The last sign of life that the database is known to have of the attempt: it may be rescued a staleness later. */
  aliveAtMillis: number
  /** The handler's own. */
  fiber: Fiber.RuntimeFiber<unknown> | undefined
  interruption: Interruption | undefined
  /** Whether the handler has ended; what is left is to settle the attempt. */
  exited: boolean
  /** Whether the database holds a row of mutable state for the attempt. */
  hasState: boolean
  /** Whether caller-owned completion was disabled for the queue, at its claim or when it was to be completed. */
  gated: boolean
  /** What the handler last said of its progress, as JSON text, and whether the database has it. */
  progress: { readonly json: string; readonly flushed: boolean } | undefined
}

/**
 * The attempts in flight of one runtime, one entry per attempt: two attempts of one job can be in
 * one process, and after a lossy failover even two with the same run lease, which their receipts tell apart (contract C-01).
 *
 * @since 0.1.0
 * @category models
 */
export interface InFlight {
  readonly add: (attempt: ClaimedAttempt, nowMillis: number) => Entry
  readonly remove: (entry: Entry) => void
  readonly size: () => number
  readonly entries: () => Iterable<Entry>
  /** Completes when none is left. */
  readonly empty: Effect.Effect<void>
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (): InFlight => {
  const entries = new Set<Entry>()
  const latch = Effect.unsafeMakeLatch(true)
  return {
    add: (attempt, nowMillis) => {
      const entry: Entry = {
        attempt,
        claimedAtMillis: nowMillis,
        deadlineAtMillis: attempt.deadlineInMillis === undefined ? undefined : nowMillis + attempt.deadlineInMillis,
        aliveAtMillis: nowMillis,
        fiber: undefined,
        interruption: undefined,
        exited: false,
        hasState: false,
        gated: false,
        progress: undefined
      }
      entries.add(entry)
      latch.unsafeClose()
      return entry
    },
    remove: (entry) => {
      entries.delete(entry)
      if (entries.size === 0) latch.unsafeOpen()
    },
    size: () => entries.size,
    entries: () => entries.values(),
    empty: latch.await
  }
}
