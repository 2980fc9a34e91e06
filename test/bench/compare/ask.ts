/** Asks a peer's program one thing. */
import { Schema } from "effect"
import { spawn } from "node:child_process"
import { type Request, Unsupported } from "../peers/protocol.js"
import { type Used, usedBy } from "./processes.js"

export class PeerFailed extends Error {}

/** The peer does not do that, and says why. */
export class PeerCannot extends Error {}

export interface Answered<A> {
  readonly value: A
  /** As the operating system saw it, for a peer that does not say. */
  readonly used: Used | undefined
}

export interface Asked {
  readonly command: ReadonlyArray<string>
  readonly cwd: string
  readonly request: Request
  readonly timeoutSeconds: number
}

const samplingMillis = 100

const tail = (text: string): string => text.trimEnd().slice(-2000)

/** Runs it to its end; resolves with the last line that it printed. */
const run = (asked: Asked): Promise<{ readonly line: string; readonly used: Used | undefined }> =>
  new Promise((resolve, reject) => {
    const [program = "", ...args] = asked.command
    const child = spawn(program, [...args, JSON.stringify(asked.request)], {
      cwd: asked.cwd,
      stdio: ["ignore", "pipe", "pipe"]
    })
    let said = ""
    let logged = ""
    let used: Used | undefined
    let late = false
    const sampling = setInterval(() => {
      if (child.pid !== undefined) used = usedBy(child.pid) ?? used
    }, samplingMillis)
    const timer = setTimeout(() => {
      late = true
      child.kill("SIGKILL")
    }, asked.timeoutSeconds * 1000)
    const onExit = () => child.kill("SIGKILL")
    process.once("exit", onExit)
    const end = () => {
      clearInterval(sampling)
      clearTimeout(timer)
      process.removeListener("exit", onExit)
    }
    child.stdout.on("data", (chunk: Buffer) => (said += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (logged = tail(logged + chunk.toString())))
    child.once("error", (error) => {
      end()
      reject(new PeerFailed(`${program} could not be started: ${error.message}`))
    })
    child.once("close", (code, signal) => {
      end()
      const line = said.trim().split("\n").at(-1) ?? ""
      if (late) reject(new PeerFailed(`no answer to ${asked.request.do} within ${asked.timeoutSeconds} s\n${logged}`))
      else if (code !== 0) reject(new PeerFailed(`${asked.request.do} ended with ${code ?? signal}\n${logged}`))
      else resolve({ line, used })
    })
  })

export const ask = async <A, I>(asked: Asked, schema: Schema.Schema<A, I>): Promise<Answered<A>> => {
  const { line, used } = await run(asked)
  const parsed: unknown = JSON.parse(line)
  if (Schema.is(Unsupported)(parsed)) throw new PeerCannot(parsed.unsupported)
  return { value: Schema.decodeUnknownSync(schema)(parsed), used }
}
