import { Either } from "effect"
import { describe, expect, it } from "vitest"
import { type Found, makePlan } from "../../src/internal/migratePlan.js"

const installed = (over: Partial<Extract<Found, { _tag: "Installed" }>> = {}): Found => ({
  _tag: "Installed",
  version: 3,
  minimumContract: 1,
  ring: 8,
  renderedHash: "hash of 8",
  revision: 7,
  ...over
})

const plan = (found: Found, ring?: number) =>
  Either.getOrElse(
    makePlan(found, { schema: "awa", ring, version: 3, hash: (ring) => `hash of ${ring}`, revision: 7 }),
    (refusal) => refusal
  )

// C-62
describe("the plan of a migration", () => {
  it("installs into nothing, and into an empty schema that stands there", () => {
    expect(plan({ _tag: "Absent" })).toEqual({ _tag: "Install", createSchema: true, ring: 16 })
    expect(plan({ _tag: "Absent" }, 4)).toEqual({ _tag: "Install", createSchema: true, ring: 4 })
    expect(plan({ _tag: "Empty" })).toEqual({ _tag: "Install", createSchema: false, ring: 16 })
  })

  it("refuses what is not ours", () => {
    expect(plan({ _tag: "Foreign", found: "a table" })).toMatchObject({ _tag: "ForeignSchema", found: "a table" })
  })

  it("does nothing when everything is in place", () => {
    expect(plan(installed())).toEqual({ _tag: "Nothing", version: 3, ring: 8, newer: false })
    expect(plan(installed(), 8)).toEqual({ _tag: "Nothing", version: 3, ring: 8, newer: false })
  })

  it("replaces functions that are others than ours", () => {
    expect(plan(installed({ renderedHash: "" }))).toEqual({ _tag: "Refresh", ring: 8 })
    expect(plan(installed({ renderedHash: "hash of 16" }))).toEqual({ _tag: "Refresh", ring: 8 })
    expect(plan(installed({ renderedHash: "hash of 16", revision: 6 }))).toEqual({ _tag: "Refresh", ring: 8 })
  })

  it("upgrades an older version, with the ring that is installed", () => {
    expect(plan(installed({ version: 1 }))).toEqual({ _tag: "Upgrade", from: 1, ring: 8 })
  })

  // F-40
  it("leaves a newer version alone while it serves our contract, whatever its functions are", () => {
    expect(plan(installed({ version: 4, renderedHash: "other" }))).toEqual({
      _tag: "Nothing",
      version: 4,
      ring: 8,
      newer: true
    })
  })

  // F-40: a deployment that rolls starts processes of both releases
  it("leaves the functions of a later release of the same version alone", () => {
    expect(plan(installed({ renderedHash: "other", revision: 8 }))).toEqual({
      _tag: "Nothing",
      version: 3,
      ring: 8,
      newer: true
    })
    expect(plan(installed({ revision: 8 }))).toEqual({ _tag: "Nothing", version: 3, ring: 8, newer: false })
  })

  it("refuses a version that no longer serves our contract", () => {
    for (const version of [2, 3, 4]) {
      expect(plan(installed({ version, minimumContract: 2 }), 16)).toMatchObject({
        _tag: "SchemaTooNew",
        installedVersion: version,
        minimumContract: 2,
        contract: 1
      })
    }
  })

  it("refuses another ring, for every version that it would accept", () => {
    for (const version of [2, 3, 4]) {
      expect(plan(installed({ version }), 16)).toMatchObject({ _tag: "RingSizeFixed", installed: 8, requested: 16 })
    }
  })
})
