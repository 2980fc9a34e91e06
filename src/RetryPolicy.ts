/**
 * When a failed job runs again.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"

/**
 * Exponential backoff with full jitter: after attempt `n` the job waits a random time between zero and
 * `min(maximum, base * factor^(n-1))`. How many attempts there are is the job's, not the policy's.
 *
 * @since 0.1.0
 * @category models
 */
export interface RetryPolicy {
  readonly base: Duration.Duration
  readonly factor: number
  readonly maximum: Duration.Duration
  readonly jitter: boolean
}

/**
 * Makes a policy. A factor below 1 counts as 1; it must be a finite number, or no worker starts with the job.
 *
 * @example
 * ```ts
 * import { RetryPolicy } from "effect-awa"
 *
 * export const patient = RetryPolicy.make({ base: "10 seconds", maximum: "6 hours" })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: {
  readonly base?: Duration.DurationInput
  readonly factor?: number
  readonly maximum?: Duration.DurationInput
  readonly jitter?: boolean
}): RetryPolicy => ({
  base: Duration.decode(options?.base ?? "2 seconds"),
  factor: Math.max(1, options?.factor ?? 2),
  maximum: Duration.decode(options?.maximum ?? "1 hour"),
  jitter: options?.jitter ?? true
})

/**
 * Two seconds, doubling, at most an hour, with full jitter.
 *
 * @since 0.1.0
 * @category constructors
 */
export const standard: RetryPolicy = make()

/** A hundred years: no wait is longer, and whole milliseconds are exact up to it. */
const longestMillis = 3_155_760_000_000

/**
 * The longest wait after the given attempt (counted from 1), in whole milliseconds. A closed form: no loop, no overflow,
 * whatever the attempt.
 *
 * @since 0.1.0
 * @category getters
 */
export const ceilingMillis = (policy: RetryPolicy, attempt: number): number => {
  const maximum = Math.min(Duration.toMillis(policy.maximum), longestMillis)
  const exponential = Duration.toMillis(policy.base) * Math.pow(policy.factor, Math.max(0, attempt - 1))
  return Math.floor(Number.isFinite(exponential) ? Math.min(maximum, exponential) : maximum)
}

/**
 * The wait after the given attempt, in whole milliseconds.
 *
 * @since 0.1.0
 * @category getters
 */
export const delayMillis = (policy: RetryPolicy, attempt: number): Effect.Effect<number> => {
  const ceiling = ceilingMillis(policy, attempt)
  return policy.jitter ? Random.nextIntBetween(0, ceiling + 1) : Effect.succeed(ceiling)
}
