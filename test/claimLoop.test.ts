import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Fiber, TestClock } from "effect"
import type { Claimed } from "effect-awa/Claim"
import * as Permits from "effect-awa/Permits"
import { keepClaiming } from "../src/internal/claimLoop.js"

describe("a worker whose queue is at its rate", () => {
  it.effect("asks again when the database says, and after half a minute at the latest: the rate may be raised", () =>
    Effect.gen(function* () {
      let asked = 0
      let retryAfter = Duration.seconds(5)
      const fiber = yield* Effect.fork(
        keepClaiming({
          claim: {
            take: () =>
              Effect.sync((): Claimed => {
                asked++
                return { attempts: [], busy: false, retryAfter, gated: false }
              })
          },
          wakeup: {
            wait: () => Effect.never,
            waitAny: () => Effect.never,
            hint: () => Effect.void,
            onControl: () => Effect.void,
            mode: Effect.succeed("listening")
          },
          runtimeId: 1n,
          queue: "q",
          permits: yield* Permits.make(1),
          bucket: undefined,
          start: () => Effect.void
        })
      )
      yield* TestClock.adjust("4 seconds")
      expect(asked).toBe(1)
      retryAfter = Duration.days(1)
      yield* TestClock.adjust("1 second")
      expect(asked).toBe(2)
      yield* TestClock.adjust("30 seconds")
      expect(asked).toBe(3)
      yield* Fiber.interrupt(fiber)
    })
  )
})
