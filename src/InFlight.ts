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
 * The attempts of one queue that a worker has begun and that only wait for a connection to finalize on. While there are plenty of
 * them a permit that is free would only let one more wait: claims and questions for evidence are made for many at once then.
 *
 * @since 0.1.0
 * @category models
 */
export interface Waiting {
  count: number
  /** From how many on there are plenty; with 0 never. */
  plenty: number
}

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
  /** The attempts of its queue that wait for a connection, and whether it is one of them. */
  readonly queueWaiting: Waiting
  waiting: boolean
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
  /** Notes that the attempt waits for a connection, or does so no more. */
  readonly waits: (entry: Entry, waiting: boolean) => void
  readonly waitingIn: (queue: string) => Waiting
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
  const queues = new Map<string, Waiting>() // as many as the worker was given
  const waitingIn = (queue: string): Waiting => {
    const known = queues.get(queue)
    if (known !== undefined) return known
    const made = { count: 0, plenty: 0 }
    queues.set(queue, made)
    return made
  }
  const waits = (entry: Entry, waiting: boolean): void => {
    if (entry.waiting === waiting || (waiting && !entries.has(entry))) return
    entry.waiting = waiting
    entry.queueWaiting.count += waiting ? 1 : -1
  }
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
        queueWaiting: waitingIn(attempt.queue),
        waiting: false,
        hasState: false,
        gated: false,
        progress: undefined
      }
      entries.add(entry)
      latch.unsafeClose()
      return entry
    },
    waits,
    waitingIn,
    remove: (entry) => {
      waits(entry, false)
      entries.delete(entry)
      if (entries.size === 0) latch.unsafeOpen()
    },
    size: () => entries.size,
    entries: () => entries.values(),
    empty: latch.await
  }
}
