/** Processes of the generations: started, listened to, killed, and waited for. */
import { Deferred, Effect, Schema } from "effect"
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import type { Generation } from "./generations.js"
import { Settings } from "./jobs.js"

export interface Process {
  readonly name: string
  readonly generation: Generation
  readonly said: ReadonlyArray<string>
  readonly ready: Effect.Effect<void, Error>
  /** As a crash. */
  readonly kill: Effect.Effect<void>
  /** As a deploy: waits for its end. */
  readonly stop: Effect.Effect<void>
  /** Its exit code; null when a signal ended it. */
  readonly ended: Effect.Effect<number | null>
}

export interface ProcessOptions {
  readonly does: "work" | "migrate"
  readonly generation: Generation
  readonly name: string
  readonly database: string
}

/** What is left of it when the scope closes is killed. */
export const startProcess = (program: string, options: ProcessOptions) =>
  Effect.gen(function* () {
    const exited = yield* Deferred.make<number | null>()
    const told = yield* Effect.orDie(Schema.encode(Settings)(options))
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const started = spawn(process.execPath, [program], { env: { CHILD: told }, stdio: ["ignore", "pipe", "pipe"] })
        started.once("close", (code) => Deferred.unsafeDone(exited, Effect.succeed(code)))
        return started
      }),
      (started) =>
        Effect.zipRight(
          Effect.sync(() => started.kill("SIGKILL")),
          Deferred.await(exited)
        )
    )
    const said: Array<string> = []
    for (const output of [child.stdout, child.stderr]) createInterface(output).on("line", (line) => said.push(line))
    const ended = Deferred.await(exited)
    const heard = Effect.sync(() => said.some((line) => line.includes('"ready"'))).pipe(
      Effect.delay("10 millis"),
      Effect.repeat({ until: (is) => is }),
      Effect.raceFirst(Effect.flatMap(ended, () => Effect.fail(new Error("it ended")))),
      Effect.timeoutFail({ duration: "30 seconds", onTimeout: () => new Error("it never was ready") }),
      Effect.mapError(({ message }) => new Error(`${options.name}: ${message}\n${said.join("\n")}`))
    )
    const signal = (name: NodeJS.Signals) =>
      Effect.zipRight(
        Effect.sync(() => child.kill(name)),
        Effect.asVoid(ended)
      )
    const { generation, name } = options
    return {
      name,
      generation,
      said,
      ready: Effect.asVoid(heard),
      kill: signal("SIGKILL"),
      stop: signal("SIGTERM"),
      ended
    } satisfies Process
  })
