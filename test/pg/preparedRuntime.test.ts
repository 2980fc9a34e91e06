/** What the runtime prepares may be taken away by somebody else: one statement fails by it, and no other. */
import { expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Migrations from "effect-awa/Migrations"
import * as RuntimePool from "effect-awa/RuntimePool"
import { fileDatabase } from "./support.js"

const database = fileDatabase({ then: `update awa.meta set schema_version = ${Migrations.schemaVersion};` })

it.scopedLive("a runtime's prepared statement that is gone fails once, and nothing is prepared from then on", () =>
  Effect.gen(function* () {
    const { url } = yield* database
    const pool = yield* RuntimePool.make({ url: Redacted.make(url), maxConnections: 1 })
    const asked = pool.call({ name: "asked", prepare: true, text: "select $1::text", values: ["x"] })
    const prepared = Effect.map(
      pool.call({
        name: "look",
        text: "select name from pg_prepared_statements where name like 'effect%'",
        values: []
      }),
      (rows) => rows.flat()
    )
    yield* asked
    expect(yield* prepared).toEqual(["effect_awa_asked"])
    yield* pool.call({ name: "rob", text: "deallocate all", values: [] })
    expect(yield* Effect.flip(asked)).toMatchObject({ _tag: "DatabaseError", sqlState: "26000" })
    expect(yield* asked).toEqual([["x"]])
    expect(yield* prepared).toEqual([])
  })
)
