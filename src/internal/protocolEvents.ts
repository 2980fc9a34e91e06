import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as MetricLabel from "effect/MetricLabel"
import * as LogLevel from "effect/LogLevel"
import type { Token } from "./makeToken.js"
import type { SettledHow } from "./makeSettled.js"
import * as metrics from "./metrics.js"
import type { ExitClass } from "./storedError.js"

/** The protocol's events, by the stable names that annotate their log lines and tag their counter. */
const events = {
  "not-a-receipt": "the handler's success value is not a receipt",
  "foreign-receipt": "the handler returned the receipt of another attempt",
  "receipt-rolled-back": "the receipt is of a transaction that did not commit",
  "receipt-without-completion": "the handler returned a receipt and its completion is not there",
  "receipt-overruled": "the handler returned a receipt and another outcome won",
  "accepted-despite-exit": "the handler did not succeed, its completion is durable: accepted",
  unresolved: "no evidence within the budget; the permit is released, nothing was changed, and the attempt is watched",
  "watchers-full": "as many attempts are watched as may be; permits are kept until evidence comes",
  "accepted-later": "the database answered after the permit was released: the completion is durable",
  "settled-later": "the database answered after the permit was released: the worker's own call had ended the attempt",
  "parked-later": "the database answered after the permit was released: the attempt waits for its callback",
  "rescue-won": "the database answered after the permit was released: rescue had ended the attempt",
  "closed-otherwise": "the database answered after the permit was released: another outcome had ended the attempt",
  "watch-expired": "nothing ended the attempt for as long as it was watched; it is left to rescue"
} as const

/** @internal */
export type ProtocolEvent = keyof typeof events

/** @internal What the watcher finds of an attempt. */
export type LaterVerdict =
  "accepted-later" | "settled-later" | "parked-later" | "rescue-won" | "closed-otherwise" | "watch-expired"

/** @internal The attempt that is spoken of. */
export interface Subject {
  readonly token: Token
  readonly kind: string
  readonly exitClass: ExitClass
}

/** Nothing is wrong with these: they are what was hoped for, or what rescue is for. */
const informative: ReadonlyArray<ProtocolEvent> = ["accepted-later", "settled-later", "parked-later", "rescue-won"]

/** @internal Logs a protocol event and counts it. */
export const tellEvent = (
  subject: Subject,
  event: ProtocolEvent,
  more?: Readonly<Record<string, string>>
): Effect.Effect<void> =>
  Effect.logWithLevel(
    informative.includes(event) ? LogLevel.Info : LogLevel.Warning,
    `Protocol event: ${events[event]}`
  ).pipe(
    Effect.annotateLogs({
      event,
      jobId: String(subject.token.jobId),
      runLease: String(subject.token.runLease),
      kind: subject.kind,
      exit: subject.exitClass,
      ...more
    }),
    Effect.zipRight(Metric.increment(Metric.tagged(metrics.protocolEvents, "event", event)))
  )

/**
 * What is observed of an attempt once its end is known from the database, and never before: the counters, and what the
 * evidence has to say against the handler (contract C-21). Losing it loses no work.
 *
 * @internal
 */
export const observe = (
  subject: Subject,
  verdict: SettledHow | LaterVerdict,
  event?: ProtocolEvent,
  more?: Readonly<Record<string, string>>
): Effect.Effect<void> =>
  event === undefined
    ? Metric.increment(reconciliationOf(verdict, subject.exitClass))
    : Effect.zipRight(Metric.increment(reconciliationOf(verdict, subject.exitClass)), tellEvent(subject, event, more))

/** @internal The same at once, of an attempt of which nothing else is to be told. */
export const observeNow = (subject: Subject, verdict: SettledHow): void =>
  metrics.reconciliations.unsafeUpdate(1, labelsOf(verdict, subject.exitClass))

const labels = new Map<string, Array<MetricLabel.MetricLabel>>()

/** The same array each time: by that a metric knows again what it has looked up. */
const labelsOf = (verdict: SettledHow, exitClass: ExitClass): ReadonlyArray<MetricLabel.MetricLabel> => {
  const key = `${verdict} ${exitClass}`
  const known = labels.get(key)
  if (known !== undefined) return known
  const made = [MetricLabel.make("verdict", verdict), MetricLabel.make("exit", exitClass)]
  labels.set(key, made)
  return made
}

const tagged = new Map<string, typeof metrics.reconciliations>()

/** Made once for each of the few combinations: a metric that is tagged anew is looked up anew. */
const reconciliationOf = (verdict: SettledHow | LaterVerdict, exitClass: ExitClass): typeof metrics.reconciliations => {
  const key = `${verdict} ${exitClass}`
  const known = tagged.get(key)
  if (known !== undefined) return known
  const made = Metric.tagged(Metric.tagged(metrics.reconciliations, "verdict", verdict), "exit", exitClass)
  tagged.set(key, made)
  return made
}
