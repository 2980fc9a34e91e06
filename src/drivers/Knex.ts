/**
 * Jobs in the transactions of [Knex](https://knexjs.org) (`knex`), with its `pg` dialect.
 *
 * Its nested transaction is `trx.transaction(…)`, or `trx.savepoint(…)`. A rejection that is caught around it, and not passed on
 * to `knex.transaction(…)`, would keep the application's rows without their completion; COMMIT fails with `WA007` instead. Await
 * every statement of the body: one that fails unawaited after the completion turns COMMIT into a rollback that Knex does not
 * report; the runtime finds out. A statement by `knex` inside a transaction, without `.transacting(trx)`, is outside it.
 *
 * @since 0.1.0
 */
import type { Knex } from "knex"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import { rowsOf } from "../internal/rowsOf.js"

/**
 * One statement in the open transaction. Knex has its own mark for a parameter and makes the server's of it; it prepares nothing.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (knex: Knex): Driver.Query =>
  async (text, values) => {
    const bindings: Array<string | null> = []
    const marked = text.replaceAll(/\$(\d+)|\?/g, (mark, number: string | undefined) => {
      if (number === undefined) return `\\${mark}`
      bindings.push(values[Number(number) - 1] ?? null)
      return "?"
    })
    const answer: unknown = await knex.raw(marked, bindings)
    return rowsOf(answer)
  }

const depth = (trx: Knex.Transaction): number =>
  trx.isTransaction !== true || trx.isCompleted() ? 0 : trx.parentTransaction === undefined ? 1 : 2

type Adapter = DriverAdapter.Adapter<Knex.Transaction, Knex>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make<Knex.Transaction, Knex>(query, depth)

/**
 * Enqueues a job in the open transaction; with `knex` itself it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaKnex from "effect-awa/drivers/Knex"
 * import type { Knex } from "knex"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (knex: Knex, invoice: number) =>
 *   knex.transaction(async (trx) => {
 *     await trx("invoices").where({ id: invoice }).update({ state: "paid" })
 *     await AwaKnex.enqueue(trx, SendReceipt, { invoice })
 *   })
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const enqueue: Adapter["enqueue"] = adapter.enqueue

/**
 * Enqueues many jobs in one statement. See `Driver.enqueueAll`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const enqueueAll: Adapter["enqueueAll"] = adapter.enqueueAll

/**
 * Makes COMMIT fail unless the open transaction completes this attempt. First in the transaction. See
 * `Driver.expectCompletion`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const expectCompletion: Adapter["expectCompletion"] = adapter.expectCompletion

/**
 * Completes the attempt in the open transaction. See `Driver.completeInTx`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const completeInTx: Adapter["completeInTx"] = adapter.completeInTx

const transaction =
  (knex: Knex) =>
  async <A>(body: (trx: Knex.Transaction) => Promise<A>): Promise<A> => {
    // a body that calls `trx.rollback()` is no error to Knex, which does not wait for its end then
    const value: Array<A> = []
    await knex.transaction(async (trx) => {
      value.push(await body(trx))
    })
    const [only] = value
    if (only === undefined) throw new Error("the transaction ended without its body")
    return only
  }

/** From ROLLBACK on Knex itself refuses what the body asks for. */
const closable = (tx: Knex.Transaction): DriverAdapter.Closable<Knex.Transaction> => ({ tx, close: () => undefined })

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * Knex. What the body writes with `trx` commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaKnex from "effect-awa/drivers/Knex"
 * import type { Knex } from "knex"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (knex: Knex) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaKnex.finalize(knex, job, (trx) =>
 *       trx("invoices").where({ id: job.payload.invoice }).update({ state: "paid" })
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize: DriverAdapter.Finalize<Knex, Knex.Transaction> = /* @__PURE__ */ DriverAdapter.finalizer(
  transaction,
  query,
  closable
)
