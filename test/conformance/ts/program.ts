/** A TypeScript driver put through the cases of every language, by what its own conformance tests have of it. */
import type { Driver } from "effect-awa"
import { Effect, Exit, Redacted, Scope } from "effect"
import { Option } from "effect"
import { sqlStateOf } from "../../../src/internal/sqlState.js"
import type { Step } from "../cases.js"
import type { Attempt, Program, Request, Result } from "../program.js"
import type { DriverUnderTest } from "./driver.js"

class Application extends Error {}

const fields = "job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, batch_id => $5, batch_index => $6"
const casts = (text: string) =>
  text
    .replace(/\$[1245]\b/g, (name) => `${name}::text::bigint`)
    .replace(/\$[36]\b/g, (name) => `${name}::text::integer`)

const complete = `select job_id::text as job, outcome::text as outcome from awa.complete_job(${casts(fields)}, progress => $7::text::jsonb)`
// as text: not every driver reads void
const expect = `select awa.expect_completion(${casts(fields)})::text`

/** More than 64 KiB of text that does not compress to less. */
const oversized = () =>
  JSON.stringify({ text: Array.from({ length: 30_000 }, (_, i) => ((i * 2654435761) >>> 0).toString(36)).join("") })

type Completion = Result["completions"][number]

const statements = (query: Driver.Query, attempt: Attempt, completions: Array<Completion>) => {
  const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = attempt.token
  const token = [job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index]
  return {
    complete: async (progress: string | undefined) => {
      const text = progress === "oversized" ? oversized() : (progress ?? null)
      for (const { job, outcome } of await query(complete, [...token, text])) {
        completions.push({ job_id: String(job), outcome: String(outcome) })
      }
    },
    expect: () => query(expect, token),
    enqueue: () => query("select * from awa.insert_job('conformance-follow-up', '{}', 'other')", []),
    immediate: () => query("set constraints all immediate", [])
  }
}

const interpreter = <Tx>(
  driver: DriverUnderTest<Tx>,
  attempt: Attempt,
  completions: Array<Completion>,
  onPause: () => Promise<void>
) => {
  const one = async (tx: Tx, step: Step): Promise<unknown> => {
    const say = statements(driver.query(tx), attempt, completions)
    switch (step.do) {
      case "write":
        return driver.write(tx, attempt.tag)
      case "expect":
        return say.expect()
      case "complete":
        return say.complete(step.progress)
      case "enqueue":
        return say.enqueue()
      case "immediate":
        return say.immediate()
      case "raise":
        throw new Application("the application's own error")
      case "pause":
        return onPause()
      case "nested":
        return driver.nested(tx, (inner) => all(inner, step.steps ?? []))
    }
  }
  const all = async (tx: Tx, steps: ReadonlyArray<Step>): Promise<void> => {
    for (const step of steps) {
      try {
        await one(tx, step)
      } catch (error) {
        if (step.swallow !== true) throw error
      }
    }
  }
  return all
}

const endOf = (error: unknown): string =>
  error instanceof Application ? "application" : Option.getOrElse(sqlStateOf(error), () => "none")

const runOne = async <Tx>(
  driver: DriverUnderTest<Tx>,
  { steps, transaction }: Request,
  attempt: Attempt,
  onPause: () => Promise<void>
): Promise<Result> => {
  const completions: Array<Completion> = []
  try {
    if (transaction === null) {
      const say = statements(driver.autocommit, attempt, completions)
      for (const step of steps) await (step.do === "expect" ? say.expect() : say.complete(step.progress))
    } else {
      const all = interpreter(driver, attempt, completions, onPause)
      await driver.transaction(transaction, (tx) => all(tx, steps))
    }
    return { end: "committed", completions }
  } catch (error) {
    return { end: endOf(error), message: String(error), completions }
  }
}

/** One program for as long as the scope lasts; it opens the driver's pool again when the url changes. */
export const inProcess = <Tx>(
  open: (url: Redacted.Redacted) => Effect.Effect<DriverUnderTest<Tx>, never, Scope.Scope>
): Effect.Effect<Program, never, Scope.Scope> =>
  Effect.gen(function* () {
    let opened:
      { readonly url: string; readonly driver: DriverUnderTest<Tx>; readonly scope: Scope.CloseableScope } | undefined
    const close = async () => {
      if (opened !== undefined) await Effect.runPromise(Scope.close(opened.scope, Exit.void))
      opened = undefined
    }
    yield* Effect.addFinalizer(() => Effect.promise(close))
    const driverOf = async (url: string) => {
      if (opened?.url === url) return opened.driver
      await close()
      const scope = await Effect.runPromise(Scope.make())
      const driver = await Effect.runPromise(Scope.extend(open(Redacted.make(url)), scope))
      opened = { url, driver, scope }
      return driver
    }
    return {
      run: async (request, onPause) => {
        const driver = await driverOf(request.url)
        const results: Array<Result> = []
        const startedAt = performance.now()
        for (const attempt of request.attempts) results.push(await runOne(driver, request, attempt, onPause))
        return { results, micros: (performance.now() - startedAt) * 1000 }
      }
    }
  })
