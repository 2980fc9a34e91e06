/**
 * Embeds the SQL files of `schema/` as text, so that the library needs no file system to install its schema.
 * `--write` writes the module; without it the module is compared with what would be written.
 *
 * A database whose functions are a later release's is told by their revision, so it rises here whenever they change.
 */
import { createHash } from "node:crypto"
import * as Fs from "node:fs"
import { Schema } from "effect"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"

const root = Path.resolve(Path.dirname(fileURLToPath(import.meta.url)), "../..")
const target = Path.join(root, "src/internal/schemaText.generated.ts")

const path = (name: string): string => Path.join(root, "schema", name)

const read = (folder: string): ReadonlyArray<readonly [string, string]> =>
  Fs.readdirSync(path(folder))
    .filter((name) => name.endsWith(".sql"))
    .sort()
    .map((name) => [name, Fs.readFileSync(Path.join(path(folder), name), "utf8")] as const)

const literal = (text: string): string =>
  `\`${text.replaceAll("\\", "\\\\").replaceAll("`", "\\`").replaceAll("${", "\\${")}\``

const list = (name: string, folder: string): string =>
  `/** @internal */\nexport const ${name}: ReadonlyArray<{ readonly name: string; readonly text: string }> = [\n` +
  read(folder)
    .map(([file, text]) => `  {\n    name: ${JSON.stringify(file)},\n    text: ${literal(text)}\n  }`)
    .join(",\n") +
  "\n]\n"

const single = (name: string, file: string): string =>
  `\n/** @internal */\nexport const ${name} = ${literal(Fs.readFileSync(path(file), "utf8"))}\n`

const functionsHash = ((): string => {
  const hash = createHash("sha256")
  for (const folder of ["functions", "closing"]) for (const [, text] of read(folder)) hash.update(text)
  return hash.update(Fs.readFileSync(path("privileges.sql"), "utf8")).digest("hex")
})()

const revisionFile = path("revision.json")
const revision = ((): number => {
  const { functions, revision } = Schema.decodeUnknownSync(
    Schema.parseJson(Schema.Struct({ revision: Schema.Int, functions: Schema.String }))
  )(Fs.readFileSync(revisionFile, "utf8"))
  if (functions === functionsHash) return revision
  if (process.argv.includes("--write")) {
    Fs.writeFileSync(revisionFile, `${JSON.stringify({ revision: revision + 1, functions: functionsHash }, null, 2)}\n`)
  }
  return revision + 1
})()

const expected =
  "// Generated from schema/ by `npm run schema`. Do not edit.\n\n" +
  list("migrations", "migrations") +
  "\n" +
  list("functions", "functions") +
  "\n" +
  list("closing", "closing") +
  `\n/** @internal Of the functions: higher with every change of them. */\nexport const functionsRevision: number = ${revision}\n` +
  single("privilegesText", "privileges.sql") +
  single("manifestText", "manifest.json")

if (process.argv.includes("--write")) {
  Fs.writeFileSync(target, expected)
} else if (!Fs.existsSync(target) || Fs.readFileSync(target, "utf8") !== expected) {
  console.error("src/internal/schemaText.generated.ts is not what schema/ says: run `npm run schema`")
  process.exit(1)
}
