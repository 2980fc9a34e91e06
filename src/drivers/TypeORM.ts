/**
 * Jobs in the transactions of [TypeORM](https://typeorm.io) (`typeorm`), on its `postgres` driver.
 *
 * Its nested transaction is `manager.transaction(…)` of a manager that is in one already. A rejection that is caught around it,
 * and not passed on to `dataSource.transaction(…)`, would keep the application's rows without their completion; COMMIT fails with
 * `WA007` instead. Await every statement of the body: one that fails unawaited after the completion turns COMMIT into a rollback
 * that TypeORM does not report; the runtime finds out. What you write by the data source, or by a repository of it, is on another
 * connection, and outside the transaction.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import type { DataSource, EntityManager } from "typeorm"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import { closableManager } from "../internal/closableManager.js"
import { rowsOf } from "../internal/rowsOf.js"

/**
 * One statement in the manager's open transaction, never prepared: it works behind a pooler in transaction mode.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (manager: EntityManager): Driver.Query =>
  async (text, values) =>
    rowsOf(await manager.query<unknown>(text, [...values]))

/** The manager of a nested transaction is the same one: the query runner counts, which its types do not show. */
const depth = ({ queryRunner }: EntityManager): number => {
  if (queryRunner === undefined) return 0
  return Predicate.hasProperty(queryRunner, "transactionDepth") && typeof queryRunner.transactionDepth === "number"
    ? queryRunner.transactionDepth
    : Number(queryRunner.isTransactionActive)
}

type Adapter = DriverAdapter.Adapter<EntityManager>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query, depth)

/**
 * Enqueues a job in the manager's open transaction; with `dataSource.manager` it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaTypeORM from "effect-awa/drivers/TypeORM"
 * import type { DataSource } from "typeorm"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (dataSource: DataSource, invoice: number) =>
 *   dataSource.transaction(async (manager) => {
 *     await manager.update("invoices", { id: invoice }, { state: "paid" })
 *     await AwaTypeORM.enqueue(manager, SendReceipt, { invoice })
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
 * Makes COMMIT fail unless the manager's open transaction completes this attempt. First in the transaction. See
 * `Driver.expectCompletion`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const expectCompletion: Adapter["expectCompletion"] = adapter.expectCompletion

/**
 * Completes the attempt in the manager's open transaction. See `Driver.completeInTx`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const completeInTx: Adapter["completeInTx"] = adapter.completeInTx

const transaction =
  (dataSource: DataSource) =>
  <A>(body: (manager: EntityManager) => Promise<A>): Promise<A> =>
    dataSource.transaction(body)

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * TypeORM. What the body writes with `manager` commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaTypeORM from "effect-awa/drivers/TypeORM"
 * import type { DataSource } from "typeorm"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (dataSource: DataSource) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaTypeORM.finalize(dataSource, job, (manager) =>
 *       manager.update("invoices", { id: job.payload.invoice }, { state: "paid" })
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize: DriverAdapter.Finalize<DataSource, EntityManager> = /* @__PURE__ */ DriverAdapter.finalizer(
  transaction,
  query,
  closableManager
)
