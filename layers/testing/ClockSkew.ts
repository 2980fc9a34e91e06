/**
 * A process whose clock is wrong. Only the database's clock may matter (contract: every time is the database's).
 *
 * @since 0.1.0
 */
import type { SqlError } from "@effect/sql/SqlError"
import * as SqlClient from "@effect/sql/SqlClient"
import * as Effect from "effect/Effect"

/** Runs before the program does. Timers and the monotonic clock go on as they are: a wrong clock runs at the right speed. */
const program = (offset: number): string => `
const RealDate = Date, offset = ${offset}, now = () => RealDate.now() + offset
globalThis.Date = new Proxy(RealDate, {
  construct: (target, args, newTarget) => Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget),
  apply: (target) => new target(now()).toString(),
  get: (target, key, receiver) => (key === "now" ? now : Reflect.get(target, key, receiver))
})
const origin = performance.timeOrigin + offset
Object.defineProperty(performance, "timeOrigin", { configurable: true, get: () => origin })
`

/**
 * Node's options for a process whose clock is ahead by so many milliseconds, or behind by a negative number: `Date` and
 * `performance.timeOrigin` are shifted before the program starts.
 *
 * @example
 * ```ts
 * import { spawn } from "node:child_process"
 * import { ClockSkew } from "effect-awa/testing"
 *
 * export const tenMinutesAhead = () => spawn(process.execPath, [...ClockSkew.execArgv(600_000), "worker.js"])
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const execArgv = (offsetMillis: number): ReadonlyArray<string> => [
  "--import",
  `data:text/javascript,${encodeURIComponent(program(Math.trunc(offsetMillis)))}`
]

/**
 * How far this process's clock is ahead of the database's, in milliseconds: the proof that a skew took effect.
 *
 * @since 0.1.0
 * @category getters
 */
export const observed: Effect.Effect<number, SqlError, SqlClient.SqlClient> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql`select (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::text`.values
  return Date.now() - Number(rows[0]?.[0])
})
