import base from "./vitest.config.js"
import { findPgBouncer } from "./test/poolers/pgbouncer.js"

// The finalization suites, and the worker as a whole, through a pooler in either mode: `npm run poolers`.
const suites = [
  "test/runtime/{CallerOwned,Release,Interruption,Ordinary,Callbacks}.test.ts",
  "test/pg/{completeJob,completeJobRaces,heartbeat,close}.test.ts"
]
// The adapters' own statements; two of the drivers prepare nothing, the others must not for them.
const drivers = ["test/conformance/ts/*.test.ts"]

const installed = findPgBouncer() !== undefined
const missing = "pgbouncer is not installed: apt-get install -y pgbouncer"
if (!installed && ![undefined, "", "0", "false"].includes(process.env["CI"])) throw new Error(missing)
if (!installed) process.stderr.write(`SKIPPED: nothing is tested through a pooler; ${missing}\n`)

const project = (name: string, include: ReadonlyArray<string>) => ({
  ...base,
  test: { ...base.test, name, include: [...include], globalSetup: ["test/poolers/globalSetup.ts"] }
})

export default {
  ...base,
  test: installed
    ? {
        ...base.test,
        globalSetup: [],
        projects: [
          project("session", suites),
          project("transaction", [...suites, ...drivers, "test/poolers/**/*.poolers.ts"])
        ]
      }
    : { include: [], passWithNoTests: true }
}
