import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { RegisteredHandler } from "../Handlers.js"
import type { Entry, Interruption } from "../InFlight.js"
import { AttemptFailed } from "../JobError.js"
import { type Ending, endingOfFailure } from "./ending.js"
import { isReceipt, receiptFields } from "./makeReceipt.js"
import type { Token } from "./makeToken.js"
import { type ExitClass, exitClassOf } from "./storedError.js"

/** @internal What the database knows of an attempt. */
export interface Evidence {
  readonly status: string
  readonly outcome: string | undefined
  readonly closedXid: bigint | undefined
}

/** @internal What the handler's exit amounts to, before any evidence. */
export interface ExitReport {
  readonly exitClass: ExitClass
  /** The success value's relation to the attempt: its own receipt, another attempt's, or none at all. */
  readonly receipt: "own" | "foreign" | "none"
  readonly finalizedXid: bigint | undefined
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
export type Verdict = "accepted" | "open" | "stale" | "unknown"

/** @internal */
export const classify = (evidence: Evidence): Verdict => {
  switch (evidence.status) {
    case "open":
      return "open"
    case "unknown":
      return "unknown"
    case "closed":
      return evidence.outcome === "completed" ? "accepted" : "stale"
    default:
      return "stale"
  }
}

/** @internal What must be said of this exit in view of this evidence, or undefined when they agree. */
export const protocolEvent = (report: ExitReport, evidence: Evidence): string | undefined => {
  const completed = evidence.status === "closed" && evidence.outcome === "completed"
  if (report.exitClass === "success") {
    if (report.receipt === "none") return "the handler's success value is not a receipt"
    if (report.receipt === "foreign") return "the handler returned the receipt of another attempt"
    if (completed && report.finalizedXid !== evidence.closedXid)
      return "the receipt is of a transaction that did not commit"
    if (evidence.status === "open") return "the handler returned a receipt and its completion is not there"
    return completed ? undefined : "the handler returned a receipt and another outcome won"
  }
  return completed ? "the handler did not succeed, its completion is durable: accepted" : undefined
}

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
  return Effect.map(
    report.interruption !== undefined && Cause.isInterrupted(cause)
      ? Effect.succeed<Ending>({ outcome: "released" })
      : endingOfFailure(handler, Cause.squash(cause), attempt.attempt),
    withProgress
  )
}
