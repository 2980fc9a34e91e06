/**
 * The contract's core on every supported major of PostgreSQL, one server after the other; or the files that are named.
 *
 *     npm run majors
 *     npm run majors -- --majors 15,17 test/pg/halfOpen.test.ts
 */
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Data, Effect, Redacted } from "effect"
import { spawn } from "node:child_process"
import { parseArgs } from "node:util"
import { binariesOf, isMajor, type Major, majors } from "./binaries.js"

const { positionals, values } = parseArgs({ options: { majors: { type: "string" } }, allowPositionals: true })
const wanted = (values.majors ?? process.env["AWA_MAJORS"] ?? majors.join()).split(",").map(Number)
const chosen = wanted.filter(isMajor)
if (chosen.length < wanted.length) throw new Error(`supported majors: ${majors.join(", ")}`)

const settings = { fsync: "off", full_page_writes: "off", max_prepared_transactions: "20" }

/** What depends on the server most; a name that ends with a slash is all of that folder. */
const core = [
  "test/doctor/",
  ...["manifest", "migrate"].map((name) => `test/migrations/${name}.test.ts`),
  "test/privileges/",
  ...[
    "abandoned",
    "callbacks",
    "claim",
    "close",
    "completeJob",
    "completeJobRaces",
    "halfOpen",
    "heartbeat",
    "rescue"
  ].map((name) => `test/pg/${name}.test.ts`),
  ...["CallerOwned", "Interruption", "Release"].map((name) => `test/runtime/${name}.test.ts`)
]

class WrongServer extends Data.TaggedError("WrongServer")<{ readonly version: string }> {}

const tests = (url: string): Effect.Effect<boolean> =>
  Effect.async((resume) => {
    const child = spawn(
      process.execPath,
      [
        "node_modules/vitest/vitest.mjs",
        "run",
        "--testTimeout",
        "180000",
        ...(positionals.length > 0 ? positionals : core)
      ],
      { stdio: "inherit", env: { ...process.env, AWA_TEST_DATABASE_URL: url } }
    )
    child.once("close", (code) => resume(Effect.succeed(code === 0)))
  })

const run = (major: Major) =>
  Effect.scoped(
    Effect.gen(function* () {
      const binaries = binariesOf(major)
      const server = yield* make({ settings, ...(binaries === undefined ? {} : { binaries }) })
      if (!server.version.startsWith(`${major}.`)) return yield* new WrongServer({ version: server.version })
      console.log(`\nPostgreSQL ${server.version}`)
      const startedAt = performance.now()
      const passed = yield* tests(Redacted.value(server.url("postgres")))
      return { major, version: server.version, passed, seconds: Math.round((performance.now() - startedAt) / 1000) }
    })
  )

const results = await Effect.runPromise(Effect.forEach(chosen, run))
for (const { passed, seconds, version } of results) {
  console.log(`${passed ? "passed" : "FAILED"}  PostgreSQL ${version}  ${seconds} s`)
}
process.exitCode = results.every(({ passed }) => passed) ? 0 : 1
