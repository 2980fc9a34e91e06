import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Column from "./column.js"

/** @internal Decodes what a statement answered; a shape that is not the expected one is an error, not a defect. */
export const decodeAs = <A, I, E>(
  schema: Schema.Schema<A, I>,
  onError: (reason: string) => E
): ((value: unknown) => Effect.Effect<A, E>) => {
  const decode = Schema.decodeUnknown(schema)
  return (value) => Effect.mapError(decode(value), (error) => onError(error.message))
}

/** @internal An array of ids as PostgreSQL reads it. */
export const idsLiteral = (ids: ReadonlyArray<bigint>): string => `{${ids.join(",")}}`

/** @internal A time as ISO 8601 text, whatever the session's DateStyle. */
export const isoColumn = (column: string): string => `to_json(${column}) #>> '{}'`

/** @internal The columns of a queue's row, and how they are read. */
export const queueColumns =
  "queue, paused, (extract(epoch from aging) * 1000)::float8::text, dead_letter, " +
  "(extract(epoch from attempt_deadline) * 1000)::float8::text, rate_limit, " +
  `(extract(epoch from rate_interval) * 1000)::float8::text, ${isoColumn("created_at")}, caller_owned`

const toMillis = (value: unknown): number | undefined => {
  const text = Column.nullable(Column.string)(value)
  return text === undefined ? undefined : Number(text)
}

/** @internal */
export const readQueue = (row: Column.Row): unknown => ({
  queue: row[0],
  paused: row[1],
  aging: toMillis(row[2]),
  deadLetter: row[3],
  attemptDeadline: toMillis(row[4]),
  rateLimit: row[5] ?? undefined,
  rateInterval: toMillis(row[6]),
  createdAt: row[7],
  callerOwned: row[8]
})
