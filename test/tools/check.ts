/**
 * Everything that can be said about the code without running it. All checks run, also after one has failed.
 */
import { spawn } from "node:child_process"
import { join } from "node:path"

const root = join(import.meta.dirname, "../..")
const tool = (name: string) => ["--import", "tsx", `test/tools/${name}.ts`]
const installed = (path: string, ...args: ReadonlyArray<string>) => [`node_modules/${path}`, ...args]

/** What is checked, and how; the slow ones first. */
const checks: Readonly<Record<string, ReadonlyArray<string>>> = {
  lint: installed("eslint/bin/eslint.js", ".", "--max-warnings", "0"),
  // Also the type tests: programs that must not compile are lines under `@ts-expect-error` in test/types.
  types: installed("typescript/bin/tsc", "--noEmit"),
  // Effects nobody runs, missing services, and the like.
  "effect diagnostics": installed(
    "@effect/language-service/cli.js",
    "diagnostics",
    "--project",
    "test/tools/tsconfig.effect.json"
  ),
  "documented examples": tool("examples"),
  imports: installed(
    "dependency-cruiser/bin/dependency-cruise.mjs",
    ...["--config", ".dependency-cruiser.mjs", "src", "layers", "test", "examples"]
  ),
  format: installed("prettier/bin/prettier.cjs", "--check", "--log-level", "warn", "."),
  barrel: tool("barrel"),
  "exit × evidence": tool("matrix"),
  "public contract": tool("contract"),
  "schema text": tool("schemaText")
}

const run = (name: string, command: ReadonlyArray<string>) =>
  new Promise<boolean>((resolve) => {
    const started = Date.now()
    const child = spawn(process.execPath, command, { cwd: root, stdio: ["ignore", "pipe", "pipe"] })
    let said = ""
    const listen = (chunk: Buffer) => (said += chunk.toString())
    child.stdout.on("data", listen)
    child.stderr.on("data", listen)
    child.once("close", (code) => {
      const passed = code === 0
      const seconds = ((Date.now() - started) / 1000).toFixed(1)
      console.log(`${passed ? "ok    " : "FAILED"} ${name} (${seconds} s)${passed ? "" : `\n${said.trimEnd()}\n`}`)
      resolve(passed)
    })
  })

const waiting = Object.entries(checks)
const results: Array<boolean> = []
const worker = async () => {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) results.push(await run(...next))
}
await Promise.all([worker(), worker()])

const failed = results.filter((passed) => !passed).length
console.log(failed === 0 ? "All checks passed" : `${failed} of ${results.length} checks failed`)
process.exitCode = failed === 0 ? 0 : 1
