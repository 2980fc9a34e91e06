import { describe, expect, it } from "@effect/vitest"
import { Effect, Option, TestClock } from "effect"
import { makeBatcher } from "../src/internal/batcher.js"

describe("questions that are asked together", () => {
  const batches = (isPatient: (item: number) => boolean) =>
    Effect.gen(function* () {
      const asked: Array<ReadonlyArray<number>> = []
      const batcher = yield* makeBatcher<number, string>({
        maxSize: 4,
        lingerMillis: 1,
        longestLingerMillis: 20,
        isPatient,
        run: (batch) =>
          Effect.sync(() => {
            asked.push(batch.map(({ item }) => item))
            for (const { answer, item } of batch) answer(String(item))
          })
      })
      yield* Effect.yieldNow()
      return { asked, ask: (item: number) => Effect.fork(batcher.ask(item)), askWithin: batcher.askWithin }
    })

  it.scoped("wait a moment for company", () =>
    Effect.gen(function* () {
      const { ask, asked } = yield* batches(() => false)
      yield* ask(1)
      yield* ask(2)
      yield* TestClock.adjust("1 millis")
      expect(asked).toEqual([[1, 2]])
    })
  )

  it.scoped("wait longer while nobody misses the answers: until somebody does, there are many, or it is long", () =>
    Effect.gen(function* () {
      const { ask, asked } = yield* batches((item) => item < 10)
      yield* ask(1)
      yield* TestClock.adjust("9 millis")
      expect(asked).toEqual([])
      yield* ask(10)
      yield* TestClock.adjust("4 millis")
      expect(asked).toEqual([[1, 10]])
      yield* ask(2)
      yield* TestClock.adjust("1 millis")
      for (const item of [3, 4, 5]) yield* ask(item)
      yield* TestClock.adjust("4 millis")
      expect(asked).toEqual([
        [1, 10],
        [2, 3, 4, 5]
      ])
      yield* ask(6)
      yield* TestClock.adjust("30 millis")
      expect(asked.at(-1)).toEqual([6])
    })
  )

  it.scopedLive("are withdrawn when the time is over, or whoever asked was interrupted", () =>
    Effect.gen(function* () {
      const wanted: Array<boolean> = []
      const { askWithin } = yield* makeBatcher<number, string>({
        maxSize: 4,
        lingerMillis: 10,
        run: (batch) => Effect.sync(() => void wanted.push(...batch.map((pending) => pending.wanted())))
      })
      const asking = yield* Effect.fork(askWithin(1, 1_000))
      const answer = yield* Effect.fork(askWithin(2, 1))
      yield* Effect.sleep("1 millis")
      yield* asking.pipe((fiber) => Effect.fork(fiber.interruptAsFork(fiber.id())))
      expect(yield* answer).toEqual(Option.none())
      yield* Effect.sleep("30 millis")
      expect(wanted).toEqual([false, false])
    })
  )
})
