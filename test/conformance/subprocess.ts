/** A program in another language: started once, asked line by line, ended with its scope. */
import { Effect, Schema, type Scope } from "effect"
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { Answer, type Program } from "./program.js"

const Line = Schema.parseJson(Schema.Union(Schema.Struct({ paused: Schema.Literal(true) }), Answer))
const decode = Schema.decodeUnknownSync(Line)

export const subprocess = (
  command: readonly [string, ...ReadonlyArray<string>]
): Effect.Effect<Program, never, Scope.Scope> =>
  Effect.gen(function* () {
    const [file, ...args] = command
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => spawn(file, args, { stdio: ["pipe", "pipe", "inherit"] })),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
    const lost = new Promise<never>((_, reject) => {
      child.once("error", reject)
      child.once("exit", (code, signal) => reject(new Error(`the program ended: ${String(code ?? signal)}`)))
    })
    lost.catch(() => undefined)
    child.stdin.on("error", () => undefined) // its exit is told by `lost`
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    const next = async () => {
      const line = await Promise.race([lines.next(), lost])
      return line.done === true ? lost : decode(line.value)
    }
    return {
      run: async (request, onPause) => {
        child.stdin.write(`${JSON.stringify(request)}\n`)
        for (;;) {
          const line = await next()
          if (!("paused" in line)) return line
          await onPause()
          child.stdin.write("\n")
        }
      }
    }
  })
