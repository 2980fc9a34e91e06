/** What the runtime prepares goes alone, under the runtime's limits. Beside preparedRuntime.test.ts, in whose process nothing is prepared. */
import { expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Migrations from "effect-awa/Migrations"
import * as RuntimePool from "effect-awa/RuntimePool"
import { fileDatabase } from "./support.js"

/** The limit of pauses is BEGIN's: what goes alone makes none. */
const settings =
  "select current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_isolation'), " +
  "current_setting('statement_timeout'), current_setting('lock_timeout'), '\\\\', $1::text"

const contrary = fileDatabase({
  then: `
    update awa.meta set schema_version = ${Migrations.schemaVersion};
    do $$ begin
      execute format('alter database %I set default_transaction_isolation = serializable', current_database());
      execute format('alter database %I set statement_timeout = 0', current_database());
      execute format('alter database %I set lock_timeout = 0', current_database());
      execute format('alter database %I set standard_conforming_strings = off', current_database());
    end $$;`
})

it.scopedLive("a runtime's prepared statement goes alone, under its own limits and not the database's", () =>
  Effect.gen(function* () {
    const { url } = yield* contrary
    const pool = yield* RuntimePool.make({ url: Redacted.make(url), maxConnections: 1 })
    const statement = { name: "settings", prepare: true, text: settings, values: ["x"] }
    const usual = ["read committed", "5s", "5s", "\\\\", "x"]
    // the pool's start has learned that the connection is direct
    expect(yield* pool.call(statement)).toEqual([["0", ...usual]])
    expect(yield* pool.call({ ...statement, lockTimeoutMillis: 250 })).toEqual([
      ["7s", "read committed", "5s", "250ms", "\\\\", "x"]
    ])
    expect(yield* pool.call(statement)).toEqual([["0", ...usual]])
    expect(yield* pool.call({ ...statement, timeoutMillis: 100 })).toEqual([
      ["2100ms", "read committed", "100ms", "100ms", "\\\\", "x"]
    ])
    // one that fails takes its connection along, and no other
    const divided = { name: "divided", prepare: true, text: "select 1 / $1::integer", values: [0] }
    expect(yield* Effect.flip(pool.call(divided))).toMatchObject({ _tag: "DatabaseError", sqlState: "22012" })
    expect(yield* pool.call(statement)).toEqual([["7s", ...usual]])
    expect(yield* pool.call(statement)).toEqual([["0", ...usual]])
  })
)
