/** What an operator is told of an installation, whatever it is called and whatever its sessions begin with. */
import { assert, layer } from "@effect/vitest"
import { Duration, Effect, Redacted } from "effect"
import { Doctor, Storage } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import { claim, enqueue } from "../pg/support.js"
import { database } from "../runtime/support.js"
import { isStrict } from "../tools/strictRoles.js"
import { throughPooler } from "../tools/throughPooler.js"
import { cell, keepsSnapshot } from "./cell.js"
import { sessions } from "./sessions.js"

layer(database(), { excludeTestServices: true })("doctor", (it) => {
  it.effect("finds a sound installation sound, and says when transactions begin in another level [matrix]", () =>
    // C-53
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const past = yield* Doctor.examine({ url, schema: cell.schema })
      const through = yield* Doctor.examine({
        url: Redacted.make(throughPooler(Redacted.value(url))),
        schema: cell.schema
      })
      for (const { findings, profile, schema } of [past, through]) {
        assert.strictEqual(schema, cell.schema)
        assert.strictEqual(profile, isStrict ? "strict" : "compatible")
        assert.deepStrictEqual(
          findings.filter(({ severity }) => severity === "error"),
          []
        )
        assert.strictEqual(
          findings.some(({ code }) => code === "setting-isolation"),
          keepsSnapshot
        )
        if (cell.zone !== undefined)
          assert.include(
            findings.map(({ code }) => code),
            "setting-time-zone"
          )
      }
    })
  )
})

layer(database(), { excludeTestServices: true })("the ring", (it) => {
  it.scoped("is shown with the age of its current segment [matrix]", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const { application, runtime } = yield* sessions
      yield* enqueue(application, 1, { queue: "shown" })
      yield* claim(runtime, { queue: "shown" })
      const status = yield* Storage.status({ url, schema: cell.schema })
      assert.deepInclude(status, { freeSegments: 3, database: "ours" })
      const opened = status.segments.filter(({ current }) => current).map(({ opened }) => opened)
      assert.lengthOf(opened, 1)
      // since this database was made, in any zone
      assert.isBelow(Duration.toSeconds(opened[0] ?? Duration.infinity), 120)
    })
  )
})
