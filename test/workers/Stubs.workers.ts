/** What `awa kinds stubs` writes, in a program of its language: it enqueues what the database accepts, and completes it. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Path from "node:path"
import { inject } from "vitest"
import { awaHere } from "../cli/support.js"
import { world } from "./support.js"

const here = import.meta.dirname
const scratch = Path.join(here, "../../.tmp/workers")

const folder = Effect.acquireRelease(
  Effect.sync(() => Fs.mkdtempSync(Path.join(scratch, "stubs-"))),
  (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

/** Kinds registered in a database of their own, and stubs of them in a folder. */
const generated = (lang: string, under: string) =>
  Effect.gen(function* () {
    const { admin, url } = yield* world
    const root = yield* folder
    const [kinds, out] = [Path.join(root, "kinds"), Path.join(root, under)]
    for (const args of [
      ["export", "--from", Path.join(here, "jobs.ts"), "--out", kinds],
      ["register", "--from", kinds],
      ["stubs", "--from", kinds, "--lang", lang, "--out", out]
    ]) {
      expect(yield* awaHere(["kinds", ...args], { AWA_DATABASE_URL: url })).toMatchObject({ code: 0, stderr: "" })
    }
    const run = (command: string, ...args: ReadonlyArray<string>) =>
      Effect.sync(() => {
        const env = { ...process.env, DATABASE_URL: url, PYTHONDONTWRITEBYTECODE: "1", PYTHONPATH: out }
        const { stderr, stdout } = ChildProcess.spawnSync(command, [...args], { cwd: root, env, encoding: "utf8" })
        return { stdout, stderr }
      })
    return { admin, root, run }
  })

/** Each kind, which of the enqueued jobs it was, and the attempts that its definition gives it. */
const done = { stdout: "book 0 7\norder/v2 1 25\nping 2 25\n", stderr: "" }

const completed = [{ state: "completed" }, { state: "completed" }, { state: "completed" }]

const { goWorker, python } = inject("toolchains")

describe.skipIf(python === undefined)("stubs in Python", () => {
  it.scopedLive("enqueue in the caller's transaction, and complete what they claim", () =>
    Effect.gen(function* () {
      const { admin, run } = yield* generated("python", "python")
      expect(yield* run(python ?? "", Path.join(here, "stubs/check.py"))).toEqual(done)
      expect(yield* admin.rows("select state from awa.jobs")).toEqual(completed)
    })
  )
})

describe.skipIf(goWorker === undefined)("stubs in Go", () => {
  it.scopedLive("compile, enqueue in the caller's transaction, and complete what they claim", () =>
    Effect.gen(function* () {
      const { admin, root, run } = yield* generated("go", "jobs")
      for (const name of ["go.mod", "go.sum"]) {
        Fs.copyFileSync(Path.join(here, "../../examples/workers/go", name), Path.join(root, name))
      }
      Fs.copyFileSync(Path.join(here, "stubs/check.go.txt"), Path.join(root, "main.go"))
      expect(yield* run("gofmt", "-l", ".")).toEqual({ stdout: "", stderr: "" })
      expect(yield* run("go", "vet", "./...")).toEqual({ stdout: "", stderr: "" })
      expect(yield* run("go", "run", ".")).toEqual(done)
      expect(yield* admin.rows("select state from awa.jobs")).toEqual(completed)
    })
  )
})
