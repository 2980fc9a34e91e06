import { Deferred, Effect } from "effect"
import { Worker } from "effect-awa"
import { FaultProxy } from "effect-awa/testing"
import { tokenColumns, tokenParameters } from "../../../src/internal/tokenColumns.js"
import { commitOf, eventually } from "../support.js"
import { Direct, Proxies } from "../world.js"
import type { Recorded, Recorder } from "./recorder.js"
import {
  cell,
  type Cell as Expected,
  type Evidence,
  evidences,
  type EvidenceColumn,
  type Exit,
  exitNames
} from "./table.js"
import { Cell, queueOf, TimedCell } from "./world.js"

/** The exits that meet this evidence, each with its expectation. */
export const expectedOf = (evidence: Evidence): ReadonlyMap<Exit, Expected> =>
  new Map(
    exitNames.flatMap((exit) => {
      const expected = cell(exit, evidence)
      return expected === undefined ? [] : [[exit, expected] as const]
    })
  )

/** What is broken between the worker and the database while a column's handlers end, and until when. */
interface Fault {
  readonly match: FaultProxy.FaultRule["match"]
  readonly action: FaultProxy.FaultAction
  readonly enough: (recorded: ReadonlyArray<Recorded>, attempts: ReadonlyArray<string>) => boolean
}

const isSettled = ({ what }: Recorded) => what === "settled"
const isLost = (what: Recorded["what"]) => (found: Recorded) => found.what === what && found.detail === "none"

/** Every attempt of the column has met it. */
const each =
  (met: (found: Recorded) => boolean): Fault["enough"] =>
  (recorded, attempts) => {
    const those = new Set(recorded.filter(met).map(({ of }) => of))
    return attempts.every((of) => those.has(of))
  }

/** A question went unanswered after every handler had ended: who came later waits behind it. */
const allAreWaiting: Fault["enough"] = (recorded, attempts) =>
  each(({ what }) => what === "exit")(recorded, attempts) &&
  recorded.findLastIndex(({ what }) => what === "exit") < recorded.findLastIndex(isLost("evidence"))

const noEvidence = { match: /attempt_evidence/, action: FaultProxy.cutBefore() }
/** It took effect, and nobody knows. */
const noSettling = () => ({ match: commitOf(/settle_attempt|park_attempt/), action: FaultProxy.cutAfter() })

const faultOf = (evidence: Evidence): Fault => {
  switch (evidence) {
    case "silent, completed":
    case "silent, open":
      return { ...noEvidence, enough: allAreWaiting }
    case "answer lost":
      return { ...noSettling(), enough: each(isLost("settle")) }
    case "beyond, answers lost":
      return { ...noSettling(), enough: each(isSettled) }
    case "beyond, completed":
    case "beyond, open":
    case "beyond, cancelled":
    case "beyond, parked":
      return { ...noEvidence, enough: each(isSettled) }
    default:
      return { match: /(?!)/, action: FaultProxy.cutBefore(), enough: each(isSettled) }
  }
}

const enqueue = (phase: string, exit: string, evidence: string, maxAttempts: number) => {
  const [payload, options] = [
    { exit, evidence },
    { queue: queueOf(phase, exit), maxAttempts }
  ]
  const attemptOf = ({ id }: { readonly id: bigint }): string => `${id}/1`
  return exit === "timeout"
    ? Effect.map(TimedCell.enqueue(payload, options), attemptOf)
    : Effect.map(Cell.enqueue(payload, options), attemptOf)
}

/** What brings a column to its end after its permits were released: the finalizations in flight, and rescue. */
const afterwards = (evidence: Evidence, attempts: ReadonlyArray<string>, recorder: Recorder) =>
  Effect.gen(function* () {
    const sql = yield* Direct
    const column: EvidenceColumn = evidences[evidence]
    if (evidence === "beyond, commits" || evidence === "beyond, rolls back") {
      for (const of of attempts) {
        const gate = recorder.gates.get(of)
        if (gate !== undefined) yield* Deferred.succeed(gate, evidence === "beyond, commits")
      }
    }
    if (column.later !== "rescue-won") return
    // null: the worker's own maintenance held the lead; less: a finalization has not ended yet
    let left = attempts.length
    yield* sql<{
      n: number | null
    }>`select awa.rescue_stale('0 seconds', 1000) + awa.rescue_leases('0 seconds', 1000) as n`.pipe(
      Effect.tap(([row]) => Effect.sync(() => void (left -= row?.n ?? 0))),
      Effect.delay("10 millis"),
      Effect.repeat({ until: () => left <= 0 })
    )
  })

/** Nothing in flight, nothing watched, nothing to be claimed. */
const atRest = (phase: string) =>
  Effect.gen(function* () {
    const worker = yield* Worker.Worker
    const sql = yield* Direct
    const [row] = yield* sql<{ n: number }>`select count(*)::int as n from awa.jobs
      where state = 'available' and queue like ${queueOf(phase, "%")}`
    return row?.n === 0 && (yield* worker.inFlight) === 0 && (yield* worker.unresolved) === 0
  })

const evidenceNow = (recorder: Recorder, of: string) =>
  Effect.gen(function* () {
    const sql = yield* Direct
    const token = recorder.entries.get(of)?.attempt.token
    if (token === undefined) return "never exited"
    const [row] = yield* sql.unsafe<{ status: string; outcome: string | null }>(
      `select status, outcome from awa.attempt_evidence(${tokenParameters(1)})`,
      tokenColumns([token])
    )
    return row?.outcome ?? row?.status
  })

const observed = (recorder: Recorder, of: string) =>
  Effect.gen(function* () {
    const told = recorder.told.filter((line) => line.of === of)
    return {
      how: recorder.recorded.find((found) => found.of === of && isSettled(found))?.detail,
      finally: yield* evidenceNow(recorder, of),
      events: told.map(({ event }) => event),
      later: told.find(({ verdict }) => verdict !== undefined)?.verdict
    }
  })

/** In which order an attempt was settled; undefined when it is the right one. */
const disorder = (recorder: Recorder, of: string, queue: string, budgetMillis: number): string | undefined => {
  const all = recorder.recorded
  const at = (what: Recorded["what"], from = 0, name = of) =>
    all.findIndex((found, i) => i >= from && found.what === what && found.of === name)
  const exit = at("exit")
  const settled = at("settled", exit)
  const claim = at("claim", exit, queue)
  const between = all.slice(exit, settled).filter((found) => found.of === of)
  const answers = between.filter(({ detail, what }) => (what === "evidence" || what === "settle") && detail !== "none")
  const isOf = (what: Recorded["what"]) => (found: Recorded) => found.what === what && found.of === of
  const call = all.findIndex(isOf("settle"))
  const wasOpen = all.slice(0, Math.max(call, 0)).some((found) => isOf("evidence")(found) && found.detail === "open")
  if (exit < 0 || settled < 0) return "never settled"
  if (call >= 0 && !wasOpen) return "ended without evidence that it was open"
  if (all.slice(settled).some(isOf("settle"))) return "touched after its permit was free"
  if (claim < 0) return "its permit was never used again"
  if (claim < settled) return "its permit was used before it was settled"
  const waited = (all[settled]?.at ?? 0) - (all[exit]?.at ?? 0)
  if (all[settled]?.detail === "unresolved") return waited >= budgetMillis ? undefined : `given up after ${waited} ms`
  return answers.length === 0 ? "settled before the database had answered" : undefined
}

/** Makes every cell of a column happen at once. Answers what was seen of each, and what was out of order. */
export const runColumn = (phase: string, recorder: Recorder, evidence: Evidence, budgetMillis: number) =>
  Effect.gen(function* () {
    const { runtime } = yield* Proxies
    const fault = faultOf(evidence)
    const column: EvidenceColumn = evidences[evidence]
    const attempts = new Map<Exit, string>()
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* runtime.rule(fault)
        for (const exit of expectedOf(evidence).keys()) {
          // what rescue ends is not to run again
          attempts.set(exit, yield* enqueue(phase, exit, evidence, column.later === undefined ? 3 : 1))
        }
        yield* eventually(
          `the column "${evidence}"`,
          Effect.sync(() => fault.enough(recorder.recorded, Array.from(attempts.values())))
        )
      })
    )
    yield* afterwards(evidence, Array.from(attempts.values()), recorder)
    yield* eventually(`the end of the column "${evidence}"`, atRest(phase))
    const seen = new Map<Exit, unknown>()
    const faults: Array<string> = []
    for (const [exit, of] of attempts) {
      seen.set(exit, yield* observed(recorder, of))
      const fault = disorder(recorder, of, queueOf(phase, exit), budgetMillis)
      if (fault !== undefined) faults.push(`${exit}: ${fault}`)
    }
    return { seen, faults }
  })

/** An attempt whose receipt is foreign to all others. */
export const warmUp = (phase: string, recorder: Recorder) =>
  Effect.gen(function* () {
    const of = yield* enqueue(phase, "warm up", "", 1)
    yield* eventually(
      "the first receipt",
      Effect.sync(() => recorder.recorded.some((found) => found.of === of && isSettled(found)))
    )
  })
