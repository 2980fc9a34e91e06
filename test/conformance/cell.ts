/** One case with one driver: made, run, and compared with what the case says. */
import { Effect, Exit, Redacted } from "effect"
import { FaultProxy } from "effect-awa/testing"
import { isDeepStrictEqual } from "node:util"
import type { Case } from "./cases.js"
import type { Program, Result } from "./program.js"
import type { World } from "./world.js"

export interface Cell {
  readonly name: string
  readonly contract: string
  /** Nothing when it is as the case says. */
  readonly faults: ReadonlyArray<string>
  readonly end: string
}

const faultOf = {
  "answer of COMMIT": () => FaultProxy.cutAfter(),
  COMMIT: () => FaultProxy.cutBefore()
}

const atMost = "60 seconds"

const runOf = (program: Program, world: World, of: Case, url: string, tag: string) =>
  Effect.gen(function* () {
    const { jobId, token } = yield* world.attempt(of)
    const request = { url, transaction: of.transaction, steps: of.steps, attempts: [{ tag, token }] }
    const { results } = yield* Effect.tryPromise(() =>
      program.run(request, () => Effect.runPromise(world.rescue))
    ).pipe(Effect.timeout(atMost))
    const [result] = results
    if (result === undefined || results.length !== 1) return yield* Effect.dieMessage("one result for one attempt")
    return { jobId, result }
  })

const throughFault = (program: Program, world: World, of: Case, fault: keyof typeof faultOf, tag: string) =>
  Effect.gen(function* () {
    const proxy = yield* FaultProxy.makeUrl(Redacted.make(world.url))
    const url = Redacted.value(yield* proxy.through(Redacted.make(world.url)))
    const rule = yield* proxy.rule({
      match: /^\s*commit/i,
      action: faultOf[fault](),
      ...(fault === "COMMIT" ? {} : { expect: FaultProxy.committed }),
      limit: 1
    })
    const ran = yield* runOf(program, world, of, url, tag)
    return { ...ran, took: (yield* rule.effects).length }
  }).pipe(Effect.scoped)

const differences = (of: Case, result: Result, found: Effect.Effect.Success<ReturnType<World["look"]>>) => {
  const expected = { rows: of.rows, state: of.state, enqueued: of.enqueued }
  const { progress, ...rest } = found
  const completed = result.completions.filter(({ outcome }) => outcome !== "completed")
  return [
    ...(of.ends.includes(result.end)
      ? []
      : [`ended with ${result.end}, not ${of.ends.join(" or ")}: ${result.message ?? ""}`]),
    ...(isDeepStrictEqual(rest, expected) ? [] : [`${JSON.stringify(rest)}, not ${JSON.stringify(expected)}`]),
    ...(of.progress === undefined || isDeepStrictEqual(progress, of.progress)
      ? []
      : [`progress ${JSON.stringify(progress)}`]),
    ...(of.state === "completed" && of.given !== "completed" && result.completions.length !== 1
      ? [`${result.completions.length} rows of complete_job`]
      : []),
    ...completed.map(({ outcome }) => `complete_job gave the outcome ${outcome}`)
  ]
}

/** `url`: where the program connects, when it is not the world's own. */
export const runCell = (
  program: Program,
  world: World,
  of: Case,
  options: { readonly name?: string; readonly url?: string } = {}
): Effect.Effect<Cell> =>
  Effect.gen(function* () {
    const name = options.name ?? of.name
    const tag = name
    const ran =
      of.fault === undefined
        ? { ...(yield* runOf(program, world, of, options.url ?? world.url, tag)), took: 1 }
        : yield* throughFault(program, world, of, of.fault, tag)
    const found = yield* world.look(ran.jobId, tag)
    const faults = differences(of, ran.result, found)
    return {
      name,
      contract: of.contract,
      end: ran.result.end,
      faults: ran.took === 1 ? faults : [...faults, `the fault was injected ${ran.took} times`]
    }
  }).pipe(
    Effect.exit,
    Effect.map((exit) =>
      Exit.isSuccess(exit)
        ? exit.value
        : { name: options.name ?? of.name, contract: of.contract, end: "?", faults: [String(exit.cause)] }
    )
  )
