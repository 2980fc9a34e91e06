/**
 * Jobs in the transactions of [node-postgres](https://node-postgres.com) (`pg`).
 *
 * Its nested transactions are savepoints that you write yourself. One that swallows the failure of `completeInTx` and goes on to
 * COMMIT would keep the application's rows without their completion; COMMIT fails with `WA007` instead.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type { ClientBase, Pool, PoolClient } from "pg"
import type * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import type { FinalizationReceipt } from "../FinalizationReceipt.js"
import { closableClient } from "../internal/closableClient.js"
import { completeError } from "../internal/completionCall.js"
import { driverFinalize, type Step } from "../internal/driverFinalize.js"
import { orGivenUp } from "../internal/givenUp.js"
import { isIdleClient, sendBegin, type Told } from "../internal/pgClient.js"
import { pgCompletion, running } from "../internal/pgCompletion.js"
import { lastCommand } from "../internal/pgResult.js"
import { CompletionMissing, type FinalizeError } from "../JobError.js"
import type { OutcomeSelected } from "../JobOutcome.js"

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

/** A statement on the client by way of a callback, as a promise that its connection's end rejects. */
const answered = (send: (told: Told) => void): Promise<unknown> =>
  new Promise((resolve, reject) => {
    send((error, result) => (error === undefined || error === null ? resolve(result) : reject(asError(error))))
  })

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)))

/** Bound here: a test that fakes timers later must not keep a failure from being told. */
const turn = setImmediate

/** COMMIT of an aborted transaction answers ROLLBACK, without an error (C-42). */
const rolledBack = (command: string): Error =>
  Object.assign(new Error(`COMMIT answered ${command}`), { code: "25P02", severity: "ERROR" })

/** The body in a transaction on a connection of the pool, which begins and ends in one round trip each. */
const transaction = async <Kind extends string>(
  pool: Pool,
  attempt: Driver.Finalizable<Kind>,
  body: (client: PoolClient, signal: AbortSignal) => PromiseLike<unknown>,
  expect: boolean,
  step: Step,
  abandoned: AbortSignal
): Promise<FinalizationReceipt<Kind>> => {
  const completion = pgCompletion(attempt)
  const { waits } = running(attempt)
  waits(true)
  const client = await pool.connect().finally(() => waits(false))
  let failure: Error | undefined
  let ofTheBody: { readonly error: unknown } | undefined
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
  const orLost = <A>(promise: Promise<A>): Promise<A> => Promise.race([promise, lost])
  try {
    const first = expect ? completion.expectation : undefined
    const begun = await orLost(answered((told) => sendBegin(client, step.maximumMillis, told, first)))
    if (expect) completion.expected(begun)
    step.begun()
    const closable = closableClient(client)
    await orLost(
      orGivenUp(() => body(closable.tx, step.signal), step.signal, closable).catch((error: unknown) => {
        ofTheBody = { error }
        throw error
      })
    )
    step.beforeCompletion()
    if (isIdleClient(client)) {
      throw new CompletionMissing({ sqlState: "WA007", reason: "its body had ended it" })
    }
    step.completed()
    const result = await orLost(answered((told) => completion.send(client, told)))
    const command = lastCommand(result)
    if (command !== "COMMIT") throw rolledBack(command)
    const receipt = completion.read(result)
    if (receipt === undefined) throw new Error("complete_job gave no receipt that can be read")
    return receipt
  } catch (error) {
    if (failure === undefined) {
      // a connection on which even this fails is in an unknown state: the pool must not give it to anybody else
      await orLost(client.query("rollback")).catch(onError)
    }
    // the end of a connection may be told before the statement that it fails, and so before the body that fails by it
    if (error === failure && ofTheBody === undefined) await new Promise(turn)
    throw completeError(attempt.token, ofTheBody === undefined ? error : ofTheBody.error)
  } finally {
    client.off("error", onError)
    client.off("end", onEnd)
    abandoned.removeEventListener("abort", onAbandoned)
    client.release(failure)
  }
}

/**
 * `finalize` of this driver. `expect`: as of `Driver.CompleteOptions`. The completion and COMMIT are sent together, so without it nothing
 * is lost but for a body that ends the transaction itself, by a COMMIT of its own: its rows are kept without the completion then.
 *
 * @since 0.1.0
 * @category models
 */
export type Finalize = <Kind extends string>(
  pool: Pool,
  attempt: Driver.Finalizable<Kind>,
  body: (client: PoolClient, signal: AbortSignal) => PromiseLike<unknown>,
  options?: { readonly maximumDuration?: Duration.DurationInput; readonly expect?: boolean }
) => Effect.Effect<FinalizationReceipt<Kind>, FinalizeError | OutcomeSelected>

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
export const finalize: Finalize = (pool, attempt, body, options) =>
  driverFinalize(attempt.token, options?.maximumDuration, (step, abandoned) =>
    transaction(pool, attempt, body, options?.expect !== false, step, abandoned)
  )
