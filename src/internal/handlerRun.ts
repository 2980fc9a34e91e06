import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { AttemptHandle, RegisteredHandler } from "../Handlers.js"
import type { Entry } from "../InFlight.js"
import { AttemptFailed } from "../JobError.js"
import { JobOutcome } from "../JobOutcome.js"
import * as RetryPolicy from "../RetryPolicy.js"
import { type Ending, endingOfFailure, endingOfOutcome } from "./ending.js"
import { storedError } from "./storedError.js"

/** @internal Stands in for the handler that nobody registered: the attempt fails, as its job's retries allow. */
export const unknownKind = (kind: string): RegisteredHandler => ({
  kind,
  mode: "ordinary",
  retry: RetryPolicy.standard,
  timeout: Option.none(),
  describe: (error) => storedError(error),
  contextIn: (ambient) => ambient,
  run: () =>
    Effect.fail(new AttemptFailed({ reason: "unknown-kind", detail: `this worker has no handler for ${kind}` }))
})

/**
 * The handler, to be run by a fiber of its own: all of it can be interrupted, and what follows its exit is not in it.
 *
 * @internal
 */
export const handlerRun = (handler: RegisteredHandler, handle: AttemptHandle): Effect.Effect<unknown, unknown> =>
  Option.isNone(handler.timeout)
    ? handler.run(handle)
    : Effect.timeoutFail(handler.run(handle), {
        duration: handler.timeout.value,
        onTimeout: () => new AttemptFailed({ reason: "timeout", detail: "the handler ran past its timeout" })
      })

const isOutcome = (value: unknown): value is JobOutcome =>
  JobOutcome.$is("Snooze")(value) ||
  JobOutcome.$is("RetryAfter")(value) ||
  JobOutcome.$is("Discard")(value) ||
  JobOutcome.$is("Cancel")(value) ||
  JobOutcome.$is("DeadLetter")(value) ||
  JobOutcome.$is("Park")(value)

const completed: Ending = { outcome: "completed" }

/** @internal How an ordinary attempt ends whose handler succeeded with nothing to say; undefined for any other exit. */
export const plainlyCompleted = (entry: Entry, exit: Exit.Exit<unknown, unknown>): Ending | undefined =>
  Exit.isSuccess(exit) && exit.value === undefined && entry.progress === undefined ? completed : undefined

/** @internal How an ordinary attempt ends, from its handler's exit. */
export const handlerEnding = (
  entry: Entry,
  handler: RegisteredHandler,
  exit: Exit.Exit<unknown, unknown>
): Effect.Effect<Ending> =>
  Effect.map(
    Exit.match(exit, {
      onSuccess: (value): Effect.Effect<Ending> =>
        Effect.succeed(isOutcome(value) ? endingOfOutcome(value) : completed),
      onFailure: (cause) =>
        Cause.isInterrupted(cause) && entry.interruption !== undefined
          ? Effect.succeed<Ending>({ outcome: "released" })
          : endingOfFailure(handler, Cause.squash(cause), entry.attempt.attempt)
    }),
    (ending) =>
      entry.progress === undefined || entry.progress.flushed ? ending : { ...ending, progress: entry.progress.json }
  )
