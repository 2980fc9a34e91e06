import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { RegisteredHandler, StoredError } from "../Handlers.js"
import type { JobOutcome } from "../JobOutcome.js"
import { OutcomeSelected } from "../JobOutcome.js"
import { delayMillis } from "../RetryPolicy.js"
import { sanitize } from "./storable.js"

/** @internal How an attempt is to be ended, in the words of the database. */
export interface Ending {
  readonly outcome:
    | "completed"
    | "retried"
    | "snoozed"
    | "released"
    | "gated"
    | "failed"
    | "cancelled"
    | "discarded"
    | "dead_lettered"
    | "parked"
  readonly delayMillis?: number
  readonly error?: StoredError
  /** Why the job is a dead letter. */
  readonly reason?: string
  /** Of `parked`, which is no end of the attempt but of its handler. */
  readonly callbackId?: string
  /** JSON text, as it was checked when it was set. */
  readonly progress?: string
}

/** A hundred years: more than anybody waits, and less than a timestamp can hold. */
const maxDelayMillis = 3_155_760_000_000

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
    case "DeadLetter": {
      const error = reasoned("DeadLettered", outcome.reason)
      return { outcome: "dead_lettered", error, reason: error.message }
    }
    case "Park":
      return { outcome: "parked", callbackId: outcome.callbackId }
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

/** @internal The part of an ending that the database stores, as JSON text; undefined for the common case that has none. */
export const endingDetail = (ending: Ending): string | undefined => {
  const members: Array<string> = []
  if (ending.delayMillis !== undefined) members.push(`"delay_ms":${Math.min(ending.delayMillis, maxDelayMillis)}`)
  if (ending.error !== undefined) members.push(`"error":${JSON.stringify(ending.error)}`)
  if (ending.reason !== undefined) members.push(`"reason":${JSON.stringify(ending.reason)}`)
  if (ending.progress !== undefined) members.push(`"progress":${ending.progress}`)
  return members.length === 0 ? undefined : `{${members.join(",")}}`
}

/** @internal How an attempt ends whose handler parked it on a callback that is not its own: a retry cannot mend it. */
export const noCallback = (ending: Ending): Ending => ({
  outcome: "failed",
  error: { name: "AttemptFailed", message: "no-callback: the attempt has no such callback to be parked on" },
  ...(ending.progress === undefined ? {} : { progress: ending.progress })
})

/** @internal The same end without what the database refused to store: details must not keep an attempt from ending. */
export const plainEnding = (ending: Ending): Ending => ({
  outcome: ending.outcome,
  error: { name: "Unstorable", message: "the database refused the details of this outcome" },
  ...(ending.delayMillis === undefined ? {} : { delayMillis: ending.delayMillis }),
  ...(ending.callbackId === undefined ? {} : { callbackId: ending.callbackId })
})

/** @internal States that speak of what was sent, and not of the server: data, constraints, limits. */
export const refusesContent = (state: string | undefined): boolean =>
  state !== undefined && (state.startsWith("22") || state.startsWith("23") || state.startsWith("54"))
