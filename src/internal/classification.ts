import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { RegisteredHandler } from "../Handlers.js"
import type { Entry, Interruption } from "../InFlight.js"
import { AttemptFailed } from "../JobError.js"
import { OutcomeSelected } from "../JobOutcome.js"
import { isDisabled } from "./callerOwnedDisabled.js"
import { type Ending, endingOfFailure } from "./ending.js"
import type { Evidence } from "./evidence.js"
import { isReceipt, receiptFields } from "./makeReceipt.js"
import type { Token } from "./makeToken.js"
import type { ProtocolEvent } from "./protocolEvents.js"
import { type ExitClass, exitClassOf } from "./storedError.js"

/** @internal What must be remembered of an exit to judge it by evidence: neither its value nor its cause. */
export interface ExitSummary {
  readonly exitClass: ExitClass
  /** The success value's relation to the attempt: its own receipt, another attempt's, or none at all. */
  readonly receipt: "own" | "foreign" | "none"
  readonly finalizedXid: bigint | undefined
}

/** @internal What the handler's exit amounts to, before any evidence. */
export interface ExitReport extends ExitSummary {
  readonly exit: Exit.Exit<unknown, unknown>
  readonly interruption: Interruption | undefined
}

/** @internal */
export const reportOf = (
  token: Token,
  interruption: Interruption | undefined,
  exit: Exit.Exit<unknown, unknown>
): ExitReport => {
  if (Exit.isFailure(exit)) {
    return { exitClass: exitClassOf(exit.cause), receipt: "none", finalizedXid: undefined, exit, interruption }
  }
  const fields = isReceipt(exit.value) ? receiptFields(exit.value) : undefined
  return {
    exitClass: "success",
    receipt: fields === undefined ? "none" : fields.token === token ? "own" : "foreign",
    finalizedXid: fields?.finalizedXid,
    exit,
    interruption
  }
}

/** @internal */
export type Verdict = "accepted" | "open" | "parked" | "stale" | "unknown"

/** @internal */
export const classify = (evidence: Evidence): Verdict => {
  switch (evidence.status) {
    case "open":
      return "open"
    case "unknown":
      return "unknown"
    case "parked":
      return "parked"
    case "closed":
      return evidence.outcome === "completed" ? "accepted" : "stale"
    default:
      return "stale"
  }
}

/** @internal What must be said of this exit in view of this evidence, or undefined when they agree. */
export const protocolEvent = (exit: ExitSummary, evidence: Evidence): ProtocolEvent | undefined => {
  const completed = evidence.status === "closed" && evidence.outcome === "completed"
  if (exit.exitClass !== "success") return completed ? "accepted-despite-exit" : undefined
  if (exit.receipt === "none") return "not-a-receipt"
  if (exit.receipt === "foreign") return "foreign-receipt"
  if (completed) return exit.finalizedXid === evidence.closedXid ? undefined : "receipt-rolled-back"
  return evidence.status === "open" ? "receipt-without-completion" : "receipt-overruled"
}

/** @internal Whether this evidence is the completion that the handler's own receipt says: nothing is to be done or told. */
export const isConfirmed = (exit: ExitSummary, evidence: Evidence): boolean =>
  exit.receipt === "own" && classify(evidence) === "accepted" && protocolEvent(exit, evidence) === undefined

/** @internal How an open attempt ends, from its handler's exit. */
export const endingOf = (report: ExitReport, handler: RegisteredHandler, entry: Entry): Effect.Effect<Ending> => {
  const { attempt } = entry
  const withProgress = (ending: Ending): Ending =>
    entry.progress === undefined ? ending : { ...ending, progress: entry.progress.json }
  if (Exit.isSuccess(report.exit)) {
    // From typed code the value is a receipt; anything else is a programming error that a retry cannot mend (C-10).
    return report.receipt === "none"
      ? Effect.succeed(
          withProgress({
            outcome: "failed",
            error: handler.describe(
              new AttemptFailed({ reason: "not-a-receipt", detail: "a caller-owned handler succeeds with a receipt" })
            )
          })
        )
      : Effect.map(
          endingOfFailure(
            handler,
            new AttemptFailed({
              reason: "not-finalized",
              detail: "a receipt was returned and its completion is not there"
            }),
            attempt.attempt
          ),
          withProgress
        )
  }
  const cause = report.exit.cause
  if (report.interruption !== undefined && Cause.isInterrupted(cause)) {
    return Effect.succeed(withProgress({ outcome: "released" }))
  }
  const error = Cause.squash(cause)
  // Whatever the handler made of the refusal, it is none of the job's failures; an outcome that it selects is its own decision.
  const gated = (entry.gated || isDisabled(error)) && !(error instanceof OutcomeSelected)
  return Effect.map(
    gated ? Effect.succeed<Ending>({ outcome: "gated" }) : endingOfFailure(handler, error, attempt.attempt),
    withProgress
  )
}
