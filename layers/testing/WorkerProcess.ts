/**
 * A worker in a process of its own, so that it can be killed as machines kill processes.
 *
 * @since 0.1.0
 */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import type { Readable } from "node:stream"
import { fileURLToPath } from "node:url"
import type { Scope } from "effect"
import { Deferred, Effect, Option, Schema } from "effect"
import * as ClockSkew from "./ClockSkew.js"

/**
 * The process could not be started, or ended before it was ready. `lastLines` are its last words.
 *
 * @since 0.1.0
 * @category errors
 */
export class WorkerProcessError extends Schema.TaggedError<WorkerProcessError>("effect-awa/WorkerProcessError")(
  "WorkerProcessError",
  { reason: Schema.Literal("NotStarted", "EndedEarly"), detail: Schema.String, lastLines: Schema.Array(Schema.String) }
) {
  override get message(): string {
    return [`The worker process ${this.detail}`, ...this.lastLines].join("\n  ")
  }
}

/**
 * How a process ended, as the operating system says.
 *
 * @since 0.1.0
 * @category models
 */
export interface WorkerExit {
  readonly code: Option.Option<number>
  readonly signal: Option.Option<NodeJS.Signals>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface WorkerProcessOptions {
  /** The program: a file that Node can run. */
  readonly program: string | URL
  readonly args?: ReadonlyArray<string>
  /** Over this process's own environment. */
  readonly env?: Readonly<Record<string, string>>
  /** Node's own options; those of this process unless said otherwise, so that sources run as they do here. */
  readonly execArgv?: ReadonlyArray<string>
  /** How far the process's clock is ahead, in milliseconds; negative: behind. See `ClockSkew`. */
  readonly clockSkewMillis?: number
  /** Which line of its standard output says that it is ready; one that contains the word `ready` unless said otherwise. */
  readonly isReady?: (line: string) => boolean
  /** Is told every line as it comes. */
  readonly onLine?: (line: string, stream: "stdout" | "stderr") => void
}

/**
 * A process that lives at most as long as its scope, and is killed then.
 *
 * @since 0.1.0
 * @category models
 */
export interface WorkerProcess {
  readonly pid: number
  /** Waits until the process has said that it is ready. */
  readonly ready: Effect.Effect<void, WorkerProcessError>
  /** Waits until it has ended. */
  readonly exit: Effect.Effect<WorkerExit>
  readonly isRunning: Effect.Effect<boolean>
  /** Sends a signal, for instance `SIGSTOP` to make it stand still. False when the process has ended. */
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<boolean>
  /** `kill -9`, and waits for the end. Its exit says whether it was this that ended it. */
  readonly kill: Effect.Effect<WorkerExit>
  /** Ends its standard input, which is how it is told to stop, and waits for the end. */
  readonly stop: Effect.Effect<WorkerExit>
  /** The last 1000 lines that it said, on either stream. */
  readonly lines: Effect.Effect<ReadonlyArray<string>>
}

const maxLines = 1_000

const readLines = (stream: Readable, onLine: (line: string) => void): void => {
  createInterface({ input: stream, crlfDelay: Infinity }).on("line", onLine)
}

const launch = (options: WorkerProcessOptions) => {
  const { args = [], clockSkewMillis, env = {}, execArgv = process.execArgv, program } = options
  const skew = clockSkewMillis === undefined ? [] : ClockSkew.execArgv(clockSkewMillis)
  const file = program instanceof URL ? fileURLToPath(program) : program
  return spawn(process.execPath, [...execArgv, ...skew, file, ...args], {
    env: { ...process.env, ...env },
    // its standard input is a pipe that ends with this process in any case
    stdio: ["pipe", "pipe", "pipe"]
  })
}

const describe = ({ code, signal }: WorkerExit): string =>
  Option.match(signal, {
    onSome: (name) => `was ended by ${name}`,
    onNone: () => `ended with ${Option.getOrElse(code, () => "no code")}`
  })

/**
 * Starts a process. It is killed when the scope closes.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { WorkerProcess } from "effect-awa/testing"
 *
 * export const crash = Effect.gen(function* () {
 *   const worker = yield* WorkerProcess.start({ program: new URL("worker.js", import.meta.url) })
 *   yield* worker.ready
 *   return yield* worker.kill
 * }).pipe(Effect.scoped)
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const start = (options: WorkerProcessOptions): Effect.Effect<WorkerProcess, WorkerProcessError, Scope.Scope> =>
  Effect.gen(function* () {
    const { isReady = (line: string) => /\bready\b/.test(line), onLine } = options
    const lines: Array<string> = []
    const ready = yield* Deferred.make<void, WorkerProcessError>()
    const exited = yield* Deferred.make<WorkerExit>()
    const hear = (stream: "stdout" | "stderr") => (line: string) => {
      lines.push(line)
      if (lines.length > maxLines) lines.shift()
      onLine?.(line, stream)
      if (stream === "stdout" && isReady(line)) Deferred.unsafeDone(ready, Effect.void)
    }
    const failure = (reason: "NotStarted" | "EndedEarly", detail: string) =>
      new WorkerProcessError({ reason, detail, lastLines: lines.slice(-20) })
    const child = yield* Effect.acquireRelease(
      Effect.async<ChildProcess, WorkerProcessError>((resume) => {
        const child = launch(options)
        child.once("error", ({ message }) => resume(failure("NotStarted", `could not be started: ${message}`)))
        child.once("spawn", () => resume(Effect.succeed(child)))
        child.stdin.on("error", () => undefined) // it may have ended before it is told to
        readLines(child.stdout, hear("stdout"))
        readLines(child.stderr, hear("stderr"))
        // not "exit": what it said last is to be heard
        child.once("close", (code, signal) => {
          const exit: WorkerExit = { code: Option.fromNullable(code), signal: Option.fromNullable(signal) }
          Deferred.unsafeDone(exited, Effect.succeed(exit))
          Deferred.unsafeDone(
            ready,
            Effect.suspend(() => failure("EndedEarly", describe(exit)))
          )
        })
      }),
      (child) =>
        Effect.zipRight(
          Effect.sync(() => child.kill("SIGKILL")),
          Deferred.await(exited)
        )
    )
    const signal = (name: NodeJS.Signals) => Effect.sync(() => child.kill(name))
    return {
      pid: child.pid ?? -1,
      ready: Deferred.await(ready),
      exit: Deferred.await(exited),
      isRunning: Effect.map(Deferred.isDone(exited), (done) => !done),
      signal,
      kill: Effect.zipRight(signal("SIGKILL"), Deferred.await(exited)),
      stop: Effect.zipRight(
        Effect.sync(() => child.stdin?.end()),
        Deferred.await(exited)
      ),
      lines: Effect.sync(() => [...lines])
    }
  })
