/**
 * Proves that every sabotage is noticed by the test that claims to notice it.
 *
 *     npx tsx test/pg/mutants.ts [part of a name …]
 */
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { Schema } from "effect"
import { type Sabotage, sabotages } from "./sabotages.js"

const root = Path.resolve(import.meta.dirname, "../..")
const folder = Fs.mkdtempSync(Path.join(Os.tmpdir(), "awa-mutants-"))

const Report = Schema.parseJson(
  Schema.Struct({
    testResults: Schema.Array(
      Schema.Struct({
        assertionResults: Schema.Array(
          Schema.Struct({ ancestorTitles: Schema.Array(Schema.String), title: Schema.String, status: Schema.String })
        )
      })
    )
  })
)

/** What became of the test under the sabotage; only `failed` is good. */
const run = async (sabotage: Sabotage, number: number): Promise<string> => {
  const [file = "", ...path] = sabotage.test.split(" > ")
  const output = Path.join(folder, `${number}.json`)
  const pattern = `^${path.join(" ").replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`
  const child = spawn(
    process.execPath,
    ["node_modules/vitest/vitest.mjs", "run", file, "-t", pattern, "--reporter=json", `--outputFile=${output}`],
    { cwd: root, stdio: "ignore", env: { ...process.env, AWA_SABOTAGE: sabotage.name } }
  )
  await new Promise((resolve) => child.once("close", resolve))
  if (!Fs.existsSync(output)) return "no report"
  const { testResults } = Schema.decodeUnknownSync(Report)(Fs.readFileSync(output, "utf8"))
  const found = testResults
    .flatMap((result) => result.assertionResults)
    .find((test) => [...test.ancestorTitles, test.title].join(" > ") === path.join(" > "))
  return found?.status ?? "no such test"
}

const wanted = process.argv.slice(2)
const chosen = sabotages.filter(({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)))
const waiting = [...chosen.entries()]
const survivors: Array<string> = []
const work = async (): Promise<void> => {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const [number, sabotage] = next
    const status = await run(sabotage, number)
    if (status !== "failed") survivors.push(sabotage.name)
    process.stdout.write(
      `${status === "failed" ? "noticed " : "SURVIVED"} ${sabotage.name}${status === "failed" ? "" : ` (${status})`}\n`
    )
  }
}
await Promise.all([work(), work()])
Fs.rmSync(folder, { recursive: true })
process.stdout.write(`${chosen.length - survivors.length} of ${chosen.length} sabotages noticed\n`)
process.exitCode = survivors.length === 0 ? 0 : 1
