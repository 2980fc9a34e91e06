/** Knex: `npm run example -- drivers/knex`. */
import { Effect } from "effect"
import * as AwaKnex from "effect-awa/drivers/Knex"
import Knex from "knex"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

runExample("Knex", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const db = yield* Effect.acquireRelease(
      Effect.sync(() => Knex.knex({ client: "pg", connection: url, pool: { min: 0, max: 4 } })),
      (db) => Effect.promise(() => db.destroy())
    )
    yield* step("a table", () =>
      db.schema.createTable("invoices", (table) => {
        table.integer("id").primary()
        table.text("state").notNullable()
      })
    )

    const issue = (invoice: number, cents: number, mistaken = false) =>
      db.transaction(async (trx) => {
        await trx("invoices").insert({ id: invoice, state: "open" })
        await AwaKnex.enqueue(trx, Charge, { invoice, cents })
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
        return AwaKnex.finalize(db, job, async (trx) => {
          await trx("invoices").where({ id: invoice }).update({ state: "paid" })
          await AwaKnex.enqueue(trx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
