import { Effect, Metric } from "effect"
import { Metrics } from "effect-awa"
import type { Recorder } from "./recorder.js"

const verdicts = [
  ...["accepted", "closed", "stale", "parked", "unresolved"],
  ...["accepted-later", "settled-later", "parked-later", "rescue-won", "closed-otherwise", "watch-expired"]
]
const exits = ["success", "failure", "defect", "interrupted"]
const events = [
  ...["not-a-receipt", "foreign-receipt", "receipt-rolled-back", "receipt-without-completion", "receipt-overruled"],
  ...["accepted-despite-exit", "unresolved", "watchers-full", ...verdicts.slice(5)]
]

type Counts = ReadonlyMap<string, number>

const grown = (before: Counts, after: Counts): Record<string, number> =>
  Object.fromEntries(
    Array.from(after, ([name, n]) => [name, n - (before.get(name) ?? 0)] as const).filter(([, n]) => n !== 0)
  )

/** What the metrics say. */
const counts = Effect.gen(function* () {
  const found = new Map<string, number>()
  for (const verdict of verdicts) {
    for (const exit of exits) {
      const metric = Metric.tagged(Metric.tagged(Metrics.reconciliations, "verdict", verdict), "exit", exit)
      found.set(`${verdict}/${exit}`, (yield* Metric.value(metric)).count)
    }
  }
  for (const event of events) {
    found.set(event, (yield* Metric.value(Metric.tagged(Metrics.protocolEvents, "event", event))).count)
  }
  return found
})

/** What was heard of the worker, counted in the same way. */
const heard = (recorder: Recorder): Counts => {
  const found = new Map<string, number>()
  const count = (name: string) => found.set(name, (found.get(name) ?? 0) + 1)
  const exitOf = new Map(recorder.recorded.filter(({ what }) => what === "exit").map(({ detail, of }) => [of, detail]))
  for (const { detail, of, what } of recorder.recorded) if (what === "settled") count(`${detail}/${exitOf.get(of)}`)
  for (const { event, exit, verdict } of recorder.told) {
    count(event)
    if (verdict !== undefined) count(`${verdict}/${exit}`)
  }
  return found
}

/** Runs a part of the matrix; answers what the metrics counted of it, and what was heard. */
export const counting = <A, E, R>(recorder: Recorder, body: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = yield* counts
    const had = heard(recorder)
    const result = yield* body
    return { result, counted: grown(before, yield* counts), heard: grown(had, heard(recorder)) }
  })
