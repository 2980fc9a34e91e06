import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { Claim, ClaimedAttempt } from "../Claim.js"
import type { Waiting } from "../InFlight.js"
import type { Permits } from "../Permits.js"
import type { DatabaseError } from "../RuntimePool.js"
import type { Wakeup } from "../Wakeup.js"
import type { ClaimedWith } from "./attemptLife.js"
import { backoff } from "./backoff.js"
import { hasPlenty } from "./hasPlenty.js"
import { eventLoopTurn } from "./eventLoopTurn.js"
import { monotonicMillis } from "./monotonic.js"
import type { TokenBucket } from "./tokenBucket.js"

/** @internal */
export interface Claiming {
  readonly claim: Claim["Type"]
  readonly wakeup: Wakeup["Type"]
  readonly runtimeId: bigint
  readonly queue: string
  readonly permits: Permits
  readonly bucket: TokenBucket | undefined
  /** The queue's attempts that wait for a connection. */
  readonly waiting: Waiting
  /** Puts attempts in flight, at once: from here on they are beaten for, and known to whoever stops. What it answers begins them. */
  readonly admit: (
    attempts: ReadonlyArray<ClaimedAttempt>,
    permits: Permits,
    claimed: ClaimedWith
  ) => Effect.Effect<void>
}

/** The most that one claim takes; a longer batch holds its lane longer than the round trip saves. */
const maxClaim = 500

/** A rate can be raised meanwhile, and its interval may be days. */
const maxLimited = Duration.seconds(30)

/**
 * While there is a backlog, permits that are freed one by one are claimed for together: a claim costs nearly the same for one job
 * as for many. Waited for only while others run, and not long enough to be missed.
 */
const gatherMillis = 3
const gathered = ({ total }: Permits): number => (total < 16 ? 0 : Math.min(100, total >> 2))

/** Where plenty of the queue's attempts wait for a connection, one more would only wait too: then this long, for as many. */
const longestGatherMillis = 60
const manyGathered = ({ total }: Permits): number => Math.min(250, total >> 1)

type Found =
  { readonly _tag: "more" | "busy" | "empty" } | { readonly _tag: "limited"; readonly for: Duration.Duration }

/** The attempts of a claim that begin while the next one is under way. */
interface Beginning {
  readonly begin: (start: Effect.Effect<void>) => Effect.Effect<void>
  /** Waits until those have begun that were said last. */
  readonly begun: Effect.Effect<void>
  /** Fails when they could not, without waiting for them. */
  readonly sound: Effect.Effect<void>
}

/** A fiber of its own, which nothing interrupts: whoever asks for `begun` or `sound` sees its defects. */
const makeBeginning = (): Beginning => {
  let last: Fiber.RuntimeFiber<void> | undefined
  return {
    begin: (start) =>
      // a claim that can be sent now goes first
      Effect.map(Effect.forkDaemon(Effect.uninterruptible(Effect.zipRight(eventLoopTurn, start))), (fiber) => {
        last = fiber
      }),
    begun: Effect.suspend(() => (last === undefined ? Effect.void : Fiber.join(last))),
    sound: Effect.suspend(() => last?.unsafePoll() ?? Effect.void)
  }
}

/**
 * One claim. Between its statement and its fibers nothing may cut in: the attempts would be orphans for a whole lease. Where it took
 * all that was asked for, more is there: the next claim is sent, and the database is at it while these begin.
 */
const claimOnce = (on: Claiming, { begin, begun, sound }: Beginning): Effect.Effect<Found, DatabaseError> =>
  Effect.uninterruptible(
    Effect.gen(function* () {
      const { admit, bucket, claim, permits, queue, runtimeId } = on
      const acquired = yield* Effect.interruptible(permits.acquire(maxClaim))
      const tokens = bucket === undefined ? undefined : yield* bucket.take(acquired)
      const slots = tokens?.granted ?? acquired
      yield* permits.surplus(acquired - slots)
      if (tokens !== undefined && slots === 0) return { _tag: "limited", for: tokens.retryAfter }
      const unused = (count: number) =>
        Effect.zipRight(permits.surplus(count), bucket === undefined ? Effect.void : bucket.refund(count))
      yield* sound
      const atMillis = monotonicMillis()
      const claimed = yield* Effect.tapError(claim.take(queue, slots, runtimeId), () => unused(slots))
      yield* unused(slots - claimed.attempts.length)
      const { attempts, gated } = claimed
      const starting = admit(attempts, permits, { atMillis, gated })
      // what is in flight begins, whatever has become of those before it: begun by nobody it would be beaten for all the same
      yield* Effect.onError(begun, () => starting)
      if (claimed.attempts.length === slots) {
        yield* begin(starting)
        return { _tag: "more" }
      }
      yield* starting
      if (claimed.retryAfter !== undefined) return { _tag: "limited", for: claimed.retryAfter }
      return { _tag: claimed.busy ? "busy" : "empty" }
    })
  )

/** @internal Claims from a queue for as long as the worker does. */
export const keepClaiming = (on: Claiming): Effect.Effect<never> => {
  const beginning = makeBeginning()
  on.waiting.plenty = gathered(on.permits)
  const gatherMany = (leftMillis: number): Effect.Effect<void> =>
    Effect.flatMap(on.permits.free, (free) =>
      leftMillis > 0 && free < manyGathered(on.permits) && hasPlenty(on.waiting)
        ? Effect.zipRight(
            Effect.sleep(gatherMillis),
            Effect.suspend(() => gatherMany(leftMillis - gatherMillis))
          )
        : Effect.void
    )
  const gather = Effect.flatMap(on.permits.free, (free) =>
    free < gathered(on.permits)
      ? Effect.zipRight(
          Effect.sleep(gatherMillis),
          Effect.suspend(() => gatherMany(longestGatherMillis))
        )
      : gatherMany(longestGatherMillis)
  )
  const next = (failures: number, busy: number): Effect.Effect<never> =>
    Effect.matchEffect(claimOnce(on, beginning), {
      onFailure: (error) =>
        (failures === 0 ? Effect.logWarning : Effect.logDebug)(
          `Claiming from ${on.queue} failed and is tried again`,
          error
        ).pipe(Effect.zipRight(backoff(failures)), Effect.zipRight(Effect.suspend(() => next(failures + 1, 0)))),
      onSuccess: (found) => {
        switch (found._tag) {
          case "more":
            return Effect.zipRight(
              gather,
              Effect.suspend(() => next(0, 0))
            )
          case "empty":
            return Effect.zipRight(
              on.wakeup.wait(on.queue),
              Effect.suspend(() => next(0, 0))
            )
          case "limited": // by a rate: jobs may be waiting, and no hint says when they may be claimed
            return Effect.zipRight(
              Effect.sleep(Duration.min(found.for, maxLimited)),
              Effect.suspend(() => next(0, 0))
            )
          case "busy": // not empty: whoever holds the lane may leave work behind, and no hint tells
            return Effect.zipRight(
              Effect.sleep(Math.min(100, 2 ** busy) * (1 + Math.random())),
              Effect.suspend(() => next(0, busy + 1))
            )
        }
      }
    })
  return Effect.ensuring(next(0, 0), beginning.begun)
}
