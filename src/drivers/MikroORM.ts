/**
 * Jobs in the transactions of [MikroORM](https://mikro-orm.io) 6 (`@mikro-orm/postgresql`).
 *
 * Its nested transaction is `em.transactional(…)` of an entity manager that is in one already. A rejection that is caught around
 * it, and not passed on to the outer `em.transactional(…)`, would keep the application's rows without their completion; COMMIT
 * fails with `WA007` instead. Await every statement of the body: one that fails unawaited after the completion turns COMMIT into a
 * rollback that MikroORM does not report; the runtime finds out. What you write by another entity manager is outside the transaction.
 *
 * MikroORM writes values into the text of a statement: a log of its statements shows payloads.
 *
 * @since 0.1.0
 */
import type { EntityManager } from "@mikro-orm/postgresql"
import * as Predicate from "effect/Predicate"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import { rowsOf } from "../internal/rowsOf.js"

/**
 * One statement in the entity manager's open transaction. MikroORM has its own mark for a parameter, and prepares nothing.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (em: EntityManager): Driver.Query =>
  async (text, values) => {
    const bindings: Array<string | null> = []
    const marked = text.replaceAll(/\$(\d+)|\?/g, (mark, number: string | undefined) => {
      if (number === undefined) return `\\${mark}`
      bindings.push(values[Number(number) - 1] ?? null)
      return "?"
    })
    const answer: unknown = await em.execute(marked, bindings)
    return rowsOf(answer)
  }

const depth = (em: EntityManager): number => {
  const open: unknown = em.getTransactionContext()
  return open === undefined ? 0 : Predicate.hasProperty(open, "savepointName") ? 2 : 1
}

type Adapter = DriverAdapter.Adapter<EntityManager>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query, depth)

/**
 * Enqueues a job in the entity manager's open transaction; outside one it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import type { EntityManager } from "@mikro-orm/postgresql"
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaMikroORM from "effect-awa/drivers/MikroORM"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (em: EntityManager, invoice: number) =>
 *   em.transactional(async (tx) => {
 *     await tx.execute("update invoices set state = 'paid' where id = ?", [invoice])
 *     await AwaMikroORM.enqueue(tx, SendReceipt, { invoice })
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
 * Makes COMMIT fail unless the entity manager's open transaction completes this attempt. First in the transaction. See
 * `Driver.expectCompletion`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const expectCompletion: Adapter["expectCompletion"] = adapter.expectCompletion

/**
 * Completes the attempt in the entity manager's open transaction. See `Driver.completeInTx`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const completeInTx: Adapter["completeInTx"] = adapter.completeInTx

const transaction =
  (em: EntityManager) =>
  <A>(body: (tx: EntityManager) => Promise<A>): Promise<A> =>
    em.transactional(body)

/** From ROLLBACK on Knex, on which MikroORM is built, refuses what the body asks for. */
const closable = (tx: EntityManager): DriverAdapter.Closable<EntityManager> => ({ tx, close: () => undefined })

const finalizeIn: DriverAdapter.Finalize<EntityManager, EntityManager> = /* @__PURE__ */ DriverAdapter.finalizer(
  transaction,
  query,
  closable
)

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * MikroORM. What the body writes with `tx`, or leaves to its unit of work, commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import type { EntityManager } from "@mikro-orm/postgresql"
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaMikroORM from "effect-awa/drivers/MikroORM"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (em: EntityManager) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaMikroORM.finalize(em, job, (tx) =>
 *       tx.execute("update invoices set state = 'paid' where id = ?", [job.payload.invoice])
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize: DriverAdapter.Finalize<EntityManager, EntityManager> = (em, attempt, body, options) =>
  finalizeIn(
    em,
    attempt,
    async (tx, signal) => {
      await body(tx, signal)
      // MikroORM would do it before COMMIT: too late to tell what failed from a COMMIT that did
      await tx.flush()
    },
    options
  )
