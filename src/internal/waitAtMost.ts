import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Option from "effect/Option"

/**
 * Runs an effect to its end in a fiber of its own, and waits for it at most so long. Neither its interruption nor its being
 * uninterruptible holds up the one who waits.
 *
 * @internal
 */
export const waitAtMost = <A>(
  effect: Effect.Effect<A>,
  limit: Duration.DurationInput
): Effect.Effect<Option.Option<A>> =>
  Effect.flatMap(Effect.forkDaemon(effect), (fiber) =>
    // a finalizer is uninterruptible, and a timeout cannot cut what is
    Effect.timeoutOption(Effect.interruptible(Fiber.join(fiber)), limit)
  )
