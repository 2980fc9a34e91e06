import { describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { expect } from "vitest"
import { examples } from "./examples.js"
import { describeStuck, follow } from "./follow.js"
import { recordRun } from "./run.js"
import { tamperings } from "./tampered.js"

const number = (name: string, otherwise: number): number => Number(process.env[name] ?? otherwise)
const jobs = number("AWA_TRACE_JOBS", 25)
const seed = number("AWA_TRACE_SEED", Math.floor(Math.random() * 2 ** 30))

describe("what is recorded of a worker under faults", () => {
  // C-04, C-13, C-14, C-17: the order "answered before released" by recorded events, and every outcome in its place
  it.live(
    `is a behaviour of the model, and tampered with it is none (AWA_TRACE_SEED=${seed})`,
    () =>
      Effect.gen(function* () {
        const traces = [...(yield* recordRun(jobs, seed)), ...examples]
        const tampered = tamperings.map(({ apply, name }) => {
          const [one] = traces.flatMap((trace) => apply(trace) ?? [])
          return { name, one }
        })
        const applied = tampered.flatMap(({ name, one }) => (one === undefined ? [] : [{ name, ...one }]))
        const stuck = yield* Effect.promise(() => follow([...traces, ...applied.map(({ trace }) => trace)]))
        traces.forEach((trace, i) => {
          const at = stuck[i]
          if (at !== undefined) expect.fail(describeStuck(trace, at))
        })
        applied.forEach(({ at, name, trace }, i) => {
          // there, or where something that follows from it cannot be
          const found = stuck[traces.length + i] ?? -1
          expect(found, `not rejected: ${name}\n${describeStuck(trace, at)}`).toBeGreaterThanOrEqual(at)
        })
        const missing = tampered.filter(({ one }) => one === undefined).map(({ name }) => name)
        expect(missing, "no trace has a place for these").toEqual([])
      }),
    600_000
  )
})
