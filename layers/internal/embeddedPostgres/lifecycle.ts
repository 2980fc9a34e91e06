/**
 * The server over its whole life: at most one process at a time, always on the same port, none left behind.
 */
import { createServer } from "node:net"
import type { FileSystem, Path } from "@effect/platform"
import type { Duration } from "effect"
import { Clock, Deferred, Effect, Option, Ref, Schedule } from "effect"
import { host } from "./cluster.js"
import { EmbeddedPostgresError } from "./errors.js"
import type { Installation, PortTaken, ServerProcess, ShutdownMode } from "./serverProcess.js"
import { end, start } from "./serverProcess.js"

/** A port the system considers free; another process may still take it first. */
const freePort = Effect.async<number, EmbeddedPostgresError>((resume) => {
  const probe = createServer()
  probe.once("error", (cause) =>
    resume(new EmbeddedPostgresError({ phase: "start", message: "No free port found", cause }))
  )
  probe.listen(0, host, () => {
    const address = probe.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    probe.close(() => resume(Effect.succeed(port)))
  })
})

const giveUp = ({ log, port }: PortTaken) =>
  new EmbeddedPostgresError({ phase: "start", message: `Port ${port} is taken`, log })

const alive = (server: Option.Option<ServerProcess>) =>
  Option.match(server, {
    onNone: () => Effect.succeedNone,
    onSome: (process) => Effect.map(Deferred.isDone(process.exited), (done) => (done ? Option.none() : server))
  })

/** Starts the server on a free port; it is stopped when the scope closes. */
export const make = (
  installation: Installation,
  patience: { readonly start: Duration.Duration; readonly stop: Duration.Duration }
) =>
  Effect.gen(function* () {
    const lock = yield* Effect.makeSemaphore(1)
    const current = yield* Ref.make(Option.none<ServerProcess>())
    // Also under a test's clock the server takes real time.
    const context = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
    const exclusively = <A, E>(effect: Effect.Effect<A, E, FileSystem.FileSystem | Path.Path>) =>
      effect.pipe(lock.withPermits(1), Effect.withClock(Clock.make()), Effect.provide(context))
    const running = Effect.flatMap(Ref.get(current), alive)

    const stop = (mode: ShutdownMode) =>
      Effect.flatMap(
        running,
        Option.match({ onNone: () => Effect.void, onSome: (server) => end(server, mode, patience.stop) })
      )
    const startOn = (port: number) =>
      start(installation, {
        port,
        patience: patience.start,
        register: (server) => Ref.set(current, Option.some(server))
      })
    yield* Effect.addFinalizer(() => exclusively(stop("fast")))

    const port = yield* Effect.flatMap(freePort, (port) => Effect.as(startOn(port), port)).pipe(
      Effect.retry({ times: 5, while: (error) => error._tag === "PortTaken" }),
      Effect.catchTag("PortTaken", (taken) => giveUp(taken)),
      exclusively
    )
    // While it was down, the port may have served as the local end of somebody's connection for a moment.
    const startAgain = startOn(port).pipe(
      Effect.retry({
        times: 50,
        schedule: Schedule.spaced("100 millis"),
        while: (error) => error._tag === "PortTaken"
      }),
      Effect.catchTag("PortTaken", (taken) => giveUp(taken))
    )
    const startUnlessRunning = Effect.flatMap(running, (server) => (Option.isSome(server) ? Effect.void : startAgain))

    return {
      port,
      pid: Effect.map(
        running,
        Option.map(({ pid }) => pid)
      ),
      stop: (mode: ShutdownMode) => exclusively(stop(mode)),
      start: exclusively(startUnlessRunning),
      restart: (mode: ShutdownMode) => exclusively(Effect.zipRight(stop(mode), startUnlessRunning))
    }
  })
