/**
 * Jobs in the transactions of [Slonik](https://github.com/gajus/slonik) (`slonik`).
 *
 * Its nested transaction is `tx.transaction(…)`, whose savepoint is never released. A rejection that is caught around it, and not
 * passed on to `pool.transaction(…)`, would keep the application's rows without their completion; COMMIT fails with `WA007`
 * instead. Await every statement of the body: of two that run at the same time Slonik loses one, COMMIT fails with an error of its
 * own (`CommitUnknown`), and the runtime finds out what became of it.
 *
 * Slonik runs a transaction again by itself after a serialization failure, whose handler would see the first one's receipt as
 * well; `finalize` tells it not to. Behind a pooler, whose startup packets know no such settings, switch off the pool's
 * `statementTimeout` and `idleInTransactionSessionTimeout`. Slonik 47, the last one for Node 20, never replaces a connection that
 * was cut in the middle of a statement.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import { type CommonQueryMethods, createSqlTag, type DatabasePool, type DatabaseTransactionConnection } from "slonik"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import { closableSlonik } from "../internal/closableSlonik.js"
import { rowsOf } from "../internal/rowsOf.js"

const sql = /* @__PURE__ */ createSqlTag()

/**
 * One statement in the open transaction, never prepared: it works behind a pooler in transaction mode.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (connection: CommonQueryMethods): Driver.Query =>
  async (text, values) =>
    rowsOf(await connection.query({ ...sql.unsafe``, sql: text, values: [...values] }))

/** Of the connections only the pool can be told from a transaction. */
const depth = (connection: CommonQueryMethods): number => (Predicate.hasProperty(connection, "connect") ? 0 : 1)

type Adapter = DriverAdapter.Adapter<DatabaseTransactionConnection, CommonQueryMethods>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query, depth)

/**
 * Enqueues a job in the open transaction; with the pool itself it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaSlonik from "effect-awa/drivers/Slonik"
 * import { type DatabasePool, sql } from "slonik"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (pool: DatabasePool, invoice: number) =>
 *   pool.transaction(async (tx) => {
 *     await tx.query(sql.unsafe`update invoices set state = 'paid' where id = ${invoice}`)
 *     await AwaSlonik.enqueue(tx, SendReceipt, { invoice })
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
  (pool: DatabasePool) =>
  <A>(body: (tx: DatabaseTransactionConnection) => Promise<A>): Promise<A> =>
    pool.transaction(body, 0) // a body runs once

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * Slonik. What the body writes with `tx` commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaSlonik from "effect-awa/drivers/Slonik"
 * import { type DatabasePool, sql } from "slonik"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (pool: DatabasePool) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaSlonik.finalize(pool, job, (tx) =>
 *       tx.query(sql.unsafe`update invoices set state = 'paid' where id = ${job.payload.invoice}`)
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize: DriverAdapter.Finalize<DatabasePool, DatabaseTransactionConnection> =
  /* @__PURE__ */ DriverAdapter.finalizer(transaction, query, closableSlonik)
