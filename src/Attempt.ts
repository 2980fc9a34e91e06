/**
 * What a running handler knows and can do.
 *
 * @since 0.1.0
 */
import type { SqlError } from "@effect/sql/SqlError"
import type * as DateTime from "effect/DateTime"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { InTransaction } from "./ApplicationPool.js"
import type { ApplicationTransaction } from "./ApplicationTransaction.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import type { CompleteError, FinalizeError, PayloadRejected, TransactionError } from "./JobError.js"
import type { JobId } from "./JobId.js"
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
