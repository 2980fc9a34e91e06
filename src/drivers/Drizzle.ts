/**
 * Jobs in the transactions of [Drizzle](https://orm.drizzle.team) (`drizzle-orm`), over node-postgres and over postgres.js.
 *
 * Its nested transaction is `tx.transaction(…)`. A rejection that is caught around it, and not passed on to `db.transaction(…)`,
 * would keep the application's rows without their completion; COMMIT fails with `WA007` instead. Await every statement of the
 * body: one that fails unawaited after the completion turns COMMIT into a rollback that Drizzle does not report; the runtime
 * finds out. What you write by `db` inside a transaction is on another connection, and outside it.
 *
 * @since 0.1.0
 */
import { type SQL, sql } from "drizzle-orm"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import type { FinalizationReceipt } from "../FinalizationReceipt.js"
import { closableDrizzle, pooledClient } from "../internal/drizzleClient.js"
import { rowsOf } from "../internal/rowsOf.js"
import type { FinalizeError } from "../JobError.js"
import type { OutcomeSelected } from "../JobOutcome.js"

/**
 * What runs statements: a PostgreSQL database of Drizzle, whatever its schema is.
 *
 * @since 0.1.0
 * @category models
 */
export interface Executor {
  readonly execute: (query: SQL) => PromiseLike<unknown>
}

/**
 * An open transaction: what `db.transaction(…)` gives its body.
 *
 * @since 0.1.0
 * @category models
 */
export interface OpenTransaction extends Executor {
  readonly rollback: () => never
}

/**
 * What opens transactions.
 *
 * @since 0.1.0
 * @category models
 */
export interface Database<Tx> {
  readonly transaction: <A>(body: (tx: Tx) => Promise<A>) => Promise<A>
}

/** Drizzle numbers the parameters itself: one that stands twice is sent twice. */
const statement = (text: string, values: ReadonlyArray<string | null>): SQL =>
  sql.join(
    text
      .split(/\$(\d+)/)
      .map((part, index) => (index % 2 === 0 ? sql.raw(part) : sql.param(values[Number(part) - 1] ?? null)))
  )

/**
 * One statement in the open transaction, never prepared: it works behind a pooler in transaction mode.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (db: Executor): Driver.Query =>
  async (text, values) =>
    rowsOf(await db.execute(statement(text, values)))

/** Over postgres.js a nested transaction does not say that it is one. */
const depth = (tx: OpenTransaction): number => {
  if (!Predicate.hasProperty(tx, "rollback")) return 0
  return Predicate.hasProperty(tx, "nestedIndex") && typeof tx.nestedIndex === "number" ? 1 + tx.nestedIndex : 1
}

type Adapter = DriverAdapter.Adapter<OpenTransaction, Executor>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query, depth)

/**
 * Enqueues a job in the open transaction; with the database itself it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { eq } from "drizzle-orm"
 * import type { NodePgDatabase } from "drizzle-orm/node-postgres"
 * import { integer, pgTable, text } from "drizzle-orm/pg-core"
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaDrizzle from "effect-awa/drivers/Drizzle"
 *
 * const invoices = pgTable("invoices", { id: integer("id").primaryKey(), state: text("state").notNull() })
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (db: NodePgDatabase, invoice: number) =>
 *   db.transaction(async (tx) => {
 *     await tx.update(invoices).set({ state: "paid" }).where(eq(invoices.id, invoice))
 *     await AwaDrizzle.enqueue(tx, SendReceipt, { invoice })
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
  <Tx extends OpenTransaction>(db: Database<Tx>) =>
  async <A>(body: (tx: Tx) => Promise<A>): Promise<A> => {
    // postgres.js would await the elements of an array: the value is taken past it
    const value: Array<A> = []
    let lost: Error | undefined
    let stopListening = (): void => {}
    try {
      await db.transaction(async (tx) => {
        const client = pooledClient(tx)
        if (client === undefined) {
          value.push(await body(tx))
          return
        }
        // Drizzle listens to no error of the client, and one that is unheard ends the process
        const ended = new Promise<never>((_, reject) => {
          const onError = (error: Error): void => {
            lost ??= error
            reject(error)
          }
          client.on("error", onError)
          stopListening = () => client.off("error", onError)
        })
        ended.catch(() => undefined)
        value.push(await Promise.race([body(tx), ended]))
      })
    } catch (error) {
      throw lost ?? error // rather than what became of ROLLBACK then
    } finally {
      stopListening()
    }
    const [only] = value
    if (only === undefined) throw new Error("the transaction ended without its body")
    return only
  }

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * Drizzle. What the body writes with `tx` commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { eq } from "drizzle-orm"
 * import type { NodePgDatabase } from "drizzle-orm/node-postgres"
 * import { integer, pgTable, text } from "drizzle-orm/pg-core"
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaDrizzle from "effect-awa/drivers/Drizzle"
 *
 * const invoices = pgTable("invoices", { id: integer("id").primaryKey(), state: text("state").notNull() })
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (db: NodePgDatabase) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaDrizzle.finalize(db, job, (tx) =>
 *       tx.update(invoices).set({ state: "paid" }).where(eq(invoices.id, job.payload.invoice))
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize = <Tx extends OpenTransaction, Kind extends string>(
  db: Database<Tx>,
  attempt: Driver.Finalizable<Kind>,
  body: (tx: Tx, signal: AbortSignal) => PromiseLike<unknown>,
  options?: { readonly maximumDuration?: Duration.DurationInput }
): Effect.Effect<FinalizationReceipt<Kind>, FinalizeError | OutcomeSelected> =>
  DriverAdapter.finalizer<Database<Tx>, Tx>(transaction, query, closableDrizzle)(db, attempt, body, options)
