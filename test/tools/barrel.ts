/**
 * Keeps `src/index.ts` in step with the modules of `src/`: one namespace per module, with the module's own description.
 * `--write` writes it; without it the file is compared with what would be written.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"

const source = join(import.meta.dirname, "../../src")
const target = join(source, "index.ts")

/** The doc comment a module opens with; one that belongs to the first declaration is followed by it without a gap. */
const description = (module: string) => {
  const opening = /^\/\*\*[\s\S]*?\*\/\n(?=\n|import\b)/.exec(readFileSync(join(source, module), "utf8"))
  if (opening === null) throw new Error(`src/${module} does not open with a doc comment about the module`)
  return opening[0]
}

const entry = (module: string) => {
  const name = module.replace(/\.ts$/, "")
  return `${description(module)}export * as ${name} from "./${name}.js"\n`
}

const modules = readdirSync(source)
  .filter((name) => /^[A-Z]\w*\.ts$/.test(name))
  .sort()

const expected = [
  "// Generated from the modules of this folder by `npm run barrel`. Do not edit.\n",
  ...modules.map(entry)
].join("\n")

if (process.argv.includes("--write")) {
  writeFileSync(target, expected)
} else if (!existsSync(target) || readFileSync(target, "utf8") !== expected) {
  console.error("src/index.ts is not what the modules of src/ say: run `npm run barrel`")
  process.exitCode = 1
}
