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
 * - `DeadLetter`: the job goes to the dead letters at once, for somebody to look at, whatever attempts it had left.
 * - `Park`: the attempt is left to its callback, and needs no worker until that is answered.
 *
 * @since 0.1.0
 * @category models
 */
export type JobOutcome = Data.TaggedEnum<{
  Snooze: { readonly delay: Duration.Duration }
  RetryAfter: { readonly delay: Duration.Duration; readonly reason: string | undefined }
  Discard: { readonly reason: string }
  Cancel: { readonly reason: string }
  DeadLetter: { readonly reason: string }
  Park: { readonly callbackId: string }
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
 * The job goes to the dead letters (`dlq_entries`) at once, with this reason, whatever attempts it had left and whether or not
 * its queue keeps dead letters of its own accord. It is kept there for its retention (30 days unless said otherwise), or until
 * it is brought back. The reason is cut at 4 KiB. Contract C-02: a stale attempt's word changes nothing.
 *
 * @example
 * ```ts
 * import { Effect, Schema } from "effect"
 * import { Job, JobOutcome } from "effect-awa"
 *
 * const Import = Job.make("import", { payload: Schema.Struct({ file: Schema.String }) })
 * export const ImportLive = Import.toLayer((job) =>
 *   job.payload.file.endsWith(".csv") ? Effect.void : Effect.succeed(JobOutcome.deadLetter("not a CSV file"))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const deadLetter = (reason: string): JobOutcome => JobOutcome.DeadLetter({ reason })

/**
 * Leaves the attempt to its callback: `callback.park` of a callback that it registered. The worker is free for other jobs,
 * and the job goes on when the callback is answered, with the result as the next attempt's `callbackResult`; this attempt
 * does not count then. A callback that fails or times out counts.
 *
 * @example
 * ```ts
 * import { Effect, Schema } from "effect"
 * import { Job, JobOutcome } from "effect-awa"
 *
 * const Ship = Job.make("ship", { payload: Schema.Struct({ order: Schema.Int }) })
 * export const ShipLive = Ship.toLayer((job) =>
 *   Effect.gen(function* () {
 *     if (job.callbackResult._tag === "Some") return
 *     const callback = yield* job.callback({ timeout: "3 days", result: Schema.Unknown })
 *     yield* Effect.log(`ask the carrier to call back ${callback.id}`)
 *     return JobOutcome.park(callback.id)
 *   })
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const park = (callbackId: string): JobOutcome => JobOutcome.Park({ callbackId })

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
