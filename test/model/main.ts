/**
 * The models: `npm run model` checks the formal ones, follows recorded runs through one of them, and runs random sequences of
 * every transition against a queue in memory.
 *
 * - `npm run model -- --short`: what continuous integration runs of them
 * - `npm run model -- formal [--short] [--parallel 2] [--counterexamples] [part of a name]…`
 * - `npm run model -- traces [--short] [--jobs 200] [--seed 7]`
 * - `npm run model -- transitions [--sequences 20000] [--seed 7]`
 */
import { spawnSync } from "node:child_process"
import { parseArgs } from "node:util"
import { checkAll } from "./checker/report.js"
import { completionConfigurations } from "./completion/configurations.js"
import { cursorConfigurations } from "./cursor/configurations.js"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    short: { type: "boolean", default: false },
    parallel: { type: "string", default: "2" },
    counterexamples: { type: "boolean", default: false },
    jobs: { type: "string" },
    sequences: { type: "string" },
    seed: { type: "string" }
  }
})

const formal = (parts: ReadonlyArray<string>): Promise<boolean> => {
  const all = [...completionConfigurations, ...cursorConfigurations]
  const matching = all.filter(
    ({ name, short = false }) =>
      (short || !values.short) && (parts.length === 0 || parts.some((part) => name.includes(part)))
  )
  return checkAll(matching, { parallel: Number(values.parallel), counterexamples: values.counterexamples })
}

const vitest = (args: ReadonlyArray<string>, env: Readonly<Record<string, string | undefined>>): boolean => {
  const given = Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]))
  const command = ["node_modules/vitest/vitest.mjs", "run", ...args]
  const options = { stdio: "inherit" as const, env: { ...process.env, ...Object.fromEntries(given) } }
  return spawnSync(process.execPath, command, options).status === 0
}

const traces = (): boolean =>
  vitest(["--config", "vitest.model.config.ts", "--silent"], {
    AWA_TRACE_JOBS: values.jobs ?? (values.short ? undefined : "200"),
    AWA_TRACE_SEED: values.seed
  })

const transitions = (): boolean =>
  vitest(["test/model/transitions"], {
    AWA_MODEL_SEQUENCES: values.sequences ?? (values.short ? "2000" : "20000"),
    AWA_MODEL_SEED: values.seed
  })

const forms = ["formal", "traces", "transitions"] as const
const [named, ...parts] = positionals
const asked = named ?? (values.sequences === undefined ? undefined : "transitions")
const chosen = forms.filter((form) => asked === undefined || form === asked)
if (chosen.length === 0) throw new Error(`${asked} is no form of the models: ${forms.join(", ")}`)

let failed = 0
for (const form of chosen) {
  const passed = form === "formal" ? await formal(parts) : form === "traces" ? traces() : transitions()
  if (!passed) failed++
}
process.exitCode = failed === 0 ? 0 : 1
