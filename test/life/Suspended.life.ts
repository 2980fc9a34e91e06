import { SqlClient } from "@effect/sql"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { FaultProxy, TestDatabase } from "effect-awa/testing"
import { database, eventually } from "../runtime/support.js"
import { Pay, Work } from "./jobs.js"
import { type Child, jobBecomes, outcomesOf, Program, start } from "./support.js"

const rowsOf = (tag: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`select value from application_rows where tag = ${tag}`)

const runtimeOf = (name: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ id: string }>`select runtime_id::text as id from awa.runtimes where name = ${name}`,
      ([row]) => row?.id
    )
  )

const forget = (name: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`delete from awa.runtimes where name = ${name}`)

/** It goes on as if nothing had been: its row is there again under its old id, and it works. */
const goesOn = (child: Child, name: string, id: string | undefined) =>
  Effect.gen(function* () {
    yield* eventually(
      "the runtime's own row",
      Effect.map(runtimeOf(name), (found) => found !== undefined && found === id)
    )
    const next = yield* Pay.enqueue({ tag: "next", deed: "finish" })
    yield* child.hears("began next 1")
    yield* jobBecomes(next.id, "completed")
    yield* child.signal("SIGTERM")
    assert.strictEqual((yield* child.ended).code, 0)
  })

layer(Program.layer, { excludeTestServices: true })("a worker that is away for longer than the staleness", (it) => {
  it.scoped("because a handler blocks its event loop loses its attempts, and goes on", () =>
    // F-3, F-54, F-55, C-02
    Effect.gen(function* () {
      const away = yield* start({ name: "away" })
      const neighbour = yield* Work.enqueue({ tag: "neighbour", deed: "sleep", millis: 10_000, attempts: 1 })
      yield* away.hears("began neighbour 1")
      const blocking = yield* Pay.enqueue({ tag: "blocking", deed: "block", millis: 12_000, attempts: 1 })
      yield* away.hears("began blocking 1")
      const id = yield* runtimeOf("away")
      const other = yield* start({ name: "other" })
      yield* other.hears("began blocking 2")
      yield* forget("away") // as the sweep does after a day
      yield* jobBecomes(blocking.id, "completed")
      yield* jobBecomes(neighbour.id, "completed")
      assert.notInclude(away.said.join("\n"), "failed blocking") // it is still away
      // at its commit it is told, and nothing of it is there; the ordinary attempt's end is refused as well
      yield* away.hears("failed blocking 1: StaleAttempt")
      assert.deepStrictEqual(yield* rowsOf("blocking"), [{ value: "2" }])
      yield* other.signal("SIGTERM")
      assert.strictEqual((yield* other.ended).code, 0)
      yield* goesOn(away, "away", id)
      assert.deepStrictEqual(yield* outcomesOf(neighbour.id), ["rescued", "completed"])
      assert.deepStrictEqual(yield* outcomesOf(blocking.id), ["rescued", "completed"])
    }).pipe(Effect.provide(database()))
  )

  it.scoped("because it was suspended loses its attempts, and goes on", () =>
    // F-3, F-54, F-55, C-02: a laptop that slept, a virtual machine that was moved
    Effect.gen(function* () {
      const away = yield* start({ name: "away" })
      const owned = yield* Pay.enqueue({ tag: "owned", deed: "sleep", millis: 3_000, attempts: 1 })
      const plain = yield* Work.enqueue({ tag: "plain", deed: "sleep", millis: 3_000, attempts: 1 })
      yield* away.hears("began owned 1")
      yield* away.hears("began plain 1")
      const id = yield* runtimeOf("away")
      yield* away.signal("SIGSTOP")
      const other = yield* start({ name: "other" })
      yield* jobBecomes(owned.id, "completed")
      yield* jobBecomes(plain.id, "completed")
      yield* forget("away")
      yield* other.signal("SIGTERM")
      assert.strictEqual((yield* other.ended).code, 0)
      yield* away.signal("SIGCONT")
      yield* goesOn(away, "away", id)
      assert.deepStrictEqual(yield* rowsOf("owned"), [{ value: "2" }])
      assert.deepStrictEqual(yield* outcomesOf(owned.id), ["rescued", "completed"])
      assert.deepStrictEqual(yield* outcomesOf(plain.id), ["rescued", "completed"])
    }).pipe(Effect.provide(database()))
  )

  /** With a silent connection the rollback hangs, so that the beat's interruption is always first; else it is a race. */
  const cutOff = (silent: boolean) =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const application = yield* FaultProxy.makeUrl(url)
      const away = yield* start({ name: "away", applicationTransaction: 1_000, proxies: { application } })
      const { id } = yield* Pay.enqueue({ tag: "held", deed: "hold-transaction", millis: 600_000, attempts: 1 })
      yield* away.hears("holds held 1")
      yield* away.signal("SIGSTOP")
      const other = yield* start({ name: "other" })
      const woken = Effect.zipRight(away.signal("SIGCONT"), away.hears("failed held 1"))
      const work = Effect.gen(function* () {
        yield* jobBecomes(id, "completed")
        assert.deepStrictEqual(yield* rowsOf("held"), [{ value: "2" }])
        yield* other.signal("SIGTERM")
        assert.strictEqual((yield* other.ended).code, 0)
        yield* woken
      })
      yield* silent ? Effect.scoped(Effect.zipRight(application.halfOpen({ match: () => true }), work)) : work
      yield* goesOn(away, "away", yield* runtimeOf("away"))
      assert.deepStrictEqual(yield* rowsOf("held"), [{ value: "2" }])
    }).pipe(Effect.provide(database()))

  it.scoped("inside its transaction is cut off by the server, which holds the attempt's lock no longer", () =>
    // C-40: the client is there and does not act
    cutOff(false)
  )

  it.scoped("inside its transaction learns it from its beat where the cut connection says nothing", () =>
    // C-40, C-02, F-3
    cutOff(true)
  )
})
