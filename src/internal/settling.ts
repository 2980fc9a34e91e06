import * as Effect from "effect/Effect"
import type { RegisteredHandler } from "../Handlers.js"
import type { Entry } from "../InFlight.js"
import { classify, endingOf, type ExitReport, protocolEvent } from "./classification.js"
import { type Ending, noCallback, plainEnding } from "./ending.js"
import type { Evidence } from "./evidence.js"
import { newFlushId } from "./flushId.js"
import type { SettledHow } from "./makeSettled.js"
import type { ProtocolEvent, Subject } from "./protocolEvents.js"
import type { makeSettleAttempt } from "./settleAttempt.js"

/** @internal One exit on its way to its `Settled`. Mutable, and touched by its attempt's fiber only. */
export interface Exited {
  readonly entry: Entry
  readonly handler: RegisteredHandler
  readonly report: ExitReport
  readonly subject: Subject
  /** Drawn when the attempt is first ended, the same over all tries: an end whose answer was lost is known for its own. */
  flushId: string | undefined
  readonly exitedAtMillis: number
  /** How the attempt is being ended, once it was seen open. */
  ending: Ending | undefined
  /** The last evidence; `none` before any. */
  seen: string
  /** Whether it is past its budget and keeps its permit, since no more attempts may be watched. */
  kept: boolean
}

/** @internal Nothing is known yet: to be asked again, `soon` when somebody else's end is at hand. */
export type Again = "soon" | "later"

/** @internal What became of the attempt, and what must be said of its exit. */
export interface Conclusion {
  readonly how: SettledHow
  readonly outcome: string
  readonly event: ProtocolEvent | undefined
}

/** What must be said of the exit when its attempt was open, and was ended as the exit selects. */
const whenOpen = ({ report }: Exited) =>
  protocolEvent(report, { status: "open", outcome: undefined, closedXid: undefined, aliveAtMillis: undefined })

/**
 * One step: what this evidence means for the exit, and what is done about it (contract C-17, cases 1 to 4).
 *
 * @internal
 */
export const makeStep = (settleAttempt: ReturnType<typeof makeSettleAttempt>) => {
  const open = Effect.fnUntraced(function* (exited: Exited): Effect.fn.Return<Conclusion | Again> {
    const ending = (exited.ending ??= yield* endingOf(exited.report, exited.handler, exited.entry))
    const answer = yield* settleAttempt((exited.flushId ??= newFlushId()), exited.subject.token, ending)
    switch (answer) {
      case "closed":
      case "repeated":
        return { how: "closed", outcome: ending.outcome, event: whenOpen(exited) }
      case "released": // its callback was answered before: the job has gone on
      case "retried":
        return { how: "closed", outcome: answer, event: whenOpen(exited) }
      case "parked":
        return { how: "parked", outcome: "parked", event: whenOpen(exited) }
      case "replaced":
        exited.ending = noCallback(ending)
        return "soon"
      case "refused":
        exited.ending = ending.callbackId === undefined ? plainEnding(ending) : noCallback(ending)
        return "later"
      case "busy": // a finalization is in flight
      case "stale": // it has just won. Either way its end is in the evidence soon
        return "soon"
      case "none":
        return "later"
    }
  })

  const stale = Effect.fnUntraced(function* (
    exited: Exited,
    outcome: string,
    event: ProtocolEvent | undefined
  ): Effect.fn.Return<Conclusion | Again> {
    if (exited.ending !== undefined && exited.flushId !== undefined) {
      // perhaps it was this very exit, whose answer was lost: the flush's id tells
      const answer = yield* settleAttempt(exited.flushId, exited.subject.token, exited.ending)
      if (answer === "repeated") return { how: "closed", outcome: exited.ending.outcome, event: whenOpen(exited) }
      if (answer === "none" || answer === "busy") return "later"
    }
    return { how: "stale", outcome, event }
  })

  return (exited: Exited, evidence: Evidence): Effect.Effect<Conclusion | Again> => {
    exited.seen = evidence.outcome ?? evidence.status
    if (evidence.aliveAtMillis !== undefined) {
      exited.entry.aliveAtMillis = Math.max(exited.entry.aliveAtMillis, evidence.aliveAtMillis)
    }
    const event = protocolEvent(exited.report, evidence)
    switch (classify(evidence)) {
      case "accepted":
        return Effect.succeed({ how: "accepted", outcome: "completed", event })
      case "stale":
        return stale(exited, evidence.outcome ?? "superseded", event)
      case "parked":
        return Effect.succeed({ how: "parked", outcome: "parked", event })
      case "open":
        return open(exited)
      case "unknown":
        return Effect.succeed("later")
    }
  }
}
