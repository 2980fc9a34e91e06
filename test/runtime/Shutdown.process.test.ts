import { SqlClient } from "@effect/sql"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { FaultProxy, TestDatabase } from "effect-awa/testing"
import { Pay, Work } from "../life/jobs.js"
import { jobBecomes, jobOf, Program, start } from "../life/support.js"
import { countRows, database } from "./support.js"

const long = { deed: "sleep", millis: 600_000 } as const

layer(Program.layer, { excludeTestServices: true })("a worker process", (it) => {
  it.scoped("that is told to stop finishes what it can, gives the rest back, and exits with 0", () =>
    // C-05, F-94, F-96
    Effect.gen(function* () {
      const child = yield* start({ shutdownGrace: 1_500 })
      const quick = yield* Work.enqueue({ tag: "quick", deed: "sleep", millis: 500 })
      const slow = yield* Work.enqueue({ tag: "slow", ...long })
      const owned = yield* Pay.enqueue({ tag: "owned", ...long })
      yield* Effect.forEach(["quick 1", "slow 1", "owned 1"], (tag) => child.hears(`began ${tag}`))
      yield* child.signal("SIGTERM")
      assert.deepStrictEqual(yield* child.ended, { code: 0, signal: null })
      assert.deepInclude(yield* jobOf(quick.id), { state: "completed", attempt: 1 })
      // runnable at once, not counted, with what it said of its progress
      assert.deepInclude(yield* jobOf(slow.id), {
        state: "available",
        attempt: 0,
        lease: "1",
        progress: { at: "slow" }
      })
      assert.deepInclude(yield* jobOf(owned.id), { state: "available", attempt: 0, lease: "1" })
      assert.lengthOf(
        child.said.filter((line) => line.includes("its scope closed")),
        3
      )
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`select from awa.runtimes`, [])
    }).pipe(Effect.provide(database()))
  )

  it.scoped("ends at once at the second signal, and not at npm's repetition of the first", () =>
    // C-05: its attempt is left to rescue
    Effect.gen(function* () {
      const child = yield* start({ shutdownGrace: 60_000, shutdownDeadline: 120_000 })
      const { id } = yield* Work.enqueue({ tag: "a", ...long })
      yield* child.hears("began a 1")
      yield* child.signal("SIGINT")
      yield* child.hears("SIGINT: the worker stops")
      yield* child.signal("SIGINT")
      yield* Effect.sleep("1200 millis")
      assert.notInclude(child.said.join("\n"), "again")
      yield* child.signal("SIGINT")
      assert.deepStrictEqual(yield* child.ended, { code: 130, signal: null })
      assert.deepInclude(yield* jobOf(id), { state: "running", attempt: 1 })
    }).pipe(Effect.provide(database()))
  )

  it.scoped("that is told to stop while it starts does, whatever the start waits for", () =>
    // F-94: a stop is not lost; a start that hangs would go on for ever
    Effect.gen(function* () {
      const layers = yield* start({ hang: "start" })
      yield* layers.hears("starts")
      yield* layers.signal("SIGTERM")
      assert.deepStrictEqual(yield* layers.ended, { code: 0, signal: null })

      const { url } = yield* TestDatabase.TestDatabase
      const proxy = yield* FaultProxy.makeUrl(url)
      const rule = yield* proxy.rule({ match: /beat_runtime/, action: FaultProxy.blackHole("both"), limit: 1 })
      const registering = yield* start({ proxies: { runtime: proxy } })
      yield* Effect.repeat(Effect.delay(rule.counts, "5 millis"), { until: ({ injected }) => injected === 1 })
      yield* registering.signal("SIGTERM")
      assert.deepStrictEqual(yield* registering.ended, { code: 0, signal: null })
    }).pipe(Effect.provide(database()))
  )

  it.scoped("ends at its deadline, whatever hangs: a finalizer, a database that is away, a blocked event loop", () =>
    // C-05, F-96
    Effect.gen(function* () {
      const short = { shutdownGrace: 100, interruptGrace: 100, shutdownDeadline: 1_000 }
      const finalizer = yield* start({ hang: "finalizer", ...short })
      yield* finalizer.hears("ready")
      yield* finalizer.signal("SIGTERM")
      assert.deepStrictEqual(yield* finalizer.ended, { code: 124, signal: null })

      const { url } = yield* TestDatabase.TestDatabase
      const proxy = yield* FaultProxy.makeUrl(url)
      const away = yield* start({ proxies: { runtime: proxy }, ...short })
      const { id } = yield* Work.enqueue({ tag: "away", ...long })
      yield* away.hears("began away 1")
      yield* proxy.rule({ match: () => true, action: FaultProxy.blackHole("both") })
      yield* away.signal("SIGTERM")
      assert.deepStrictEqual(yield* away.ended, { code: 124, signal: null })
      assert.deepInclude(yield* jobOf(id), { state: "running", attempt: 1 })

      const blocked = yield* start(short)
      yield* Work.enqueue({ tag: "blocked", deed: "block-at-interruption", millis: 600_000 })
      yield* blocked.hears("began blocked 1")
      yield* blocked.signal("SIGTERM")
      assert.deepStrictEqual(yield* blocked.ended, { code: null, signal: "SIGKILL" })
    }).pipe(Effect.provide(database()))
  )

  it.scoped("killed by a job is its end: the job is quarantined after its attempts, and the others go on", () =>
    // F-52, F-53, F-54
    Effect.gen(function* () {
      const poison = yield* Work.enqueue({ tag: "poison", deed: "kill" }, { maxAttempts: 2 })
      const other = yield* Pay.enqueue({ tag: "other", deed: "sleep", millis: 300 })
      for (const attempt of [1, 2]) {
        const child = yield* start()
        yield* child.hears(`began poison ${attempt}`)
        assert.deepStrictEqual(yield* child.ended, { code: null, signal: "SIGKILL" })
      }
      const survivor = yield* start()
      const job = yield* jobBecomes(poison.id, "failed")
      assert.strictEqual(job.attempt, 2)
      assert.deepStrictEqual(
        job.errors.map(({ abandoned, error, outcome }) => [outcome, error.name, abandoned]),
        [
          ["rescued", "AttemptAbandoned", 1],
          ["rescued", "AttemptAbandoned", 2]
        ]
      )
      yield* jobBecomes(other.id, "completed")
      assert.strictEqual(yield* countRows("other"), 1)
      yield* survivor.signal("SIGTERM")
      assert.strictEqual((yield* survivor.ended).code, 0)
    }).pipe(Effect.provide(database()))
  )
})
