/** What is in force of the options of services that a program makes by itself: nobody refuses those. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Option } from "effect"
import { durationOf } from "../src/internal/optionRules.js"
import { completionSettings, wakeupPauses } from "../src/internal/serviceOptions.js"

describe("the options of services that nobody has checked", () => {
  it("never make a flush of nothing, nor one that waits for ever", () => {
    assert.deepStrictEqual(completionSettings(undefined), { maxSize: 500, lingerMillis: 2 })
    for (const [maxBatch, maxSize] of [
      [0, 1],
      [-1, 1],
      [1.5, 1],
      [Number.NaN, 500],
      [Number.POSITIVE_INFINITY, 10_000],
      [7, 7]
    ] as const) {
      assert.strictEqual(completionSettings({ maxBatch }).maxSize, maxSize)
    }
    for (const [lingerMillis, inForce] of [
      [0, 0],
      [-1, 0],
      [1e9, 10_000],
      [Number.NaN, 2]
    ] as const) {
      assert.strictEqual(completionSettings({ lingerMillis }).lingerMillis, inForce)
    }
  })

  it("never make a pause of none, nor one without an end", () => {
    const pauses = (written: Duration.DurationInput) => {
      const { fast, probe, slow } = wakeupPauses({ poll: written, pollWhileListening: written, probe: written })
      return [fast, slow, probe].map(Duration.toMillis)
    }
    assert.deepStrictEqual(pauses(0), [10, 10, 10])
    assert.deepStrictEqual(pauses(Duration.infinity), [86_400_000, 86_400_000, 86_400_000])
    assert.deepStrictEqual(pauses("2 seconds"), [2_000, 2_000, 2_000])
    // as if they had not been given
    for (const none of [Number.NaN, "1e3 seconds"] as const) {
      assert.deepStrictEqual(pauses(none), [1_000, 30_000, 30_000])
    }
  })
})

describe("a duration of a configuration", () => {
  it("is what can be read, and neither negative nor NaN", () => {
    for (const written of ["often", "1e3 seconds", "", null, undefined, {}, -1, Number.NaN, "-1 seconds", true]) {
      assert.isTrue(Option.isNone(durationOf(written)), JSON.stringify(written))
    }
    for (const written of [0, "0 millis", "1.5 seconds", Duration.infinity, 5n, Number.POSITIVE_INFINITY]) {
      assert.isTrue(Option.isSome(durationOf(written)), String(written))
    }
  })
})
