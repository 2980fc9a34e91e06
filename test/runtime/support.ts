import { SqlClient } from "@effect/sql"
import { Cause, Config, type Duration, Effect, HashMap, Layer, Logger, LogLevel, Redacted } from "effect"
import { type FaultProxy, Testing } from "effect-awa/testing"
import { inject } from "vitest"
import { quoteIdentifier } from "../../src/internal/renderSql.js"
import { cell } from "../matrix/cell.js"
import { isStrict } from "../tools/strictRoles.js"

/** The suites are the same in both profiles: AWA_TEST_PROFILE=strict. */
export const profile = isStrict ? "strict" : "compatible"

export const server = Config.sync(() => Redacted.make(inject("postgresUrl")))

/** The schema as a statement names it: a test that belongs to the matrix says it so. */
export const quotedSchema = quoteIdentifier(cell.schema)

/** A fresh database with the schema and a table for the application's own rows. */
export const database = (schema: string = cell.schema, from = server) => {
  const own = Testing.database({ server: from, schema, profile, settings: cell.settings })
  const table = Layer.effectDiscard(
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      Effect.zipRight(
        sql`create table application_rows (tag text not null, value text)`,
        sql`grant select, insert, update, delete on application_rows to public`
      )
    )
  )
  return Layer.provideMerge(table, own)
}

export const insertRow = (tag: string, value = "") =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`insert into application_rows (tag, value) values (${tag}, ${value})`)

export const countRows = (tag: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ n: number }>`select count(*)::int as n from application_rows where tag = ${tag}`,
      ([row]) => row?.n
    )
  )

export interface LogLine {
  readonly level: LogLevel.LogLevel
  readonly message: string
  readonly annotations: Readonly<Record<string, unknown>>
  readonly cause: string
}

/** Collects what the program logs at warn level and above; a protocol event is such a line. */
export const collectLogs = (lines: Array<LogLine>) =>
  Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ annotations, cause, logLevel, message }) => {
      if (!LogLevel.greaterThanEqual(logLevel, LogLevel.Warning)) return
      lines.push({
        level: logLevel,
        message: Array.isArray(message) ? message.map(String).join(" ") : String(message),
        annotations: Object.fromEntries(HashMap.toEntries(annotations)),
        cause: Cause.pretty(cause)
      })
    })
  )

/** What is told of handlers that failed. */
export const handlerFailures = (lines: ReadonlyArray<LogLine>) =>
  lines.filter(({ message }) => message.startsWith("A handler failed"))

export const protocolEvents = (lines: ReadonlyArray<LogLine>) =>
  lines.filter(({ message }) => message.startsWith("Protocol event"))

/** Waits for a condition that another fiber or the database brings about. */
export const eventually = <E, R>(
  what: string,
  condition: Effect.Effect<boolean, E, R>,
  atMost: Duration.DurationInput = "20 seconds"
): Effect.Effect<void, E | Error, R> =>
  condition.pipe(
    Effect.delay("10 millis"),
    Effect.repeat({ until: (met) => met }),
    Effect.timeoutFail({ duration: atMost, onTimeout: () => new Error(`never came: ${what}`) }),
    Effect.asVoid
  )

/**
 * Matches the COMMIT that follows such a statement on its connection: with its answer cut off, the statement took effect and
 * nobody knows. Cut off behind the statement itself, its transaction is rolled back.
 */
export const commitOf = (statement: RegExp) => {
  const open = new Set<number>()
  return ({ connection, sql }: FaultProxy.ProxiedStatement): boolean => {
    if (statement.test(sql)) open.add(connection.id)
    return /^commit/i.test(sql) && open.delete(connection.id)
  }
}

/** The engine's functions run in READ COMMITTED, whatever the database's default is. */
export const readCommitted = <A, E, R>(sql: SqlClient.SqlClient, effect: Effect.Effect<A, E, R>) =>
  sql.withTransaction(Effect.zipRight(sql`set transaction isolation level read committed`, effect))

/** Ends an attempt behind its worker's back, as rescue does. */
export const rescueNow = (sql: SqlClient.SqlClient) =>
  Effect.map(
    readCommitted(sql, sql.unsafe<{ n: number | null }>(`select ${quotedSchema}.rescue_stale('0 seconds', 1000) as n`)),
    ([row]) => row?.n ?? 0
  ).pipe(
    Effect.repeat({ until: (rescued) => rescued > 0 }) // null: the worker's own maintenance held the lead
  )

/**
 * The advisory locks that connections keep between two transactions, of all that 50 looks have seen. One that is seen while its
 * transaction ends is not there at the next two looks.
 */
export const keptLocks = (sql: SqlClient.SqlClient) => {
  const look = Effect.map(
    sql<{ key: string }>`select l.pid || ' idle since ' || a.state_change as key from pg_locks l
      join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.state = 'idle' and a.datname = current_database()`,
    (rows) => new Set(rows.map(({ key }) => key))
  )
  const once = Effect.gen(function* () {
    const first = yield* look
    if (first.size === 0) return []
    const [second, third] = [yield* look, yield* look]
    return [...first].filter((key) => second.has(key) && third.has(key))
  })
  return Effect.map(Effect.replicateEffect(Effect.delay(once, "10 millis"), 50), (found) => found.flat())
}
