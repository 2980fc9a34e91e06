/**
 * Worker processes as tests need them: started, listened to, signalled, and waited for.
 */
import { SqlClient } from "@effect/sql"
import { type FaultProxy, TestDatabase } from "effect-awa/testing"
import { Context, Deferred, Effect, Layer, Option, Redacted, Schema } from "effect"
import { build } from "esbuild"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { createInterface } from "node:readline"
import { eventually } from "../runtime/support.js"
import { Settings } from "./jobs.js"

/** A line of Effect's JSON logger. */
const Line = Schema.parseJson(
  Schema.Struct({
    message: Schema.Union(Schema.String, Schema.Array(Schema.Unknown)),
    cause: Schema.optional(Schema.String)
  })
)

const readLine = (line: string): string =>
  Option.match(Schema.decodeUnknownOption(Line)(line), {
    onNone: () => line,
    onSome: ({ cause = "", message }) => `${[message].flat().map(String).join(" ")} ${cause}`
  })

/** How a process ended: by itself, with a code, or by a signal. */
export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

export interface Child {
  readonly pid: number
  /** What it has said, oldest first. */
  readonly said: ReadonlyArray<string>
  /** Waits until it has said a line that contains this. Fails when it ends without. */
  readonly hears: (text: string) => Effect.Effect<void, Error>
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Ends its standard input. */
  readonly endInput: Effect.Effect<void>
  readonly ended: Effect.Effect<Ended, Error>
}

/** The compiled program: a compiler in each child would take most of the time. */
export class Program extends Context.Tag("test/Program")<Program, string>() {
  static readonly layer = Layer.scoped(
    Program,
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "effect-awa-life-"))),
        (made) => Effect.sync(() => Fs.rmSync(made, { recursive: true, force: true }))
      )
      const outfile = Path.join(folder, "worker.cjs")
      yield* Effect.promise(() =>
        build({
          entryPoints: [Path.join(import.meta.dirname, "worker.child.ts")],
          outfile,
          bundle: true,
          platform: "node",
          conditions: ["@effect-awa/source"],
          logLevel: "error"
        })
      )
      return outfile
    })
  )
}

type StartOptions = Partial<Omit<typeof Settings.Type, "database" | "application">> & {
  readonly nodeOptions?: ReadonlyArray<string>
  /** What is between the worker and the database, for its own pool and for the application's. */
  readonly proxies?: {
    readonly runtime?: FaultProxy.FaultProxy["Type"]
    readonly application?: FaultProxy.FaultProxy["Type"]
  }
}

const defaults = {
  name: "child",
  concurrency: 10,
  beat: 250,
  staleness: 1_500,
  shutdownGrace: 300,
  interruptGrace: 5_000,
  shutdownDeadline: 30_000,
  applicationTransaction: 5_000,
  drainOnEnd: false
}

/** A worker process on the test's database. What is left of it when the scope closes is killed. */
export const start = Effect.fnUntraced(function* ({ nodeOptions = [], proxies = {}, ...settings }: StartOptions = {}) {
  const program = yield* Program
  const { url } = yield* TestDatabase.TestDatabase
  const through = (proxy: FaultProxy.FaultProxy["Type"] | undefined) =>
    Effect.map(proxy === undefined ? Effect.succeed(url) : proxy.through(url), Redacted.value)
  const told = yield* Schema.encode(Settings)({
    ...defaults,
    database: yield* through(proxies.runtime),
    application: yield* through(proxies.application),
    ...settings
  })
  const exited = yield* Deferred.make<Ended>()
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const started = spawn(process.execPath, [...nodeOptions, program], { env: { CHILD: told }, stdio: "pipe" })
      started.once("close", (code, signal) => Deferred.unsafeDone(exited, Effect.succeed({ code, signal })))
      return started
    }),
    (started) =>
      Effect.zipRight(
        Effect.sync(() => started.kill("SIGKILL")),
        Deferred.await(exited)
      )
  )
  const said: Array<string> = []
  for (const output of [child.stdout, child.stderr]) {
    createInterface(output).on("line", (line) => said.push(readLine(line)))
  }
  const toEnd = Deferred.await(exited)
  const wait = <A>(what: string, effect: Effect.Effect<A, Error>) =>
    effect.pipe(
      Effect.timeoutFail({ duration: "45 seconds", onTimeout: () => new Error("it went on") }),
      Effect.mapError(({ message }) => new Error(`${what} never came, ${message}. It said:\n${said.join("\n")}`))
    )
  return {
    pid: child.pid ?? 0,
    said,
    hears: (text) =>
      wait(
        `"${text}"`,
        Effect.raceFirst(
          Effect.repeat(
            Effect.delay(
              Effect.sync(() => said.some((line) => line.includes(text))),
              "5 millis"
            ),
            { until: (heard) => heard }
          ),
          // what it said last is read after its end
          Effect.zipRight(Effect.delay(toEnd, "100 millis"), Effect.fail(new Error("it ended")))
        )
      ).pipe(Effect.asVoid),
    signal: (signal) => Effect.sync(() => void child.kill(signal)),
    endInput: Effect.sync(() => child.stdin.end()),
    ended: wait("its end", toEnd)
  } satisfies Child
})

/** One job as the operators' view shows it. */
export const jobOf = (id: bigint) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.flatMap(
      sql`select state, attempt, run_lease::text as lease, coalesce(errors, '[]') as errors, progress from awa.jobs
        where job_id = ${String(id)}`,
      ([row]) => Schema.decodeUnknown(JobState)(row)
    )
  )

const JobState = Schema.Struct({
  state: Schema.String,
  attempt: Schema.Number,
  lease: Schema.String,
  progress: Schema.Unknown,
  errors: Schema.Array(
    Schema.Struct({
      outcome: Schema.String,
      abandoned: Schema.optional(Schema.Number),
      error: Schema.Struct({ name: Schema.String, message: Schema.String })
    })
  )
})

/** Waits until the job is in this state, and answers how it stands. */
export const jobBecomes = (id: bigint, state: string) =>
  Effect.zipRight(
    eventually(
      `job ${id} ${state}`,
      Effect.map(jobOf(id), (job) => job.state === state)
    ),
    jobOf(id)
  )

/** How the job's attempts have ended, oldest first. */
export const outcomesOf = (id: bigint) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ outcome: string }>`select outcome from awa.attempts where job_id = ${String(id)} order by run_lease`,
      (rows) => rows.map(({ outcome }) => outcome)
    )
  )
