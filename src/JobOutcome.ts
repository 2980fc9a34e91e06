/**
 * What a handler may say besides succeeding or failing.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

/**
 * What a handler may say besides succeeding or failing:
 *
 * - `Snooze`: run again later; this attempt does not count.
 * - `RetryAfter`: the attempt failed, run again after this delay instead of the retry policy's; it counts.
 * - `Discard`: the job must not run again, though it did not succeed.
 * - `Cancel`: the job is no longer wanted.
 *
 * @since 0.1.0
 * @category models
 */
export type JobOutcome = Data.TaggedEnum<{
  Snooze: { readonly delay: Duration.Duration }
  RetryAfter: { readonly delay: Duration.Duration; readonly reason: string | undefined }
  Discard: { readonly reason: string }
  Cancel: { readonly reason: string }
}>

/**
 * The constructors and matchers of `JobOutcome`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const JobOutcome = Data.taggedEnum<JobOutcome>()

/**
 * Run again after `delay`. The attempt is refunded, the run lease is not.
 *
 * @example
 * ```ts
 * import { Effect, Schema } from "effect"
 * import { Job, JobOutcome } from "effect-awa"
 *
 * const Poll = Job.make("poll", { payload: Schema.Struct({ id: Schema.Int }) })
 * export const PollLive = Poll.toLayer(() => Effect.succeed(JobOutcome.snooze("1 minute")))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const snooze = (delay: Duration.DurationInput): JobOutcome =>
  JobOutcome.Snooze({ delay: Duration.decode(delay) })

/**
 * The attempt failed; run again after `delay`. It counts like any failed attempt, so it ends with the last one.
 *
 * @since 0.1.0
 * @category constructors
 */
export const retryAfter = (delay: Duration.DurationInput, reason?: string): JobOutcome =>
  JobOutcome.RetryAfter({ delay: Duration.decode(delay), reason })

/**
 * The job must not run again, though it did not succeed.
 *
 * @since 0.1.0
 * @category constructors
 */
export const discard = (reason: string): JobOutcome => JobOutcome.Discard({ reason })

/**
 * The job is no longer wanted.
 *
 * @since 0.1.0
 * @category constructors
 */
export const cancel = (reason: string): JobOutcome => JobOutcome.Cancel({ reason })

/**
 * A typed failure that selects the attempt's outcome. It is how a caller-owned handler, whose success is a receipt and
 * nothing else, says that it will not complete now.
 *
 * @since 0.1.0
 * @category errors
 */
export class OutcomeSelected extends Data.TaggedError("OutcomeSelected")<{ readonly outcome: JobOutcome }> {
  override get message(): string {
    return `The handler selected ${this.outcome._tag}`
  }
}

/**
 * Ends the handler with this outcome.
 *
 * @example
 * ```ts
 * import { Effect, Schema } from "effect"
 * import { Job, JobOutcome } from "effect-awa"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ paused: Schema.Boolean }) })
 * export const ChargeLive = Charge.toLayerCallerOwned((job) =>
 *   job.payload.paused ? JobOutcome.end(JobOutcome.snooze("1 hour")) : job.finalize(Effect.void)
 * )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const end = (outcome: JobOutcome): Effect.Effect<never, OutcomeSelected> =>
  Effect.fail(new OutcomeSelected({ outcome }))
