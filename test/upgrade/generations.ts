/**
 * Two generations of the library as programs: N is this code, N+1 is this code with a next contract version and a next
 * migration. They are put into its bundle here; the library itself has no such hook.
 */
import { build, type Plugin } from "esbuild"
import * as Fs from "node:fs"
import * as Path from "node:path"

export type Generation = "n" | "n+1"

export const nextContract = 2
export const nextVersion = 9001

/** What an expanding migration does: columns that nobody has to know, on tables that are in use. */
const nextMigration = `alter table {{schema}}.deferred_jobs add column synthetic text;
alter table {{schema}}.queues add column synthetic text not null default 'next';
alter table {{schema}}.attempt_state add column synthetic text;
`

/** Replaces a text that must be there exactly once. */
const replaced = (text: string, from: string, to: string): string => {
  if (text.split(from).length !== 2) throw new Error(`not found once: ${from}`)
  return text.replace(from, () => to)
}

const edits: Readonly<Record<string, (text: string) => string>> = {
  "contractVersion.ts": (text) =>
    text
      .replace(/contractVersion = \d+/, `contractVersion = ${nextContract}`)
      .replace(/minimumSchemaVersion = \d+/, `minimumSchemaVersion = ${nextVersion}`),
  // the migrations are the first list
  "schemaText.generated.ts": (text) =>
    replaced(
      text,
      "::numeric >= 1 else false end", // caller_owned_laggards
      `::numeric >= ${nextContract} else false end`
    ).replace(
      "\n]\n",
      () => `,\n  { name: "${nextVersion}_synthetic.sql", text: ${JSON.stringify(nextMigration)} }\n]\n`
    )
}

const next: Plugin = {
  name: "the next generation",
  setup: (builder) => {
    builder.onLoad({ filter: /[\\/]src[\\/]internal[\\/](contractVersion|schemaText\.generated)\.ts$/ }, ({ path }) => {
      const edit = edits[Path.basename(path)]
      if (edit === undefined) throw new Error(`no edit of ${path}`)
      return { contents: edit(Fs.readFileSync(path, "utf8")), loader: "ts" }
    })
  }
}

/** Builds both; answers where they are. */
export const buildGenerations = async (folder: string): Promise<Readonly<Record<Generation, string>>> => {
  const programs = { n: Path.join(folder, "n.cjs"), "n+1": Path.join(folder, "next.cjs") }
  for (const [generation, outfile] of Object.entries(programs)) {
    await build({
      entryPoints: [Path.join(import.meta.dirname, "child.ts")],
      outfile,
      bundle: true,
      platform: "node",
      conditions: ["@effect-awa/source"],
      logLevel: "error",
      plugins: generation === "n" ? [] : [next]
    })
  }
  return programs
}
