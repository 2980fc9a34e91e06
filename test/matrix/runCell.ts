/** The marked tests in one cell, in a process of their own. */
import { Effect, Option, Schema } from "effect"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { stripVTControlCharacters } from "node:util"
import { type Cell, environmentOf, type Place } from "./dimensions.js"

export interface Result {
  readonly cell: Cell
  readonly outcome: "passed" | "FAILED" | "SKIPPED"
  readonly passed: number
  readonly failed: number
  readonly seconds: number
  /** Why it failed. */
  readonly said: string
}

const root = Path.join(import.meta.dirname, "../..")

/** How the name of a test ends that belongs to the matrix. */
const tag = "[matrix]"

/** The files that have such tests. */
export const taggedFiles = (): ReadonlyArray<string> =>
  Fs.readdirSync(Path.join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".test.ts"))
    .filter((file) => Fs.readFileSync(Path.join(root, "test", file), "utf8").includes(tag))
    .map((file) => Path.posix.join("test", file.replaceAll(Path.sep, "/")))
    .sort()

const Report = Schema.parseJson(
  Schema.Struct({
    testResults: Schema.Array(
      Schema.Struct({
        name: Schema.String,
        message: Schema.String,
        assertionResults: Schema.Array(
          Schema.Struct({
            fullName: Schema.String,
            status: Schema.String,
            failureMessages: Schema.optional(Schema.Array(Schema.String))
          })
        )
      })
    )
  })
)
type Report = typeof Report.Type

const vitest = (environment: NodeJS.ProcessEnv, report: string, files: ReadonlyArray<string>) =>
  Effect.async<string>((resume) => {
    const child = spawn(
      process.execPath,
      [
        "node_modules/vitest/vitest.mjs",
        "run",
        ...files,
        "--testNamePattern",
        tag.replaceAll(/[[\]]/g, "\\$&"),
        "--no-isolate", // the files share no state, and loading the library takes longer than most of them
        "--reporter=default",
        "--reporter=json",
        `--outputFile=${report}`
      ],
      { cwd: root, env: environment, stdio: ["ignore", "pipe", "pipe"] }
    )
    let said = ""
    const note = (chunk: Buffer): void => {
      said = (said + stripVTControlCharacters(chunk.toString())).slice(-20_000)
    }
    child.stdout.on("data", note)
    child.stderr.on("data", note)
    child.once("error", (error) => resume(Effect.succeed(String(error))))
    child.once("close", (code) => resume(Effect.succeed(code === 0 ? "" : `exit ${code}\n${said}`)))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

/** What speaks against the cell: a test that failed, a file without one that passed, an end that no report explains. */
const faultsOf = ({ testResults }: Report, files: ReadonlyArray<string>, exit: string): ReadonlyArray<string> => {
  const failures = testResults.flatMap(({ assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === "failed")
      .map(({ failureMessages, fullName }) => `${fullName}\n${failureMessages?.join("\n").slice(0, 1_500) ?? ""}`)
  )
  const silent = files.filter(
    (file) =>
      !testResults.some(
        ({ assertionResults, name }) =>
          name.endsWith(`/${file}`) && assertionResults.some(({ status }) => status === "passed")
      )
  )
  // of a file that could not be loaded, or whose database could not be made
  const broken = testResults.filter(({ message }) => message !== "")
  const faults = [
    ...failures,
    ...broken.map(({ message, name }) => `${name}: ${message}`),
    ...silent.map((file) => `${file}: no test passed`)
  ]
  // a report says nothing of a hook that failed, nor of an error outside any test
  return exit !== "" && failures.length === 0 ? [...faults, exit.slice(-6_000)] : faults
}

export const runCell = (cell: Cell, place: Place, files: ReadonlyArray<string>): Effect.Effect<Result> =>
  Effect.acquireUseRelease(
    Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "awa-matrix-"))),
    (folder) =>
      Effect.gen(function* () {
        const startedAt = performance.now()
        const file = Path.join(folder, "report.json")
        const exit = yield* vitest({ ...process.env, ...environmentOf(cell, place) }, file, files)
        const seconds = (performance.now() - startedAt) / 1_000
        const report = Option.getOrElse(
          Schema.decodeUnknownOption(Report)(Fs.existsSync(file) ? Fs.readFileSync(file, "utf8") : ""),
          (): Report => ({ testResults: [] })
        )
        const all = report.testResults.flatMap(({ assertionResults }) => assertionResults)
        const passed = all.filter(({ status }) => status === "passed").length
        const failed = all.filter(({ status }) => status === "failed").length
        const faults = faultsOf(report, files, exit)
        return {
          cell,
          outcome: faults.length === 0 ? "passed" : "FAILED",
          passed,
          failed,
          seconds,
          said: faults.map((fault) => `         ${fault.replaceAll("\n", "\n         ")}`).join("\n")
        }
      }),
    (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
  )
