import { describe, expect, it } from "@effect/vitest"
import { FastCheck } from "effect"
import { budgetLeft } from "../src/internal/budget.js"

const millis = FastCheck.integer({ min: 0, max: 600_000 })

describe("what is left of a reconciliation's budget", () => {
  // C-17.4: a remaining duration, at most until rescue may take the attempt
  const bounds = { budgetMillis: 30_000, stalenessMillis: 60_000 }
  const alive = (aliveAtMillis: number, deadlineAtMillis?: number) => ({ aliveAtMillis, deadlineAtMillis })

  it("is the budget while the attempt was beaten for lately", () => {
    expect(budgetLeft(bounds, alive(90_000), 100_000, 100_000)).toBe(30_000)
    expect(budgetLeft(bounds, alive(90_000), 100_000, 112_000)).toBe(18_000)
    expect(budgetLeft(bounds, alive(90_000), 100_000, 131_000)).toBe(-1_000)
  })

  it("ends when rescue may take the attempt: a staleness after its last sign of life, or at its deadline", () => {
    expect(budgetLeft(bounds, alive(50_000), 100_000, 100_000)).toBe(10_000)
    expect(budgetLeft(bounds, alive(90_000, 105_000), 100_000, 100_000)).toBe(5_000)
  })

  it("is a second even so: an event loop that was blocked asks once", () => {
    expect(budgetLeft(bounds, alive(0), 100_000, 100_000)).toBe(1_000)
    expect(budgetLeft(bounds, alive(90_000, 95_000), 100_000, 100_000)).toBe(1_000)
    expect(budgetLeft({ ...bounds, budgetMillis: 200 }, alive(0), 100_000, 100_000)).toBe(200)
  })

  it("grows with a beat, never beyond the budget, and shrinks as time passes", () => {
    FastCheck.assert(
      FastCheck.property(
        millis,
        millis,
        millis,
        millis,
        millis,
        (budgetMillis, stalenessMillis, since, beat, passes) => {
          const [own, exited] = [{ budgetMillis, stalenessMillis }, 1_000_000]
          const before = budgetLeft(own, alive(exited - since), exited, exited)
          expect(budgetLeft(own, alive(exited - since + beat), exited, exited)).toBeGreaterThanOrEqual(before)
          expect(before).toBeLessThanOrEqual(budgetMillis)
          expect(budgetLeft(own, alive(exited - since), exited, exited + passes)).toBe(before - passes)
        }
      )
    )
  })

  it("is the same wherever the clock began", () => {
    FastCheck.assert(
      FastCheck.property(millis, millis, millis, (since, passes, shift) => {
        const at = (zero: number) => budgetLeft(bounds, alive(zero - since, zero + 50_000), zero, zero + passes)
        expect(at(1_000_000 + shift)).toBe(at(1_000_000))
      })
    )
  })
})
