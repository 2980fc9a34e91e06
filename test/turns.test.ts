import type { Connection } from "@effect/sql/SqlConnection"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { monotonicMillis } from "../src/internal/monotonic.js"
import { type Held, makeTurns, type Turns } from "../src/internal/turns.js"

// none of it is called: a turn only hands it on
const unused = () => Effect.dieMessage("not a connection to use")
const connection: Connection = {
  execute: unused,
  executeRaw: unused,
  executeStream: () => {
    throw new Error("not a connection to use")
  },
  executeValues: unused,
  executeUnprepared: unused
}

const reserve = (released: Array<string>, name: string, ageMillis = 0): Held => ({
  connection,
  release: Effect.sync(() => void released.push(name)),
  sinceMillis: monotonicMillis() - ageMillis
})

const take = (turns: Turns) => Effect.uninterruptibleMask((restore) => turns.take(restore))

/** Until what has been forked has come to wait. */
const settle = Effect.repeatN(Effect.yieldNow(), 20)

describe("turns", () => {
  it.effect("are so many at once; the others come in their order, with the connection that is handed on", () =>
    Effect.gen(function* () {
      const released: Array<string> = []
      const turns = makeTurns(2, undefined)
      assert.isUndefined(yield* take(turns))
      assert.isUndefined(yield* take(turns))
      const order: Array<string> = []
      const waiters = yield* Effect.forEach(["c", "d", "e"], (name) =>
        Effect.zipLeft(Effect.fork(Effect.tap(take(turns), () => Effect.sync(() => order.push(name)))), settle)
      )
      assert.deepStrictEqual(order, [])
      const held = reserve(released, "a")
      yield* turns.end(held, true)
      yield* settle
      assert.deepStrictEqual(order, ["c"])
      yield* turns.end(reserve(released, "b"), false)
      yield* turns.end(reserve(released, "old", 10_000), true)
      const [c, d, e] = yield* Effect.forEach(waiters, Fiber.join)
      assert.strictEqual(c, held)
      assert.isUndefined(d)
      assert.isUndefined(e)
      assert.deepStrictEqual(order, ["c", "d", "e"])
      assert.deepStrictEqual(released, ["b", "old"])
      yield* turns.end(held, true)
      assert.deepStrictEqual(released, ["b", "old", "a"]) // nobody waits for it
    })
  )

  it.effect("wake nobody but the one whose turn it is", () =>
    Effect.gen(function* () {
      const turns = makeTurns(1, undefined)
      yield* take(turns)
      let woken = 0
      const counting: Turns["take"] extends (restore: infer Restore) => unknown ? Restore : never = (effect) =>
        Effect.onExit(effect, () =>
          Effect.sync(() => {
            woken++
          })
        )
      const waiters = yield* Effect.forEach(Array.from({ length: 100 }), () => Effect.fork(turns.take(counting)))
      yield* settle
      yield* turns.end(undefined, false)
      yield* settle
      assert.strictEqual(woken, 1)
      yield* Fiber.interruptAll(waiters)
    })
  )

  it.effect("are passed on by whoever is interrupted when its turn has come, and while it waits", () =>
    Effect.gen(function* () {
      const released: Array<string> = []
      const turns = makeTurns(1, undefined)
      yield* take(turns)
      const gone = yield* Effect.fork(Effect.interruptible(take(turns)))
      const unlucky = yield* Effect.fork(take(turns))
      const next = yield* Effect.fork(take(turns))
      yield* settle
      yield* Fiber.interrupt(gone)
      const held = reserve(released, "a")
      yield* turns.end(held, true)
      unlucky.unsafeInterruptAsFork(unlucky.id()) // before it has run on
      yield* Fiber.await(unlucky)
      assert.strictEqual(yield* Fiber.join(next), held)
      yield* turns.end(held, true)
      assert.isUndefined(yield* take(turns))
      assert.deepStrictEqual(released, ["a"])
    })
  )

  it.live("are not waited for beyond the time that is given, and one that comes late is the next one's", () =>
    Effect.gen(function* () {
      const turns = makeTurns(1, 50)
      yield* take(turns)
      assert.strictEqual(yield* take(turns), "late")
      const next = yield* Effect.fork(take(turns))
      yield* settle
      yield* turns.end(undefined, false)
      assert.isUndefined(yield* Fiber.join(next))
      yield* turns.end(undefined, false)
      assert.isUndefined(yield* take(turns))
    })
  )
})
