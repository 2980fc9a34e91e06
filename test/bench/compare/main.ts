/**
 * effect-awa beside other queues, on one server, in one run: `npm run bench -- --help` tells of the flags, README.md in this
 * folder of what is measured and how.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { cpus, totalmem } from "node:os"
import { join, resolve } from "node:path"
import { charts } from "./charts.js"
import { type Journal, openJournal } from "./journal.js"
import { type Options, readOptions } from "./options.js"
import { findPeers, root } from "./peers.js"
import { publish } from "./publish.js"
import { rememberedRate, runRounds } from "./run.js"
import { adminOf, redisServer, serverUrl } from "./server.js"
import { markdown } from "./tables.js"

const git = (...args: ReadonlyArray<string>): string => {
  try {
    return execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim()
  } catch {
    return "unknown"
  }
}

const machine = (): string => {
  const all = cpus()
  return `${all.length} × ${all[0]?.model ?? "unknown"}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${process.platform}`
}

const measure = (options: Options, journal: Journal): Effect.Effect<void, Error> =>
  Effect.gen(function* () {
    const { peers, skipped } = yield* Effect.promise(() => findPeers(options.peers))
    for (const { name, why } of skipped) {
      console.log(`  left out: ${name}: ${why}`)
      journal.add({ entry: "skipped", peer: name, why: why.slice(0, 500) })
    }
    for (const { description, name, typescript } of peers) {
      journal.add({ entry: "peer", peer: name, typescript: typescript ?? false, description })
      console.log(`  ${description.name} ${description.version}, ${description.runtime}`)
    }
    const server = yield* serverUrl(options.url)
    const redis = peers.some((peer) => peer.redis === true) ? yield* redisServer : undefined
    const admin = yield* Effect.acquireRelease(
      Effect.promise(() => adminOf(server)),
      ({ end }) => Effect.promise(end)
    )
    journal.add({
      entry: "run",
      at: new Date().toISOString(),
      commit: `${git("rev-parse", "--short", "HEAD")}${git("status", "--porcelain") === "" ? "" : " with changes"}`,
      machine: machine(),
      server: admin.version,
      settings: admin.settings,
      command: ["npm run bench", ...(process.argv.length > 2 ? ["--", ...process.argv.slice(2)] : [])].join(" ")
    })
    const context = { server, admin, redis, options, rate: rememberedRate(journal) }
    yield* Effect.promise((signal) => runRounds({ ...context, signal }, journal, peers, options))
  }).pipe(Effect.scoped)

const report = (options: Options, run: string, journal: Journal): void => {
  const folder = resolve(root, options.out)
  const images = charts(journal.entries)
  for (const [name, svg] of images) writeFileSync(join(folder, `${run}-${name}.svg`), svg)
  const files = new Map([...images.keys()].map((name) => [name, `${run}-${name}.svg`]))
  const text = markdown(journal.entries, files)
  writeFileSync(join(folder, `${run}.md`), `${text}\n`)
  writeFileSync(join(folder, `${run}.json`), `${JSON.stringify(journal.entries, undefined, 1)}\n`)
  console.log(`\n${text}\n\nWritten: ${join(options.out, run)}.{jsonl,json,md} and ${images.size} plots`)
  if (options.publish) publish(journal.entries, images)
}

if (process.argv.includes("--help")) {
  console.log(readFileSync(join(import.meta.dirname, "README.md"), "utf8"))
} else {
  const options = readOptions(process.argv.slice(2))
  const run = options.resume ?? new Date().toISOString().slice(0, 19).replaceAll(":", "-")
  mkdirSync(resolve(root, options.out), { recursive: true })
  const path = resolve(root, options.out, `${run}.jsonl`)
  if (options.resume !== undefined && !existsSync(path)) throw new Error(`there is no run ${run} in ${options.out}`)
  const journal = openJournal(path)
  console.log(`Run ${run}; if it is interrupted, --resume ${run} goes on with it`)
  // an interruption ends the servers before the process
  const measured = options.reportOnly ? Effect.void : measure(options, journal)
  NodeRuntime.runMain(
    Effect.andThen(measured, () => report(options, run, journal)),
    { disablePrettyLogger: true }
  )
}
