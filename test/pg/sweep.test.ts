/** Retention, in bounded shares, and the silence of an idle system. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { beat, begin, claim, close, column, enqueue, fileDatabase, rotate } from "./support.js"

const database = fileDatabase()

const sweep = (session: Session, limit = 100) =>
  session.value("select awa.sweep('1 day', '30 days', '20 days', '1 hour', $1)", [limit])

const count = (session: Session, table: string) => session.value(`select count(*) from awa.${table}`)

/** Some jobs that ended without success, `days` ago. */
const ended = (session: Session, n: number, outcome: string, days: number) =>
  Effect.gen(function* () {
    yield* enqueue(session, n)
    yield* close(session, yield* claim(session, { limit: n }), { outcome })
    yield* session.script(
      `update awa.terminal_jobs set finalized_at = finalized_at - interval '${days} days' where finalized_at > clock_timestamp() - interval '1 min';
       update awa.dlq_entries set dead_lettered_at = dead_lettered_at - interval '${days} days' where dead_lettered_at > clock_timestamp() - interval '1 min'`
    )
  })

describe("sweep", () => {
  it.scopedLive("keeps terminal jobs and dead letters for their own time, and goes on share by share", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* ended(session, 25, "failed", 31)
      yield* ended(session, 5, "failed", 29)
      yield* ended(session, 3, "dead_lettered", 21)
      yield* ended(session, 2, "dead_lettered", 19)
      const counts: Array<unknown> = []
      for (let n = 0; n < 4; n++) counts.push(yield* sweep(session, 10))
      expect(counts).toEqual([13, 10, 5, 0])
      expect([yield* count(session, "terminal_jobs"), yield* count(session, "dlq_entries")]).toEqual([5n, 2n])
    })
  )

  it.scopedLive("removes ended leases with the completed history, and unique keys past their window", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script(
        `insert into awa.lease_closures select n, 1, 1, 'completed', clock_timestamp() - n * interval '40 min', '5', null, 'q', 2, 1, 1,
           clock_timestamp(), clock_timestamp(), 1, 'k', '{}' from generate_series(1, 3) n;
         insert into awa.unique_claims select sha256(n::text::bytea), n, 2, clock_timestamp() + (n - 2.5) * interval '1 min'
           from generate_series(1, 4) n;
         insert into awa.unique_claims values (sha256('for ever'), 9, 1, null)`
      )
      expect([yield* sweep(session), yield* sweep(session)]).toEqual([4, 0])
      expect(column(yield* session.rows("select job_id from awa.lease_closures"), "job_id")).toEqual([1n])
      expect(column(yield* session.rows("select job_id from awa.unique_claims order by 1"), "job_id")).toEqual([
        3n,
        4n,
        9n
      ])
    })
  )

  it.scopedLive("removes the state of closed attempts of every segment, and never that of a running one", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const running: Array<unknown> = []
      for (let n = 0; n < 3; n++) {
        yield* enqueue(session, 4)
        const attempts = yield* claim(session)
        yield* beat(session, attempts)
        yield* close(session, attempts.slice(0, 3)) // leaves the rows
        running.push(attempts[3]?.job_id)
        yield* rotate(session)
      }
      expect([yield* sweep(session, 5), yield* sweep(session, 5), yield* sweep(session, 5)]).toEqual([5, 4, 0])
      expect(column(yield* session.rows("select job_id from awa.attempt_state order by 1"), "job_id")).toEqual(running)
    })
  )

  it.scopedLive("never waits, and never decides about what is in quarantine", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      yield* session.script("set lock_timeout = '1ms'")
      yield* ended(session, 3, "failed", 31)
      yield* session.script(
        `insert into awa.quarantined_jobs select 99, 1, 'q', 2, 1, 1, 'k', '{}', null, null, '2001-01-01', null, 'why', '2001-01-01'`
      )
      yield* begin(holder)
      yield* holder.rows("select from awa.terminal_jobs order by job_id limit 1 for update")
      expect(yield* sweep(session)).toBe(2)
      yield* holder.script("rollback")
      expect([yield* sweep(session), yield* count(session, "quarantined_jobs")]).toEqual([1, 1n])
    })
  )
})

// Issue: an idle system writes nothing but one runtime beat per instance
it.scopedLive("a whole cycle of maintenance draws no transaction id when there is nothing to do", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    // not an empty database: jobs that wait, jobs that ended, a long attempt, a segment that was sealed and one that was drained
    yield* enqueue(session, 4)
    yield* close(session, yield* claim(session, { limit: 2 }), { outcome: ["failed", "completed"] })
    yield* rotate(session)
    yield* beat(session, yield* claim(session))
    yield* rotate(session)
    yield* enqueue(session, 3, { opts: { delay_ms: 3_600_000 } })
    yield* session.value("select awa.beat_runtime(null, 'a', 1, '{}')")
    let mark: unknown = null
    const drawn: Array<unknown> = []
    for (let n = 0; n < 3; n++) {
      const cycle: ReadonlyArray<readonly [string, ReadonlyArray<unknown>]> = [
        ["select promoted, mark::text as mark from awa.promote_due(1000, $1::text::jsonb)", [mark]],
        ["select awa.rescue_stale('1 min', 500, true)", []],
        ["select awa.rotate('10 min', 1000000)", []],
        ["select awa.drain_segments()", []],
        ["select awa.prune_segment('1 hour')", []],
        ["select awa.sweep('1 day')", []]
      ]
      for (const [sql, values] of cycle) {
        yield* session.script("begin")
        const [row] = yield* session.rows(sql, values)
        if (row?.["mark"] !== undefined) mark = row["mark"]
        const xid = yield* session.value("select pg_current_xact_id_if_assigned()")
        if (n > 0 && xid !== null) drawn.push(sql) // the first cycle may still find something to settle
        yield* session.script("commit")
      }
    }
    expect(drawn).toEqual([])
    yield* session.script("begin")
    yield* session.value("select awa.beat_runtime(1, 'a', 1, '{}')")
    expect(yield* session.value("select pg_current_xact_id_if_assigned()")).not.toBeNull()
    yield* session.script("commit")
  })
)
