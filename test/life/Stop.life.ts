import { SqlClient } from "@effect/sql"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { FaultProxy, TestDatabase } from "effect-awa/testing"
import { countRows, database } from "../runtime/support.js"
import { Pay, Work } from "./jobs.js"
import { jobOf, Program, start } from "./support.js"

layer(Program.layer, { excludeTestServices: true })("a worker process", (it) => {
  it.scoped("with a defect of its own exits with 1, after the rest was stopped in order", () =>
    Effect.gen(function* () {
      const child = yield* start({ shutdownGrace: 20_000 })
      const owned = yield* Pay.enqueue({ tag: "owned", deed: "sleep", millis: 1_500 })
      yield* child.hears("began owned 1")
      const sql = yield* SqlClient.SqlClient
      // a function that answers nonsense stands for any broken invariant between the two sides
      yield* sql`drop function awa.close_completed`
      yield* sql.unsafe(`create function awa.close_completed(bigint, integer[], bigint[], bigint[], integer[], integer[], bigint[],
        bigint[]) returns text language sql as $$ select 'nonsense' $$`)
      yield* sql`drop function awa.close_attempts`
      yield* sql.unsafe(`create function awa.close_attempts(bigint, integer[], bigint[], integer[], bigint[], bigint[], bigint[],
        awa.outcome[], jsonb, boolean) returns table (ord integer, answer text) language sql as $$ select 1, 'nonsense' $$`)
      yield* Work.enqueue({ tag: "a", deed: "finish" })
      assert.deepStrictEqual(yield* child.ended, { code: 1, signal: null })
      assert.include(child.said.join("\n"), "WorkerCrashed")
      assert.deepInclude(yield* jobOf(owned.id), { state: "completed", attempt: 1 })
      assert.strictEqual(yield* countRows("owned"), 1)
    }).pipe(Effect.provide(database()))
  )

  it.scoped("that is drained for a deploy finishes what it has, takes nothing new, and ends", () =>
    Effect.gen(function* () {
      const child = yield* start({ drainOnEnd: true, shutdownGrace: 0 })
      const first = yield* Work.enqueue({ tag: "first", deed: "sleep", millis: 1_500 })
      yield* child.hears("began first 1")
      yield* child.endInput
      yield* child.hears("drains")
      const second = yield* Work.enqueue({ tag: "second", deed: "finish" })
      assert.deepStrictEqual(yield* child.ended, { code: 0, signal: null })
      assert.include(child.said.join("\n"), "drained, 0 in flight")
      assert.deepInclude(yield* jobOf(first.id), { state: "completed", attempt: 1 })
      assert.deepInclude(yield* jobOf(second.id), { state: "available", attempt: 0 })
    }).pipe(Effect.provide(database()))
  )

  for (const deed of ["sleep", "hold-transaction"] as const) {
    it.scoped(`that is killed in the middle of a stop (${deed}) loses nothing`, () =>
      // C-05, F-94: its attempt is rescued, with one row in the end
      Effect.gen(function* () {
        const child = yield* start({ shutdownGrace: 60_000, shutdownDeadline: 120_000, applicationTransaction: 60_000 })
        const { id } = yield* Pay.enqueue({ tag: "a", deed, millis: 60_000, attempts: 1 })
        yield* child.hears(deed === "sleep" ? "began a 1" : "holds a 1")
        yield* child.signal("SIGTERM")
        yield* child.hears("SIGTERM: the worker stops")
        yield* child.signal("SIGKILL")
        assert.strictEqual((yield* child.ended).signal, "SIGKILL")
        const next = yield* start()
        yield* next.hears("began a 2")
        yield* next.signal("SIGTERM")
        assert.strictEqual((yield* next.ended).code, 0)
        assert.deepInclude(yield* jobOf(id), { state: "completed", attempt: 2 })
        assert.strictEqual(yield* countRows("a"), 1)
      }).pipe(Effect.provide(database()))
    )
  }

  it.scoped("whose database goes away while it stops gives back what it can once it is there again", () =>
    // C-05: within the graces
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const proxy = yield* FaultProxy.makeUrl(url)
      const child = yield* start({
        proxies: { runtime: proxy },
        shutdownGrace: 100,
        interruptGrace: 60_000,
        shutdownDeadline: 120_000
      })
      const { id } = yield* Work.enqueue({ tag: "a", deed: "sleep", millis: 600_000 })
      yield* child.hears("began a 1")
      const flush = yield* proxy.rule({ match: /close_attempts/, action: FaultProxy.cutBefore(), limit: 3 })
      yield* child.signal("SIGTERM")
      assert.deepStrictEqual(yield* child.ended, { code: 0, signal: null })
      assert.strictEqual((yield* flush.counts).injected, 3)
      assert.deepInclude(yield* jobOf(id), { state: "available", attempt: 0 })
    }).pipe(Effect.provide(database()))
  )
})
