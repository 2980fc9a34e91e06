/** node-postgres: `npm run example -- drivers/pg`. */
import { Effect } from "effect"
import * as Pg from "effect-awa/drivers/Pg"
import pg from "pg"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

runExample("node-postgres", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const pool = yield* Effect.acquireRelease(
      Effect.sync(() => new pg.Pool({ connectionString: url, max: 4 })),
      (pool) => Effect.promise(() => pool.end())
    )
    yield* step("a table", () => pool.query("create table invoices (id integer primary key, state text not null)"))

    const issue = async (invoice: number, cents: number, mistaken = false) => {
      const client = await pool.connect()
      try {
        await client.query("begin")
        await client.query("insert into invoices (id, state) values ($1, 'open')", [invoice])
        await Pg.enqueue(client, Charge, { invoice, cents })
        if (mistaken) throw new Error("a mistake")
        await client.query("commit")
      } catch (error) {
        await client.query("rollback")
        throw error
      } finally {
        client.release()
      }
    }
    yield* step("invoice 1 is issued", () => issue(1, 4_200))
    yield* step("invoice 2 is issued, over an amount that nobody has approved", () => issue(2, 990_000))
    yield* rollsBack("invoice 3 is a mistake", () => issue(3, 100, true))
    yield* check(1, { state: "open", charge: "available", receipts: 0 })
    yield* check(3, { state: undefined, charge: undefined, receipts: 0 })

    yield* work(
      Charge.toLayerCallerOwned((job) => {
        const { cents, invoice } = job.payload
        return Pg.finalize(pool, job, async (client) => {
          await client.query("update invoices set state = 'paid' where id = $1", [invoice])
          await Pg.enqueue(client, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
