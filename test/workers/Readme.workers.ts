/** The blocks of examples/any-language/README.md, each from an empty folder. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Migrations from "effect-awa/Migrations"
import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { inject } from "vitest"
import { freshDatabase } from "../migrations/support.js"

const examples = Path.join(import.meta.dirname, "../../examples")
const page = Fs.readFileSync(Path.join(examples, "any-language/README.md"), "utf8")

const block = (fence: string): string => {
  const found = page.split(`\n\`\`\`${fence}\n`)[1]?.split("\n```\n")[0]
  if (found === undefined) throw new Error(`the page has no block of ${fence}`)
  return `${found}\n`
}

const folder = Effect.acquireRelease(
  Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "awa-any-language-"))),
  (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

/** Runs one block as a file; then its account must have what its job says, and the job be completed. */
const books = (
  fence: string,
  file: string,
  command: ReadonlyArray<string>,
  prepare: (folder: string) => void = () => {}
) =>
  Effect.gen(function* () {
    const { admin, redacted, url } = yield* freshDatabase
    yield* Migrations.migrate({ url: redacted, ring: 4 })
    yield* admin.script(block("sql setup"))
    const cwd = yield* folder
    Fs.writeFileSync(Path.join(cwd, file), block(fence))
    prepare(cwd)
    const [program = "", ...args] = command
    const env = { ...process.env, DATABASE_URL: url }
    const said = ChildProcess.spawnSync(program, program === "psql" ? [url, ...args] : args, {
      cwd,
      env,
      encoding: "utf8"
    })
    expect([said.status, said.stderr]).toEqual([0, ""])
    expect(yield* admin.rows("select balance::int from accounts")).toEqual([{ balance: 5 }])
    expect(yield* admin.rows("select kind, state from awa.jobs")).toEqual([{ kind: "book", state: "completed" }])
  })

const { goWorker, psql, python } = inject("toolchains")

describe("the ten lines", () => {
  it.scopedLive.skipIf(psql !== true)("in psql", () =>
    books("sql", "book.sql", ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "book.sql"])
  )

  it.scopedLive.skipIf(python === undefined)("in Python", () => books("python", "book.py", [python ?? "", "book.py"]))

  it.scopedLive.skipIf(goWorker === undefined)("in Go", () =>
    books("go", "main.go", ["go", "run", "."], (folder) => {
      for (const name of ["go.mod", "go.sum"]) {
        Fs.copyFileSync(Path.join(examples, "workers/go", name), Path.join(folder, name))
      }
    })
  )
})
