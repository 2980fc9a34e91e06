/** What is recorded of a run, in the order in which the worker did it or was told. */

/** A job and the run lease of its attempt. */
export interface AttemptKey {
  readonly job: string
  readonly lease: number
}

/** An event of one attempt. `answer` is what the database, or the handler, said; `none` when it said nothing. */
export interface AttemptEvent extends AttemptKey {
  readonly event:
    | "claim"
    | "begin"
    | "complete-job"
    | "complete-job-answer"
    | "commit"
    | "commit-answer"
    | "exit"
    | "evidence"
    | "evidence-answer"
    | "settle-attempt"
    | "settle-attempt-answer"
    | "close-attempts"
    | "close-attempts-answer"
    | "settled"
    | "released"
  readonly answer?: string
}

/** An event of the worker as a whole: a claim that was sent with so many free permits, or that was not answered. */
export type WorkerEvent = { readonly event: "take"; readonly free: number } | { readonly event: "claim-unanswered" }

export type RecordedEvent = AttemptEvent | WorkerEvent

/** What the database holds of a job when the run is over. */
export interface JobEnd {
  readonly job: string
  readonly owned: boolean
  readonly outcomes: ReadonlyArray<{ readonly lease: number; readonly outcome: string }>
  /** The attempts whose rows are there. */
  readonly effects: ReadonlyArray<number>
}

/** The part of a run that concerns one job. */
export interface Trace {
  readonly owned: boolean
  /** How many calls were not answered. */
  readonly losses: number
  readonly events: ReadonlyArray<AttemptEvent | { readonly event: "claim-unanswered" }>
  readonly end: Omit<JobEnd, "job" | "owned">
}

const isOf =
  (job: string) =>
  (event: RecordedEvent): event is Trace["events"][number] =>
    event.event === "claim-unanswered" || (event.event !== "take" && event.job === job)

const same = (a: AttemptKey, b: AttemptKey): boolean => a.job === b.job && a.lease === b.lease

/**
 * Where permits came back. Nobody sees that happen; but a claim that is sent with so many free permits shows that no more
 * attempts than the others can hold one. Those that were settled first gave theirs back first; were they not enough, others
 * must have, settled or not.
 */
const withReleases = (events: ReadonlyArray<RecordedEvent>, permits: number): ReadonlyArray<RecordedEvent> => {
  const all: Array<RecordedEvent> = []
  let holding: ReadonlyArray<AttemptKey> = []
  let settled: ReadonlyArray<AttemptKey> = []
  for (const event of events) {
    if (event.event === "take") {
      const back = [...settled, ...holding.filter((held) => !settled.some((one) => same(one, held)))].slice(
        0,
        Math.max(0, holding.length - (permits - event.free))
      )
      for (const { job, lease } of back) all.push({ event: "released", job, lease })
      const isBack = (key: AttemptKey) => back.some((one) => same(one, key))
      holding = holding.filter((key) => !isBack(key))
      settled = settled.filter((key) => !isBack(key))
      continue
    }
    if (event.event === "claim") holding = [...holding, event]
    if (event.event === "settled") settled = [...settled, event]
    all.push(event)
  }
  return all
}

/** The traces of a run's jobs. */
export const tracesOf = (
  events: ReadonlyArray<RecordedEvent>,
  permits: number,
  ends: ReadonlyArray<JobEnd>
): ReadonlyArray<Trace> => {
  const all = withReleases(events, permits)
  return ends.map(({ effects, job, outcomes, owned }) => {
    const own = all.filter(isOf(job))
    const unanswered = (event: Trace["events"][number]) =>
      event.event === "claim-unanswered" || event.answer === "none" || event.answer === "unknown"
    return { owned, losses: own.filter(unanswered).length, events: own, end: { outcomes, effects } }
  })
}
