/**
 * Keeps the tables of schema/CONTRACT.md in step with schema/contract.json, which test/pg/contract.test.ts compares
 * with what is installed. `--write` writes them; without it the file is compared with what would be written.
 */
import * as Fs from "node:fs"
import * as Path from "node:path"
import { contract } from "./contract/data.js"
import { blocks } from "./contract/markdown.js"

const target = Path.join(import.meta.dirname, "../../schema/CONTRACT.md")
const text = Fs.readFileSync(target, "utf8")

let expected = text
for (const [name, block] of Object.entries(blocks(contract))) {
  const [begin, end] = [`<!-- ${name}: written by \`npm run contract\` -->\n\n`, `\n\n<!-- ${name}: end -->`]
  const [from, to] = [expected.indexOf(begin), expected.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`schema/CONTRACT.md has lost the marks around its ${name}`)
  expected = expected.slice(0, from + begin.length) + block + expected.slice(to)
}

if (process.argv.includes("--write")) {
  Fs.writeFileSync(target, expected)
} else if (text !== expected) {
  console.error("schema/CONTRACT.md does not show what schema/contract.json says: run `npm run contract`")
  process.exitCode = 1
}
