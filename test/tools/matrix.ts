/**
 * Keeps the table of exits and evidence in schema/README.md in step with the one that the tests run.
 * `--write` writes it; without it the file is compared with what would be written.
 */
import * as Fs from "node:fs"
import * as Path from "node:path"
import { markdown } from "../runtime/matrix/markdown.js"

const target = Path.join(import.meta.dirname, "../../schema/README.md")
const [begin, end] = ["<!-- exit × evidence: written by `npm run matrix` -->\n\n", "\n\n<!-- exit × evidence: end -->"]

const text = Fs.readFileSync(target, "utf8")
const [from, to] = [text.indexOf(begin), text.indexOf(end)]
if (from < 0 || to < from) throw new Error("schema/README.md has lost the marks around the table of exits and evidence")
const expected = text.slice(0, from + begin.length) + markdown + text.slice(to)

if (process.argv.includes("--write")) {
  Fs.writeFileSync(target, expected)
} else if (text !== expected) {
  console.error("schema/README.md does not show the table of test/runtime/matrix/table.ts: run `npm run matrix`")
  process.exitCode = 1
}
