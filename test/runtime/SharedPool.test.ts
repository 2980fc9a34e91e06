/** C-32: one bound of connections for a program and its runtime. */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Redacted } from "effect"
import { SharedPool, Worker } from "effect-awa"
import { layerShared } from "effect-awa/layers/Worker"
import { TestDatabase } from "effect-awa/testing"
import { database, eventually, insertRow } from "./support.js"
import { Charge, Direct, Notify, type OwnedHandler } from "./world.js"

const nowhere = Redacted.make("postgres://localhost:1/nothing")

const refusal = (options: Omit<SharedPool.SharedPoolOptions, "url">) =>
  Layer.build(SharedPool.layer({ url: nowhere, ...options })).pipe(Effect.scoped, Effect.flip)

/** A worker whose connections keep one bound, on a database of its own. */
const shared = (
  pool: Omit<SharedPool.SharedPoolOptions, "url">,
  concurrency: number,
  owned?: OwnedHandler,
  whole?: number
) => {
  const settings = {
    queues: { default: { concurrency } },
    ...(whole === undefined ? {} : { concurrency: whole }),
    beat: "100 millis",
    maintenance: { staleness: "10 seconds" },
    busyTick: "50 millis",
    applicationTransaction: "2 minutes"
  } as const
  const pools = Layer.unwrapEffect(
    Effect.map(TestDatabase.TestDatabase, ({ url }) =>
      SharedPool.layer({ url, ...pool, application: { applicationName: "shared application" } })
    )
  )
  const worker =
    owned === undefined
      ? layerShared({ jobs: [Notify], ...settings }).pipe(Layer.provide(Notify.toLayer(() => Effect.void)))
      : layerShared({ jobs: [Charge], ...settings }).pipe(Layer.provide(Charge.toLayerCallerOwned(owned)))
  return Layer.provideMerge(worker, pools)
}

const own = Layer.provideMerge(Layer.effect(Direct, PgClient.PgClient), database())

describe("one bound of connections", () => {
  it.effect("is refused, by name and before anything is opened, when it does not leave the runtime its reserve", () =>
    Effect.gen(function* () {
      assert.deepInclude(yield* refusal({ connections: 10, reserve: 1 }), { option: "reserve" })
      assert.deepInclude(yield* refusal({ connections: 4 }), { option: "connections" })
      assert.deepInclude(yield* refusal({ connections: 10, reserve: 9 }), { option: "connections" })
      // 10 connections, 3 for the runtime, 1 that listens
      const failure = yield* refusal({ connections: 10, callerOwned: 7 })
      assert.deepInclude(failure, { _tag: "PoolMisconfigured", option: "callerOwned" })
      assert.include(failure.message, "1 to 6")
      assert.strictEqual((yield* refusal({ connections: 10, callerOwned: 6 }))._tag, "SqlError") // on to the server
    })
  )

  it.live(
    "refuses a caller-owned concurrency that does not leave the reserve, unless its transactions are bounded",
    () =>
      Effect.gen(function* () {
        const start = (...args: Parameters<typeof shared>) =>
          Layer.build(shared(...args)).pipe(Effect.scoped, Effect.either)
        const done: OwnedHandler = (job) => job.finalize(Effect.void)
        const refused = yield* start({ connections: 8 }, 5, done)
        assert.deepInclude(refused._tag === "Left" ? refused.left : {}, {
          _tag: "WorkerMisconfigured",
          option: "queues"
        })
        const whole = yield* start({ connections: 8 }, 20, done, 5)
        assert.deepInclude(whole._tag === "Left" ? whole.left : {}, {
          _tag: "WorkerMisconfigured",
          option: "concurrency"
        })
        for (const accepted of [
          yield* start({ connections: 8 }, 4, done),
          yield* start({ connections: 8 }, 20, done, 4),
          yield* start({ connections: 8, callerOwned: 2 }, 20, done),
          yield* start({ connections: 8 }, 20) // ordinary jobs hold no transaction
        ]) {
          assert.strictEqual(accepted._tag, "Right")
        }
      }).pipe(Effect.provide(own))
  )

  it.live("hands no connection on whose transaction did not commit", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const owned: OwnedHandler = (job) =>
        job.finalize(
          Effect.zipRight(
            Deferred.await(gate),
            job.payload.tag === "0"
              ? Effect.flatMap(SqlClient.SqlClient, (sql) => sql`select pg_terminate_backend(pg_backend_pid())`)
              : insertRow(job.payload.tag)
          )
        )
      yield* Effect.gen(function* () {
        const sql = yield* Direct
        const worker = yield* Worker.Worker
        yield* Charge.enqueueAll(
          Array.from({ length: 5 }, (_, i) => ({ tag: String(i) })),
          { maxAttempts: 1 }
        )
        yield* eventually(
          "all in flight",
          Effect.map(worker.inFlight, (n) => n === 5)
        )
        yield* Deferred.succeed(gate, undefined)
        yield* eventually(
          "the end of all",
          Effect.map(worker.inFlight, (n) => n === 0)
        )
        assert.deepStrictEqual(yield* sql`select args ->> 'tag' as tag, state from awa.jobs order by 1`, [
          { tag: "0", state: "failed" },
          ...["1", "2", "3", "4"].map((tag) => ({ tag, state: "completed" }))
        ])
      }).pipe(Effect.provide(shared({ connections: 8, callerOwned: 1 }, 5, owned)))
    }).pipe(Effect.provide(own))
  )

  it.live("admits caller-owned transactions below the reserve, while the others wait and the runtime goes on", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      let inside = 0
      let most = 0
      const owned: OwnedHandler = (job) =>
        job.finalize(
          Effect.acquireUseRelease(
            Effect.sync(() => {
              most = Math.max(most, ++inside)
            }),
            () => Deferred.await(gate),
            () => Effect.sync(() => inside--)
          )
        )
      yield* Effect.gen(function* () {
        const sql = yield* Direct
        const worker = yield* Worker.Worker
        yield* Charge.enqueueAll(Array.from({ length: 20 }, (_, i) => ({ tag: String(i) })))
        yield* eventually(
          "all in flight",
          Effect.map(worker.inFlight, (n) => n === 20)
        )
        yield* eventually(
          "as many as are admitted",
          Effect.sync(() => inside === 2)
        )
        yield* eventually(
          "ten beats of all that wait",
          Effect.map(
            sql`select from awa.attempt_state where heartbeat_at - (select max(claimed_at) from awa.attempts) > interval '1 second'`,
            (rows) => rows.length === 20
          )
        )
        // what is left beside the admitted is the application's own
        assert.strictEqual((yield* Effect.all([sql`select 1`, sql`select 2`], { concurrency: 2 })).length, 2)
        const taken = yield* sql<{ name: string; n: number }>`
          select application_name as name, count(*)::int as n from pg_stat_activity
          where datname = current_database() and (application_name = 'shared application' or application_name like '%runtime%')
          group by 1`
        const of = (name: string) => taken.find((row) => row.name === name)?.n ?? 0
        assert.isAtMost(of("shared application"), 4)
        assert.isAtMost(of("effect-awa runtime"), 3)
        assert.isAtMost(of("effect-awa runtime listener"), 1)
        const [row] = yield* sql`select capabilities -> 'connections' as c from awa.runtimes`
        assert.deepStrictEqual(row, { c: { mode: "shared", application: 4, runtime: 4, callerOwned: 2 } })
        yield* Deferred.succeed(gate, undefined)
        yield* eventually(
          "the end of all",
          Effect.map(worker.inFlight, (n) => n === 0)
        )
        assert.deepStrictEqual(yield* sql`select state, run_lease, errors from awa.jobs group by 1, 2, 3`, [
          { state: "completed", run_lease: "1", errors: null }
        ])
        assert.strictEqual(most, 2)
      }).pipe(Effect.provide(shared({ connections: 8, callerOwned: 2 }, 20, owned)))
    }).pipe(Effect.provide(own))
  )
})
