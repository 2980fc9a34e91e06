/** Slonik: `npm run example -- drivers/slonik`. */
import { Effect } from "effect"
import * as Slonik from "effect-awa/drivers/Slonik"
import { createPool, sql } from "slonik"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

runExample("Slonik", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const pool = yield* Effect.acquireRelease(
      Effect.promise(() => createPool(url)),
      (pool) => Effect.promise(() => pool.end())
    )
    yield* step("a table", () =>
      pool.query(sql.unsafe`create table invoices (id integer primary key, state text not null)`)
    )

    const issue = (invoice: number, cents: number, mistaken = false) =>
      pool.transaction(async (tx) => {
        await tx.query(sql.unsafe`insert into invoices (id, state) values (${invoice}, 'open')`)
        await Slonik.enqueue(tx, Charge, { invoice, cents })
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
        return Slonik.finalize(pool, job, async (tx) => {
          await tx.query(sql.unsafe`update invoices set state = 'paid' where id = ${invoice}`)
          await Slonik.enqueue(tx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
