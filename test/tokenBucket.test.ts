import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, TestClock } from "effect"
import { makeTokenBucket } from "../src/internal/tokenBucket.js"

describe("a token bucket", () => {
  it.effect(
    "lets a burst of its limit through, then one token after the other, and never saves more than the limit",
    () =>
      Effect.gen(function* () {
        const bucket = yield* makeTokenBucket(5, Duration.seconds(10))
        assert.strictEqual((yield* bucket.take(3)).granted, 3)
        assert.strictEqual((yield* bucket.take(10)).granted, 2)
        const none = yield* bucket.take(1)
        assert.strictEqual(none.granted, 0)
        assert.strictEqual(Duration.toMillis(none.retryAfter), 2000)
        yield* TestClock.adjust("1999 millis")
        assert.strictEqual((yield* bucket.take(1)).granted, 0)
        yield* TestClock.adjust("1 millis")
        assert.strictEqual((yield* bucket.take(9)).granted, 1)
        yield* TestClock.adjust("1 hour")
        assert.strictEqual((yield* bucket.take(9)).granted, 5)
      })
  )

  it.effect("takes back what was not used, up to its limit", () =>
    Effect.gen(function* () {
      const bucket = yield* makeTokenBucket(2, Duration.seconds(1))
      yield* bucket.take(2)
      yield* bucket.refund(1)
      assert.strictEqual((yield* bucket.take(5)).granted, 1)
      yield* bucket.refund(7)
      assert.strictEqual((yield* bucket.take(5)).granted, 2)
    })
  )
})
