/** What a fault of the library would look like in a trace; each must be rejected. */
import type { AttemptEvent, Trace } from "./events.js"

export interface Tampering {
  readonly name: string
  /** The trace as it would have been, and from where on it cannot be followed; undefined when this trace has no such place. */
  readonly apply: (trace: Trace) => { readonly trace: Trace; readonly at: number } | undefined
}

type Events = Trace["events"]
type Is = (event: AttemptEvent) => boolean

const find = (events: Events, is: Is, from = 0): number =>
  events.findIndex((event, i) => i >= from && event.event !== "claim-unanswered" && is(event))

const eventIs =
  (event: AttemptEvent["event"], answer?: string): Is =>
  (one) =>
    one.event === event && (answer === undefined || one.answer === answer)

/** Another answer to the first such event. */
const answering = (name: string, event: AttemptEvent["event"], answer: string, instead: string): Tampering => ({
  name,
  apply: (trace) => {
    const at = find(trace.events, eventIs(event, answer))
    if (at < 0) return undefined
    const events = trace.events.map((one, i) =>
      i === at && one.event !== "claim-unanswered" ? { ...one, answer: instead } : one
    )
    return { trace: { ...trace, events }, at }
  }
})

/** The first such event already before another of the same attempt. */
const earlier = (
  name: string,
  event: AttemptEvent["event"],
  before: AttemptEvent["event"],
  owned: boolean
): Tampering => ({
  name,
  apply: (trace) => {
    const from = find(trace.events, eventIs(event))
    const moved = trace.events[from]
    if (trace.owned !== owned || moved === undefined || moved.event === "claim-unanswered") return undefined
    const at = find(trace.events, (one) => one.event === before && one.lease === moved.lease)
    if (at < 0 || at > from) return undefined
    const events = [
      ...trace.events.slice(0, at),
      moved,
      ...trace.events.slice(at, from),
      ...trace.events.slice(from + 1)
    ]
    return { trace: { ...trace, events }, at }
  }
})

export const tamperings: ReadonlyArray<Tampering> = [
  earlier("a permit that is released before the evidence was asked for", "released", "evidence", true),
  earlier("a permit that is released before the evidence was told", "released", "evidence-answer", true),
  earlier("a permit that is released before its flush was answered", "released", "close-attempts-answer", false),
  answering("open evidence that is told as a completion", "evidence-answer", "open", "completed"),
  answering("a completion that is told as open", "evidence-answer", "completed", "open"),
  answering("an attempt that is settled as accepted against the evidence", "settled", "closed", "accepted"),
  answering("a completion that is settled as stale", "settled", "accepted", "stale"),
  answering("an attempt that is given up although the database answered", "settled", "accepted", "unresolved"),
  answering("a stale flush that is told as done", "close-attempts-answer", "stale", "closed"),
  answering("a lost flush that is told as stale", "close-attempts-answer", "repeated", "stale"),
  {
    name: "application rows without their completion",
    apply: (trace) =>
      trace.owned &&
      trace.end.outcomes.some(({ lease, outcome }) => outcome !== "completed" && !trace.end.effects.includes(lease))
        ? {
            trace: { ...trace, end: { ...trace.end, effects: trace.end.outcomes.map(({ lease }) => lease) } },
            at: trace.events.length
          }
        : undefined
  },
  {
    name: "a completion without its application rows",
    apply: (trace) =>
      trace.end.effects.length > 0
        ? { trace: { ...trace, end: { ...trace.end, effects: [] } }, at: trace.events.length }
        : undefined
  },
  {
    name: "a second completion",
    apply: (trace) => {
      const outcomes = trace.end.outcomes.map((one) => ({ ...one, outcome: "completed" }))
      const leases = outcomes.map(({ lease }) => lease)
      return outcomes.length < 2 || !trace.owned
        ? undefined
        : { trace: { ...trace, end: { outcomes, effects: leases } }, at: trace.events.length }
    }
  }
]
