/**
 * Promotion with a mark: deferred_jobs is mutable, so a promoter remembers how far it came instead of walking dead entries.
 * What a mark could hide, and how each of it is found all the same.
 */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { Session } from "./database.js"
import { begin, claim, claimIds, close, column, enqueue, explainBuffers, fileDatabase, only } from "./support.js"

const database = fileDatabase()

/** A promoter, which keeps its mark in memory and nowhere else. */
const makePromoter = (session: Session) => {
  let mark: string | null = null
  return {
    mark: () => mark,
    remember: (text: string | null) => {
      mark = text
    },
    promote: (limit = 100) =>
      session
        .rows("select promoted, next_due_ms, mark::text as mark from awa.promote_due($1, $2::text::jsonb)", [
          limit,
          mark
        ])
        .pipe(
          Effect.map(only),
          Effect.map((row) => {
            mark = typeof row["mark"] === "string" ? row["mark"] : null
            return row["promoted"]
          })
        )
  }
}

const later = { opts: { delay_ms: 3_600_000 } }

/** Jobs that have been due for a while, written as an enqueue would have written them. */
const due = (session: Session, n: number, ago = "1 minute") =>
  Effect.flatMap(enqueue(session, n, later), (ids) =>
    Effect.as(
      session.rows(
        `update awa.deferred_jobs set run_at = clock_timestamp() - $2::interval, xid = pg_current_xact_id()
         where job_id = any ($1::bigint[])`,
        [ids.map(String), ago]
      ),
      ids
    )
  )

const left = (session: Session) => session.value("select count(*) from awa.deferred_jobs")

const decodeSkipped = Schema.decodeUnknownSync(
  Schema.parseJson(Schema.Struct({ skipped: Schema.Array(Schema.Number) }))
)

const skipped = (mark: string | null) => (mark === null ? null : decodeSkipped(mark).skipped)

describe("a promotion with a mark", () => {
  it.scopedLive("goes in the order of (run_at, job_id) over all its calls, and says when each job was due", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { promote } = makePromoter(session)
      expect(yield* promote()).toBe(0)
      const ids = yield* enqueue(session, 30, later)
      yield* session.script(
        `update awa.deferred_jobs set run_at = date_trunc('second', clock_timestamp()) - (job_id * 7 % 5) * interval '1 minute',
           xid = pg_current_xact_id()`
      )
      const order = yield* session.rows("select job_id, run_at from awa.deferred_jobs order by run_at, job_id")
      for (let n = 0; n < 6; n++) expect(yield* promote(5)).toBe(5)
      expect([yield* promote(5), yield* left(session)]).toEqual([0, 0n])
      expect(yield* session.rows("select job_id, ready_at as run_at from awa.ready_entries order by xid, seq")).toEqual(
        order
      )
      expect(yield* claimIds(session)).toEqual(column(order, "job_id"))
      expect(ids).toHaveLength(30)
    })
  )

  it.scopedLive("finds what was written by a transaction that its snapshot did not see, whichever way it ended", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [before, after, session] = [yield* db.session, yield* db.session, yield* db.session]
      const { promote } = makePromoter(session)
      yield* begin(before)
      const [early] = yield* due(before, 1) // its id is in the snapshot's list
      expect(yield* promote()).toBe(0)
      yield* begin(after)
      const [late] = yield* due(after, 1) // its id is above the snapshot
      yield* due(session, 3)
      expect(yield* promote()).toBe(3)
      yield* due(session, 1, "1 second")
      expect([yield* promote(), yield* promote()]).toEqual([1, 0])
      yield* after.script("commit")
      expect(yield* promote()).toBe(1)
      yield* before.script("savepoint s")
      yield* due(before, 1)
      yield* before.script("rollback to s; commit")
      expect([yield* promote(), yield* promote(), yield* left(session)]).toEqual([1, 0, 0n])
      const ids = yield* claimIds(session)
      expect(ids).toHaveLength(6)
      expect(ids.slice(4)).toEqual([late, early])
    })
  )

  it.scopedLive("finds what a prepared transaction wrote, after another promoter came and went", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [prepared, session] = [yield* db.session, yield* db.session]
      const [one, two] = [makePromoter(session), makePromoter(session)]
      yield* begin(prepared)
      yield* prepared.rows("select awa.insert_job('k', '{}', 'q', '{\"delay_ms\": 3600000, \"notify\": false}')")
      yield* prepared.script("update awa.deferred_jobs set run_at = clock_timestamp() - interval '1 hour'")
      yield* prepared.script(`prepare transaction '${db.name}'`)
      yield* due(session, 2)
      expect([yield* one.promote(), yield* two.promote(), yield* one.promote()]).toEqual([2, 0, 0])
      yield* session.script(`commit prepared '${db.name}'`)
      yield* due(session, 1)
      expect([yield* two.promote(), yield* one.promote(), yield* left(session)]).toEqual([2, 0, 0n])
    })
  )

  it.scopedLive("finds a job that was replaced behind it, and a retry that is due at once", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [replacer, session] = [yield* db.session, yield* db.session]
      const { promote } = makePromoter(session)
      const [id] = yield* enqueue(session, 1, later)
      yield* due(session, 1)
      expect(yield* promote()).toBe(1)
      yield* begin(replacer)
      yield* replacer.rows("select from awa.deferred_jobs where job_id = $1 for update", [id])
      yield* replacer.rows(
        `update awa.deferred_jobs set run_at = clock_timestamp() - interval '2 minutes', xid = pg_current_xact_id() where job_id = $1`,
        [id]
      )
      expect(yield* promote()).toBe(0)
      yield* replacer.script("commit")
      expect([yield* promote(), yield* left(session)]).toEqual([1, 0n])
      const attempts = yield* claim(session)
      yield* close(session, attempts, { outcome: "retried" })
      expect([yield* left(session), (yield* claimIds(session)).length]).toEqual([0n, 2])
    })
  )

  it.scopedLive("passes a job that somebody holds, keeps it by its id, and takes it when it is free", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      const promoter = makePromoter(session)
      const ids = yield* due(session, 4)
      yield* begin(holder)
      yield* holder.rows("select from awa.deferred_jobs where job_id = any ($1::bigint[]) for update", [
        ids.slice(0, 3).map(String)
      ])
      // also when there is room for one only
      expect([yield* promoter.promote(1), yield* promoter.promote(1), yield* promoter.promote(1)]).toEqual([0, 0, 0])
      expect(yield* promoter.promote(1)).toBe(1)
      expect(skipped(promoter.mark())).toHaveLength(3)
      const [again] = yield* session.rows("select next_due_ms from awa.promote_due(1, $1::text::jsonb)", [
        promoter.mark()
      ])
      expect(again).toEqual({ next_due_ms: 1000n }) // whoever holds them need not tell when it lets go
      yield* enqueue(session, 1, later)
      const [next] = yield* session.rows("select next_due_ms from awa.promote_due(1, $1::text::jsonb)", [
        promoter.mark()
      ])
      expect(next).toEqual({ next_due_ms: 1000n })
      // one is cancelled, one is put off, one is let go
      yield* holder.rows("delete from awa.deferred_jobs where job_id = $1", [ids[0]])
      yield* holder.rows(
        "update awa.deferred_jobs set run_at = clock_timestamp() + interval '1 hour', xid = pg_current_xact_id() where job_id = $1",
        [ids[1]]
      )
      yield* holder.script("commit")
      expect([yield* promoter.promote(), skipped(promoter.mark())]).toEqual([1, []])
      expect(yield* claimIds(session)).toEqual([ids[3], ids[2]])
      expect(yield* left(session)).toBe(2n)
    })
  )

  it.scopedLive("does not move past more held jobs than it can name, and still takes what is free behind them", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      const promoter = makePromoter(session)
      const held = yield* due(session, 1500)
      yield* due(session, 30, "1 second")
      yield* begin(holder)
      yield* holder.rows("select from awa.deferred_jobs where job_id = any ($1::bigint[]) for update", [
        held.map(String)
      ])
      const counts: Array<unknown> = []
      for (let n = 0; n < 4; n++) counts.push(yield* promoter.promote(900))
      expect(counts.reduce<number>((sum, count) => sum + Number(count), 0)).toBe(30)
      expect(skipped(promoter.mark())).toHaveLength(900)
      yield* due(session, 5, "1 hour")
      expect(yield* promoter.promote(900)).toBe(5)
      yield* holder.script("rollback")
      let total = 0
      for (let n = 0; n < 4; n++) total += Number(yield* promoter.promote(900))
      expect([total, skipped(promoter.mark()), yield* left(session)]).toEqual([1500, [], 0n])
    })
  )

  for (const [what, sql] of [
    ["is no object", `'5'::jsonb`],
    ["is empty", `'{}'::jsonb`],
    ["is of another installation", `jsonb_set(m, '{origin}', '"elsewhere"')`],
    ["cannot be read", `m || '{"snapshot": "no snapshot"}'`],
    ["lacks its position", `m - 'run_at'`],
    ["names a transaction that was never begun", `m || '{"snapshot": "9000000000000:9000000000000:"}'`],
    ["lies ahead of the clock", `m || jsonb_build_object('run_at', clock_timestamp() + interval '1 hour')`]
  ]) {
    it.scopedLive(`is as if it had none when the mark ${what}`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const promoter = makePromoter(session)
        yield* promoter.promote()
        // a row that comes back from the dead, as a restored backup brings it: no mark of before can know of it
        yield* enqueue(session, 1, later)
        yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp() - interval '1 hour', xid = '3'")
        expect(yield* promoter.promote()).toBe(0)
        expect(
          yield* session.value(
            `select (awa.promote_due(10, (select ${sql} from (select $1::text::jsonb) as o(m)))).promoted`,
            [promoter.mark()]
          )
        ).toBe(1)
      })
    )
  }

  it.scopedLive("begins again after the table was emptied and filled anew, or the installation was copied", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const promoter = makePromoter(session)
      for (const change of [
        "create temp table copy as table awa.deferred_jobs; truncate awa.deferred_jobs; insert into awa.deferred_jobs table copy",
        "update awa.meta set installation_id = gen_random_uuid()"
      ]) {
        yield* promoter.promote()
        yield* enqueue(session, 1, later)
        yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp() - interval '1 hour', xid = '3'")
        expect(yield* promoter.promote()).toBe(0)
        yield* session.script(change)
        expect(yield* promoter.promote()).toBe(1)
      }
    })
  )

  it.scopedLive("counts for nothing when its transaction rolled back", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const promoter = makePromoter(session)
      yield* due(session, 3)
      const before = promoter.mark()
      yield* begin(session)
      expect(yield* promoter.promote()).toBe(3)
      yield* session.script("rollback")
      promoter.remember(before)
      expect([yield* promoter.promote(), yield* left(session)]).toEqual([3, 0n])
    })
  )

  it.scopedLive("ends at a job that has no due time", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 1, later)
      yield* session.script("update awa.deferred_jobs set run_at = 'infinity', xid = pg_current_xact_id()")
      expect(yield* session.rows("select promoted, next_due_ms from awa.promote_due(10)")).toEqual([
        { promoted: 0, next_due_ms: null }
      ])
    })
  )

  it.scopedLive("tells each queue once", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const promoter = makePromoter(session)
      yield* due(session, 3)
      const channel = yield* session.value(
        "select substring(prosrc from 'pg_notify[(]''(awa_[0-9a-f]+)''') from pg_proc where proname = 'promote_rows'"
      )
      yield* session.script(`listen ${String(channel)}`)
      yield* session.notifications
      expect(yield* promoter.promote()).toBe(3)
      yield* session.value("select 1")
      expect(yield* session.notifications).toEqual(["q"])
    })
  )
})

// storage.md: promotion never wades through its dead rows
it.scopedLive("a promotion touches no more blocks after thousands, while an old snapshot keeps every dead row", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [idle, session] = [yield* db.session, yield* db.session]
    const promoter = makePromoter(session)
    yield* enqueue(session, 3000, { opts: { delay_ms: 1_800_000 } }) // in the future, and no business of a promotion
    yield* promoter.promote()
    yield* begin(idle, "repeatable read")
    yield* idle.value("select count(*) from awa.deferred_jobs")
    const measured = (n: number) =>
      Effect.gen(function* () {
        // due in another order than they are stored, so that a walk over them jumps from block to block
        yield* enqueue(session, n, { opts: { delay_ms: 3_600_000 } })
        yield* session.script(
          `update awa.deferred_jobs set run_at = clock_timestamp() + random() * interval '40 ms', xid = pg_current_xact_id()
           where run_at > clock_timestamp() + interval '50 minutes'`
        )
        yield* Effect.sleep("60 millis")
        const mark = promoter.mark()
        yield* begin(session) // the same work twice: measured, undone, then done
        const blocks = yield* explainBuffers(session, `select * from awa.promote_due(1000, '${String(mark)}')`)
        yield* session.script("rollback")
        expect(yield* promoter.promote(1000)).toBe(n)
        return blocks
      })
    yield* measured(20)
    const first = [yield* measured(20), yield* measured(0)]
    for (let n = 0; n < 12; n++) yield* measured(500)
    const last = [yield* measured(20), yield* measured(0)]
    const told = JSON.stringify({ first, last })
    expect(last[0], told).toBeLessThan(Number(first[0]) * 1.5 + 100)
    expect(last[1], told).toBeLessThan(Number(first[1]) * 1.5 + 100)
    // without a mark all of them are walked: the dead rows are there
    expect(yield* explainBuffers(session, "select * from awa.promote_due(1000)"), told).toBeGreaterThan(3000)
  })
)

it.scopedLive("a promotion does not walk rows of a restored database, whose ids lie ahead of this server's", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    const { mark, promote } = makePromoter(session)
    yield* enqueue(session, 5000, later)
    yield* session.script(
      "update awa.deferred_jobs set xid = (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000)::text::xid8"
    )
    expect(yield* promote()).toBe(0)
    const blocks = yield* explainBuffers(session, `select * from awa.promote_due(1000, '${String(mark())}')`)
    expect(blocks).toBeLessThan(80)
  })
)
