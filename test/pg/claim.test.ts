import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber } from "effect"
import {
  begin,
  besideOlder,
  blocked,
  claim,
  claimIds,
  claimRows,
  column,
  currentSlot,
  fileDatabase,
  enqueue,
  fault,
  only
} from "./support.js"

const database = fileDatabase()
const rings = [
  ["one segment", database],
  ["beside an older segment", besideOlder(database)]
] as const

// storage.md: claim, close, rescue, promote, rotate, drain and prune refuse to run outside READ COMMITTED. F-79
describe("outside READ COMMITTED", () => {
  const calls = {
    claim: "select * from awa.claim('q', 1, 1)",
    close_attempts: "select * from awa.close_attempts(1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false)",
    close_completed: "select awa.close_completed(1, '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    settle_attempt: "select awa.settle_attempt(1, 256, 1, 1, 1, 1, 1, 'completed', '{}')",
    heartbeat: "select * from awa.heartbeat('{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    attempt_evidence: "select * from awa.attempt_evidence('{}', '{}', '{}', '{}', '{}', '{}')",
    promote_due: "select * from awa.promote_due(10)",
    rescue_stale: "select awa.rescue_stale('1 s', 10)",
    rotate: "select awa.rotate('1 s', 10)",
    drain_segments: "select awa.drain_segments()",
    prune_segment: "select awa.prune_segment('1 s')",
    sweep: "select awa.sweep('1 day')",
    adopt_database: "select awa.adopt_database()"
  }

  it.scopedLive("each of the functions that rely on a snapshot per statement is refused", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const [name, call] of Object.entries(calls)) {
        for (const isolation of ["repeatable read", "serializable"]) {
          yield* begin(session, isolation)
          const refused = yield* Effect.either(session.rows(call))
          expect([name, isolation, Either.isLeft(refused) ? refused.left.code : "ran"]).toEqual([
            name,
            isolation,
            "25001"
          ])
          yield* session.script("rollback")
        }
        yield* begin(session)
        yield* session.rows(call)
        yield* session.script("commit")
      }
    })
  )
})

describe("claim", () => {
  // storage.md: claim refuses when its transaction has an id; its own xid is in no in-progress list and counts as visible
  it.scopedLive("is refused after an enqueue, and after a claim, in the same transaction", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* begin(session)
      yield* enqueue(session)
      yield* fault(claim(session), "25001")
      yield* session.script("rollback")

      const ids = yield* enqueue(session, 2)
      yield* begin(session)
      expect(yield* claimIds(session, { limit: 1 })).toEqual([ids[0]])
      yield* fault(claim(session), "25001")
      yield* session.script("rollback")
      expect(yield* claimIds(session)).toEqual(ids)
    })
  )

  it.scopedLive("before an enqueue in the same transaction loses nothing of it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const first = yield* enqueue(session, 3)
      yield* begin(session)
      expect(yield* claimIds(session)).toEqual(first)
      const later = yield* enqueue(session, 2)
      yield* session.script("commit")
      expect(yield* claimIds(session)).toEqual(later)
    })
  )

  // storage.md: `claim` answers *busy* apart from *empty*, otherwise a wake-up is lost
  for (const [ring, database] of rings)
    it.scopedLive(`${ring}: says of a lane that another claim holds that it is busy, and of an empty one nothing`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [holder, other] = [yield* db.session, yield* db.session]
        yield* enqueue(holder, 2)
        yield* begin(holder)
        yield* claim(holder, { limit: 1 })
        expect(column(yield* claimRows(other), "lane_busy")).toEqual([true])
        yield* holder.script("commit")
        expect(column(yield* claimRows(other), "lane_busy")).toEqual([false])
        expect(yield* claimRows(other)).toEqual([])
        expect(yield* claimRows(other, { queue: "never used" })).toEqual([])
      })
    )

  it.scopedLive("takes what the other lanes hold and says that one was busy", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, other] = [yield* db.session, yield* db.session]
      yield* enqueue(holder, 2, { opts: { priority: 1 } })
      const low = yield* enqueue(holder, 2, { opts: { priority: 3 } })
      yield* begin(holder)
      yield* claim(holder, { limit: 1 }) // holds lane 1 only: its limit is reached there
      const rows = yield* claimRows(other)
      expect(rows.map((row) => [row["job_id"], row["lane_busy"]])).toEqual([
        [low[0], false],
        [low[1], false],
        [null, true]
      ])
      yield* holder.script("rollback")
      // Enough without the busy lane: nothing to retry for.
      yield* enqueue(holder, 1, { opts: { priority: 3 } })
      yield* begin(holder)
      yield* claim(holder, { limit: 1 })
      expect(column(yield* claimRows(other, { limit: 1 }), "lane_busy")).toEqual([false])
    })
  )

  it.scopedLive("takes by priority, then in order, up to its limit", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = new Map<number, ReadonlyArray<bigint>>()
      for (const priority of [4, 3, 2, 1]) {
        ids.set(priority, yield* enqueue(session, 2, { opts: { priority } }))
      }
      const expected = [1, 2, 3, 4].flatMap((priority) => ids.get(priority) ?? [])
      const attempts = yield* claim(session, { limit: 5 })
      expect(attempts.map((attempt) => attempt.priority)).toEqual([1, 1, 2, 2, 3])
      expect([...attempts.map((attempt) => attempt.job_id), ...(yield* claimIds(session, { limit: 5 }))]).toEqual(
        expected
      )
    })
  )

  it.scopedLive("alone takes for granted only what holds under the lane's lock", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, claimer, holder] = [yield* db.session, yield* db.session, yield* db.session]
      const ids = yield* enqueue(session, 2)
      yield* begin(holder)
      yield* holder.script("lock table awa.ready_tombstones_0 in access exclusive mode") // what it reads after its look
      const claiming = yield* Effect.fork(claimIds(claimer))
      yield* blocked(session, claimer)
      yield* session.script("insert into awa.queues (queue, paused) values ('q', true)")
      yield* holder.script("commit")
      expect(yield* Fiber.join(claiming)).toEqual([])
      yield* session.script("update awa.queues set paused = false")
      expect(yield* claimIds(claimer)).toEqual(ids)
    })
  )

  for (const [ring, database] of rings)
    it.scopedLive(
      `${ring}: takes nothing that came after its look, in which another lane's entry did not stand yet`,
      () =>
        Effect.gen(function* () {
          const db = yield* database
          const [session, claimer, holder] = [yield* db.session, yield* db.session, yield* db.session]
          yield* session.script("insert into awa.queues (queue, aging) values ('q', '1 hour')")
          const old = yield* enqueue(session, 1, { opts: { priority: 2 } })
          yield* begin(holder)
          const slot = Number(yield* currentSlot(session))
          yield* holder.script(`lock table awa.ready_tombstones_${slot} in access exclusive mode`)
          const claiming = yield* Effect.fork(claimIds(claimer, { limit: 2 }))
          yield* blocked(session, claimer)
          const urgent = yield* enqueue(session, 1, { opts: { priority: 1 } })
          const later = yield* enqueue(session, 1, { opts: { priority: 2 } })
          yield* holder.script("commit")
          expect(yield* Fiber.join(claiming)).toEqual(old)
          expect(yield* claimIds(claimer)).toEqual([...urgent, ...later])
        })
    )

  for (const [ring, database] of rings)
    it.scopedLive(`${ring}: takes no lane for one with work because a transaction has ended that wrote elsewhere`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [session, writer, holder] = [yield* db.session, yield* db.session, yield* db.session]
        yield* begin(writer)
        yield* enqueue(writer, 1, { queue: "another" })
        yield* enqueue(session, 1)
        expect(yield* claimIds(session)).toHaveLength(1) // its lane waits for the writer's end
        yield* writer.script("commit")
        expect(
          yield* session.value(
            `select b.pending_xids @> array[e.xid] from awa.claim_batches b, awa.ready_entries e
             where b.queue = 'q' and e.queue = 'another'`
          )
        ).toBe(true)
        yield* begin(holder)
        yield* holder.value("select awa.queue_running('q')") // which holds the queue's lanes
        expect(yield* claimRows(session)).toEqual([])
        yield* holder.script("rollback")
        // nor is it one of two lanes
        const next = yield* enqueue(session, 1, { opts: { priority: 3 } })
        const slot = Number(yield* currentSlot(session))
        expect(yield* session.rows(`select o_lanes::integer from awa.claim_alone_${slot}('q', 1, 1, null)`)).toEqual([
          { o_lanes: 1 }
        ])
        expect(yield* session.value("select job_ids from awa.claim_batches where priority = 3")).toEqual(next)
      })
    )

  it.scopedLive("of one queue leaves the other queues alone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [a, b] = [yield* enqueue(session, 1, { queue: "a" }), yield* enqueue(session, 1, { queue: "b" })]
      expect(yield* claimIds(session, { queue: "b" })).toEqual(b)
      expect(yield* claimIds(session, { queue: "a" })).toEqual(a)
    })
  )

  for (const [ring, database] of rings)
    it.scopedLive(`${ring}: takes nothing of a paused queue, and gives the queue's deadline to its attempts`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const ids = yield* enqueue(session, 1)
        yield* session.script("insert into awa.queues (queue, paused, attempt_deadline) values ('q', true, '1 hour')")
        expect(yield* claimRows(session)).toEqual([])
        yield* session.script("update awa.queues set paused = false")
        const attempt = only(yield* claim(session))
        expect(attempt.job_id).toBe(ids[0])
        expect(
          yield* session.value("select $1::timestamptz - claimed_at = '1 hour' from awa.claim_batches", [
            attempt.deadline_at
          ])
        ).toBe(true)
      })
    )

  // C-01
  it.scopedLive(
    "raises the lease by one each time, with new receipts, and a claim that is rolled back did not happen",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        yield* enqueue(session, 2)
        yield* begin(session)
        const undone = yield* claim(session)
        yield* session.script("rollback")
        const attempts = yield* claim(session)
        expect(attempts.map((a) => [a.job_id, a.run_lease, a.attempt, a.batch_index])).toEqual(
          undone.map((a) => [a.job_id, 1n, 1, a.batch_index])
        )
        const [first, second] = attempts
        expect((second?.receipt_id ?? 0n) - (first?.receipt_id ?? 0n)).toBe(1n)
        expect(first?.receipt_id).not.toBe(undone[0]?.receipt_id)
      })
  )

  // C-01: by set_config in the call; a function's SET clause ends before COMMIT
  it.scopedLive("is durable whatever the session says, until the end of its transaction only", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const setting = session.value("select current_setting('synchronous_commit')")
      for (const weaker of ["off", "local", "remote_write"]) {
        yield* session.script(`set synchronous_commit = ${weaker}`)
        yield* begin(session)
        yield* claimRows(session)
        expect(yield* setting).toBe("on")
        yield* session.script("commit")
        expect(yield* setting).toBe(weaker)
      }
      yield* session.script("set synchronous_commit = remote_apply")
      yield* begin(session)
      yield* claimRows(session)
      expect(yield* setting).toBe("remote_apply")
      yield* session.script("commit")
    })
  )

  it.scopedLive("refuses a limit that is none", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const limit of [0, -1, 10_001]) yield* fault(claim(session, { limit }), "22023")
    })
  )

  it.scopedLive("waits for nobody", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [writer, holder, claimer] = [yield* db.session, yield* db.session, yield* db.session]
      const ids = yield* enqueue(claimer, 1, { opts: { priority: 4 } })
      yield* begin(writer)
      yield* enqueue(writer, 1, { opts: { priority: 4 } }) // uncommitted
      yield* enqueue(holder, 1, { opts: { priority: 1 } })
      yield* begin(holder)
      yield* claim(holder, { limit: 1 })
      yield* claimer.script("set lock_timeout = '1ms'")
      expect(yield* claimIds(claimer)).toEqual(ids)
    })
  )
})

// storage.md: one claimer at a time; the snapshot is taken after the lock, in a statement of its own
it.scopedLive("the lane's lock is held to the end of the claim's transaction", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [claimer, waiter, observer] = [yield* db.session, yield* db.session, yield* db.session]
    const ids = yield* enqueue(claimer, 2)
    yield* begin(claimer)
    yield* claim(claimer, { limit: 1 })
    const lane = "select pg_advisory_lock(hashtextextended('effect-awa/awa/lane/2/q', 0))"
    const waiting = yield* Effect.fork(waiter.script(lane))
    yield* blocked(observer, waiter)
    yield* claimer.script("commit")
    yield* waiting
    yield* waiter.script("select pg_advisory_unlock_all()")
    expect(yield* claimIds(observer)).toEqual([ids[1]])
  })
)
