/** Puts what a run has found where readers look: into the README, between its markers, and beside the benchmark. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Entry } from "./journal.js"
import { root } from "./peers.js"
import { markdown } from "./tables.js"

const begin = "<!-- benchmark: written by npm run bench -- --publish -->"
const end = "<!-- /benchmark -->"
const results = "test/bench/results"

/** The text between the markers is replaced; without markers a section is put before the end. */
export const replaceSection = (readme: string, text: string): string => {
  const section = `${begin}\n\n${text}\n\n${end}`
  const [from, to] = [readme.indexOf(begin), readme.indexOf(end)]
  return from === -1 || to < from
    ? `${readme.trimEnd()}\n\n## Beside other queues\n\n${section}\n`
    : `${readme.slice(0, from)}${section}${readme.slice(to + end.length)}`
}

export const publish = (entries: ReadonlyArray<Entry>, images: ReadonlyMap<string, string>): void => {
  mkdirSync(join(root, results), { recursive: true })
  for (const [name, svg] of images) writeFileSync(join(root, results, `${name}.svg`), `${svg}\n`)
  writeFileSync(join(root, results, "results.json"), `${JSON.stringify(entries, undefined, 1)}\n`)
  const at = new Map([...images.keys()].map((name) => [name, `${results}/${name}.svg`]))
  const readme = join(root, "README.md")
  writeFileSync(readme, replaceSection(readFileSync(readme, "utf8"), markdown(entries, at)))
}
