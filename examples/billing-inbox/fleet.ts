/**
 * Worker processes: started, killed and stopped, and listened to.
 */
import { fileURLToPath } from "node:url"
import { Command, FileSystem } from "@effect/platform"
import type { Process } from "@effect/platform/CommandExecutor"
import type { PlatformError } from "@effect/platform/Error"
import { build } from "esbuild"
import { Deferred, Duration, Effect, Fiber, Option, Redacted, Schema, Scope, Stream } from "effect"

/** What a worker says: a line of Effect's JSON logger. */
const Line = Schema.Struct({
  message: Schema.Union(Schema.String, Schema.Array(Schema.Unknown)),
  logLevel: Schema.String,
  cause: Schema.optional(Schema.String),
  annotations: Schema.Record({ key: Schema.String, value: Schema.Unknown })
})

const parseLine = Schema.decodeUnknownOption(Schema.parseJson(Line))

export interface Said extends Schema.Schema.Type<typeof Line> {
  readonly worker: string
}

export class WorkerEnded extends Schema.TaggedError<WorkerEnded>()("WorkerEnded", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

export interface Member {
  readonly name: string
  readonly process: Process
  /** Ends with the worker's output. */
  readonly listener: Fiber.Fiber<void, PlatformError>
  /** Completed when the worker is to stop. */
  readonly stop: Deferred.Deferred<void>
  state: "running" | "killed" | "stopped"
}

export interface FleetOptions {
  readonly runtimeUrl: Redacted.Redacted
  readonly applicationUrl: Redacted.Redacted
  readonly paymentsUrl: string
  readonly schema: string
  readonly atLeastOnce: boolean
}

/** The worker as one file: a storm that starts so many of them cannot wait for a compiler every time. */
const compileWorker = Effect.gen(function* () {
  const files = yield* FileSystem.FileSystem
  const outfile = `${yield* files.makeTempDirectoryScoped({ prefix: "billing-inbox-" })}/worker.cjs`
  yield* Effect.tryPromise({
    try: () =>
      build({
        entryPoints: [fileURLToPath(new URL("worker.ts", import.meta.url))],
        outfile,
        bundle: true,
        platform: "node",
        conditions: ["@effect-awa/source"],
        logLevel: "error"
      }),
    catch: () => new WorkerEnded({ reason: "The worker could not be compiled" })
  })
  return outfile
})

const command = (program: string, name: string, options: FleetOptions, stop: Deferred.Deferred<void>) =>
  Command.make(process.execPath, program).pipe(
    Command.env({
      WORKER_NAME: name,
      AWA_SCHEMA: options.schema,
      AWA_DATABASE_URL: Redacted.value(options.runtimeUrl),
      APPLICATION_DATABASE_URL: Redacted.value(options.applicationUrl),
      PAYMENTS_URL: options.paymentsUrl,
      AT_LEAST_ONCE: String(options.atLeastOnce)
    }),
    // Open until then; a pipe, so that it ends with this process in any case.
    Command.stdin(Stream.drain(Stream.fromEffect(Deferred.await(stop)))),
    Command.stderr("inherit")
  )

/** How long a worker may take to drain. */
const patience = Duration.seconds(30)

/** An empty fleet. What is left of it when the scope closes is killed. */
export const makeFleet = (options: FleetOptions) =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const program = yield* compileWorker
    const members: Array<Member> = []
    const said: Array<Said> = []
    const crash = yield* Deferred.make<never, WorkerEnded>()

    const listen = (name: string, process: Process) =>
      process.stdout.pipe(
        Stream.decodeText(),
        Stream.splitLines,
        Stream.runForEach((text) =>
          Effect.sync(() => {
            const line = parseLine(text)
            if (Option.isSome(line)) said.push({ ...line.value, worker: name })
          })
        )
      )
    /** Why a worker ended that should not have, in its own last words. */
    const failed = ({ name }: Member, how: string) => {
      const words = said.findLast(({ logLevel, worker }) => worker === name && logLevel === "FATAL")
      return new WorkerEnded({ reason: `${name} ${how}${words?.cause === undefined ? "" : `: ${words.cause}`}` })
    }
    const ended = (member: Member) =>
      Effect.zipRight(
        Fiber.await(member.listener),
        Effect.suspend(() =>
          member.state === "running" ? Deferred.fail(crash, failed(member, "ended by itself")) : Effect.void
        )
      )

    const kill = (member: Member) =>
      Effect.suspend(() => {
        member.state = "killed"
        return member.process.kill("SIGKILL")
      })
    const start = Effect.gen(function* () {
      const name = `billing-inbox worker ${String(members.length + 1)}`
      const stop = yield* Deferred.make<void>()
      const process = yield* Command.start(command(program, name, options, stop))
      const listener = yield* Effect.forkScoped(Effect.interruptible(listen(name, process)))
      const member: Member = { name, process, listener, stop, state: "running" }
      members.push(member)
      yield* Effect.addFinalizer(() => Effect.ignore(Effect.whenEffect(kill(member), process.isRunning)))
      yield* Effect.forkScoped(Effect.interruptible(ended(member)))
    }).pipe(Effect.uninterruptible)

    const running = () => members.filter(({ state }) => state === "running")
    const stopped = (member: Member) =>
      Effect.gen(function* () {
        member.state = "stopped"
        yield* Deferred.succeed(member.stop, undefined)
        const code = yield* member.process.exitCode
        yield* Fiber.await(member.listener)
        return code === 0 ? member : yield* failed(member, `stopped with ${String(code)}`)
      }).pipe(Effect.timeoutFail({ duration: patience, onTimeout: () => failed(member, "did not drain") }))

    return {
      /** One more worker. */
      start: Scope.extend(start, scope),
      kill,
      running,
      /** Tells all that run to stop, and waits until they have. */
      stop: Effect.suspend(() => Effect.forEach(running(), stopped, { concurrency: "unbounded" })),
      said: Effect.sync((): ReadonlyArray<Said> => said),
      /** Fails when a worker ends that nobody killed or stopped. */
      crash: Deferred.await(crash)
    }
  })

export type Fleet = Effect.Effect.Success<ReturnType<typeof makeFleet>>
