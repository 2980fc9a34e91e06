/**
 * What other languages need to run here: a Python with the packages of examples/workers, in an environment of its own under
 * .tmp/, and a Go. Undefined where it is missing, after a line that says so.
 */
import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Path from "node:path"

const root = Path.join(import.meta.dirname, "../..")
const scratch = Path.join(root, ".tmp/workers")

const run = (command: string, args: ReadonlyArray<string>, cwd = root): boolean =>
  spawnSync(command, [...args], { cwd, stdio: ["ignore", "ignore", "pipe"], timeout: 300_000 }).status === 0

const missing = (what: string): undefined => {
  process.stderr.write(`SKIPPED: ${what}\n`)
  return undefined
}

const findPython = (): string | undefined => {
  const requirements = Path.join(root, "examples/workers/python/requirements.txt")
  const environment = Path.join(scratch, "python")
  const [python, done] = [Path.join(environment, "bin/python"), Path.join(environment, "requirements.txt")]
  const wanted = Fs.readFileSync(requirements, "utf8")
  if (Fs.existsSync(done) && Fs.readFileSync(done, "utf8") === wanted) return python
  if (!run("python3", ["-m", "venv", environment])) {
    return missing("nothing in Python is tested; python3 with its venv module is not installed")
  }
  if (!run(python, ["-m", "pip", "install", "--quiet", "-r", requirements])) {
    return missing("nothing in Python is tested; the packages of examples/workers/python could not be installed")
  }
  Fs.writeFileSync(done, wanted)
  return python
}

/** The example's worker as a program. What does not compile is no missing toolchain. */
const findGo = (): string | undefined => {
  const folder = Path.join(root, "examples/workers/go")
  const program = Path.join(scratch, "go-worker")
  if (!run("go", ["version"])) return missing("nothing in Go is tested; go is not installed")
  if (!run("go", ["mod", "download"], folder)) {
    return missing("nothing in Go is tested; the modules of examples/workers/go could not be had")
  }
  if (!run("go", ["build", "-o", program, "."], folder)) throw new Error("examples/workers/go does not build")
  return program
}

export interface Toolchains {
  /** The interpreter that has psycopg. */
  readonly python?: string
  /** The Go worker of the examples, built. */
  readonly goWorker?: string
  readonly psql?: true
}

export const findToolchains = (): Toolchains => {
  Fs.mkdirSync(scratch, { recursive: true })
  const [python, goWorker] = [findPython(), findGo()]
  const psql = run("psql", ["--version"]) ? true : missing("nothing in psql is tested; psql is not installed")
  return {
    ...(python === undefined ? {} : { python }),
    ...(goWorker === undefined ? {} : { goWorker }),
    ...(psql === undefined ? {} : { psql })
  }
}
