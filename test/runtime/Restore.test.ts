import { assert, describe, it } from "@effect/vitest"
import { RuntimePool } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import { Effect, Redacted } from "effect"
import { inject } from "vitest"
import { at, connect, freshName } from "../pg/database.js"
import { database } from "./support.js"

const ping = { name: "ping", text: "select 1", values: [] }

// C-34
describe("a database that was replaced", () => {
  it.scopedLive("is refused at the start, by name, with the way out", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const session = yield* connect(Redacted.value(url))
      yield* session.script("select awa.insert_job('k', '{}'); update awa.ready_entries_0 set xid = '1000000000000'")
      const refused = yield* Effect.flip(RuntimePool.make({ url }))
      if (refused._tag !== "StartRefused") return assert.fail(refused.message)
      assert.strictEqual(refused.reason, "database-replaced")
      assert.include(refused.detail, "1000000000000")
      assert.include(refused.detail, "`awa storage rebase`")
      yield* session.value("select awa.rebase_storage()")
      yield* RuntimePool.make({ url })
    }).pipe(Effect.provide(database()))
  )

  it.scopedLive("under a running runtime is noticed by its next connection, before it claims there", () =>
    Effect.gen(function* () {
      const { name, url } = yield* TestDatabase.TestDatabase
      const pool = yield* RuntimePool.make({ url })
      yield* pool.call(ping)
      const admin = yield* connect(inject("postgresUrl"))
      const original = freshName("original")
      const cut = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where datname = $1"
      yield* admin.value(cut, [name])
      yield* admin.script(`alter database ${name} rename to ${original}`)
      yield* Effect.addFinalizer(() => Effect.ignore(admin.script(`drop database if exists ${original} with (force)`)))
      yield* admin.script(`create database ${name} template ${original}`)
      yield* Effect.ignore(pool.call(ping)) // perhaps on a connection whose end it has not seen
      const error = yield* Effect.flip(pool.call(ping))
      assert.include(error.message, "another database is there now")
      // it is the same runtime when its own database is back
      yield* admin.script(`drop database ${name} with (force)`)
      yield* admin.script(`alter database ${original} rename to ${name}`)
      yield* pool.call(ping)
      yield* connect(at(inject("postgresUrl"), name))
    }).pipe(Effect.provide(database()))
  )
})
