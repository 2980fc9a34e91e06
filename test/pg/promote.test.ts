import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { beat, begin, claim, claimIds, close, column, enqueue, explainBuffers, fileDatabase, only } from "./support.js"

const database = fileDatabase()

const running = (session: Session, n: number, opts: Record<string, unknown> = {}) =>
  Effect.flatMap(enqueue(session, n, { opts }), () => claim(session, { limit: n }))

describe("promote_due", () => {
  const promote = (session: Session, limit = 100) =>
    Effect.map(session.rows("select promoted, next_due_ms from awa.promote_due($1)", [limit]), only)

  it.scopedLive("moves what is due, oldest first, and says how long until the next", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      expect(yield* promote(session)).toEqual({ promoted: 0, next_due_ms: null })
      const ids = yield* enqueue(session, 5, { opts: { delay_ms: 3_600_000 } })
      const [a, b, c, d] = ids
      yield* session.rows(
        `update awa.deferred_jobs d set run_at = clock_timestamp() - o.ago
         from unnest(array[$1, $2, $3]::bigint[], '{1 min,3 min,2 min}'::interval[]) as o(id, ago) where d.job_id = o.id`,
        [a, b, c]
      )
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* promote(session, 2)).toEqual({ promoted: 2, next_due_ms: 0n })
      const last = yield* promote(session, 2)
      expect(last["promoted"]).toBe(1)
      expect(Number(last["next_due_ms"])).toBeGreaterThan(3_500_000)
      expect(Number(last["next_due_ms"])).toBeLessThanOrEqual(3_600_000)
      expect(yield* claimIds(session)).toEqual([b, c, a])
      expect(column(yield* session.rows("select job_id from awa.deferred_jobs order by 1"), "job_id")).toEqual([
        d,
        ids[4]
      ])
    })
  )

  it.scopedLive("leaves a job that another transaction holds, and takes it afterwards", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      const ids = yield* enqueue(session, 2, { opts: { delay_ms: 1 } })
      yield* Effect.sleep("5 millis")
      yield* begin(holder)
      yield* holder.rows("select from awa.deferred_jobs where job_id = $1 for update", [ids[0]])
      yield* session.script("set lock_timeout = '1ms'")
      expect((yield* promote(session))["promoted"]).toBe(1)
      yield* holder.script("commit")
      expect((yield* promote(session))["promoted"]).toBe(1)
      expect(yield* claimIds(session)).toEqual([ids[1], ids[0]])
    })
  )

  // F-89: what is not due costs nothing
  it.scopedLive("does not walk the jobs that are not due, nor does a close that gives one job back", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.rows("select * from awa.promote_due(10)") // planned while the table is empty
      yield* enqueue(session, 5000, { opts: { delay_ms: 3_600_000 } })
      yield* session.script("update awa.deferred_jobs set run_at = run_at + random() * interval '1 day'")
      yield* enqueue(session, 5, { opts: { delay_ms: 1 } })
      yield* Effect.sleep("5 millis")
      expect(yield* explainBuffers(session, "select * from awa.promote_due(100)")).toBeLessThan(1500)
      expect(yield* explainBuffers(session, "select * from awa.promote_due(100)")).toBeLessThan(500)
      const attempts = yield* claim(session)
      expect(attempts).toHaveLength(5)
      yield* close(session, attempts.slice(0, 1), { outcome: "released" }) // warm
      const [one] = attempts.slice(1)
      if (one === undefined) throw new Error("an attempt")
      expect(
        yield* explainBuffers(
          session,
          `select * from awa.close_attempts(1, '{${one.claim_slot}}', '{${one.batch_id}}', '{${one.batch_index}}', '{${one.job_id}}',
             '{${one.run_lease}}', '{${one.receipt_id}}', '{released}', '{}', false)`
        )
      ).toBeLessThan(300)
      expect(yield* claimIds(session)).toHaveLength(2)
    })
  )
})

// storage.md: maintenance sweeps orphans by anti-join
it.scopedLive("sweep removes the state of attempts that are closed or gone, and runtimes that fell silent", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    const attempts = yield* running(session, 3)
    yield* beat(session, attempts)
    yield* close(session, attempts.slice(0, 1)) // leaves its row
    yield* session.rows("select awa.beat_runtime(null, 'a', 1, '{}')")
    yield* session.rows("select awa.beat_runtime(null, 'b', 1, '{}')")
    yield* session.script("update awa.runtimes set beat_at = beat_at - interval '2 days' where name = 'a'")
    yield* session.script("update awa.attempt_state set batch_id = 4711 where job_id = 3")
    expect(yield* session.value("select awa.sweep('1 day')")).toBe(3)
    expect(column(yield* session.rows("select job_id from awa.attempt_state"), "job_id")).toEqual([attempts[1]?.job_id])
    expect(column(yield* session.rows("select name from awa.runtimes"), "name")).toEqual(["b"])
  })
)
