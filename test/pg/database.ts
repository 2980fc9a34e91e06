/**
 * Databases and sessions for the tests of the SQL engine: plain `pg` clients, so that a test says exactly which session
 * sends which statement when, and nothing of the runtime stands in between.
 */
import { Data, Effect, Schedule, type Scope } from "effect"
import { randomBytes } from "node:crypto"
import pg from "pg"
import { exactPrivileges } from "../../src/internal/privileges.js"
import { renderSql } from "../../src/internal/renderSql.js"
import { closing, functions, migrations } from "../../src/internal/schemaText.generated.js"

/** What the server (or, without a `code`, the connection) answered instead of a result. */
export class PgFault extends Data.TaggedError("PgFault")<{
  readonly code: string
  readonly message: string
  readonly detail: string | undefined
}> {}

export type Row = Readonly<Record<string, unknown>>

export interface Session {
  readonly pid: number
  /** The schema of the engine as statements name it, quoted where it must be. */
  readonly schema: string
  readonly rows: (sql: string, values?: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, PgFault>
  /** The first column of the first row. */
  readonly value: (sql: string, values?: ReadonlyArray<unknown>) => Effect.Effect<unknown, PgFault>
  /** Many statements in one message. */
  readonly script: (sql: string) => Effect.Effect<void, PgFault>
  /** The command tag of a statement: COMMIT of an aborted transaction answers ROLLBACK. */
  readonly command: (sql: string) => Effect.Effect<string, PgFault>
  /** Notices since the last call. */
  readonly notices: Effect.Effect<ReadonlyArray<string>>
  /** The payloads of notifications since the last call. */
  readonly notifications: Effect.Effect<ReadonlyArray<string>>
}

// bigint stays exact, and a timestamp stays text: a JavaScript Date would drop the microseconds.
const types = new pg.TypeOverrides()
const bigintArray = (text: string): ReadonlyArray<bigint> =>
  text === "{}"
    ? []
    : text
        .slice(1, -1)
        .split(",")
        .map((item) => BigInt(item))
for (const int8OrXid8 of [20, 5069]) types.setTypeParser(int8OrXid8, BigInt)
for (const arrayOid of [1016, 271]) types.setTypeParser(arrayOid, bigintArray)
for (const timestamp of [1082, 1114, 1184, 1186]) types.setTypeParser(timestamp, String)

const faultOf = (cause: unknown): PgFault =>
  cause instanceof pg.DatabaseError
    ? new PgFault({ code: cause.code ?? "", message: cause.message, detail: cause.detail })
    : new PgFault({ code: "", message: String(cause), detail: undefined })

/** A session that ends with its scope; a statement that still waits then is not waited for. */
export const connect = (url: string, schema = "awa"): Effect.Effect<Session, PgFault, Scope.Scope> =>
  Effect.gen(function* () {
    const client = new pg.Client({ connectionString: url, types, application_name: "awa test/pg" })
    const notices: Array<string> = []
    const notifications: Array<string> = []
    client.on("error", () => undefined)
    client.on("notice", (notice) => notices.push(notice.message ?? ""))
    client.on("notification", (notification) => notifications.push(notification.payload ?? ""))
    const send = (sql: string, values: ReadonlyArray<unknown>) =>
      Effect.tryPromise({ try: () => client.query<Record<string, unknown>>(sql, [...values]), catch: faultOf })
    yield* Effect.addFinalizer(() =>
      Effect.promise(() => client.end()).pipe(Effect.timeout("500 millis"), Effect.ignore)
    )
    yield* Effect.tryPromise({ try: () => client.connect(), catch: faultOf })
    const rows = (sql: string, values: ReadonlyArray<unknown> = []) =>
      Effect.map(send(sql, values), (result) => result.rows)
    const value = (sql: string, values: ReadonlyArray<unknown> = []) =>
      Effect.map(rows(sql, values), ([row]) => (row === undefined ? undefined : Object.values(row)[0]))
    return {
      pid: Number(yield* value("select pg_backend_pid()")),
      schema,
      rows,
      value,
      script: (sql) => Effect.asVoid(Effect.tryPromise({ try: () => client.query(sql), catch: faultOf })),
      command: (sql) => Effect.map(send(sql, []), (result) => result.command),
      notices: Effect.sync(() => notices.splice(0)),
      notifications: Effect.sync(() => notifications.splice(0))
    }
  })

/** The url of another database on the same server, optionally as another role. */
export const at = (url: string, database: string, user?: string): string => {
  const parsed = new URL(url)
  parsed.pathname = `/${database}`
  if (user !== undefined) {
    parsed.username = user
    parsed.password = ""
  }
  return parsed.href
}

/** A change of one file of `schema/` that breaks a rule on purpose. */
export interface Edit {
  readonly file: string
  readonly from: string
  readonly to: string
}

export interface InstallOptions {
  readonly ring: number
  readonly schema?: string
  readonly edit?: Edit | undefined
}

/** The text that installs the schema, with one edit applied to its templates. */
export const installText = ({ edit, ring, schema = "awa" }: InstallOptions): string => {
  const quoted = renderSql("{{schema}}", { schema, ring })
  let edited = edit === undefined
  const parts = [...migrations, ...functions, ...closing].map(({ name, text }) => {
    if (edit === undefined || edit.file !== name) return text
    if (text.split(edit.from).length !== 2)
      throw new Error(`the sabotage does not fit ${name} exactly once: ${edit.from}`)
    edited = true
    return text.replace(edit.from, () => edit.to)
  })
  if (!edited) throw new Error(`no file of schema/ is called ${edit?.file ?? ""}`)
  const text = parts.map((text) => renderSql(text, { schema, ring })).join("\n")
  return `create schema ${quoted};\n${text}\n${exactPrivileges({ schema, ring })}`
}

export const freshName = (purpose: string): string => `awa_pg_${purpose}_${randomBytes(5).toString("hex")}`

/** A database that is gone with its scope, whoever is still connected to it. */
export const createDatabase = (
  server: string,
  name: string,
  template = "template0"
): Effect.Effect<string, PgFault, Scope.Scope> =>
  Effect.acquireRelease(
    // A template is busy while another session copies it.
    administer(server, `create database ${name} template ${template}`).pipe(
      Effect.retry({ while: (fault) => fault.code === "55006", schedule: Schedule.spaced("20 millis"), times: 500 })
    ),
    () =>
      // A transaction that a failed test left prepared would keep the database, and pin the horizon of the whole server.
      Effect.scoped(Effect.flatMap(connect(at(server, name)), rollbackPrepared)).pipe(
        Effect.andThen(administer(server, `drop database if exists ${name} with (force)`)),
        Effect.ignore
      )
  ).pipe(Effect.as(at(server, name)))

/** Ends what is prepared in the session's database. */
export const rollbackPrepared = (session: Session): Effect.Effect<void, PgFault> =>
  session
    .rows(
      "select format('rollback prepared %L', gid) as sql from pg_prepared_xacts where database = current_database()"
    )
    .pipe(Effect.flatMap((rows) => Effect.forEach(rows, ({ sql }) => session.script(String(sql)), { discard: true })))

const administer = (server: string, sql: string): Effect.Effect<void, PgFault> =>
  Effect.scoped(Effect.flatMap(connect(server), (session) => session.script(sql)))
