/** Puts what a run has found where readers look: into the README, between its markers, and beside the benchmark. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Entry } from "./journal.js"
import { root } from "./peers.js"
import { markdown } from "./tables.js"

const begin = "<!-- benchmark: written by npm run bench -- --publish -->"
const end = "<!-- /benchmark -->"
const results = "test/bench/results"

const heading = "## Beside other queues"

/** The text between the markers is replaced; without markers the section becomes the last but one. */
export const replaceSection = (readme: string, text: string): string => {
  const section = `${begin}\n\n${text}\n\n${end}`
  const [from, to] = [readme.indexOf(begin), readme.indexOf(end)]
  if (from !== -1 && to > from) return `${readme.slice(0, from)}${section}${readme.slice(to + end.length)}`
  const last = readme.lastIndexOf("\n## ")
  return last === -1
    ? `${readme.trimEnd()}\n\n${heading}\n\n${section}\n`
    : `${readme.slice(0, last)}\n${heading}\n\n${section}\n${readme.slice(last)}`
}

export const publish = (entries: ReadonlyArray<Entry>, images: ReadonlyMap<string, string>): void => {
  mkdirSync(join(root, results), { recursive: true })
  for (const [name, svg] of images) writeFileSync(join(root, results, `${name}.svg`), `${svg}\n`)
  writeFileSync(join(root, results, "results.json"), `${JSON.stringify(entries, undefined, 1)}\n`)
  const at = new Map([...images.keys()].map((name) => [name, `${results}/${name}.svg`]))
  const readme = join(root, "README.md")
  writeFileSync(readme, replaceSection(readFileSync(readme, "utf8"), markdown(entries, at)))
}
