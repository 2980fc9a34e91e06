/** Drizzle over postgres.js: `npm run example -- drivers/drizzlePostgresJs`. */
import { Effect } from "effect"
import * as AwaDrizzle from "effect-awa/drivers/Drizzle"
import { eq, sql } from "drizzle-orm"
import { integer, pgTable, text } from "drizzle-orm/pg-core"
import { drizzle } from "drizzle-orm/postgres-js"
import postgres from "postgres"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

const invoices = pgTable("invoices", { id: integer().primaryKey(), state: text().notNull() })

runExample("Drizzle over postgres.js", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const db = yield* Effect.acquireRelease(
      Effect.sync(() => drizzle({ client: postgres(url, { max: 4 }) })),
      (db) => Effect.promise(() => db.$client.end())
    )
    yield* step("a table", () => db.execute(sql`create table invoices (id integer primary key, state text not null)`))

    const issue = (invoice: number, cents: number, mistaken = false) =>
      db.transaction(async (tx) => {
        await tx.insert(invoices).values({ id: invoice, state: "open" })
        await AwaDrizzle.enqueue(tx, Charge, { invoice, cents })
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
        return AwaDrizzle.finalize(db, job, async (tx) => {
          await tx.update(invoices).set({ state: "paid" }).where(eq(invoices.id, invoice))
          await AwaDrizzle.enqueue(tx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
