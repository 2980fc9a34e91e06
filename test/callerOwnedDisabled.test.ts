import { describe, expect, it } from "@effect/vitest"
import { BodyFailed, CallerOwnedDisabled, RolledBack } from "effect-awa/JobError"
import { isDisabled } from "../src/internal/callerOwnedDisabled.js"

/** As `pg` and `postgres` give an error of the server. */
const fromServer = (code: string) => Object.assign(new Error("refused"), { code, severity: "ERROR" })
const disabled = new CallerOwnedDisabled({ sqlState: "WA006" })

// C-60: never a retry
describe("a failure that is the refusal of a disabled queue", () => {
  it("is known in every form in which a handler can hand it on", () => {
    const forms = [
      disabled,
      fromServer("WA006"),
      new BodyFailed({ cause: fromServer("WA006") }),
      new RolledBack({ cause: disabled }),
      new Error("the charge failed", { cause: new Error("in the transaction", { cause: disabled }) })
    ]
    expect(forms.map(isDisabled)).toEqual(forms.map(() => true))
  })

  it("is not taken for one when it is another", () => {
    const loop: { cause: unknown } = { cause: undefined }
    loop.cause = loop
    const others = [fromServer("WA001"), new Error("WA006"), { sqlState: "WA006" }, loop, undefined, null, "WA006"]
    expect(others.map(isDisabled)).toEqual(others.map(() => false))
  })
})
