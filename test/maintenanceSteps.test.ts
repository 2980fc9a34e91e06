import { afterEach, beforeEach, describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Either } from "effect"
import {
  interval,
  makeKept,
  makePromote,
  makeRescue,
  makeRescueLeases,
  makeSweep,
  type Step
} from "../src/internal/maintenanceSteps.js"
import { DatabaseError } from "effect-awa/RuntimePool"
import { vi } from "vitest"

let now = 0
beforeEach(() => {
  now = 1_000_000
  vi.spyOn(performance, "now").mockImplementation(() => now)
})
afterEach(() => {
  vi.restoreAllMocks()
})

type Answer = ReadonlyArray<unknown> | "fails"

/** A database that gives these answers, one a call, and the last one for ever; and what it was asked. */
const database = (...answers: ReadonlyArray<Answer>) => {
  const asked: Array<ReadonlyArray<unknown>> = []
  const step: Step = (name, _call, values) => {
    const answer = answers[Math.min(asked.length, answers.length - 1)] ?? []
    asked.push(values)
    return answer === "fails"
      ? new DatabaseError({ operation: name, retryable: true, reason: "gone" })
      : Effect.succeed(answer)
  }
  return { asked, step }
}

describe("promotion", () => {
  it.effect("goes on by the mark of the call before, until nothing more is due", () =>
    Effect.gen(function* () {
      const { asked, step } = database([5, 0n, "m1"], [3, 250n, "m2"], [0, null, "m3"])
      const promote = makePromote(step)
      expect(yield* promote).toEqual({ leader: true, promoted: 8, nextDue: Duration.millis(250) })
      expect(yield* promote).toEqual({ leader: true, promoted: 0, nextDue: undefined })
      expect(asked.map(([, mark]) => mark)).toEqual([undefined, "m1", "m2"])
    })
  )

  it.effect("keeps the mark of its last committed call when a call fails, or another runtime leads", () =>
    Effect.gen(function* () {
      const { asked, step } = database([1, 9n, "m1"], "fails", [null, null, "m1"], [0, null, "m2"])
      const promote = makePromote(step)
      yield* promote
      expect(Either.isLeft(yield* Effect.either(promote))).toBe(true)
      expect((yield* promote).leader).toBe(false)
      yield* promote
      expect(asked.map(([, mark]) => mark)).toEqual([undefined, "m1", "m1", "m1"])
    })
  )

  it.effect("lets the other steps have their turn, however much is due", () =>
    Effect.gen(function* () {
      const { asked, step } = database([2_000, 0n, "m"])
      expect((yield* makePromote(step)).nextDue).toEqual(Duration.zero)
      expect(asked).toHaveLength(100)
    })
  )

  it.effect("begins anew every ten minutes, but only while nothing is due", () =>
    Effect.gen(function* () {
      const { asked, step } = database([1, 9n, "m1"], [1, 9n, "m2"], [0, 9n, "m3"], [0, 9n, "m4"])
      const promote = makePromote(step)
      for (let n = 0; n < 5; n++) {
        yield* promote
        now += 400_000
      }
      expect(asked.map(([, mark]) => mark)).toEqual([undefined, "m1", "m2", undefined, "m4"])
    })
  )
})

describe("rescue", () => {
  it.effect("looks at beaten attempts every twelfth of the staleness, and again at once after a full share", () =>
    Effect.gen(function* () {
      const { asked, step } = database([500], [1], [0])
      const rescue = makeRescue(step, "60 seconds")
      for (let n = 0; n < 8; n++) {
        yield* rescue
        now += 1_000
      }
      expect(asked.map(([, , beaten]) => beaten)).toEqual([true, true, false, false, false, false, true, false])
    })
  )

  it.effect(
    "leaves no more than a quarter of a minute between two looks: the deadlines of young claims are looked at with them",
    () =>
      Effect.gen(function* () {
        const { asked, step } = database([0])
        const rescue = makeRescue(step, "1 hour")
        for (const millis of [0, 14_999, 1]) {
          now += millis
          yield* rescue
        }
        expect(asked.map(([, , beaten]) => beaten)).toEqual([true, false, true])
      })
  )

  it.effect("does not count a look that another runtime was to take, and leaves a second between two", () =>
    Effect.gen(function* () {
      const { asked, step } = database([null], [0])
      const rescue = makeRescue(step, "100 millis")
      for (let n = 0; n < 4; n++) {
        yield* rescue
        now += 500
      }
      expect(asked.map(([, , beaten]) => beaten)).toEqual([true, true, false, true])
    })
  )
})

describe("rescue of leases", () => {
  it.effect("looks again in a second, not at once, at one that is due and held by somebody", () =>
    Effect.gen(function* () {
      const due = (rescued: number, nextDue: bigint | null) =>
        Effect.map(makeRescueLeases(database([rescued], [nextDue]).step, "60 seconds"), (did) => did.nextDue)
      expect(yield* due(0, 0n)).toEqual(Duration.seconds(1))
      expect(yield* due(3, 250n)).toEqual(Duration.millis(250))
      expect(yield* due(500, 0n)).toEqual(Duration.zero) // there are more
      expect(yield* due(0, null)).toBeUndefined()
    })
  )
})

describe("retention", () => {
  it.effect("is looked after every minute, and at every tick while a share was full", () =>
    Effect.gen(function* () {
      const { asked, step } = database([1_000], [7], [0])
      const sweep = makeSweep(step, {
        terminal: "30 days",
        deadLetter: Duration.infinity,
        history: "1 hour",
        kept: makeKept("awa")
      })
      const swept: Array<number> = []
      for (let n = 0; n < 8; n++) {
        swept.push(yield* sweep)
        now += 20_000
      }
      expect(swept).toEqual([0, 0, 0, 1_000, 7, 0, 0, 0])
      expect(asked).toHaveLength(3)
      expect(asked[0]).toEqual(["1 day", interval("30 days"), "31557600000000 milliseconds", interval("1 hour"), 1_000])
    })
  )
})
