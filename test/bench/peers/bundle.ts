/**
 * The peers written in TypeScript as plain JavaScript, packages left out: a loader that compiles while the program runs would
 * weigh on those whose code it compiles, and not on those that come compiled.
 */
import { build } from "esbuild"
import { join } from "node:path"

const here = import.meta.dirname
const options = { bundle: true, packages: "external", platform: "node", format: "esm", target: "node20" } as const
const outExtension = { ".js": ".mjs" }

const names = ["effectAwa", "floor", "persistedQueue"]
await build({
  ...options,
  outExtension,
  entryPoints: names.map((name) => join(here, `${name}.ts`)),
  outdir: join(here, "dist")
})

// beside their own packages
const npm = ["pgBoss", "graphileWorker", "dbos", "bullmq"]
const outdir = join(here, "npm/dist")
await build({ ...options, outExtension, entryPoints: npm.map((name) => join(here, "npm", `${name}.ts`)), outdir })
