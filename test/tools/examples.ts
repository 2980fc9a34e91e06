/**
 * Type-checks the programs in the documentation: every TypeScript block of a Markdown file, and every one in a doc comment
 * of `src/` and `layers/`. Each becomes a module of its own, at the same line as where it stands, so that a complaint
 * names the place.
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"

interface Program {
  readonly file: string
  /** Of the block's first line, counted from 0. */
  readonly line: number
  readonly code: ReadonlyArray<string>
}

const root = join(import.meta.dirname, "../..")
const scratch = join(root, ".tmp/examples")

const under = (folder: string, suffix: string) =>
  existsSync(join(root, folder))
    ? readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
        // the benchmark's peers are installed below test/
        .filter((name) => name.endsWith(suffix) && !name.includes("node_modules"))
        .map((name) => join(folder, name))
    : []

const programsIn = (file: string): ReadonlyArray<Program> => {
  const inComments = file.endsWith(".ts")
  const programs: Array<Program> = []
  let open: { readonly line: number; readonly code: Array<string> } | undefined
  for (const [index, raw] of readFileSync(join(root, file), "utf8").split("\n").entries()) {
    if (inComments && !/^\s*\*/.test(raw)) continue
    const text = inComments ? raw.replace(/^\s*\* ?/, "") : raw
    if (open === undefined) {
      if (/^\s*```(ts|typescript)\s*$/.test(text)) open = { line: index + 1, code: [] }
    } else if (/^\s*```\s*$/.test(text)) {
      programs.push({ file, ...open })
      open = undefined
    } else {
      open.code.push(text)
    }
  }
  if (open !== undefined) throw new Error(`${file}:${open.line}: the code block is not closed`)
  return programs
}

const documents = existsSync(join(root, "README.md")) ? ["README.md"] : []
const files = [
  ...documents,
  ...["src", "layers", "schema", "test", "examples"].flatMap((folder) => under(folder, ".md")),
  ...["src", "layers"].flatMap((folder) => under(folder, ".ts"))
]
const programs = files.flatMap(programsIn)

rmSync(scratch, { recursive: true, force: true })
mkdirSync(scratch, { recursive: true })
const places = new Map<string, string>()
for (const { code, file, line } of programs) {
  const name = `${file.replaceAll(/[/\\]/g, "-")}-${line + 1}.ts`
  places.set(name, file)
  writeFileSync(join(scratch, name), "\n".repeat(line) + code.join("\n") + "\n")
}
writeFileSync(
  join(scratch, "tsconfig.json"),
  JSON.stringify({
    extends: "../../tsconfig.json",
    // A program that shows how something is made need not use it.
    compilerOptions: { incremental: false, noUnusedLocals: false, noUnusedParameters: false, tsBuildInfoFile: null },
    include: ["*.ts"],
    exclude: []
  })
)

if (programs.length > 0) {
  const tsc = join(root, "node_modules/typescript/bin/tsc")
  const { status, stdout } = spawnSync(process.execPath, [tsc, "-p", scratch, "--pretty", "false"], {
    cwd: scratch,
    encoding: "utf8"
  })
  const located = stdout.replaceAll(/^(\S+\.ts)\((\d+),\d+\)/gm, (whole, name: string, line: string) => {
    const file = places.get(name)
    return file === undefined ? whole : `${file}:${line}`
  })
  if (located !== "") console.error(located.trimEnd())
  process.exitCode = status ?? 1
}
console.log(`${programs.length} programs in ${new Set(programs.map(({ file }) => file)).size} files`)
