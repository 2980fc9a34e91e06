import { describe, expect, it } from "@effect/vitest"
import { isAmbiguous, isFatal } from "../src/internal/sqlState.js"

// C-42
describe("an error under COMMIT", () => {
  it("that ended the session is known by its state, in whatever language the server says FATAL", () => {
    for (const code of ["57P01", "57P05", "25P03", "25P04", "08006", "58030", "XX000"]) {
      expect(isFatal({ severity: "FATALE", code })).toBe(false) // as a server with an Italian lc_messages says it
      expect(isAmbiguous(code), code).toBe(true)
    }
  })

  it("that left the session alone says that nothing was committed", () => {
    for (const code of ["40001", "23505", "WA007", "25P02", "57014", "25000"])
      expect(isAmbiguous(code), code).toBe(false)
  })
})
