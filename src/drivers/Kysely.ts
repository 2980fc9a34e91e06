/**
 * Jobs in the transactions of [Kysely](https://kysely.dev) (`kysely`), with its PostgreSQL dialect.
 *
 * Its nested transactions are savepoints of a controlled transaction (`trx.savepoint(…)`, `trx.rollbackToSavepoint(…)`). One that
 * swallows the failure of `completeInTx` and goes on to `trx.commit()` would keep the application's rows without their
 * completion; COMMIT fails with `WA007` instead.
 *
 * Kysely listens to no error of a connection that is in a transaction: when the server ends one between two statements, Node
 * ends the process. Give its pool a listener: `pool.on("connect", (client) => client.on("error", log))`.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import { CompiledQuery, type Kysely, type QueryResult, type Transaction } from "kysely"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import type { FinalizationReceipt } from "../FinalizationReceipt.js"
import { closableKysely } from "../internal/closableKysely.js"
import type { FinalizeError } from "../JobError.js"
import type { OutcomeSelected } from "../JobOutcome.js"

/**
 * What runs statements: a `Kysely<DB>`, whatever its tables are.
 *
 * @since 0.1.0
 * @category models
 */
export interface Executor {
  readonly isTransaction: boolean
  readonly executeQuery: <Row>(query: CompiledQuery<Row>) => Promise<QueryResult<Row>>
  readonly withoutPlugins: () => Executor
}

/**
 * An open transaction: a `Transaction<DB>`, whatever its tables are, also a controlled one.
 *
 * @since 0.1.0
 * @category models
 */
export interface OpenTransaction extends Executor {
  readonly isTransaction: true
}

/**
 * One statement in the open transaction, past the plugins, which could rename columns.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (db: Executor): Driver.Query =>
  async (text, values) => {
    const compiled: CompiledQuery<Record<string, unknown>> = CompiledQuery.raw(text, [...values])
    return (await db.withoutPlugins().executeQuery(compiled)).rows
  }

type Adapter = DriverAdapter.Adapter<OpenTransaction, Executor>
// of savepoints it knows nothing at run time
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query, (tx) => Number(tx.isTransaction))

/**
 * Enqueues a job in the open transaction; with the `Kysely` itself it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaKysely from "effect-awa/drivers/Kysely"
 * import type { Kysely } from "kysely"
 *
 * interface Database {
 *   invoices: { id: number; state: string }
 * }
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = (db: Kysely<Database>, invoice: number) =>
 *   db.transaction().execute(async (trx) => {
 *     await trx.updateTable("invoices").set({ state: "paid" }).where("id", "=", invoice).execute()
 *     await AwaKysely.enqueue(trx, SendReceipt, { invoice })
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
  <DB>(db: Kysely<DB>) =>
  <A>(body: (tx: Transaction<DB>) => Promise<A>): Promise<A> =>
    db
      .transaction()
      .execute(body)
      .catch((error: unknown) => {
        // COMMIT answered ROLLBACK (C-42): Kysely notices, but by an error of its own
        if (error instanceof Error && error.name === "AbortedTransactionError") {
          throw Object.assign(new Error(error.message, { cause: error }), { code: "25P02", severity: "ERROR" })
        }
        throw error
      })

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * Kysely. What the body writes with `trx` commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaKysely from "effect-awa/drivers/Kysely"
 * import type { Kysely } from "kysely"
 *
 * interface Database {
 *   invoices: { id: number; state: string }
 * }
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (db: Kysely<Database>) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaKysely.finalize(db, job, (trx) =>
 *       trx.updateTable("invoices").set({ state: "paid" }).where("id", "=", job.payload.invoice).execute()
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize = <DB, Kind extends string>(
  db: Kysely<DB>,
  attempt: Driver.Finalizable<Kind>,
  body: (tx: Transaction<DB>, signal: AbortSignal) => PromiseLike<unknown>,
  options?: { readonly maximumDuration?: Duration.DurationInput }
): Effect.Effect<FinalizationReceipt<Kind>, FinalizeError | OutcomeSelected> =>
  DriverAdapter.finalizer<Kysely<DB>, Transaction<DB>>(transaction, query, closableKysely)(db, attempt, body, options)
