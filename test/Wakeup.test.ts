/** C-22, F-69, F-70: LISTEN is believed as long as notifications are heard, polling takes over otherwise, and both are visible. */
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Metric, Ref, TestClock } from "effect"
import { RuntimePool, Wakeup } from "effect-awa"
import { collectLogs, type LogLine } from "./runtime/support.js"

/** A runtime pool whose LISTEN connection hears what the test says. */
const setting = Effect.gen(function* () {
  const hears = yield* Ref.make(true)
  const asked = yield* Ref.make(0)
  const ended = yield* Deferred.make<void>()
  const pool: RuntimePool.RuntimePool["Type"] = {
    schema: "unit",
    quotedSchema: '"unit"',
    origin: "",
    connections: 1,
    call: () => Effect.succeed([]),
    listen: () =>
      Effect.as(
        Ref.update(asked, (n) => n + 1),
        { probe: Ref.get(hears), ended: Deferred.await(ended) }
      )
  }
  const lines: Array<LogLine> = []
  const wakeup = yield* Wakeup.make({ queues: ["default"], poll: "1 second", probe: "30 seconds" }).pipe(
    Effect.provideService(RuntimePool.RuntimePool, pool),
    Effect.provide(collectLogs(lines))
  )
  const gauge = Effect.map(Metric.value(Metric.tagged(Wakeup.listeningGauge, "schema", "unit")), ({ value }) => value)
  /** The mode, the gauge, how often LISTEN was tried, and how often something was said of it. */
  const state = Effect.all([wakeup.mode, gauge, Ref.get(asked), Effect.sync(() => lines.length)])
  return { hears, state, wakeup }
})

describe("the wake-up", () => {
  it.scoped("does not believe LISTEN before a notification was heard, says so once, and comes back", () =>
    Effect.gen(function* () {
      const { hears, state } = yield* setting
      yield* Ref.set(hears, false)
      yield* TestClock.adjust("1 second")
      expect(yield* state).toEqual(["polling", 0, 1, 1])
      yield* TestClock.adjust("20 seconds")
      expect(yield* state).toEqual(["polling", 0, 1, 1]) // left alone: every LISTEN costs the pooler a server connection
      yield* TestClock.adjust("2 minutes")
      const [mode, value, asked, said] = yield* state
      expect([mode, value, said]).toEqual(["polling", 0, 1])
      expect(asked).toBeGreaterThan(2)
      yield* Ref.set(hears, true)
      yield* TestClock.adjust("40 seconds")
      expect((yield* state).slice(0, 2)).toEqual(["listening", 1])
    })
  )

  it.scoped("polls again when LISTEN went silent, and wakes who waits for the longer poll", () =>
    Effect.gen(function* () {
      const { hears, state, wakeup } = yield* setting
      yield* TestClock.adjust("1 second")
      expect((yield* state).slice(0, 2)).toEqual(["listening", 1])
      yield* wakeup.wait("default") // the hint that begins with listening
      const waiting = yield* Effect.fork(wakeup.wait("default"))
      yield* TestClock.adjust("10 seconds")
      expect(yield* Fiber.poll(waiting)).toMatchObject({ _tag: "None" })
      yield* Ref.set(hears, false)
      yield* TestClock.adjust("20 seconds") // the next probe
      expect((yield* state).slice(0, 2)).toEqual(["polling", 0])
      yield* Fiber.join(waiting)
      const next = yield* Effect.fork(wakeup.wait("default"))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(next)
    })
  )
})
