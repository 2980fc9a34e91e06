import { NodeContext } from "@effect/platform-node"
import { run } from "effect-awa/cli/awa"
import { ConfigProvider, Console, Effect, Exit, Layer } from "effect"
import * as ChildProcess from "node:child_process"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"

const root = Path.resolve(Path.dirname(fileURLToPath(import.meta.url)), "../..")

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs the command in a process of its own, from source, with the given environment and nothing of ours beside it. */
export const awa = (args: ReadonlyArray<string>, env: Record<string, string> = {}): Effect.Effect<Ended> =>
  Effect.async((resume) => {
    const child = ChildProcess.spawn(
      process.execPath,
      ["--conditions=@effect-awa/source", "--import", "tsx", Path.join(root, "layers/bin/awa.ts"), ...args],
      { cwd: root, env: { PATH: process.env["PATH"], ...env }, stdio: ["ignore", "pipe", "pipe"] }
    )
    const text = { stdout: "", stderr: "" }
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text.stdout += chunk))
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (text.stderr += chunk))
    child.once("error", (cause) => resume(Effect.die(cause)))
    child.once("close", (code) => resume(Effect.succeed({ code, ...text })))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** The same without a process: as fast as a test may be, but for the exit code, which is the process's own affair. */
export const awaHere = (args: ReadonlyArray<string>, env: Record<string, string> = {}): Effect.Effect<Ended> =>
  Effect.gen(function* () {
    const text = { stdout: "", stderr: "" }
    const print =
      (stream: keyof typeof text) =>
      (...values: ReadonlyArray<unknown>) =>
        Effect.sync(() => void (text[stream] += `${values.join(" ")}\n`))
    const real = yield* Console.consoleWith(Effect.succeed)
    const exit = yield* run(["node", "awa", ...args]).pipe(
      Effect.provide([
        NodeContext.layer,
        Console.setConsole({ ...real, log: print("stdout"), error: print("stderr") }),
        Layer.setConfigProvider(ConfigProvider.fromMap(new Map(Object.entries(env))))
      ]),
      Effect.exit
    )
    return { code: Exit.isSuccess(exit) ? 0 : 1, ...text }
  })
