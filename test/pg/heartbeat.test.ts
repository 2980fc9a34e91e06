import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { type Attempt, beat, begin, claim, close, column, complete, enqueue, fileDatabase, rotate } from "./support.js"

const database = fileDatabase()

const running = (session: Session, n: number) => Effect.flatMap(enqueue(session, n), () => claim(session, { limit: n }))

const beats = (session: Session) =>
  session.rows(
    "select job_id, heartbeat_at > clock_timestamp() - interval '1 s' as now, progress from awa.attempt_state order by 1"
  )

const age = (session: Session) =>
  session.script("update awa.attempt_state set heartbeat_at = heartbeat_at - interval '1 min'")

describe("a beat", () => {
  // C-02
  it.scopedLive("answers the attempts that are lost, with how they ended, and beats for the others", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 5)
      const [a, b, c, d, e] = attempts
      if (!a || !b || !c || !d || !e) throw new Error("five attempts")
      yield* close(session, [a])
      yield* close(session, [d], { outcome: "retried", detail: { delay_ms: 60_000 } })
      const asked = [
        a,
        b,
        { ...c, receipt_id: c.receipt_id + 9n },
        d,
        e,
        { ...e, run_lease: 7n },
        { ...e, claim_slot: e.claim_slot | 255 }
      ]
      expect(yield* beat(session, asked, { 1: "x", 2: { step: 1 }, 3: "forged" })).toEqual([
        [1, "completed"],
        [3, null],
        [4, "retried"],
        [6, null],
        [7, null]
      ])
      expect(yield* beats(session)).toEqual([
        { job_id: b.job_id, now: true, progress: { step: 1 } },
        { job_id: e.job_id, now: true, progress: null }
      ])
    })
  )

  it.scopedLive("keeps the progress of the beats before it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 2)
      yield* beat(session, attempts, { 1: { step: 1 }, 2: { step: 1 } })
      yield* age(session)
      yield* beat(session, attempts, { 2: { step: 2 } })
      expect(yield* beats(session)).toEqual([
        { job_id: attempts[0]?.job_id, now: true, progress: { step: 1 } },
        { job_id: attempts[1]?.job_id, now: true, progress: { step: 2 } }
      ])
    })
  )

  // storage.md: a finalization in flight holds its row, and one hung caller stopped all beats. C-31
  it.scopedLive("is not held up by a caller that hung in a finalization, and the others are beaten for", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [hung, session] = [yield* db.session, yield* db.session]
      const attempts = yield* running(session, 3)
      const [, caught] = attempts
      if (caught === undefined) throw new Error("three attempts")
      yield* beat(session, attempts)
      yield* age(session)
      yield* begin(hung)
      yield* complete(hung, caught)
      yield* session.script("set lock_timeout = '1ms'")
      expect(yield* beat(session, attempts)).toEqual([[2, "busy"]]) // so that nobody takes its progress for stored
      expect(column(yield* beats(session), "now")).toEqual([true, false, true])
      yield* hung.script("rollback")
      expect(yield* beat(session, attempts)).toEqual([])
      expect(column(yield* beats(session), "now")).toEqual([true, true, true])
    })
  )

  it.scopedLive(
    "while a first finalization is in flight does not wait either, and leaves nothing that is not swept",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [hung, session] = [yield* db.session, yield* db.session]
        const attempts = yield* running(session, 2)
        yield* begin(hung)
        for (const attempt of attempts) yield* complete(hung, attempt)
        yield* session.script("set lock_timeout = '1ms'")
        expect(yield* beat(session, attempts)).toEqual([])
        yield* hung.script("commit")
        expect(yield* beat(session, attempts)).toEqual([
          [1, "completed"],
          [2, "completed"]
        ])
        expect(yield* session.value("select awa.sweep('1 day')")).toBe(2)
        expect(yield* beats(session)).toEqual([])
      })
  )

  it.scopedLive("spans segments", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts: Array<Attempt> = []
      for (let n = 0; n < 3; n++) {
        attempts.push(...(yield* running(session, 2)))
        yield* rotate(session)
      }
      yield* close(session, attempts.slice(2, 3))
      expect(yield* beat(session, attempts, { 6: "last" })).toEqual([[3, "completed"]])
      expect(column(yield* beats(session), "progress")).toEqual([null, null, null, null, "last"])
    })
  )

  // C-03: two attempts of one job can be in one process
  it.scopedLive("tells two attempts of one job apart", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const old = yield* running(session, 1)
      yield* beat(session, old, { 1: "old" })
      yield* close(session, old, { outcome: "released", hasState: true })
      const now = yield* claim(session)
      expect(yield* beat(session, [...old, ...now], { 1: "late", 2: "new" })).toEqual([[1, "released"]])
      expect(yield* session.rows("select run_lease, progress from awa.attempt_state")).toEqual([
        { run_lease: 2n, progress: "new" }
      ])
    })
  )
})

it.scopedLive("a runtime registers, renews and retires; a row that was swept comes back", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    const register = (id: unknown) => session.value("select awa.beat_runtime($1, 'r', 1, '{\"a\":1}')", [id])
    const id = yield* register(null)
    expect(yield* register(null)).not.toBe(id)
    expect(yield* register(id)).toBe(id)
    yield* session.script("delete from awa.runtimes")
    expect(yield* register(id)).toBe(id)
    yield* session.rows("select awa.retire_runtime($1)", [id])
    expect(yield* session.value("select count(*) from awa.runtimes")).toBe(0n)
  })
)
