/**
 * What the adapters of `effect-awa/drivers/` are made of, for a driver that has none there.
 *
 * @example
 * ```ts
 * import type { Driver } from "effect-awa"
 * import * as DriverAdapter from "effect-awa/DriverAdapter"
 *
 * interface MyTransaction {
 *   readonly run: (sql: string, parameters: ReadonlyArray<string | null>) => Promise<Array<Record<string, unknown>>>
 * }
 * const query = (tx: MyTransaction): Driver.Query => (text, values) => tx.run(text, values)
 * export const { completeInTx, enqueue, expectCompletion } = DriverAdapter.make(query)
 * ```
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import * as Driver from "./Driver.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import { orGivenUp } from "./internal/givenUp.js"
import { type FinalizeError, TransactionUnavailable } from "./JobError.js"
import type { OutcomeSelected } from "./JobOutcome.js"

/**
 * What the adapters of `effect-awa/drivers/` have in common. `Tx` is the driver's open transaction, `Any` what a job may also be
 * enqueued with: where it is a connection pool, the enqueue commits by itself.
 *
 * @since 0.1.0
 * @category models
 */
export interface Adapter<Tx extends Any, Any = Tx> {
  /** `Driver.enqueue` */
  readonly enqueue: <Kind extends string, Payload>(
    tx: Any,
    job: Driver.Enqueueable<Kind, Payload>,
    payload: Payload,
    options?: Driver.DriverEnqueueOptions
  ) => Promise<Driver.DriverEnqueued<Kind>>
  /** `Driver.enqueueAll` */
  readonly enqueueAll: <Kind extends string, Payload>(
    tx: Any,
    job: Driver.Enqueueable<Kind, Payload>,
    payloads: Iterable<Payload>,
    options?: Driver.DriverEnqueueOptions
  ) => Promise<ReadonlyArray<Driver.DriverEnqueued<Kind>>>
  /** `Driver.expectCompletion` */
  readonly expectCompletion: (tx: Tx, attempt: Driver.Finalizable<string>) => Promise<void>
  /** `Driver.completeInTx` */
  readonly completeInTx: <Kind extends string>(
    tx: Tx,
    attempt: Driver.Finalizable<Kind>,
    options?: Driver.CompleteOptions
  ) => Promise<FinalizationReceipt<Kind>>
}

const within = (depth: number, deepest: number): void => {
  if (depth < 1) throw new TransactionUnavailable({ reason: "no transaction is open" })
  if (depth > deepest) {
    throw new TransactionUnavailable({ reason: "a completion is expected before any savepoint or nested transaction" })
  }
}

/**
 * The adapter of a driver, from its `query`: the way to one that effect-awa has no module for.
 *
 * Where the driver knows how deep it is, `depth` says it: 0 outside any transaction, 1 in one, more inside a savepoint. What
 * the server would refuse is refused before SQL then (`TransactionUnavailable`); a savepoint that it does not know of is the
 * server's to notice.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <Tx extends Any, Any = Tx>(
  query: (tx: Any) => Driver.Query,
  depth: (tx: Tx) => number = () => 1
): Adapter<Tx, Any> => ({
  enqueue: (tx, job, payload, options) => Driver.enqueue(query(tx), job, payload, options),
  enqueueAll: (tx, job, payloads, options) => Driver.enqueueAll(query(tx), job, payloads, options),
  expectCompletion: async (tx, attempt) => {
    within(depth(tx), 1)
    return Driver.expectCompletion(query(tx), attempt)
  },
  // one that was expected outside may be made inside a savepoint
  completeInTx: async (tx, attempt, options) => {
    within(depth(tx), Infinity)
    return Driver.completeInTx(query(tx), attempt, options)
  }
})

/**
 * `finalizeWith` as an adapter offers it: `Pool` opens the transactions, by which `body` writes.
 *
 * @since 0.1.0
 * @category models
 */
export type Finalize<Pool, Tx> = <Kind extends string>(
  pool: Pool,
  attempt: Driver.Finalizable<Kind>,
  body: (tx: Tx, signal: AbortSignal) => PromiseLike<unknown>,
  options?: { readonly maximumDuration?: Duration.DurationInput }
) => Effect.Effect<FinalizationReceipt<Kind>, FinalizeError | OutcomeSelected>

/**
 * A transaction as its body is given it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Closable<Tx> {
  readonly tx: Tx
  /**
   * The body has settled, one way or the other, or was given up. From now on no statement that it left behind may reach the
   * connection: it would be outside the transaction, or inside that of whoever borrows the connection next.
   */
  readonly close: () => void
  /** The body was given up: ends its connection, where the driver would wait for it. */
  readonly end?: () => void
}

/** Bound here: a test that fakes timers later must not keep a failure from being told. */
const turn = setImmediate

/**
 * Where ROLLBACK fails too, since the connection has ended, some drivers tell only that: the body's failure is what counts. The
 * end of a connection may be told before the statement that it fails, and so before the body that fails by it: it has a turn of
 * the event loop.
 */
const tellingWhy =
  <Tx>(transaction: Driver.FinalizeOptions<Tx>["transaction"]): Driver.FinalizeOptions<Tx>["transaction"] =>
  async (body, abandoned) => {
    let failure: { readonly error: unknown } | undefined
    const remembered: typeof body = async (tx) => {
      failure = undefined
      try {
        return await body(tx)
      } catch (error) {
        failure = { error }
        throw error
      }
    }
    return transaction(remembered, abandoned).catch(async (error: unknown) => {
      if (failure === undefined) await new Promise(turn)
      throw failure === undefined ? error : failure.error
    })
  }

/**
 * A driver's `finalize`, from how it runs a transaction (`FinalizeOptions.transaction`) and a statement in it.
 *
 * `closable` says how a body is kept from a transaction that is no longer its own. It is closed to the body when that settles,
 * before the job is completed or the driver rolls back; and half a second after the signal of a body that ignores it, which is
 * given up then, and rolled back by the driver. Without it, or where it answers undefined, a body that ignores its signal keeps
 * the connection until the server ends it, and a statement that it leaves behind goes where the driver sends it.
 *
 * @since 0.1.0
 * @category constructors
 */
export const finalizer =
  <Pool, Tx>(
    transaction: (pool: Pool) => Driver.FinalizeOptions<Tx>["transaction"],
    query: (tx: Tx) => Driver.Query,
    closable?: (tx: Tx) => Closable<Tx> | undefined
  ): Finalize<Pool, Tx> =>
  (pool, attempt, body, options) =>
    Driver.finalizeWith(attempt, {
      transaction: tellingWhy(transaction(pool)),
      query,
      body: (open, signal) => {
        const closed = closable?.(open)
        return closed === undefined ? body(open, signal) : orGivenUp(() => body(closed.tx, signal), signal, closed)
      },
      maximumDuration: options?.maximumDuration
    })
