/** Kysely: `npm run example -- drivers/kysely`. */
import { Effect } from "effect"
import * as AwaKysely from "effect-awa/drivers/Kysely"
import { Kysely, PostgresDialect } from "kysely"
import pg from "pg"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

interface Database {
  invoices: { id: number; state: string }
}

/** Kysely listens to no error of a connection that is in a transaction; unheard, one ends the process. */
const connect = (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  pool.on("connect", (client) => client.on("error", (error) => console.error(error.message)))
  return new Kysely<Database>({ dialect: new PostgresDialect({ pool }) })
}

runExample("Kysely", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const db = yield* Effect.acquireRelease(
      Effect.sync(() => connect(url)),
      (db) => Effect.promise(() => db.destroy())
    )
    yield* step("a table", () =>
      db.schema
        .createTable("invoices")
        .addColumn("id", "integer", (id) => id.primaryKey())
        .addColumn("state", "text", (state) => state.notNull())
        .execute()
    )

    const issue = (invoice: number, cents: number, mistaken = false) =>
      db.transaction().execute(async (trx) => {
        await trx.insertInto("invoices").values({ id: invoice, state: "open" }).execute()
        await AwaKysely.enqueue(trx, Charge, { invoice, cents })
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
        return AwaKysely.finalize(db, job, async (trx) => {
          await trx.updateTable("invoices").set({ state: "paid" }).where("id", "=", invoice).execute()
          await AwaKysely.enqueue(trx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
