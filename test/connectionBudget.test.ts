/** C-33: both pools, times the declared number of processes, beside what the server gives. */
import { describe, expect, it } from "@effect/vitest"
import { budgetOf } from "../src/internal/connectionBudget.js"

const pools = { mode: "separate", application: 10, runtime: 7 } as const
const server = { maximum: 100, reserved: 3, database: undefined }

describe("the connection budget", () => {
  it("counts both pools of every process", () => {
    expect(budgetOf(pools, 1, server)).toMatchObject({ needed: 17, available: 97 })
    expect(budgetOf(pools, 6, server)).toMatchObject({ needed: 102, available: 97 })
  })

  it("leaves out what is reserved, and minds the database's own limit", () => {
    expect(budgetOf(pools, 1, { ...server, reserved: 90 }).available).toBe(10)
    expect(budgetOf(pools, 1, { ...server, database: 20 }).available).toBe(20)
    expect(budgetOf(pools, 1, { ...server, database: 500 }).available).toBe(97)
  })

  it("says its sum", () => {
    expect(budgetOf(pools, 6, { ...server, database: 99 }).detail).toBe(
      "6 processes × (10 application + 7 runtime) = 102 of 97 connections " +
        "(max_connections 100, 3 reserved, the database's own 99)"
    )
  })
})
