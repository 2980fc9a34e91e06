import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import {
  AttemptParked,
  BodyFailed,
  CallerOwnedDisabled,
  CommitUnknown,
  CompletionMissing,
  type FinalizeError,
  RolledBack,
  StaleAttempt,
  TokenRejected,
  TransactionTooLong,
  TransactionUnavailable
} from "../JobError.js"
import { OutcomeSelected } from "../JobOutcome.js"
import { completeError } from "./completionCall.js"
import type { Token } from "./makeToken.js"
import { isAmbiguous, isFatal, sqlStateOf } from "./sqlState.js"

/** How much later than the transaction's limit its promise is given up: the server ends it by then. */
const slackMillis = 2_000

type Known = FinalizeError | OutcomeSelected

const isKnown = (error: unknown): error is Known =>
  [
    StaleAttempt,
    AttemptParked,
    TokenRejected,
    CallerOwnedDisabled,
    CompletionMissing,
    TransactionTooLong,
    TransactionUnavailable,
    OutcomeSelected
  ].some((known) => error instanceof known)

/** How far the transaction had come when it failed: what its failure means depends on it. */
type Phase = "before" | "body" | "completed"

const errorOf = (phase: Phase, token: Token, cause: unknown): Known => {
  if (phase === "before") return new TransactionUnavailable({ reason: "the driver gave no transaction", cause })
  if (phase === "body") {
    const error = completeError(token, cause)
    return isKnown(error) ? error : new BodyFailed({ cause })
  }
  if (isKnown(cause)) return cause
  const state = Option.getOrUndefined(sqlStateOf(cause))
  if (state === "WA007") {
    return new CompletionMissing({ sqlState: state, reason: "its completion was rolled back with a savepoint" })
  }
  return state === undefined || isAmbiguous(state) || isFatal(cause)
    ? new CommitUnknown({ cause })
    : new RolledBack({ cause })
}

/** A failure that is none of the body's: nobody sees it, since whoever waited was interrupted. */
class Interrupted extends Error {}

/** @internal What a driver's transaction tells of itself on its way, and hears. */
export interface Step {
  /** Aborted when the handler is interrupted, or the time is over. */
  readonly signal: AbortSignal
  /** The driver has given a connection: the time runs. Throws when nobody waits for it any more. */
  readonly begun: () => void
  readonly beforeCompletion: () => void
  /** The completion is there, or on its way with COMMIT: from here on only the database knows. Throws when it was given up. */
  readonly completed: () => void
  readonly maximumMillis: number
}

/** A day: a transaction that is longer is a mistake, and a timer cannot wait much longer. */
const longestMillis = 86_400_000

/**
 * A driver's transaction as an effect. The time is counted from the connection; one that is not to be had within it is given up,
 * and its late connection runs no body. An interruption is told to the body by its signal, keeps the attempt from being
 * completed, and waits for the driver's rollback; what neither hears the signal nor ends is given up, and cannot commit then.
 *
 * @internal
 */
export const driverFinalize = <A>(
  token: Token,
  maximumDuration: Duration.DurationInput | undefined,
  run: (step: Step, abandoned: AbortSignal) => Promise<A>
): Effect.Effect<A, Known> =>
  Effect.async<A, Known>((resume, interrupted) => {
    const maximumMillis = Duration.toMillis(maximumDuration ?? "5 seconds")
    if (!(maximumMillis > 0 && maximumMillis <= longestMillis)) {
      resume(
        Effect.fail(new TransactionUnavailable({ reason: "maximumDuration: a duration above zero, at most a day" }))
      )
      return Effect.void
    }
    const [abort, abandon] = [new AbortController(), new AbortController()]
    interrupted.addEventListener("abort", () => abort.abort())
    let phase: Phase = "before"
    let tooLong = false
    let stopWaiting = (): void => {}
    const ended = new Promise<void>((resolve) => {
      stopWaiting = resolve
    })
    const timers: Array<NodeJS.Timeout> = []
    const tooLongNow = () => new TransactionTooLong({ millis: maximumMillis })
    const giveUp = (): void => {
      abort.abort()
      abandon.abort()
      stopWaiting()
      const reason =
        phase === "before"
          ? new TransactionUnavailable({ reason: "the driver gave no connection in time" })
          : phase === "body"
            ? tooLongNow()
            : new CommitUnknown({ cause: new Error("COMMIT was not answered in time") })
      resume(Effect.fail(reason))
    }
    const check = (): void => {
      if (tooLong || abandon.signal.aborted) throw tooLongNow()
      if (interrupted.aborted) throw new Interrupted("the handler was interrupted")
    }
    timers.push(setTimeout(giveUp, maximumMillis))
    const step: Step = {
      maximumMillis,
      signal: abort.signal,
      begun: () => {
        check()
        phase = "body"
        timers.forEach(clearTimeout)
        timers.push(
          setTimeout(() => {
            tooLong = true
            abort.abort()
          }, maximumMillis),
          setTimeout(giveUp, maximumMillis + slackMillis)
        )
      },
      beforeCompletion: check,
      completed: () => {
        if (abandon.signal.aborted) throw tooLongNow() // it was said to be rolled back: so it must be
        phase = "completed"
      }
    }
    void Promise.resolve()
      .then(() => run(step, abandon.signal))
      .then(
        (value) => resume(Effect.succeed(value)),
        (cause: unknown) =>
          resume(Effect.fail(tooLong && phase === "body" ? tooLongNow() : errorOf(phase, token, cause)))
      )
      .finally(() => {
        timers.forEach(clearTimeout)
        stopWaiting()
      })
    return Effect.promise(() => ended)
  })
