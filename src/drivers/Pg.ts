/**
 * Jobs in the transactions of [node-postgres](https://node-postgres.com) (`pg`).
 *
 * Its nested transactions are savepoints that you write yourself. One that swallows the failure of `completeInTx` and goes on to
 * COMMIT would keep the application's rows without their completion; COMMIT fails with `WA007` instead.
 *
 * @since 0.1.0
 */
import type { ClientBase, Pool, PoolClient } from "pg"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import { closableClient } from "../internal/closableClient.js"

/**
 * One statement on the client's open transaction.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (client: ClientBase): Driver.Query =>
  async (text, values) =>
    (await client.query<Record<string, unknown>>(text, [...values])).rows

type Adapter = DriverAdapter.Adapter<ClientBase>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query)

/**
 * Enqueues a job in the client's open transaction; outside one it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as Pg from "effect-awa/drivers/Pg"
 * import type { PoolClient } from "pg"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = async (client: PoolClient, invoice: number) => {
 *   await client.query("update invoices set state = 'paid' where id = $1", [invoice])
 *   await Pg.enqueue(client, SendReceipt, { invoice })
 * }
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
 * Makes COMMIT fail unless the client's open transaction completes this attempt. First in the transaction. See
 * `Driver.expectCompletion`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const expectCompletion: Adapter["expectCompletion"] = adapter.expectCompletion

/**
 * Completes the attempt in the client's open transaction. See `Driver.completeInTx`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const completeInTx: Adapter["completeInTx"] = adapter.completeInTx

const transaction =
  (pool: Pool) =>
  async <A>(body: (client: PoolClient) => Promise<A>, abandoned: AbortSignal): Promise<A> => {
    const client = await pool.connect()
    let failure: Error | undefined
    let giveUp = (_: Error): void => {}
    // settles when the connection has ended, or nobody waits any more: a body may hang for ever, its connection must not
    const lost = new Promise<never>((_, reject) => {
      giveUp = (error) => {
        failure ??= error
        reject(failure)
      }
    })
    lost.catch(() => undefined)
    const onEnd = (): void => giveUp(new Error("the connection has ended"))
    const onAbandoned = (): void => giveUp(new Error("the transaction took too long"))
    const onError = (error: Error): void => giveUp(error) // unheard, it would end the process
    client.on("error", onError)
    client.once("end", onEnd)
    abandoned.addEventListener("abort", onAbandoned, { once: true })
    try {
      await Promise.race([client.query("begin"), lost])
      const value = await Promise.race([body(client), lost])
      const { command } = await Promise.race([client.query("commit"), lost])
      // COMMIT of an aborted transaction answers ROLLBACK, without an error (C-42)
      if (command !== "COMMIT") {
        throw Object.assign(new Error(`COMMIT answered ${command}`), { code: "25P02", severity: "ERROR" })
      }
      return value
    } catch (error) {
      if (failure === undefined) {
        // a connection on which even this fails is in an unknown state: the pool must not give it to anybody else
        await Promise.race([client.query("rollback"), lost]).catch(onError)
      }
      throw error
    } finally {
      client.off("error", onError)
      client.off("end", onEnd)
      abandoned.removeEventListener("abort", onAbandoned)
      client.release(failure)
    }
  }

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * `pg`. What the body writes with the client commits with the job's completion, or not at all.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as Pg from "effect-awa/drivers/Pg"
 * import type { Pool } from "pg"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = (pool: Pool) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     Pg.finalize(pool, job, (client) =>
 *       client.query("update invoices set state = 'paid' where id = $1", [job.payload.invoice])
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize: DriverAdapter.Finalize<Pool, PoolClient> = /* @__PURE__ */ DriverAdapter.finalizer(
  transaction,
  query,
  closableClient
)
