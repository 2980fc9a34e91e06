/**
 * @effect/sql-drizzle: `npm run example -- drivers/effectSqlDrizzle`.
 *
 * With TypeScript's `"moduleResolution": "NodeNext"` the types of sql-drizzle name the CommonJS ones of drizzle-orm, which is
 * therefore required here. With `"bundler"` it is imported as ever.
 */
import { createRequire } from "node:module"
import { SqlClient } from "@effect/sql"
import * as PgDrizzle from "@effect/sql-drizzle/Pg"
import { PgClient } from "@effect/sql-pg"
import type * as Drizzle from "drizzle-orm" with { "resolution-mode": "require" }
import type * as PgCore from "drizzle-orm/pg-core" with { "resolution-mode": "require" }
import { Effect, Layer, Redacted } from "effect"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

const require = createRequire(import.meta.url)
/* eslint-disable @typescript-eslint/no-unsafe-assignment -- what `require` gives has no type of its own */
const { eq }: typeof Drizzle = require("drizzle-orm")
const { integer, pgTable, text }: typeof PgCore = require("drizzle-orm/pg-core")
/* eslint-enable @typescript-eslint/no-unsafe-assignment */

const invoices = pgTable("invoices", { id: integer().primaryKey(), state: text().notNull() })

runExample("@effect/sql-drizzle", ({ check, rollsBack, step, url, work }) => {
  const Database = PgClient.layer({ url: Redacted.make(url), maxConnections: 4 })
  return Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const db = yield* PgDrizzle.make()

    yield* step("a table", sql`create table invoices (id integer primary key, state text not null)`)

    const issue = (invoice: number, cents: number, mistaken = false) =>
      sql.withTransaction(
        Effect.gen(function* () {
          yield* db.insert(invoices).values({ id: invoice, state: "open" })
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
        yield* db.update(invoices).set({ state: "paid" }).where(eq(invoices.id, invoice))
        yield* SendReceipt.enqueue({ invoice })
        approve(cents)
      })
      return job.finalize(pay)
    })
    yield* work(Layer.provide(ChargeLive, Layer.succeed(SqlClient.SqlClient, sql)))
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  }).pipe(Effect.provide(Database))
})
