/**
 * One life of the server process: from spawn to ready, from signal to exit.
 */
import { spawn } from "node:child_process"
import { closeSync, constants, openSync } from "node:fs"
import { FileSystem, Path } from "@effect/platform"
import { Clock, Data, Deferred, Duration, Effect, FiberId, Option } from "effect"
import type { Account } from "./execute.js"
import { EmbeddedPostgresError } from "./errors.js"
import { spawnOptions } from "./execute.js"
import type { Workspace } from "./workspace.js"

/** How to end: `fast` ends sessions and writes a checkpoint, `immediate` is a crash that the next start recovers from. */
export type ShutdownMode = "fast" | "immediate"

/** What a server is started from. */
export interface Installation {
  readonly binaries: string
  readonly workspace: Workspace
  readonly account: Account
}

/** A process that is or was a server. */
export interface ServerProcess {
  readonly pid: number
  readonly exited: Deferred.Deferred<void>
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
}

/** Somebody else has the port. */
export class PortTaken extends Data.TaggedError("PortTaken")<{ readonly port: number; readonly log: string }> {}

/** The end of what was logged from `offset` on. */
const logTail = (log: string, offset: bigint) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const file = yield* fs.open(log)
    const { size } = yield* file.stat
    const limit = 8192n
    yield* file.seek(size - offset > limit ? size - limit : offset, "start")
    const bytes = yield* file.readAlloc(limit)
    return Option.match(bytes, { onNone: () => "", onSome: (read) => new TextDecoder().decode(read) })
  }).pipe(
    Effect.scoped,
    Effect.orElseSucceed(() => "")
  )

/** The first line of the pid file is the server's pid, the eighth becomes `ready`: what `pg_ctl -w` waits for. */
const isReady = (data: string, pid: number) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const lines = (yield* fs.readFileString(path.join(data, "postmaster.pid"))).split("\n")
    return Number(lines[0]) === pid && lines[7]?.trim() === "ready"
  }).pipe(Effect.orElseSucceed(() => false))

/** The settings are a file beside the data: a file that only we wrote, and one that `ALTER SYSTEM` overrules. */
const argumentsFor = ({ workspace }: Installation, port: number) => [
  ...["-D", workspace.data],
  ...["-p", String(port)],
  ...["-c", `config_file=${workspace.settings}`]
]

const launch = (installation: Installation, port: number) =>
  Effect.async<ServerProcess, EmbeddedPostgresError>((resume) => {
    const { account, binaries, workspace } = installation
    const log = openSync(workspace.log, constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW)
    const child = spawn(`${binaries}/bin/postgres`, argumentsFor(installation, port), {
      ...spawnOptions(account, workspace.root),
      stdio: ["ignore", log, log]
    })
    closeSync(log)
    const exited = Deferred.unsafeMake<void>(FiberId.none)
    child.once("exit", () => Deferred.unsafeDone(exited, Effect.void))
    child.once("error", (cause) => resume(new EmbeddedPostgresError({ phase: "start", message: cause.message, cause })))
    child.once("spawn", () => {
      // A program that ends without closing its scope is not kept alive by its server: the watchdog ends that.
      child.unref()
      const kill = (signal: NodeJS.Signals) => Effect.sync(() => void child.kill(signal))
      resume(Effect.succeed({ pid: child.pid ?? -1, exited, kill }))
    })
  })

/** Where the log ends now. */
const logEnd = (log: string) =>
  Effect.flatMap(FileSystem.FileSystem, (fs) => fs.stat(log)).pipe(
    Effect.map(({ size }) => BigInt(size)),
    Effect.orElseSucceed(() => 0n)
  )

/** Asks the process to end and waits until it has, with more force when it does not. */
export const end = (server: ServerProcess, mode: ShutdownMode, patience: Duration.Duration): Effect.Effect<void> => {
  // Finalizers run uninterruptibly, and there a timeout cannot cut what is not explicitly interruptible.
  const exited = Effect.interruptible(Deferred.await(server.exited))
  const within = (signal: NodeJS.Signals) => Effect.timeout(Effect.zipRight(server.kill(signal), exited), patience)
  return within(mode === "fast" ? "SIGINT" : "SIGQUIT").pipe(
    Effect.orElse(() => within("SIGQUIT")),
    Effect.orElse(() => Effect.zipRight(server.kill("SIGKILL"), exited))
  )
}

/**
 * Starts a server and waits until it accepts connections. `register` sees the process before anything can interrupt; a
 * start that fails leaves none.
 */
export const start = (
  installation: Installation,
  options: {
    readonly port: number
    readonly patience: Duration.Duration
    readonly register: (server: ServerProcess) => Effect.Effect<void>
  }
) =>
  Effect.gen(function* () {
    const { patience, port, register } = options
    const { data, log } = installation.workspace
    const offset = yield* logEnd(log)
    const server = yield* Effect.uninterruptible(Effect.tap(launch(installation, port), register))
    const failure = (message: string) =>
      Effect.flatMap(logTail(log, offset), (said) =>
        Effect.fail(
          /could not bind /.test(said)
            ? new PortTaken({ port, log: said })
            : new EmbeddedPostgresError({ phase: "start", message, log: said })
        )
      )
    const deadline = (yield* Clock.currentTimeMillis) + Duration.toMillis(patience)
    while (!(yield* isReady(data, server.pid))) {
      if (yield* Deferred.isDone(server.exited)) return yield* failure("The server ended before it was ready")
      if ((yield* Clock.currentTimeMillis) > deadline) {
        yield* end(server, "immediate", patience)
        return yield* failure(`The server was not ready within ${Duration.format(patience)}`)
      }
      yield* Effect.sleep("20 millis")
    }
    return server
  })
