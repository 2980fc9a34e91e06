/**
 * Runs a program of `examples/` by its name (`npm run example -- drivers/pg`), or every driver's one after the other
 * (`npm run examples`): on the server that DATABASE_URL names, or each on an embedded one of its own.
 */
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"

const root = join(import.meta.dirname, "../..")
const folder = "examples/drivers"

const names = readdirSync(join(root, folder))
  .filter((file) => file.endsWith(".ts") && file !== "support.ts")
  .map((file) => `drivers/${file.replace(/\.ts$/, "")}`)

/** Two minutes: the first start of an embedded server copies its binaries. */
const run = (name: string): number => {
  const args = ["--conditions=@effect-awa/source", "--import", "tsx", join(root, "examples", `${name}.ts`)]
  const { error, status } = spawnSync(process.execPath, args, { cwd: root, stdio: "inherit", timeout: 120_000 })
  if (error !== undefined) console.error(`${name}: ${error.message}`)
  return status ?? 1
}

const asked = process.argv.slice(2)
if (asked.includes("--all")) {
  const failed = names.filter((name) => run(name) !== 0)
  console.log(failed.length === 0 ? `${names.length} examples passed` : `FAILED: ${failed.join(", ")}`)
  process.exitCode = failed.length === 0 && names.length > 0 ? 0 : 1
} else {
  const [name = ""] = asked
  if (existsSync(join(root, "examples", `${name}.ts`))) {
    process.exitCode = run(name)
  } else {
    console.error(`npm run example -- <name>, one of: ${names.join(", ")}`)
    process.exitCode = 1
  }
}
