import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberRef from "effect/FiberRef"
import * as HashMap from "effect/HashMap"
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
  run: () =>
    Effect.fail(new AttemptFailed({ reason: "unknown-kind", detail: `this worker has no handler for ${kind}` }))
})

/** For the rest of its fiber, which is the attempt's own. */
const annotated = ({ attempt, jobId }: AttemptHandle, kind: string): Effect.Effect<void> =>
  FiberRef.update(FiberRef.currentLogAnnotations, (annotations) =>
    annotations.pipe(
      HashMap.set<string, unknown>("jobId", String(jobId)),
      HashMap.set<string, unknown>("kind", kind),
      HashMap.set<string, unknown>("attempt", attempt)
    )
  )

/**
 * The handler's exit. This is the one interruptible window of a job's life: it is opened here, in a fiber that is otherwise
 * uninterruptible, so that nothing that follows can be cut off.
 *
 * @internal
 */
export const handlerExit = (
  handler: RegisteredHandler,
  handle: AttemptHandle
): Effect.Effect<Exit.Exit<unknown, unknown>> => {
  const run = Effect.suspend(() => handler.run(handle))
  const timed = Option.match(handler.timeout, {
    onNone: () => run,
    onSome: (duration) =>
      Effect.timeoutFail(run, {
        duration,
        onTimeout: () => new AttemptFailed({ reason: "timeout", detail: "the handler ran past its timeout" })
      })
  })
  return Effect.zipRight(annotated(handle, handler.kind), Effect.exit(Effect.interruptible(timed)))
}

const isOutcome = (value: unknown): value is JobOutcome =>
  JobOutcome.$is("Snooze")(value) ||
  JobOutcome.$is("RetryAfter")(value) ||
  JobOutcome.$is("Discard")(value) ||
  JobOutcome.$is("Cancel")(value) ||
  JobOutcome.$is("DeadLetter")(value) ||
  JobOutcome.$is("Park")(value)

/** @internal How an ordinary attempt ends, from its handler's exit. */
export const handlerEnding = (
  entry: Entry,
  handler: RegisteredHandler,
  exit: Exit.Exit<unknown, unknown>
): Effect.Effect<Ending> =>
  Effect.map(
    Exit.match(exit, {
      onSuccess: (value): Effect.Effect<Ending> =>
        Effect.succeed(isOutcome(value) ? endingOfOutcome(value) : { outcome: "completed" }),
      onFailure: (cause) =>
        Cause.isInterrupted(cause) && entry.interruption !== undefined
          ? Effect.succeed<Ending>({ outcome: "released" })
          : endingOfFailure(handler, Cause.squash(cause), entry.attempt.attempt)
    }),
    (ending) =>
      entry.progress === undefined || entry.progress.flushed ? ending : { ...ending, progress: entry.progress.json }
  )
