/** postgres.js: `npm run example -- drivers/postgresJs`. */
import { Effect } from "effect"
import * as PostgresJs from "effect-awa/drivers/PostgresJs"
import postgres from "postgres"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

runExample("postgres.js", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const sql = yield* Effect.acquireRelease(
      Effect.sync(() => postgres(url, { max: 4 })),
      (sql) => Effect.promise(() => sql.end())
    )
    yield* step("a table", () => sql`create table invoices (id integer primary key, state text not null)`)

    const issue = (invoice: number, cents: number, mistaken = false) =>
      sql.begin(async (tx) => {
        await tx`insert into invoices (id, state) values (${invoice}, 'open')`
        await PostgresJs.enqueue(tx, Charge, { invoice, cents })
        if (mistaken) throw new Error("a mistake")
      })
    yield* step("invoice 1 is issued", () => issue(1, 4_200))
    yield* step("invoice 2 is issued, over an amount that nobody has approved", () => issue(2, 990_000))
    yield* rollsBack("invoice 3 is a mistake", () => issue(3, 100, true))
    yield* check(1, { state: "open", charge: "available", receipts: 0 })
    yield* check(3, { state: undefined, charge: undefined, receipts: 0 })

    yield* work(
      Charge.toLayerCallerOwned((job) => {
        const { cents, invoice } = job.payload
        return PostgresJs.finalize(sql, job, async (tx) => {
          await tx`update invoices set state = 'paid' where id = ${invoice}`
          await PostgresJs.enqueue(tx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
