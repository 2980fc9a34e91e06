/** Throughput in windows, by the times at which the server has attempts completed. */
import { SqlClient } from "@effect/sql"
import { Effect } from "effect"
import { median, slope, type Interval } from "../bench/storage/statistics.js"

export const windowMillis = 3_000

/** How many jobs the server has completed in a stretch, per second. Times are milliseconds since 1970 by its clock. */
export const rateOf = (from: number, to: number) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ n: number }>`
        select count(*)::integer as n from chaos.closures where outcome = 'completed'
          and closed_at >= to_timestamp(${from / 1000}) and closed_at < to_timestamp(${to / 1000})`,
      ([row]) => ((row?.n ?? 0) * 1000) / (to - from)
    )
  )

export const serverNow = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ at: number }>`select (extract(epoch from clock_timestamp()) * 1000)::float8 as at`,
    ([row]) => row?.at ?? Number.NaN
  )
)

/** Lets so many windows pass, and answers their rates. */
export const windows = (count: number) =>
  Effect.gen(function* () {
    const from = yield* serverNow
    yield* Effect.sleep(count * windowMillis + 250)
    return yield* Effect.forEach(Array.from({ length: count }), (_, i) =>
      rateOf(from + i * windowMillis, from + (i + 1) * windowMillis)
    )
  })

const stretchMillis = 2_000

/** Waits until the rate over two seconds is at least this again. Answers when those two seconds began. */
export const awaitRate = (rate: number) =>
  Effect.gen(function* () {
    const to = yield* serverNow
    const found = yield* rateOf(to - stretchMillis, to)
    return { since: to - stretchMillis, met: found >= rate }
  }).pipe(
    // the server may be away
    Effect.catchAll(() => Effect.succeed({ since: Number.NaN, met: false })),
    Effect.delay("250 millis"),
    Effect.repeat({ until: ({ met }) => met }),
    Effect.map(({ since }) => since)
  )

export interface Comparison {
  readonly before: number
  readonly after: number
  readonly ratio: number
  /** Of the windows after the fault, in percent of their median per minute. */
  readonly trend: Interval
}

export const compare = (baseline: ReadonlyArray<number>, after: ReadonlyArray<number>): Comparison => {
  const [before, later] = [median(baseline), median(after)]
  const percent = (value: number) => (value / later) * 100
  const { estimate, high, low } = slope(after.map((rate, i) => [((i + 0.5) * windowMillis) / 60_000, rate]))
  return {
    before,
    after: later,
    ratio: later / before,
    trend: { estimate: percent(estimate), low: percent(low), high: percent(high) }
  }
}
