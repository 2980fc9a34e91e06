import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { RegisteredHandler, StoredError } from "../Handlers.js"
import type { JobOutcome } from "../JobOutcome.js"
import { OutcomeSelected } from "../JobOutcome.js"
import { delayMillis } from "../RetryPolicy.js"
import { sanitize } from "./storable.js"

/** @internal How an attempt is to be ended, in the words of the database. */
export interface Ending {
  readonly outcome: "completed" | "retried" | "snoozed" | "released" | "failed" | "cancelled" | "discarded"
  readonly delayMillis?: number
  readonly error?: StoredError
  readonly progress?: unknown
}

const reasoned = (name: string, reason: string): StoredError => ({ name, message: sanitize(reason, 4_096) })

/** @internal */
export const endingOfOutcome = (outcome: JobOutcome): Ending => {
  switch (outcome._tag) {
    case "Snooze":
      return { outcome: "snoozed", delayMillis: Math.ceil(Duration.toMillis(outcome.delay)) }
    case "RetryAfter":
      return {
        outcome: "retried",
        delayMillis: Math.ceil(Duration.toMillis(outcome.delay)),
        error: reasoned("RetryAfter", outcome.reason ?? "the handler asked for a retry")
      }
    case "Discard":
      return { outcome: "discarded", error: reasoned("Discarded", outcome.reason) }
    case "Cancel":
      return { outcome: "cancelled", error: reasoned("Cancelled", outcome.reason) }
  }
}

/** @internal What a failure selects: the outcome that it names, or the handler's retry policy. */
export const endingOfFailure = (handler: RegisteredHandler, error: unknown, attempt: number): Effect.Effect<Ending> =>
  error instanceof OutcomeSelected
    ? Effect.succeed(endingOfOutcome(error.outcome))
    : Effect.map(delayMillis(handler.retry, attempt), (delay): Ending => ({
        outcome: "retried",
        delayMillis: delay,
        error: handler.describe(error)
      }))

/** @internal The part of an ending that the database stores, or undefined for the common case that has none. */
export const endingDetail = (ending: Ending): Record<string, unknown> | undefined => {
  const detail: Record<string, unknown> = {}
  if (ending.delayMillis !== undefined) detail["delay_ms"] = Math.min(ending.delayMillis, Number.MAX_SAFE_INTEGER)
  if (ending.error !== undefined) detail["error"] = ending.error
  if (ending.progress !== undefined) detail["progress"] = ending.progress
  return Object.keys(detail).length === 0 ? undefined : detail
}
