/**
 * The tests that are marked `[matrix]`, in combinations of what an installation may meet: see dimensions.ts. Pairwise unless all
 * combinations are asked for.
 *
 *     npm run test:matrix
 *     npm run test:matrix -- --full
 *     npm run test:matrix -- --only "major=15, profile=strict" --cells 3
 *     npm run test:matrix -- --jobs 2
 */
import { NodeRuntime } from "@effect/platform-node"
import { Effect } from "effect"
import { parseArgs } from "node:util"
import { findPgBouncer } from "../poolers/pgbouncer.js"
import { type Cell, dimensions, nameOf, product } from "./dimensions.js"
import { pairsOf, pairwise } from "./pairwise.js"
import { type Result, runCell, taggedFiles } from "./runCell.js"
import { serverOf } from "./servers.js"

const { values } = parseArgs({
  options: {
    full: { type: "boolean", default: false },
    cells: { type: "string" },
    only: { type: "string", default: "" },
    jobs: { type: "string", default: "1" }
  }
})

const count = (option: string, value: string): number => {
  if (!/^[1-9][0-9]{0,3}$/.test(value)) throw new Error(`--${option}: expected a positive number, not ${value}`)
  return Number(value)
}

/** `major=15, profile=strict`: the values that a cell must have. */
const conditions = values.only
  .split(",")
  .map((condition) => condition.trim())
  .filter((condition) => condition !== "")
const known = new Set(Object.entries(dimensions).flatMap(([name, all]) => all.map((value) => `${name}=${value}`)))
for (const condition of conditions) {
  if (!known.has(condition)) throw new Error(`--only ${condition}: expected one of ${[...known].join(", ")}`)
}
const matches = (cell: Cell) => {
  const own = nameOf(cell).split(", ")
  return conditions.every((condition) => own.includes(condition))
}

// What is asked for is first narrowed and then covered: `--only` never leaves a pair of the rest out.
const wanted = product.filter(matches)
const cells = (values.full ? wanted : pairwise(wanted)).slice(
  0,
  values.cells === undefined ? undefined : count("cells", values.cells)
)
const pairs = new Set(cells.flatMap(pairsOf)).size
console.log(`${cells.length} of ${product.length} cells, ${pairs} of ${new Set(product.flatMap(pairsOf)).size} pairs`)

const installed = findPgBouncer() !== undefined
const mustHavePooler = ![undefined, "", "0", "false"].includes(process.env["CI"])
if (!installed) console.log("pgbouncer is not installed: apt-get install -y pgbouncer")

const files = taggedFiles()

const inOrder = dimensions.major.map((major) => cells.filter((cell) => cell.major === major))

const report = ({ cell, failed, outcome, passed, said, seconds }: Result): void => {
  const counts = `${passed} passed, ${failed} failed`
  console.log(`${outcome.padEnd(7)}  ${nameOf(cell)}  ${counts}  ${seconds.toFixed(1)} s`)
  if (said !== "") console.log(said)
}

const skipped = (cell: Cell): Result => ({
  cell,
  outcome: mustHavePooler ? "FAILED" : "SKIPPED",
  passed: 0,
  failed: 0,
  seconds: 0,
  said: "no pgbouncer"
})

/** One server and one pooler of each mode for all cells of a major. */
const runMajor = (own: ReadonlyArray<Cell>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const [first] = own
      if (first === undefined) return []
      const poolers = installed ? own.map(({ pooler }) => pooler) : []
      const server = yield* serverOf(first.major, new Set(poolers))
      return yield* Effect.forEach(
        own,
        (cell) =>
          (cell.pooler !== "none" && !installed
            ? Effect.succeed(skipped(cell))
            : runCell(cell, { server: server.url, pooler: server.poolers.get(cell.pooler) }, files)
          ).pipe(Effect.tap((result) => Effect.sync(() => report(result)))),
        { concurrency: count("jobs", values.jobs) }
      )
    })
  )

const program = Effect.gen(function* () {
  const startedAt = performance.now()
  const results = (yield* Effect.forEach(inOrder, runMajor)).flat()
  const bad = results.filter(({ outcome }) => outcome === "FAILED")
  const longest = Math.max(0, ...results.map(({ seconds }) => seconds)).toFixed(1)
  const minutes = ((performance.now() - startedAt) / 60_000).toFixed(1)
  console.log(
    `${results.length - bad.length} of ${results.length} cells without a failure; ${minutes} minutes, the longest cell ${longest} s`
  )
  for (const { cell } of bad) console.log(`FAILED  ${nameOf(cell)}`)
  if (results.length === 0) console.log("FAILED  no cell was run")
  process.exitCode = bad.length > 0 || results.length === 0 ? 1 : 0
})

NodeRuntime.runMain(program)
