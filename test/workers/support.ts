/** A database with an application's tables, a proxy before it, and worker processes of the examples that are led through it. */
import { Duration, Effect, Redacted, type Scope } from "effect"
import * as Migrations from "effect-awa/Migrations"
import { FaultProxy } from "effect-awa/testing"
import * as ChildProcess from "node:child_process"
import * as Path from "node:path"
import { inject } from "vitest"
import { freshDatabase, type Session } from "../migrations/support.js"
import type { Toolchains } from "./toolchains.js"

declare module "vitest" {
  // The merged interface is vitest's.
  export interface ProvidedContext {
    readonly toolchains: Toolchains
  }
}

const root = Path.join(import.meta.dirname, "../..")

/** How each language's worker is started, where it can be. */
export const workers = (): Readonly<Record<string, ReadonlyArray<string> | undefined>> => {
  const { goWorker, python } = inject("toolchains")
  return {
    Python: python === undefined ? undefined : [python, Path.join(root, "examples/workers/python/worker.py")],
    Go: goWorker === undefined ? undefined : [goWorker]
  }
}

export interface WorkerProcess {
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<number | null>
  /** What it has printed. */
  readonly output: () => string
}

/** Waits until it is so, or dies saying what never was. */
export const until = <E, R>(what: () => string, met: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  met.pipe(
    Effect.delay("25 millis"),
    Effect.repeat({ until: (met) => met }),
    Effect.timeoutOption(Duration.seconds(45)),
    Effect.flatMap((ended) => (ended._tag === "Some" ? Effect.void : Effect.dieMessage(`never came: ${what()}`)))
  )

export const spawnProcess = (
  command: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>
): Effect.Effect<WorkerProcess, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const [program = "", ...args] = command
      const child = ChildProcess.spawn(program, args, {
        env: { ...process.env, ...env },
        stdio: ["ignore", "pipe", "pipe"]
      })
      let text = ""
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8").on("data", (chunk: string) => (text += chunk))
      }
      const ended = new Promise<number | null>((resolve) => child.once("close", resolve))
      return {
        output: () => text,
        kill: (signal: NodeJS.Signals) =>
          Effect.promise(() => {
            child.kill(signal)
            return ended
          })
      }
    }),
    (worker) => worker.kill("SIGKILL")
  )

export interface World {
  readonly admin: Session
  readonly url: string
  readonly proxy: FaultProxy.FaultProxy["Type"]
  readonly start: (command: ReadonlyArray<string>) => Effect.Effect<WorkerProcess, never, Scope.Scope>
  readonly enqueue: (args: unknown, opts?: unknown) => Effect.Effect<string>
  /** The state of a job, its entries' sum, and what its account has. */
  readonly state: (job: string) => Effect.Effect<unknown>
  readonly booked: Effect.Effect<unknown>
}

/** Two accounts with nothing in them, and one queue. */
export const world: Effect.Effect<World, never, Scope.Scope> = Effect.gen(function* () {
  const { admin, redacted, url } = yield* freshDatabase
  yield* Effect.orDie(Migrations.migrate({ url: redacted, ring: 4 }))
  yield* admin.rows("create table accounts (id bigint primary key, balance bigint not null)")
  yield* admin.rows("create table entries (job_id bigint primary key, account bigint not null, amount bigint not null)")
  yield* admin.rows("insert into accounts values (1, 0), (2, 0)")
  const { hostname, port } = new URL(url)
  const proxy = yield* Effect.orDie(FaultProxy.make({ host: hostname, port: Number(port === "" ? "5432" : port) }))
  const through = Redacted.value(yield* Effect.orDie(proxy.through(redacted)))
  return {
    admin,
    url,
    proxy,
    start: (command) => spawnProcess(command, { DATABASE_URL: through, QUEUE: "billing", BEAT_SECONDS: "0.2" }),
    enqueue: (args, opts = {}) =>
      Effect.map(
        admin.rows("select awa.insert_job('book', $1, 'billing', $2)::text as id", [
          JSON.stringify(args),
          JSON.stringify(opts)
        ]),
        ([row]) => String(row?.["id"])
      ),
    state: (job) =>
      Effect.map(admin.rows("select state from awa.jobs where job_id = $1::bigint", [job]), ([row]) => row?.["state"]),
    booked: Effect.map(
      admin.rows(
        "select (select sum(amount) from entries)::int as entries, (select sum(balance) from accounts)::int as balance"
      ),
      ([row]) => row
    )
  }
})
