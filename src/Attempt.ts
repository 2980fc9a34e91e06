/**
 * What a running handler knows and can do.
 *
 * @since 0.1.0
 */
import type { SqlError } from "@effect/sql/SqlError"
import type * as DateTime from "effect/DateTime"
import type * as Effect from "effect/Effect"
import type * as Duration from "effect/Duration"
import type * as Option from "effect/Option"
import type * as Schema from "effect/Schema"
import type { InTransaction } from "./ApplicationPool.js"
import type { ApplicationTransaction } from "./ApplicationTransaction.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import type {
  CallbackError,
  CallbackUnavailable,
  CompleteError,
  FinalizeError,
  PayloadRejected,
  StaleAttempt,
  TransactionError
} from "./JobError.js"
import type { JobId } from "./JobId.js"
import type { JobOutcome } from "./JobOutcome.js"
import type { RunLease } from "./RunLease.js"

/**
 * The progress of a job, kept over its attempts. It reaches the database with the next heartbeat or with the attempt's end.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  /** What was set last, by this attempt or an earlier one. */
  readonly get: Effect.Effect<Option.Option<unknown>>
  /** A JSON value of at most 64 KiB. What cannot be stored is refused here, so that it never blocks the job's end. */
  readonly set: (value: unknown) => Effect.Effect<void, PayloadRejected>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CallbackOptions<A, I> {
  /** How long the answer may take, by the database's clock. A heartbeat by the callback's id begins it anew. */
  readonly timeout: Duration.DurationInput
  /** What the callback is answered with. */
  readonly result: Schema.Schema<A, I>
}

/**
 * A callback that the attempt registered. Whoever is to answer it needs its id, and nothing else (`Callbacks`).
 *
 * @since 0.1.0
 * @category models
 */
export interface Callback<A> {
  /** Unguessable. */
  readonly id: string
  /**
   * Waits for the answer, with the handler and its permit. An answer that came before is there at once. While it waits, the
   * attempt cannot be completed (`WA002`); after it, or after its interruption, it can, with the same token. Fails with
   * `CallbackFailed`, also on a result that the schema does not accept, and with `CallbackTimedOut`.
   */
  readonly await: Effect.Effect<A, CallbackError>
  /** The outcome that leaves the attempt to the callback: the handler ends, its permit is free, the job waits. */
  readonly park: JobOutcome
}

/**
 * An attempt, as its handler sees it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Attempt<Kind extends string, Payload> {
  readonly kind: Kind
  readonly payload: Payload
  readonly queue: string
  readonly jobId: JobId
  readonly runLease: RunLease
  /** Which attempt this is, counted from 1. */
  readonly attempt: number
  readonly maxAttempts: number
  /** When the database will take the attempt back, if the queue has a deadline. */
  readonly deadline: Option.Option<DateTime.Utc>
  /** The same over all attempts of the job, and no other job's: give it to the provider. */
  readonly idempotencyKey: string
  readonly progress: Progress
  /**
   * What the callback was answered with that the job was parked on before, as JSON. Later attempts have it too, until one of
   * them registers another callback or the job ends.
   */
  readonly callbackResult: Option.Option<unknown>
  /**
   * Registers a callback. An attempt has one at a time: the next one replaces it. Fails with `StaleAttempt` when the attempt
   * is over, and with `CallbackUnavailable` when the database refuses it for good.
   *
   * @example
   * ```ts
   * import { Effect, Schema } from "effect"
   * import { Job } from "effect-awa"
   *
   * const Charge = Job.make("charge", { payload: Schema.Struct({ amount: Schema.Int }) })
   * const Charged = Schema.Struct({ receipt: Schema.String })
   * export const ChargeLive = Charge.toLayerCallerOwned((job) =>
   *   Effect.gen(function* () {
   *     const callback = yield* job.callback({ timeout: "5 minutes", result: Charged })
   *     yield* Effect.log(`charge ${job.payload.amount}, and tell ${callback.id}`)
   *     const { receipt } = yield* callback.await
   *     return yield* job.finalize(Effect.log(`write ${receipt}`))
   *   })
   * )
   * ```
   */
  readonly callback: <A, I>(
    options: CallbackOptions<A, I>
  ) => Effect.Effect<Callback<A>, StaleAttempt | CallbackUnavailable>
}

/**
 * A caller-owned attempt: it is completed in SQL, in the application's own transaction (contract C-10).
 *
 * @since 0.1.0
 * @category models
 */
export interface OwnedAttempt<Kind extends string, Payload> extends Attempt<Kind, Payload> {
  /** The attempt's route to its evidence, for a driver that calls `complete_job` by itself. */
  readonly token: FinalizationToken
  /** BEGIN · body · `complete_job` · COMMIT on the application's pool. Code over `SqlClient` in the body joins it. */
  readonly finalize: <A, E, R>(
    body: Effect.Effect<A, E, R>
  ) => Effect.Effect<FinalizationReceipt<Kind>, E | FinalizeError, Exclude<R, InTransaction>>
  /**
   * BEGIN · body · COMMIT on the application's pool, for a body that completes the attempt itself, or not at all. It commits
   * only with every completion that was tried in it in place.
   */
  readonly transaction: <A, E, R>(
    body: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | TransactionError, Exclude<R, InTransaction>>
  /** The primitive: completes inside the transaction that is open on this fiber. */
  readonly completeInTx: Effect.Effect<FinalizationReceipt<Kind>, CompleteError | SqlError, ApplicationTransaction>
}
