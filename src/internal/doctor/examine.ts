import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { MigrationFailed } from "../../MigrationError.js"
import type { Connection } from "../migrateConnection.js"
import { renderedHash } from "../migrateScript.js"
import { awaCommand } from "../awaCommand.js"
import { quoteIdentifier } from "../renderSql.js"
import { type Finding, finding, type Found } from "./finding.js"
import { InstalledRow, installedSql } from "./look.js"
import type { LiveRuntime } from "./fleet.js"
import { ofCatalogs } from "./installation.js"
import { migratorName } from "./roleGraph.js"
import { asAtWork, type Ask, asking, beginLooking, guarding, statementMillis } from "./session.js"
import { checkPooler } from "./pooler.js"
import { checkClock } from "./clock.js"
import { checkEnvironment } from "./environment.js"
import { checkSettings, SettingsRow, settingsSql } from "./settings.js"
import { skipped } from "./skipped.js"
import { callers, checkShadows, Shadows, shadowsSql } from "./shadows.js"
import { isStrict, type Subject } from "./subject.js"

/** @internal */
export interface ExamineOptions {
  readonly schema: string
  readonly strict: boolean
  readonly migrator: string | undefined
  /** How old a transaction may be. */
  readonly patienceMillis: number
  /** A second connection, as the first. */
  readonly another: Effect.Effect<Connection, { readonly message: string }, Scope.Scope>
}

/** @internal */
export interface Examined {
  readonly isStrict: boolean
  readonly migrator: string | undefined
  readonly runtimes: ReadonlyArray<LiveRuntime> | undefined
  readonly findings: ReadonlyArray<Finding>
}

const Readable = Schema.Tuple(Schema.Struct({ bindings: Schema.Boolean, meta: Schema.Boolean, me: Schema.String }))

/** A table that is not there is as unreadable as one that is refused, and is found missing by another check. */
const readableSql = `select current_user::text as me,
  bool_or(c.relname = 'role_bindings' and n.may and has_table_privilege(c.oid, 'select')) as bindings,
  bool_or(c.relname = 'meta' and n.may and has_table_privilege(c.oid, 'select')) as meta
from (select n.oid, has_schema_privilege(n.oid, 'usage') as may from pg_namespace n where n.nspname = $1) n
join pg_class c on c.relnamespace = n.oid and c.relkind = 'r'`

const Bindings = Schema.Array(Schema.Struct({ capability: Schema.String, role: Schema.String }))

const Meta = Schema.Tuple(Schema.Struct({ version: Schema.Int, hash: Schema.String }))

const checkVersion = (ask: Ask, schema: string, ring: number) =>
  Effect.map(
    ask(
      "look at the version",
      `select schema_version as version, rendered_hash as hash from ${quoteIdentifier(schema)}.meta`,
      [],
      Meta
    ),
    ([{ hash, version }]): ReadonlyArray<Found> =>
      hash === renderedHash({ schema, ring })
        ? []
        : [
            {
              code: "schema-not-current",
              object: "meta",
              found: `schema version ${version}, rendered ${hash === "" ? "by nobody" : hash.slice(0, 16)}`,
              expected: `rendered ${renderedHash({ schema, ring }).slice(0, 16)}, by this version of the library`,
              advice: `${awaCommand("migrate", schema)}, or the awa of the version that installed it: definitions and grants were not compared`
            }
          ]
  )

/** The catalogs, in one transaction; undefined where nothing is installed. */
const examineInstallation = (ask: Ask, { migrator, schema }: ExamineOptions) =>
  Effect.gen(function* () {
    const [{ installed }] = yield* ask("look at the catalogs", installedSql, [schema], InstalledRow)
    if (installed === null) return undefined
    const [readable] = yield* ask("look at the privileges", readableSql, [schema], Readable)
    const table = `${quoteIdentifier(schema)}.role_bindings`
    const bindings = readable.bindings
      ? yield* ask("look at the bindings", `select capability, role::text from ${table} order by 1, 2`, [], Bindings)
      : undefined
    const subject: Subject = { schema, installed, bindings, migrator }
    const shadows = yield* ask(
      "look for shadows",
      shadowsSql,
      [schema, callers(bindings ?? []).join("\u001f")],
      Shadows
    )
    const version = readable.meta
      ? yield* checkVersion(ask, schema, installed.ring)
      : [skipped("the version", `${readable.me} may not read ${quoteIdentifier(schema)}.meta`)]
    const found = [
      ...ofCatalogs(subject, !version.some(({ code }) => code === "schema-not-current")),
      ...checkShadows(shadows),
      ...(bindings === undefined
        ? [skipped("bindings, and privileges by them", `${readable.me} may not read ${table}`)]
        : []),
      ...version
    ]
    return { subject, found }
  })

/** The roles that sessions log in as: a binding of another one has a finding of its own. */
const working = ({ bindings, installed }: Subject) =>
  bindings?.filter(
    ({ role }) =>
      role !== installed.tablesOwner &&
      role !== installed.routinesOwner &&
      installed.roles.some(({ name }) => name === role)
  )

/** @internal */
export const examination = (
  connection: Connection,
  options: ExamineOptions
): Effect.Effect<Examined | undefined, MigrationFailed> =>
  Effect.gen(function* () {
    const ask = asking(connection)
    const [settings] = yield* ask("look at the settings", settingsSql, [], SettingsRow)
    yield* connection.execute("begin", beginLooking, statementMillis)
    const installation = yield* examineInstallation(ask, options)
    const guard = guarding(connection)
    yield* connection.execute("row security", asAtWork, statementMillis)
    const surroundings =
      installation === undefined
        ? undefined
        : yield* checkEnvironment(ask, guard, installation.subject, options.patienceMillis)
    yield* connection.execute("end", "rollback", statementMillis)
    if (installation === undefined || surroundings === undefined) return undefined
    const all = [
      ...installation.found,
      ...checkSettings(settings, working(installation.subject)),
      ...surroundings.found,
      ...(yield* checkClock(ask)),
      ...(settings.standby ? [] : yield* checkPooler(connection, options.another)) // a standby has no LISTEN
    ]
    return {
      isStrict: isStrict(installation.subject),
      migrator: migratorName(installation.subject),
      runtimes: surroundings.runtimes,
      findings: all.map((found) => finding(found, options.strict))
    }
  })
