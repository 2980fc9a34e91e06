import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, FastCheck } from "effect"
import * as RetryPolicy from "effect-awa/RetryPolicy"

describe("RetryPolicy", () => {
  it("doubles from the base and stops at the maximum", () => {
    // F-57
    const policy = RetryPolicy.make({ base: "1 second", maximum: "1 minute" })
    assert.deepStrictEqual(
      [0, 1, 2, 3, 6, 7, 60, 32_767].map((attempt) => RetryPolicy.ceilingMillis(policy, attempt)),
      [1_000, 1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000]
    )
  })

  it.effect("waits a hundred years at most, in whole milliseconds, where nothing else bounds it", () =>
    Effect.gen(function* () {
      const endless = RetryPolicy.make({ base: Duration.infinity, maximum: Duration.infinity })
      assert.strictEqual(RetryPolicy.ceilingMillis(endless, 1), 36_525 * 86_400_000)
      assert.isTrue(Number.isInteger(yield* RetryPolicy.delayMillis(endless, 1)))
    })
  )

  it.effect("stays between zero and the ceiling, for any policy and attempt", () =>
    Effect.promise(() =>
      FastCheck.assert(
        FastCheck.asyncProperty(
          FastCheck.nat(1e9),
          FastCheck.nat(1e9),
          FastCheck.double({ min: 0, max: 100, noNaN: true }),
          FastCheck.nat(40_000),
          async (base, maximum, factor, attempt) => {
            const policy = RetryPolicy.make({ base, maximum, factor })
            const ceiling = RetryPolicy.ceilingMillis(policy, attempt)
            const delay = await Effect.runPromise(RetryPolicy.delayMillis(policy, attempt))
            assert.isTrue(Number.isInteger(delay) && delay >= 0 && delay <= ceiling && ceiling <= maximum)
          }
        )
      )
    )
  )

  it.effect("has full jitter: the waits spread over the whole range", () =>
    Effect.gen(function* () {
      const policy = RetryPolicy.make({ base: "10 seconds" })
      const delays = yield* Effect.replicateEffect(RetryPolicy.delayMillis(policy, 1), 500)
      assert.isBelow(Math.min(...delays), 1_000)
      assert.isAbove(Math.max(...delays), 9_000)
      const still = RetryPolicy.make({ base: Duration.seconds(10), jitter: false })
      assert.strictEqual(yield* RetryPolicy.delayMillis(still, 2), 20_000)
    })
  )
})
