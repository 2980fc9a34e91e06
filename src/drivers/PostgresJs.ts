/**
 * Jobs in the transactions of [postgres.js](https://github.com/porsager/postgres) (`postgres`).
 *
 * Its nested transaction is `sql.savepoint(…)`. A rejection that is caught around it, and not passed on to `sql.begin(…)`, would
 * keep the application's rows without their completion; COMMIT fails with `WA007` instead. Await every statement of the body: one
 * that fails unawaited after the completion turns COMMIT into a rollback that `sql.begin` does not report; the runtime finds out.
 *
 * @since 0.1.0
 */
import type { Sql, TransactionSql } from "postgres"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import { closableSql } from "../internal/closableSql.js"

/**
 * One statement in the open transaction, never prepared: it works behind a pooler in transaction mode.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (sql: Sql | TransactionSql): Driver.Query =>
  async (text, values) =>
    (await sql.unsafe<Array<Record<string, unknown>>>(text, [...values], { prepare: false })).map((row) => ({ ...row }))

type Adapter = DriverAdapter.Adapter<TransactionSql, Sql | TransactionSql>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query)

/**
 * Enqueues a job in the open transaction; with the pool itself it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as PostgresJs from "effect-awa/drivers/PostgresJs"
 * import type { Sql } from "postgres"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (sql: Sql, invoice: number) =>
 *   sql.begin(async (tx) => {
 *     await tx`update invoices set state = 'paid' where id = ${invoice}`
 *     await PostgresJs.enqueue(tx, SendReceipt, { invoice })
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
  (sql: Sql) =>
  // `begin` would await the elements of an array: the value is taken past it
  async <A>(body: (tx: TransactionSql) => Promise<A>): Promise<A> => {
    const value: Array<A> = []
    await sql.begin(async (tx) => {
      value.push(await body(tx))
    })
    const [only] = value
    if (only === undefined) throw new Error("the transaction ended without its body")
    return only
  }

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * `postgres`. What the body writes with `tx` commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as PostgresJs from "effect-awa/drivers/PostgresJs"
 * import type { Sql } from "postgres"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (sql: Sql) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     PostgresJs.finalize(sql, job, (tx) => tx`update invoices set state = 'paid' where id = ${job.payload.invoice}`)
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize: DriverAdapter.Finalize<Sql, TransactionSql> = /* @__PURE__ */ DriverAdapter.finalizer(
  transaction,
  query,
  closableSql
)
