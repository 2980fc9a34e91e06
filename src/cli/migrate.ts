import * as Command from "@effect/cli/Command"
import * as Options from "@effect/cli/Options"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { InvalidMigrationOption } from "../MigrationError.js"
import * as Migrations from "../Migrations.js"
import { databaseUrl, urlOf, urlRule } from "./options.js"

const schema = Options.text("schema").pipe(
  Options.withDefault("awa"),
  Options.withDescription("The schema to install into. Any name that PostgreSQL allows.")
)

const ring = Options.integer("ring").pipe(
  Options.optional,
  Options.withDescription("How many segments a new installation has, 4 to 64; 16 unless said otherwise.")
)

const print = Options.boolean("print").pipe(
  Options.withDescription("Print the SQL script instead of running it. No connection is made.")
)

const from = Options.integer("from").pipe(
  Options.optional,
  Options.withDescription("With --print: only what comes after this schema version, and the functions.")
)

const count = (ring: number): string => `a ring of ${ring} segments`

/** The report in one sentence. */
const describe = (report: Migrations.MigrationReport): string => {
  const where = `schema ${JSON.stringify(report.schema)}`
  const version = `version ${report.version}, ${count(report.ring)}`
  switch (report.action) {
    case "installed":
      return `Installed effect-awa into ${where}: ${version}.`
    case "upgraded":
      return `Upgraded ${where} from version ${report.previousVersion}: ${version}.`
    case "refreshed":
      return `Replaced the functions of ${where}: ${version}.`
    case "unchanged":
      return `Nothing to do, ${where} is up to date: ${version}. Nothing was written.`
    case "newer":
      return (
        `Nothing to do, ${where} is a later release's than this awa (version ${Migrations.schemaVersion}) and serves it: ` +
        `${version}. Nothing was written.`
      )
  }
}

const printScript = (options: Migrations.ScriptOptions): Effect.Effect<void, InvalidMigrationOption> =>
  Effect.flatMap(Migrations.script(options), (sql) => Console.log(sql.trimEnd()))

/** @internal */
export const migrate = Command.make(
  "migrate",
  { databaseUrl, from, print, ring, schema },
  Effect.fnUntraced(function* (options) {
    const ring = Option.getOrUndefined(options.ring)
    const from = Option.getOrUndefined(options.from)
    if (options.print) return yield* printScript({ schema: options.schema, ring, from })
    if (from !== undefined) {
      return yield* new InvalidMigrationOption({ option: "from", rule: "goes with --print only" })
    }
    const url = yield* Effect.catchTag(
      urlOf(options.databaseUrl),
      "ConfigError",
      () => new InvalidMigrationOption({ option: "url", rule: urlRule })
    )
    const report = yield* Migrations.migrate({ url, schema: options.schema, ring })
    yield* Console.log(describe(report))
    if (report.applied.length > 0) yield* Console.log(`Applied: ${report.applied.join(", ")}`)
  })
).pipe(Command.withDescription("Install effect-awa's schema into a database, or bring it up to date."))
