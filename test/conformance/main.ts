/**
 * The cases of `cases.json` with every driver, in its own transactions, against a real server:
 *
 *     npm run conformance
 *     npm run conformance -- --driver psycopg --driver pgx
 *     npm run conformance -- --short           every TypeScript driver, and some of each other language
 *     npm run conformance -- --bench           what the functions cost, against the same transaction without them
 *
 * Exits with 1 on a cell that is not as its case says. What is skipped is printed; with `--strict` it is a failure.
 */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect, Redacted, type Scope } from "effect"
import * as Fs from "node:fs"
import { parseArgs } from "node:util"
import { settings } from "../tools/globalSetup.js"
import { findPgBouncer, makePgBouncer } from "../poolers/pgbouncer.js"
import { bench } from "./bench.js"
import { type Case, cases } from "./cases.js"
import { type Cell, runCell } from "./cell.js"
import { build, type DriverEntry, drivers, missing } from "./drivers.js"
import type { Program } from "./program.js"
import { makeWorld, type World } from "./world.js"

const { values } = parseArgs({
  options: {
    driver: { type: "string", multiple: true },
    language: { type: "string", multiple: true },
    case: { type: "string" },
    short: { type: "boolean", default: false },
    bench: { type: "boolean", default: false },
    strict: { type: "boolean", default: false },
    transactions: { type: "string", default: "300" },
    rounds: { type: "string", default: "5" }
  }
})

const unknown = (values.driver ?? []).filter((name) => !drivers.some((driver) => driver.name === name))
if (unknown.length > 0)
  throw new Error(`no such driver: ${unknown.join(", ")}; ${drivers.map((d) => d.name).join(", ")}`)

const wanted = drivers.filter(
  ({ language, name, short }) =>
    (values.driver?.includes(name) ?? (short || !values.short)) && (values.language?.includes(language) ?? true)
)
const chosenCases = cases.filter(({ name }) => values.case === undefined || name.includes(values.case))

const skipped: Array<string> = []
const skip = (what: string) => {
  skipped.push(what)
  console.log(`SKIPPED  ${what}`)
}

const server = Effect.gen(function* () {
  const given = process.env["AWA_TEST_DATABASE_URL"]
  if (given !== undefined && given !== "") return given
  return Redacted.value((yield* make({ settings })).url("postgres"))
})

const excepted = (driver: DriverEntry, of: Case): Case => {
  const exception = driver.exceptions[of.name]
  const [first, ...others] = exception?.ends ?? []
  return first === undefined ? of : { ...of, ends: [first, ...others] }
}

const behindPooler = (driver: DriverEntry, program: Program, world: World) =>
  Effect.gen(function* () {
    if (driver.noPooler !== undefined) {
      skip(`${driver.name} behind a pooler: ${driver.noPooler}`)
      return []
    }
    // one server connection: whatever a driver leaves in a session is met by the next one
    const pooler = yield* makePgBouncer({
      server: world.url,
      mode: "transaction",
      settings: { default_pool_size: "1" }
    })
    const url = pooler.through(world.url)
    const twice = chosenCases.filter(({ pooler }) => pooler).flatMap((of) => [of, of])
    return yield* Effect.forEach(twice, (of, i) =>
      Effect.zipRight(
        // the second time behind another server connection: what was prepared by name is not there
        i % 2 === 0 ? Effect.void : pooler.command("reconnect"),
        runCell(program, world, excepted(driver, of), { name: `pooler ${i % 2 === 0 ? "" : "again "}${of.name}`, url })
      )
    )
  }).pipe(Effect.scoped)

const runDriver = (url: string, driver: DriverEntry) =>
  Effect.gen(function* () {
    const world = yield* makeWorld(url, driver.name)
    const program = yield* driver.start
    const startedAt = performance.now()
    const direct = yield* Effect.forEach(chosenCases, (of) => runCell(program, world, excepted(driver, of)))
    const pooled = findPgBouncer() === undefined ? [] : yield* behindPooler(driver, program, world)
    const cells = [...direct, ...pooled]
    for (const { faults, name } of cells) {
      for (const fault of faults) console.log(`FAILED   ${driver.name}: ${name}: ${fault}`)
    }
    const failed = cells.filter(({ faults }) => faults.length > 0).length
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    console.log(
      `${failed === 0 ? "passed" : "FAILED"}   ${driver.name}: ${cells.length - failed} of ${cells.length} cells, ${seconds} s`
    )
    return { driver: driver.name, cells }
  }).pipe(Effect.scoped)

const table = (results: ReadonlyArray<{ readonly driver: string; readonly cells: ReadonlyArray<Cell> }>): string => {
  const names = [...new Set(results.flatMap(({ cells }) => cells.map(({ name }) => name)))]
  const row = (cells: ReadonlyArray<string>) => `| ${cells.join(" | ")} |`
  const ends = (name: string) =>
    results.map(({ cells }) => {
      const cell = cells.find((cell) => cell.name === name)
      return cell === undefined ? "" : cell.faults.length > 0 ? "**FAILED**" : cell.end
    })
  return [
    row(["case", ...results.map(({ driver }) => driver)]),
    row(["---", ...results.map(() => "---")]),
    ...names.map((name) => row([name, ...ends(name)]))
  ].join("\n")
}

const program: Effect.Effect<boolean, unknown, Scope.Scope> = Effect.gen(function* () {
  const url = yield* server
  if (findPgBouncer() === undefined)
    skip("every driver behind a pooler in transaction mode: pgbouncer is not installed")
  const ready: Array<DriverEntry> = []
  for (const language of new Set(wanted.map(({ language }) => language))) {
    const own = wanted.filter((driver) => driver.language === language)
    const tool = missing(language)
    if (tool === undefined) {
      build(language, own)
      ready.push(...own)
    } else {
      skip(`${own.map(({ name }) => name).join(", ")}: ${tool} is missing`)
    }
  }
  if (values.bench) {
    yield* Effect.forEach(ready, (driver) =>
      bench(url, driver, { transactions: Number(values.transactions), rounds: Number(values.rounds) })
    )
    return true
  }
  const results = yield* Effect.forEach(ready, (driver) => runDriver(url, driver))
  Fs.mkdirSync(".tmp", { recursive: true })
  Fs.writeFileSync(".tmp/conformance.md", `${table(results)}\n`)
  const cells = results.flatMap(({ cells }) => cells)
  const failed = cells.filter(({ faults }) => faults.length > 0).length
  console.log(
    `${results.length} drivers, ${chosenCases.length} cases: ${cells.length - failed} cells as said, ${failed} not, ${skipped.length} skips; .tmp/conformance.md`
  )
  return failed === 0 && cells.length > 0 && (skipped.length === 0 || !values.strict)
})

process.exitCode = (await Effect.runPromise(Effect.scoped(program))) ? 0 : 1
