/**
 * The business tables, and the inbox full of open invoices.
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { Array, Effect, Utils } from "effect"
import { Charge } from "./business.js"
import { Database } from "./database.js"

export const invoiceCount = 2_000

const perTransaction = 50

/** The ledger has no unique constraint: nothing but the jobs' completion keeps a charge from being booked twice. */
export const createTables = Effect.gen(function* () {
  const sql = yield* SqlClient
  const { awa } = yield* Database
  yield* sql`
    create table invoices (
      id            integer primary key,
      amount_cents  integer not null,
      state         text not null default 'open',
      receipt_sent  boolean not null default false
    )`
  yield* sql`
    create table ledger (
      invoice_id    integer not null,
      amount_cents  integer not null,
      charge_id     text not null,
      attempt       integer not null,
      booked_at     timestamptz not null default clock_timestamp()
    )`
  // A charge that is not done by then is taken back by the database and given to another worker.
  yield* sql`insert into ${sql(awa)}.queues (queue, attempt_deadline) values ('billing', '2 seconds')`
})

/** Invoices arrive: each transaction writes some and enqueues their charges. */
export const fillInbox = (seed: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient
    const random = new Utils.PCGRandom(seed)
    const invoices = Array.makeBy(invoiceCount, (index) => ({
      invoiceId: index + 1,
      amountCents: 100 + random.integer(99_900)
    }))
    yield* Effect.forEach(Array.chunksOf(invoices, perTransaction), (batch) =>
      sql.withTransaction(
        Effect.gen(function* () {
          const rows = batch.map(({ amountCents, invoiceId }) => ({ id: invoiceId, amount_cents: amountCents }))
          yield* sql`insert into invoices ${sql.insert(rows)}`
          yield* Charge.enqueueAll(batch)
        })
      )
    )
  })
