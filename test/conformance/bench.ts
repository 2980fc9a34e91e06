/** What completing a job costs in a driver's own transaction, against the same transaction without it, in one run. */
import { Effect } from "effect"
import type { Step } from "./cases.js"
import type { DriverEntry } from "./drivers.js"
import { makeWorld } from "./world.js"

const write: Step = { do: "write" }

/** The floor first: every ratio is to it. */
const variants: ReadonlyArray<readonly [name: string, steps: ReadonlyArray<Step>]> = [
  ["without", [write]],
  ["complete_job", [write, { do: "complete" }]],
  ["expect_completion and complete_job", [{ do: "expect" }, write, { do: "complete" }]]
]

const median = (values: ReadonlyArray<number>): number =>
  [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN

export const bench = (
  url: string,
  driver: DriverEntry,
  { rounds, transactions }: { readonly transactions: number; readonly rounds: number }
) =>
  Effect.gen(function* () {
    const world = yield* makeWorld(url, driver.name)
    const program = yield* driver.start
    const once = (steps: ReadonlyArray<Step>, count: number) =>
      Effect.gen(function* () {
        const tokens = yield* world.attempts(count)
        const attempts = tokens.map((token) => ({ tag: "bench", token }))
        const request = { url: world.url, transaction: "read committed", steps, attempts } as const
        const { micros, results } = yield* Effect.tryPromise(() => program.run(request, () => Promise.resolve()))
        const bad = results.find(({ end }) => end !== "committed")
        if (bad !== undefined || results.length !== count) {
          return yield* Effect.dieMessage(`a transaction ended with ${bad?.end ?? "nothing"}: ${bad?.message ?? ""}`)
        }
        return micros / count
      })
    const times = new Map(variants.map(([name]) => [name, new Array<number>()]))
    for (const [, steps] of variants) yield* once(steps, 50) // connected, parsed, planned
    for (let round = 0; round < rounds; round++) {
      // the variants take turns, so that what the machine does meanwhile is everybody's
      for (const [name, steps] of variants) times.get(name)?.push(yield* once(steps, transactions))
    }
    const floor = median(times.get("without") ?? [])
    for (const [name, values] of times) {
      const ratio = median(values) / floor
      const [low, high] = [Math.min(...values), Math.max(...values)]
      console.log(
        `${driver.name.padEnd(18)} ${name.padEnd(36)} ${median(values).toFixed(0).padStart(6)} µs (${low.toFixed(0)}–${high.toFixed(0)})  × ${ratio.toFixed(2)}`
      )
    }
  }).pipe(Effect.scoped)
