/** Whether traces are behaviours of the model, by TLC. */
import type { Configuration } from "../checker/configuration.js"
import { check } from "../checker/tlc.js"
import type { Trace } from "./events.js"

const text = (value: string): string => `"${value}"`

const eventText = (event: Trace["events"][number]): string =>
  event.event === "claim-unanswered"
    ? `[event |-> ${text(event.event)}]`
    : `[event |-> ${text(event.event)}, lease |-> ${event.lease}, answer |-> ${text(event.answer ?? "")}]`

const endText = ({ effects, outcomes }: Trace["end"]): string => {
  const ended = outcomes.map(({ lease, outcome }) => `[lease |-> ${lease}, outcome |-> ${text(outcome)}]`)
  return `[event |-> "end", outcomes |-> {${ended.join(", ")}}, effects |-> {${effects.join(", ")}}]`
}

const traceText = ({ end, events, losses, owned }: Trace): string =>
  `  [owned |-> ${owned ? "TRUE" : "FALSE"}, losses |-> ${losses}, events |-> <<\n    ` +
  `${[...events.map(eventText), endText(end)].join(",\n    ")}>>]`

const moduleText = (traces: ReadonlyArray<Trace>): string =>
  ["---- MODULE RecordedTraces ----", "Traces == <<", traces.map(traceText).join(",\n"), ">>", "===="].join("\n")

const configuration: Configuration = {
  name: "recorded traces",
  folder: "completion",
  module: "CompletionTrace",
  specification: "TraceSpec",
  constants: {
    Owned: "{1}",
    Ordinary: "{2}",
    MaxLease: "3",
    Attempts: "3",
    Permits: "100",
    Ring: "2",
    Turns: "0",
    Losses: "0",
    Crashes: "0",
    Failovers: "0",
    Budget: "1000",
    Twin: '"none"'
  },
  constraint: "Follow"
}

/** The event that no behaviour of the model can go on with, counted from 0; undefined when there is none. */
export type Stuck = number | undefined

/** Follows each trace through the model, as far as one of its behaviours goes. */
export const follow = async (traces: ReadonlyArray<Trace>): Promise<ReadonlyArray<Stuck>> => {
  const { output } = await check(configuration, { RecordedTraces: moduleText(traces) })
  const reached = traces.map(() => 0)
  for (const [, trace, events] of output.matchAll(/<<"followed", (\d+), (\d+)>>/g)) {
    const at = Number(trace) - 1
    reached[at] = Math.max(reached[at] ?? 0, Number(events))
  }
  return traces.map(({ events }, at) => ((reached[at] ?? 0) > events.length ? undefined : reached[at]))
}

/** Tells where a trace left the model. */
export const describeStuck = ({ end, events }: Trace, at: number): string => {
  const lines = [...events, { event: "end", ...end }].map((event, i) => {
    const mark = i === at ? "→ " : "  "
    return mark + JSON.stringify(event)
  })
  return `no behaviour of the model goes on here:\n${lines.slice(0, at + 2).join("\n")}`
}
