/** A producer that keeps work waiting for every permit, so that throughput is what the fleet can do. */
import { SqlClient } from "@effect/sql"
import { Effect, Exit, Ref } from "effect"
import { Charge, Notify } from "./jobs.js"
import type { Known } from "./producers.js"

/** So many jobs of each queue are to wait at least. */
const enough = 100

const kinds = [
  { job: Charge, expects: "effect" },
  { job: Notify, expects: "delivery" }
] as const

const waiting = (kind: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ n: number }>`
        select (select count(*) from chaos.orders o where o.kind = ${kind})::integer - (
          select count(*) from chaos.closures c join chaos.claims k using (batch_id, batch_index)
          join chaos.orders o using (job_id) where c.outcome = 'completed' and o.kind = ${kind})::integer as n`,
      ([row]) => row?.n ?? 0
    )
  )

/** Feeds until it is told to stop, through everything that happens. */
export const makeFeeder = Effect.gen(function* () {
  const known: Known = { committed: [], refused: [], ambiguous: [] }
  const stopped = yield* Ref.make(false)
  const sql = yield* SqlClient.SqlClient
  let n = 0
  const feed = ({ expects, job }: (typeof kinds)[number]) =>
    Effect.gen(function* () {
      if ((yield* waiting(job.kind)) >= enough) return
      const orders = Array.from({ length: enough }, () => `${job.kind}-${++n}`)
      const state = { written: false }
      const body = Effect.gen(function* () {
        const placed = yield* job.enqueueAll(orders.map((order) => ({ order, times: 0 })))
        const rows = placed.flatMap(({ answer, id }, i) => {
          const order = orders[i]
          return order === undefined ? [] : [{ id: order, kind: job.kind, expects, job_id: String(id), answer }]
        })
        yield* sql`insert into chaos.orders ${sql.insert(rows)}`
        state.written = true
      })
      const exit = yield* Effect.exit(sql.withTransaction(body))
      const list = Exit.isSuccess(exit) ? known.committed : state.written ? known.ambiguous : known.refused
      list.push(...orders)
    })
  const round = Effect.forEach(kinds, (kind) => Effect.ignore(feed(kind)), { discard: true })
  const fiber = yield* Effect.forkScoped(
    Effect.repeat(Effect.delay(round, "100 millis"), { until: () => Ref.get(stopped) })
  )
  return { known, stop: Effect.zipRight(Ref.set(stopped, true), Effect.asVoid(fiber.await)) }
})
