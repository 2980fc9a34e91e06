import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import * as Permits from "effect-awa/Permits"
import { makeSettled } from "../src/internal/makeSettled.js"

describe("Permits", () => {
  it.effect("takes all that are free, and waits when none is", () =>
    Effect.gen(function* () {
      const permits = yield* Permits.make(3)
      assert.strictEqual(yield* permits.acquire(2), 2)
      assert.strictEqual(yield* permits.acquire(10), 1)
      const waiting = yield* Effect.fork(permits.acquire(10))
      yield* Effect.yieldNow()
      assert.isNull(waiting.unsafePoll())
      yield* permits.surplus(2)
      assert.strictEqual(yield* Fiber.join(waiting), 2)
      assert.strictEqual(yield* permits.free, 0)
    })
  )

  it.effect("an interrupted wait takes nothing", () =>
    Effect.gen(function* () {
      const permits = yield* Permits.make(1)
      yield* permits.acquire(1)
      const waiting = yield* Effect.fork(permits.acquire(1))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(waiting)
      yield* permits.surplus(1)
      assert.strictEqual(yield* permits.free, 1)
    })
  )

  it.effect("frees one permit for one proof, once", () =>
    // C-17: a Settled is the only thing that frees a slot
    Effect.gen(function* () {
      const permits = yield* Permits.make(2)
      yield* permits.acquire(2)
      const settled = makeSettled("closed", "completed")
      yield* permits.release(settled)
      assert.strictEqual(yield* permits.free, 1)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(permits.release(settled))))
      const forged = { ...makeSettled("closed", "completed") }
      assert.isTrue(Exit.isFailure(yield* Effect.exit(permits.release(forged))))
      assert.strictEqual(yield* permits.free, 1)
    })
  )

  it.effect("more than was taken is a defect", () =>
    Effect.gen(function* () {
      const permits = yield* Permits.make(1)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(permits.surplus(1))))
    })
  )

  it.effect("of a queue are the runtime's as well, and a full queue keeps none of them from another", () =>
    Effect.gen(function* () {
      const runtime = yield* Permits.make(4)
      const [a, b] = [yield* Permits.make(3, runtime), yield* Permits.make(3, runtime)]
      assert.strictEqual(yield* a.acquire(10), 3)
      const more = yield* Effect.fork(a.acquire(10)) // waits for its own, and holds nothing of the runtime's
      yield* Effect.yieldNow()
      assert.strictEqual(yield* b.acquire(10), 1)
      const waiting = yield* Effect.fork(b.acquire(1))
      yield* Effect.yieldNow()
      assert.isNull(waiting.unsafePoll())
      yield* Fiber.interrupt(waiting)
      yield* a.release(makeSettled("closed", "completed"))
      assert.strictEqual(yield* Fiber.join(more), 1)
      yield* a.surplus(3)
      yield* b.surplus(1)
      assert.deepStrictEqual([yield* a.free, yield* b.free, yield* runtime.free], [3, 3, 4])
    })
  )
})
