import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as LogLevel from "effect/LogLevel"
import type { RegisteredHandler } from "../Handlers.js"
import type { Entry } from "../InFlight.js"
import { AttemptParked, StaleAttempt } from "../JobError.js"
import { OutcomeSelected } from "../JobOutcome.js"
import { exitClassOf } from "./storedError.js"

/** A defect and the last failure are somebody's to look at; an attempt that was another's meanwhile is nobody's fault. */
const levelOf = (cause: Cause.Cause<unknown>, last: boolean): LogLevel.LogLevel => {
  const error = Cause.squash(cause)
  if (error instanceof StaleAttempt || error instanceof AttemptParked) return LogLevel.Info
  return last || exitClassOf(cause) === "defect" ? LogLevel.Error : LogLevel.Warning
}

/**
 * Tells what made a handler fail. The database keeps the name and the message of it: stacks and causes are here, and nowhere else.
 * Undefined where it did not fail, chose an outcome, or was interrupted by the runtime.
 *
 * @internal
 */
export const handlerFailure = (
  entry: Entry,
  handler: RegisteredHandler,
  exit: Exit.Exit<unknown, unknown>
): Effect.Effect<void> | undefined => {
  if (Exit.isSuccess(exit)) return undefined
  const { cause } = exit
  if (Cause.isInterrupted(cause) && entry.interruption !== undefined) return undefined
  if (Cause.squash(cause) instanceof OutcomeSelected) return undefined
  const { attempt, kind, maxAttempts, queue, token } = entry.attempt
  return Effect.logWithLevel(
    levelOf(cause, attempt >= maxAttempts),
    `A handler failed in attempt ${attempt} of ${maxAttempts}`,
    cause
  ).pipe(
    Effect.annotateLogs({
      kind,
      queue,
      mode: handler.mode,
      jobId: String(token.jobId),
      runLease: String(token.runLease),
      exit: exitClassOf(cause)
    }),
    // a logger that throws must not be why an attempt never ends
    Effect.catchAllCause(() => Effect.void)
  )
}
