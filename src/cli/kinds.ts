import * as Command from "@effect/cli/Command"
import * as Options from "@effect/cli/Options"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { pathToFileURL } from "node:url"
import * as Kinds from "../Kinds.js"
import { InvalidKinds } from "../KindsError.js"
import { InvalidStorageOption } from "../StorageError.js"
import { databaseUrl, schema, urlOf, urlRule } from "./options.js"

const folder = Options.text("from").pipe(Options.withDescription("The folder that `awa kinds export` has written."))

const index = "kinds.json"

/** `schema` names the file beside the index. */
const Index = Schema.Struct({
  kinds: Schema.Array(Schema.Struct({ ...Kinds.Kind.fields, schema: Schema.String }))
})
const File = Kinds.Kind.fields.schema

const failed = (path: string) => (cause: { readonly message: string }) =>
  new InvalidKinds({ path, reason: cause.message })

/** The names of files by their kinds': readable, and of their own. */
const fileNames = (kinds: ReadonlyArray<Kinds.Kind>): ReadonlyArray<string> => {
  const taken = new Set(["kinds"])
  return kinds.map(({ kind }) => {
    const slug = kind.replaceAll(/[^A-Za-z0-9._-]+/g, "-").slice(0, 80)
    let name = slug
    for (let n = 2; taken.has(name.toLowerCase()); n++) name = `${slug}-${n}`
    taken.add(name.toLowerCase())
    return `${name}.json`
  })
}

const load = Effect.fnUntraced(function* (from: string) {
  const path = yield* Path.Path
  const module: unknown = yield* Effect.tryPromise({
    try: () => import(pathToFileURL(path.resolve(from)).href),
    catch: (cause) => new InvalidKinds({ path: from, reason: cause instanceof Error ? cause.message : String(cause) })
  })
  const values = Predicate.isReadonlyRecord(module) ? Object.values(module) : []
  const kinds = yield* Kinds.describe(values)
  if (kinds.length === 0) {
    return yield* new InvalidKinds({ path: from, reason: "the module exports no job that was made by Job.make" })
  }
  return kinds
})

const write = Effect.fnUntraced(function* (file: string, text: string) {
  const fs = yield* FileSystem.FileSystem
  yield* Effect.mapError(fs.writeFileString(file, text), failed(file))
})

const makeFolder = Effect.fnUntraced(function* (out: string) {
  const fs = yield* FileSystem.FileSystem
  yield* Effect.mapError(fs.makeDirectory(out, { recursive: true }), failed(out))
})

/** The kinds of a folder, with their schemas. */
const read = Effect.fnUntraced(function* (from: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const parse = <A, I>(file: string, schema: Schema.Schema<A, I>) =>
    Effect.mapError(Effect.flatMap(fs.readFileString(file), Schema.decode(Schema.parseJson(schema))), failed(file))
  const { kinds } = yield* parse(path.join(from, index), Index)
  return yield* Effect.forEach(kinds, (kind) =>
    Effect.map(parse(path.join(from, path.basename(kind.schema)), File), (schema): Kinds.Kind => ({ ...kind, schema }))
  )
})

const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`

const exportCommand = Command.make(
  "export",
  {
    from: Options.text("from").pipe(
      Options.withDescription(
        "A JavaScript module that exports jobs made by Job.make and does nothing else; a TypeScript one where this command runs under `node --import tsx`."
      )
    ),
    out: Options.text("out").pipe(Options.withDescription("The folder to write to."))
  },
  Effect.fnUntraced(function* ({ from, out }) {
    const path = yield* Path.Path
    const kinds = yield* load(from)
    const names = fileNames(kinds)
    yield* makeFolder(out)
    yield* Effect.forEach(kinds, ({ schema }, i) => write(path.join(out, names[i] ?? ""), json(schema)))
    yield* write(path.join(out, index), json({ kinds: kinds.map((kind, i) => ({ ...kind, schema: names[i] })) }))
    yield* Console.log(`Exported ${kinds.length} kinds to ${out}: ${kinds.map(({ kind }) => kind).join(", ")}`)
  })
).pipe(
  Command.withDescription("Write the JSON Schema of each kind's payload, and kinds.json with what its jobs are like.")
)

const registerCommand = Command.make(
  "register",
  { databaseUrl, from: folder, schema },
  Effect.fnUntraced(function* (options) {
    const kinds = yield* read(options.from)
    const url = yield* Effect.catchTag(
      urlOf(options.databaseUrl),
      "ConfigError",
      () => new InvalidStorageOption({ option: "url", rule: urlRule })
    )
    const answers = yield* Kinds.register({ url, schema: options.schema }, kinds)
    for (const { answer, kind, unchecked } of answers) {
      yield* Console.log(`${kind}: ${answer}`)
      for (const place of unchecked) yield* Console.log(`  not checked by the database: ${place}`)
    }
  })
).pipe(Command.withDescription("Register exported kinds in the database, so that an enqueue can say `validate`."))

const stubsCommand = Command.make(
  "stubs",
  {
    from: folder,
    lang: Options.choice("lang", ["python", "go"]).pipe(Options.withDescription("The language of the stubs.")),
    out: Options.text("out").pipe(Options.withDescription("The folder to write to.")),
    schema
  },
  Effect.fnUntraced(function* ({ from, lang, out, schema }) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const kinds = yield* read(from)
    yield* makeFolder(out)
    for (const { mode, name, text } of Kinds.stubs(kinds, { language: lang, schema })) {
      const file = path.join(out, name)
      const keep = mode === "written once" && (yield* Effect.mapError(fs.exists(file), failed(file)))
      if (!keep) yield* write(file, text)
      yield* Console.log(`${keep ? "Kept" : "Wrote"} ${file}`)
    }
  })
).pipe(Command.withDescription("Write typed producers, and handlers to be filled in, for another language."))

/** @internal */
export const kinds = Command.make("kinds").pipe(
  Command.withDescription("Share the kinds of jobs with other languages."),
  Command.withSubcommands([exportCommand, registerCommand, stubsCommand])
)
