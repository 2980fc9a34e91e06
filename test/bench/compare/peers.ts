/** The peers that there are: the JSON files of ../peers say how each is built and started. */
import { Schema } from "effect"
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { Description } from "../peers/protocol.js"
import { ask } from "./ask.js"

export const root = join(import.meta.dirname, "../../..")
const folder = join(root, "test/bench/peers")

const Command = Schema.Array(Schema.String)

/** A command that needs not be run when what it makes is newer than all that it makes it from. */
const Step = Schema.Struct({ run: Command, makes: Schema.String, from: Schema.Array(Schema.String) })

const Entry = Schema.Struct({
  name: Schema.String,
  /** Programs without which it is left out, with a note that says so. */
  tools: Schema.Array(Schema.String),
  /** Commands, run from the root of the repository. */
  build: Schema.Array(Schema.Union(Command, Step)),
  /** `{node}` is the newest Node there is. */
  start: Schema.Array(Schema.String),
  minimumNode: Schema.optional(Schema.String),
  redis: Schema.optional(Schema.Boolean),
  /** The only measures that it is asked for. */
  measures: Schema.optional(Schema.Array(Schema.String)),
  /** Written in TypeScript, as effect-awa is. */
  typescript: Schema.optional(Schema.Boolean)
})
export type Entry = typeof Entry.Type

const File = Schema.parseJson(Schema.Struct({ peers: Schema.Array(Entry) }))

export interface Peer extends Entry {
  readonly command: ReadonlyArray<string>
  readonly description: Description
}

export const entries = (): ReadonlyArray<Entry> =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .sort((a, b) => Number(b.startsWith("typescript")) - Number(a.startsWith("typescript")) || a.localeCompare(b))
    .flatMap((name) => Schema.decodeUnknownSync(File)(readFileSync(join(folder, name), "utf8")).peers)

/** The Node that the peers' packages bring, or the one that runs this. */
const newestNode = (): string => {
  const brought = join(folder, `npm/node_modules/node-${process.platform}-${process.arch}/bin/node`)
  return existsSync(brought) ? brought : process.execPath
}

const versionOf = (node: string): string => spawnSync(node, ["--version"], { encoding: "utf8" }).stdout.trim().slice(1)

const atLeast = (version: string, minimum: string): boolean =>
  version.localeCompare(minimum, "en", { numeric: true }) >= 0

const hasTool = (tool: string): boolean => spawnSync("sh", ["-c", `command -v "$0"`, tool]).status === 0

/** Of a file, or of all files below a folder. */
const changedAt = (path: string): number =>
  statSync(path).isDirectory()
    ? Math.max(0, ...readdirSync(path).map((name) => changedAt(join(path, name))))
    : statSync(path).mtimeMs

const isMade = ({ from, makes }: typeof Step.Type): boolean => {
  const made = join(root, makes)
  return existsSync(made) && from.every((source) => changedAt(join(root, source)) <= statSync(made).mtimeMs)
}

/** What a package manager says first is the reason; what it says last is how to call it. */
const withoutWarnings = (said: string): string =>
  said
    .split("\n")
    .filter((text) => !text.startsWith("npm warn"))
    .join("\n")
    .slice(0, 1000)

const build = (entry: Entry, done: Set<string>): void => {
  for (const step of entry.build) {
    if ("run" in step && isMade(step)) continue
    const [program = "", ...args] = "run" in step ? step.run : step
    const line = [program, ...args].join(" ")
    if (done.has(line)) continue
    console.log(`  building ${entry.name}: ${line}`)
    const { error, status, stderr } = spawnSync(program, args, { cwd: root, encoding: "utf8" })
    if (status !== 0) throw new Error(`${line}: ${error?.message ?? withoutWarnings(stderr)}`)
    done.add(line)
  }
}

export interface Found {
  readonly peers: ReadonlyArray<Peer>
  readonly skipped: ReadonlyArray<{ readonly name: string; readonly why: string }>
}

/** Builds the peers that can run here, and says why the others cannot. */
export const findPeers = async (wanted: ReadonlyArray<string> | undefined): Promise<Found> => {
  const known = entries()
  const unknown = wanted?.filter((name) => !known.some((entry) => entry.name === name)) ?? []
  if (unknown.length > 0) {
    throw new Error(`--peers knows ${known.map(({ name }) => name).join(", ")}, not ${unknown.join(", ")}`)
  }
  const peers: Array<Peer> = []
  const skipped: Array<{ name: string; why: string }> = []
  const done = new Set<string>()
  for (const entry of known.filter(({ name }) => wanted === undefined || wanted.includes(name))) {
    try {
      const missing = entry.tools.filter((tool) => !hasTool(tool))
      if (missing.length > 0) throw new Error(`not installed here: ${missing.join(", ")}`)
      build(entry, done)
      const node = newestNode()
      if (entry.minimumNode !== undefined && !atLeast(versionOf(node), entry.minimumNode)) {
        throw new Error(`needs Node ${entry.minimumNode}; here is ${versionOf(node)}`)
      }
      const command = entry.start.map((word) => (word === "{node}" ? node : word))
      const asked = { command, cwd: root, request: { do: "describe" as const }, timeoutSeconds: 60 }
      const { value: description } = await ask(asked, Description)
      peers.push({ ...entry, command, description })
    } catch (error) {
      skipped.push({ name: entry.name, why: error instanceof Error ? error.message : String(error) })
    }
  }
  return { peers, skipped }
}
