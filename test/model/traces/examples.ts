/** Traces of the rarer kinds, as runs have left them: what is tampered with must be there in every run. */
import type { Trace } from "./events.js"

type Event = Trace["events"][number]
type Names<E> = E extends { readonly lease: number; readonly event: infer Name } ? Name : never
type Step = readonly [Names<Event>, string?]

const of = (lease: number, steps: ReadonlyArray<Step>): ReadonlyArray<Event> =>
  steps.map(([event, answer]) => ({ event, job: "1", lease, ...(answer === undefined ? {} : { answer }) }))

const finalized: ReadonlyArray<Step> = [
  ["claim"],
  ["begin"],
  ["complete-job"],
  ["complete-job-answer", "completed"],
  ["commit"]
]
const accepted: ReadonlyArray<Step> = [
  ["evidence"],
  ["evidence-answer", "completed"],
  ["settled", "accepted"],
  ["released"]
]

/** Failed before its transaction, settled, and completed by the next attempt, whose COMMIT was not answered. */
const retried: Trace = {
  owned: true,
  losses: 1,
  events: [
    ...of(1, [
      ["claim"],
      ["exit", "failure"],
      ["evidence"],
      ["evidence-answer", "open"],
      ["settle-attempt"],
      ["settle-attempt-answer", "closed"],
      ["settled", "closed"],
      ["released"]
    ]),
    ...of(2, [...finalized, ["commit-answer", "unknown"], ["exit", "failure"], ...accepted])
  ],
  end: {
    outcomes: [
      { lease: 1, outcome: "retried" },
      { lease: 2, outcome: "completed" }
    ],
    effects: [2]
  }
}

/** Rescued while it ran, so its flush comes too late. */
const overtaken: Trace = {
  owned: false,
  losses: 0,
  events: [
    ...of(1, [
      ["claim"],
      ["exit", "success"],
      ["close-attempts"],
      ["close-attempts-answer", "stale"],
      ["settled", "stale"],
      ["released"]
    ]),
    ...of(2, [
      ["claim"],
      ["exit", "success"],
      ["close-attempts"],
      ["close-attempts-answer", "closed"],
      ["settled", "closed"],
      ["released"]
    ])
  ],
  end: {
    outcomes: [
      { lease: 1, outcome: "rescued" },
      { lease: 2, outcome: "completed" }
    ],
    effects: []
  }
}

/** Its flush took effect and was not answered. */
const repeated: Trace = {
  owned: false,
  losses: 1,
  events: of(1, [
    ["claim"],
    ["exit", "success"],
    ["close-attempts"],
    ["close-attempts-answer", "none"],
    ["close-attempts"],
    ["close-attempts-answer", "repeated"],
    ["settled", "closed"],
    ["released"]
  ]),
  end: { outcomes: [{ lease: 1, outcome: "completed" }], effects: [] }
}

export const examples: ReadonlyArray<Trace> = [retried, overtaken, repeated]
