import { SqlClient } from "@effect/sql"
import { Config, Effect, HashMap, Layer, Logger, LogLevel, Redacted } from "effect"
import { Testing } from "effect-awa/testing"
import { inject } from "vitest"

export const server = Config.sync(() => Redacted.make(inject("postgresUrl")))

/** A fresh database with the schema and a table for the application's own rows. */
export const database = (schema = "awa") => {
  const own = Testing.database({ server, schema })
  const table = Layer.effectDiscard(
    Effect.flatMap(SqlClient.SqlClient, (sql) => sql`create table application_rows (tag text not null, value text)`)
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
}

/** Collects what the program logs at warn level and above; a protocol event is such a line. */
export const collectLogs = (lines: Array<LogLine>) =>
  Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ annotations, logLevel, message }) => {
      if (!LogLevel.greaterThanEqual(logLevel, LogLevel.Warning)) return
      lines.push({
        level: logLevel,
        message: Array.isArray(message) ? message.map(String).join(" ") : String(message),
        annotations: Object.fromEntries(HashMap.toEntries(annotations))
      })
    })
  )

export const protocolEvents = (lines: ReadonlyArray<LogLine>) =>
  lines.filter(({ message }) => message.startsWith("Protocol event"))

/** Waits for a condition that another fiber or the database brings about. */
export const eventually = <E, R>(
  what: string,
  condition: Effect.Effect<boolean, E, R>
): Effect.Effect<void, E | Error, R> =>
  condition.pipe(
    Effect.delay("10 millis"),
    Effect.repeat({ until: (met) => met }),
    Effect.timeoutFail({ duration: "20 seconds", onTimeout: () => new Error(`never came: ${what}`) }),
    Effect.asVoid
  )

/** Ends an attempt behind its worker's back, as rescue does. */
export const rescueNow = (sql: SqlClient.SqlClient) =>
  Effect.map(sql<{ n: number | null }>`select awa.rescue_stale('0 seconds', 1000) as n`, ([row]) => row?.n ?? 0).pipe(
    Effect.repeat({ until: (rescued) => rescued > 0 }) // null: the worker's own maintenance held the lead
  )
