import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

/** @internal */
export interface TokenBucket {
  /** Takes as many as there are, at most `limit`; when there is none it answers after how long there will be one. */
  readonly take: (limit: number) => Effect.Effect<{ readonly granted: number; readonly retryAfter: Duration.Duration }>
  /** Gives back what was taken and not used. */
  readonly refund: (count: number) => Effect.Effect<void>
}

/**
 * A token bucket: `limit` tokens at first and at most, refilled evenly over `interval`. Of this process alone; the rate of a
 * whole fleet is a setting of the queue in the database.
 *
 * @internal
 */
export const makeTokenBucket = (limit: number, interval: Duration.Duration): Effect.Effect<TokenBucket> =>
  Effect.map(Clock.currentTimeNanos, (start) => {
    const nanosPerToken = (Duration.toMillis(interval) * 1e6) / limit
    let tokens = limit
    let refilledAt = start
    const refill = Effect.map(Clock.currentTimeNanos, (now) => {
      tokens = Math.min(limit, tokens + Number(now - refilledAt) / nanosPerToken)
      refilledAt = now
    })
    return {
      take: (wanted) =>
        Effect.map(refill, () => {
          const granted = Math.min(wanted, Math.floor(tokens))
          tokens -= granted
          const missing = granted > 0 ? 0 : 1 - tokens
          return { granted, retryAfter: Duration.millis(Math.ceil((missing * nanosPerToken) / 1e6)) }
        }),
      refund: (count) =>
        Effect.sync(() => {
          tokens = Math.min(limit, tokens + count)
        })
    }
  })
