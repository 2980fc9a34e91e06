/**
 * Sabotages the code, one place at a time, and demands that the named test turns red. A test that stays green under its
 * sabotage proves nothing.
 *
 * `npm run mutants` runs all of them, `npm run mutants -- --short` the ones that cut the contract's core, and
 * `npm run mutants -- <part of a name>…` those that match.
 */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect, Redacted } from "effect"
import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { type Mutant, mutants } from "../mutants.js"

const root = Path.join(import.meta.dirname, "../..")
const copied = [
  "src",
  "schema",
  "layers",
  "examples",
  "test",
  "package.json",
  "tsconfig.json",
  "vitest.config.ts",
  "vitest.life.config.ts",
  "vitest.poolers.config.ts",
  "vitest.workers.config.ts"
]

const workspace = Effect.acquireRelease(
  Effect.sync(() => {
    const folder = Fs.mkdtempSync(Path.join(Os.tmpdir(), "effect-awa-mutants-"))
    for (const name of copied) Fs.cpSync(Path.join(root, name), Path.join(folder, name), { recursive: true })
    Fs.symlinkSync(Path.join(root, "node_modules"), Path.join(folder, "node_modules"))
    return folder
  }),
  (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

const node = (folder: string, args: ReadonlyArray<string>, env: NodeJS.ProcessEnv = process.env) =>
  spawnSync(process.execPath, args, { cwd: folder, env, encoding: "utf8", timeout: 240_000 })

const embedSchema = (folder: string): void => {
  node(folder, ["--import", "tsx", "test/tools/schemaText.ts", "--write"])
}

/** Whether the named test passed. A run without that test, or one that could not load it, is neither. */
const runTest = (folder: string, mutant: Mutant, url: string): "passed" | "failed" | "missing" => {
  const report = Path.join(folder, "report.json")
  Fs.rmSync(report, { force: true })
  node(
    folder,
    [
      "node_modules/vitest/vitest.mjs",
      "run",
      ...(mutant.suite.endsWith(".life.ts") ? ["--config", "vitest.life.config.ts"] : []),
      mutant.suite,
      ...(mutant.config === undefined ? [] : ["--config", mutant.config]),
      "-t",
      mutant.test.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"),
      "--reporter=json",
      `--outputFile=${report}`
    ],
    { AWA_MODEL_SEQUENCES: "2000", ...process.env, ...mutant.env, AWA_TEST_DATABASE_URL: url }
  )
  if (!Fs.existsSync(report)) return "missing"
  const text = Fs.readFileSync(report, "utf8")
  const statuses = [...text.matchAll(/"status":"(passed|failed)","title"/g)].map(([, status]) => status)
  if (statuses.length === 0) return "missing"
  return statuses.includes("failed") ? "failed" : "passed"
}

const sabotage = (folder: string, mutant: Mutant, url: string): string | undefined => {
  const file = Path.join(folder, mutant.file)
  const original = Fs.readFileSync(file, "utf8")
  if (original.split(mutant.from).length !== 2) return `the text to replace is not found once in ${mutant.file}`
  try {
    Fs.writeFileSync(
      file,
      original.replace(mutant.from, () => mutant.to)
    )
    if (mutant.file.startsWith("schema/")) embedSchema(folder)
    const outcome = runTest(folder, mutant, url)
    return outcome === "failed"
      ? undefined
      : `the test ${outcome === "passed" ? "stayed green" : "did not run"}: ${mutant.test}`
  } finally {
    Fs.writeFileSync(file, original)
    if (mutant.file.startsWith("schema/")) embedSchema(folder)
  }
}

const arguments_ = process.argv.slice(2)
const words = arguments_.filter((word) => !word.startsWith("--"))
const chosen = mutants.filter((mutant) =>
  words.length > 0
    ? words.some((word) => mutant.name.includes(word))
    : !arguments_.includes("--short") || mutant.core === true
)

const program = Effect.gen(function* () {
  const folder = yield* workspace
  const server = yield* make({
    settings: { fsync: "off", full_page_writes: "off", max_connections: "200", max_prepared_transactions: "20" }
  })
  const url = Redacted.value(server.url("postgres"))
  let survivors = 0
  const green = new Map<string, string>()
  for (const mutant of chosen) {
    // first whether it is green as it stands: a red test would count every sabotage as caught
    const key = `${mutant.suite} ${mutant.test} ${JSON.stringify(mutant.env)}`
    const before = green.get(key) ?? runTest(folder, mutant, url)
    green.set(key, before)
    const fault =
      before === "passed" ? sabotage(folder, mutant, url) : `its test is ${before} without the sabotage: ${mutant.test}`
    if (fault !== undefined) survivors++
    console.log(fault === undefined ? `caught    ${mutant.name}` : `SURVIVED  ${mutant.name}\n          ${fault}`)
  }
  console.log(`${chosen.length - survivors} of ${chosen.length} sabotages caught`)
  return survivors
})

process.exitCode = (await Effect.runPromise(Effect.scoped(program))) === 0 ? 0 : 1
