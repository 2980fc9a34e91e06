import { describe, expect, it } from "@effect/vitest"
import type { Configuration } from "./configuration.js"
import { faultOf } from "./report.js"
import type { Finding } from "./tlc.js"

const model: Configuration = { name: "a model", folder: "f", module: "M", constants: {}, invariants: ["A", "B"] }
const twin: Configuration = { ...model, violates: "A" }
const found = (violated: string | undefined, distinct = 10): Finding => ({
  violated,
  generated: 20,
  distinct,
  depth: 5,
  seconds: 1,
  output: ""
})

describe("what the checker found", () => {
  it("must be nothing in a model, with as many states as it is documented with", () => {
    expect(faultOf(model, found(undefined))).toBeUndefined()
    expect(faultOf({ ...model, states: 10 }, found(undefined))).toBeUndefined()
    expect(faultOf(model, found("A"))).toBe("expected to hold, but A is violated")
    expect(faultOf({ ...model, states: 10 }, found(undefined, 9))).toContain("expected 10 distinct states")
  })

  it("must be the one named invariant in a broken twin", () => {
    expect(faultOf(twin, found("A"))).toBeUndefined()
    expect(faultOf(twin, found(undefined))).toBe("expected A to be violated, but it holds")
    expect(faultOf(twin, found("B"))).toBe("expected A to be violated, but B is violated")
  })
})
