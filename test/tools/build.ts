/**
 * Builds the published form: modules and declarations under `dist/`, with the SQL files beside them.
 */
import { spawnSync } from "node:child_process"
import { chmodSync, cpSync, existsSync, rmSync } from "node:fs"
import { join } from "node:path"

const root = join(import.meta.dirname, "../..")
const dist = join(root, "dist")

rmSync(dist, { recursive: true, force: true })
const tsc = join(root, "node_modules/typescript/bin/tsc")
const { status } = spawnSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" })
if (status !== 0) process.exit(status ?? 1)

cpSync(join(root, "schema"), join(dist, "schema"), {
  recursive: true,
  filter: (source) => !source.endsWith(".md")
})
const command = join(dist, "layers/bin/awa.js")
if (existsSync(command)) chmodSync(command, 0o755)
