/**
 * Embeds the SQL files of `schema/` as text, so that the library needs no file system to install its schema.
 * `--write` writes the module; without it the module is compared with what would be written.
 */
import * as Fs from "node:fs"
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

const expected =
  "// Generated from schema/ by `npm run schema`. Do not edit.\n\n" +
  list("migrations", "migrations") +
  "\n" +
  list("functions", "functions") +
  "\n" +
  list("closing", "closing") +
  single("privilegesText", "privileges.sql") +
  single("manifestText", "manifest.json")

if (process.argv.includes("--write")) {
  Fs.writeFileSync(target, expected)
} else if (!Fs.existsSync(target) || Fs.readFileSync(target, "utf8") !== expected) {
  console.error("src/internal/schemaText.generated.ts is not what schema/ says: run `npm run schema`")
  process.exit(1)
}
