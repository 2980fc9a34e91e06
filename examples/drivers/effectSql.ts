/** @effect/sql: `npm run example -- drivers/effectSql`. */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Redacted } from "effect"
import * as EffectSql from "effect-awa/drivers/EffectSql"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

runExample("@effect/sql", ({ check, rollsBack, step, url, work }) => {
  const Database = PgClient.layer({ url: Redacted.make(url), maxConnections: 4 })
  return Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    yield* step("a table", sql`create table invoices (id integer primary key, state text not null)`)

    const issue = (invoice: number, cents: number, mistaken = false) =>
      sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`insert into invoices (id, state) values (${invoice}, 'open')`
          yield* Charge.enqueue({ invoice, cents })
          if (mistaken) return yield* Effect.fail("a mistake")
        })
      )
    yield* step("invoice 1 is issued", issue(1, 4_200))
    yield* step("invoice 2 is issued, over an amount that nobody has approved", issue(2, 990_000))
    yield* rollsBack("invoice 3 is a mistake", issue(3, 100, true))
    yield* check(1, { state: "open", charge: "available", receipts: 0 })
    yield* check(3, { state: undefined, charge: undefined, receipts: 0 })

    const ChargeLive = Charge.toLayerCallerOwned((job) => {
      const { cents, invoice } = job.payload
      const pay = Effect.gen(function* () {
        yield* sql`update invoices set state = 'paid' where id = ${invoice}`
        yield* SendReceipt.enqueue({ invoice })
        approve(cents)
      })
      // a transaction of its own; `job.finalize(pay)` does the same in the library's
      return sql.withTransaction(EffectSql.inTransaction(job, Effect.zipRight(pay, job.completeInTx)))
    })
    yield* work(Layer.provide(ChargeLive, Layer.succeed(SqlClient.SqlClient, sql)))
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  }).pipe(Effect.provide(Database))
})
