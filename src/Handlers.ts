/**
 * The handlers of a program, by kind.
 *
 * @since 0.1.0
 */
import type { SqlError } from "@effect/sql/SqlError"
import * as Context from "effect/Context"
import type * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { ApplicationPool, InTransaction } from "./ApplicationPool.js"
import type { ApplicationTransaction } from "./ApplicationTransaction.js"
import type { Callback, CallbackOptions, Progress } from "./Attempt.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import type { CallbackUnavailable, CompleteError, FinalizeError, StaleAttempt } from "./JobError.js"
import type { JobId } from "./JobId.js"
import type { RetryPolicy } from "./RetryPolicy.js"
import type { RunLease } from "./RunLease.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const HandlesTypeId: unique symbol = Symbol.for("effect-awa/Handles")

/**
 * Evidence that `Kind` has a handler in this program. A worker requires it for each of its jobs.
 *
 * @since 0.1.0
 * @category models
 */
export interface Handles<Kind extends string> {
  readonly [HandlesTypeId]: Kind
}

/**
 * An attempt before its payload is decoded: what the worker gives a registered handler.
 *
 * @since 0.1.0
 * @category models
 */
export interface AttemptHandle {
  readonly args: unknown
  readonly queue: string
  readonly jobId: JobId
  readonly runLease: RunLease
  readonly attempt: number
  readonly maxAttempts: number
  readonly deadline: Option.Option<DateTime.Utc>
  readonly idempotencyKey: string
  readonly progress: Progress
  /** What was last said of the progress, as JSON text. */
  readonly progressText: () => string | undefined
  /** Notes that the attempt waits for a connection, or does so no more. */
  readonly waits: (waiting: boolean) => void
  readonly callbackResult: Option.Option<unknown>
  readonly callback: <A, I>(
    options: CallbackOptions<A, I>
  ) => Effect.Effect<Callback<A>, StaleAttempt | CallbackUnavailable>
  readonly token: FinalizationToken
  readonly finalize: <Kind extends string, A, E, R>(
    kind: Kind,
    body: Effect.Effect<A, E, R>
  ) => Effect.Effect<FinalizationReceipt<Kind>, E | FinalizeError, Exclude<R, InTransaction>>
  readonly transaction: ApplicationPool["Type"]["transaction"]
  readonly completeInTx: <Kind extends string>(
    kind: Kind
  ) => Effect.Effect<FinalizationReceipt<Kind>, CompleteError | SqlError, ApplicationTransaction>
}

/**
 * A failure as it is stored with the job: sanitized, and bounded in size.
 *
 * @since 0.1.0
 * @category models
 */
export interface StoredError {
  readonly name: string
  readonly message: string
  /** The declared error, encoded by its schema. */
  readonly data?: unknown
}

/**
 * A handler whose requirements are provided.
 *
 * @since 0.1.0
 * @category models
 */
export interface RegisteredHandler {
  readonly kind: string
  /** The two kinds of handler are never mixed up: only a caller-owned one is reconciled, and only it makes receipts. */
  readonly mode: "ordinary" | "caller-owned"
  readonly retry: RetryPolicy
  readonly timeout: Option.Option<Duration.Duration>
  /** The option of the kind's definition that breaks its rule, if one does; no worker starts with such a kind. */
  readonly fault?: { readonly option: string; readonly rule: string } | undefined
  /** The context of each of its attempts, which have a fiber of their own; `ambient` is the worker's. */
  readonly contextIn: (ambient: Context.Context<never>) => Context.Context<never>
  /** For a fiber with the context that `contextIn` answers. */
  readonly run: (attempt: AttemptHandle) => Effect.Effect<unknown, unknown>
  readonly describe: (error: unknown) => StoredError
}

/**
 * The tag under which a kind's handler is provided.
 *
 * @since 0.1.0
 * @category tags
 */
export const handles = <const Kind extends string>(kind: Kind): Context.Tag<Handles<Kind>, RegisteredHandler> =>
  Context.GenericTag<Handles<Kind>, RegisteredHandler>(`effect-awa/Handles/${kind}`)
