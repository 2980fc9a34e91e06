/** How long evidence is kept (contract C-17.4, the storage page's "Segments"). */
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Maintenance, RuntimePool } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import { vi } from "vitest"
import { database, eventually } from "./support.js"

const live = RuntimePool.layer
const pool = Layer.unwrapEffect(Effect.map(TestDatabase.TestDatabase, ({ url }) => live({ url })))

/** One attempt that ended in the ring, and one that left it for a lease before. */
const twoEnded = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`select awa.insert_job('k', '{}', 'q') from generate_series(1, 2)`
  yield* sql`create table taken (job_id bigint, run_lease bigint, claim_slot integer, receipt_id bigint, batch_id bigint,
    batch_index integer)`
  yield* sql`insert into taken select job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index
    from awa.claim('q', 2, 1) where job_id is not null`
  yield* sql`select awa.register_callback(claim_slot, batch_id, batch_index, job_id, run_lease, receipt_id, '1 hour') from taken limit 1`
  yield* sql`select awa.complete_job(job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index) from taken`
})

const advertise = (evidenceMillis: unknown) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`select awa.beat_runtime(7, 'r', 1, ${JSON.stringify({ maintenance: { evidenceMillis } })}::text::jsonb)`
  )

const kept = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ ring: number; leases: number; state: string }>`
    select (select count(*)::int from awa.closures) as ring, (select count(*)::int from awa.lease_closures) as leases,
           (select state from awa.segments where slot = 0) as state`
  return row
})

describe("evidence", () => {
  it.scopedLive("is kept for as long as any runtime of the fleet may ask for it, whatever the history's minimum", () =>
    Effect.gen(function* () {
      const now = performance.now.bind(performance)
      let ahead = 0
      // what rests between two ticks is never at rest here
      yield* Effect.acquireRelease(
        Effect.sync(() => vi.spyOn(performance, "now").mockImplementation(() => now() + ahead)),
        (spy) => Effect.sync(() => spy.mockRestore())
      )
      const sql = yield* SqlClient.SqlClient
      yield* twoEnded
      const maintenance = yield* Maintenance.make({ completedHistory: "1 millis", segmentAge: "1 millis", evidence: 0 })
      const tick = Effect.suspend(() => {
        ahead += 61_000
        return Effect.delay(maintenance.tick, "5 millis")
      })
      yield* sql`select awa.beat_runtime(8, 'older', 1, '{"maintenance": {"evidenceMillis": "long"}}')`
      yield* sql`select awa.beat_runtime(9, 'oldest', 1, '{}')`
      yield* sql`select awa.beat_runtime(10, 'hasty', 1, '{"maintenance": {"evidenceMillis": 1}}')`
      yield* advertise(3_600_000)
      yield* eventually(
        "a drained segment",
        Effect.zipRight(
          tick,
          Effect.map(kept, (found) => found?.state === "drained")
        )
      )
      for (let ticks = 0; ticks < 5; ticks++) yield* tick
      assert.deepStrictEqual(yield* kept, { ring: 2, leases: 1, state: "drained" })
      yield* advertise(1)
      yield* eventually(
        "the end of both",
        Effect.zipRight(
          tick,
          Effect.map(kept, (found) => found?.ring === 0 && found.leases === 0)
        )
      )
    }).pipe(Effect.provide(Layer.provideMerge(pool, database())))
  )

  it.scopedLive("is asked for by what a worker advertises: its budget, the staleness and its watchers together", () =>
    Effect.gen(function* () {
      const { settings } = yield* Maintenance.make({ staleness: "20 seconds" })
      assert.strictEqual(settings.evidenceMillis, (30 + 20 + 600) * 1_000)
    }).pipe(Effect.provide(Layer.provideMerge(pool, database())))
  )
})
