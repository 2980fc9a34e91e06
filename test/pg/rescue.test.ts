import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  beat,
  begin,
  claim,
  claimIds,
  close,
  column,
  complete,
  drain,
  enqueue,
  evidence,
  explainBuffers,
  fileDatabase,
  only,
  rotate
} from "./support.js"

const database = fileDatabase()

const rescue = (session: Session, staleness = "1 min", limit = 100) =>
  session.value("select awa.rescue_stale($1, $2)", [staleness, limit])

/** As if the claims, and the beats, had been made that much earlier. */
const age = (session: Session, by: string) =>
  session.script(
    Array.from(
      { length: 4 },
      (_, n) => `update awa.claim_batches_${n} set claimed_at = claimed_at - interval '${by}';`
    ).join("\n") + `update awa.attempt_state set heartbeat_at = heartbeat_at - interval '${by}'`
  )

const running = (session: Session, n: number, opts: Record<string, unknown> = {}) =>
  Effect.flatMap(enqueue(session, n, { opts }), () => claim(session, { limit: n }))

const mark = (session: Session) => session.value("select rescued_to from awa.segments where slot = 0")

describe("rescue", () => {
  // F-52, F-53, F-54
  it.scopedLive("ends an attempt that nobody beats for; the crash counts, and the pause doubles from zero", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = only(yield* running(session, 1))
      expect(yield* rescue(session)).toBe(0)
      yield* age(session, "59 s")
      expect(yield* rescue(session)).toBe(0)
      yield* age(session, "2 s")
      expect(yield* rescue(session)).toBe(1)
      expect(yield* rescue(session)).toBe(0)
      expect(yield* evidence(session, [attempt])).toEqual([["closed", "rescued"]])
      const again = only(yield* claim(session)) // at once, the first time
      expect([again.job_id, again.run_lease, again.attempt]).toEqual([attempt.job_id, 2n, 2])
      yield* age(session, "2 min")
      expect(yield* rescue(session)).toBe(1)
      expect(
        yield* session.rows(
          `select attempt, run_at > clock_timestamp() and run_at <= clock_timestamp() + '1 s' as waits,
             jsonb_path_query_array(errors, '$[*].outcome') as errors from awa.deferred_jobs`
        )
      ).toEqual([{ attempt: 2, waits: true, errors: ["rescued", "rescued"] }])
    })
  )

  // F-51, F-52: exhaustion by crashes alone
  it.scopedLive("of the last attempt is a failure with all its errors", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 1, { opts: { max_attempts: 2 } })
      for (let n = 0; n < 2; n++) {
        yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp()")
        yield* session.rows("select * from awa.promote_due(10)")
        expect(yield* claimIds(session)).toHaveLength(1)
        yield* age(session, "2 min")
        expect(yield* rescue(session)).toBe(1)
      }
      expect(
        yield* session.rows(
          "select state, attempt, run_lease, jsonb_path_query_array(errors, '$[*].error.name') as errors from awa.terminal_jobs"
        )
      ).toEqual([{ state: "failed", attempt: 2, run_lease: 2n, errors: ["AttemptAbandoned", "AttemptAbandoned"] }])
      expect(yield* session.value("select count(*) from awa.deferred_jobs")).toBe(0n)
      expect(yield* claimIds(session)).toEqual([])
    })
  )

  // storage.md: late flush after rescue. F-1, F-3
  it.scopedLive("makes every later word of the old attempt stale, and leaves the new one alone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const old = yield* running(session, 1)
      yield* age(session, "2 min")
      yield* rescue(session)
      expect(yield* close(session, old)).toEqual(["stale"])
      const now = yield* claim(session)
      expect(yield* close(session, old)).toEqual(["stale"])
      expect(yield* close(session, old, { outcome: "failed" })).toEqual(["stale"])
      expect(yield* beat(session, old, { 1: { from: "old" } })).toEqual([[1, "rescued"]])
      expect(yield* evidence(session, now)).toEqual([["open", null]])
      expect(yield* close(session, now)).toEqual(["closed"])
      expect(yield* session.value("select count(*) from awa.terminal_jobs")).toBe(0n)
    })
  )

  it.scopedLive("does not touch what was closed or is beaten for", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 3)
      yield* close(session, attempts.slice(0, 1))
      yield* age(session, "50 s")
      expect(yield* beat(session, attempts.slice(1, 2))).toEqual([])
      yield* age(session, "50 s")
      expect(yield* rescue(session)).toBe(1)
      expect(
        column(yield* session.rows("select outcome::text from awa.attempts order by job_id, run_lease"), "outcome")
      ).toEqual(["completed", null, "rescued"])
    })
  )

  // storage.md: rescue skips an attempt whose complete_job is in flight in an open transaction and never waits
  it.scopedLive("leaves an attempt alone while a caller's finalization is in flight, whatever becomes of it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      for (const end of ["commit", "rollback"]) {
        const attempts = yield* running(session, 2)
        const first = only(attempts.slice(0, 1))
        yield* begin(caller)
        yield* complete(caller, first)
        yield* age(session, "2 min")
        yield* session.script("set lock_timeout = '50ms'")
        expect(yield* rescue(session)).toBe(1) // its neighbour
        yield* session.script("reset lock_timeout")
        yield* caller.script(end)
        expect(yield* rescue(session)).toBe(end === "commit" ? 0 : 1)
        expect(yield* evidence(session, [first])).toEqual([["closed", end === "commit" ? "completed" : "rescued"]])
        yield* close(session, yield* claim(session))
      }
    })
  )

  it.scopedLive("keeps the progress that was last flushed, and removes the attempt's state", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 1)
      yield* beat(session, attempts, { 1: { step: 4 } })
      yield* age(session, "2 min")
      expect(yield* rescue(session)).toBe(1)
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
      expect((yield* claim(session)).map((attempt) => attempt.progress)).toEqual([{ step: 4 }])
    })
  )

  // F-58: the deadline is the attempt's own, beats do not move it
  it.scopedLive("ends an attempt that passed its deadline, beaten for or not", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("insert into awa.queues (queue, attempt_deadline) values ('q', '10 s')")
      const attempts = yield* running(session, 2)
      yield* beat(session, attempts.slice(0, 1))
      expect(yield* rescue(session)).toBe(0)
      yield* session.script("update awa.claim_batches_0 set deadline_at = clock_timestamp()")
      expect(yield* rescue(session)).toBe(2)
    })
  )

  it.scopedLive("stops at its limit, over all segments, and goes on with the next call", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (let n = 0; n < 3; n++) {
        yield* running(session, 4)
        yield* rotate(session)
      }
      yield* age(session, "2 min")
      const counts = [
        yield* rescue(session, "1 min", 5),
        yield* rescue(session, "1 min", 5),
        yield* rescue(session, "1 min", 5)
      ]
      expect(counts).toEqual([5, 5, 2])
      expect(yield* rescue(session, "1 min", 5)).toBe(0)
      expect(yield* session.value("select count(*) from awa.closures where outcome = 'rescued'")).toBe(12n)
    })
  )
})

describe("rescue's mark", () => {
  it.scopedLive("moves over a long attempt that is beaten for, which is rescued all the same once nobody does", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const long = yield* running(session, 1)
      yield* beat(session, long)
      for (let n = 0; n < 3; n++) yield* close(session, yield* running(session, 2))
      yield* age(session, "2 min")
      yield* beat(session, long)
      expect(yield* rescue(session)).toBe(0)
      expect(yield* mark(session)).toBe(4n)
      yield* age(session, "2 min")
      expect(yield* rescue(session)).toBe(1)
      expect(yield* evidence(session, long)).toEqual([["closed", "rescued"]])
    })
  )

  // storage.md: the leader never waits for an application transaction, and one that hangs holds up nobody else
  it.scopedLive("moves over an attempt whose lock is held, which is rescued all the same once it is free", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      yield* close(session, yield* running(session, 1))
      const attempt = only(yield* running(session, 1))
      yield* close(session, yield* running(session, 1))
      yield* begin(caller)
      yield* complete(caller, attempt)
      yield* age(session, "2 min")
      expect([yield* rescue(session), yield* mark(session)]).toEqual([0, 3n])
      expect([yield* rescue(session), yield* session.value("select count(*) from awa.attempt_state")]).toEqual([0, 1n])
      yield* caller.script("rollback")
      expect([yield* rescue(session), yield* mark(session)]).toEqual([1, 3n])
      expect(yield* evidence(session, [attempt])).toEqual([["closed", "rescued"]])
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
    })
  )

  it.scopedLive("does not pass what a call had no room for, however many of its attempts are held", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      yield* session.script("set lock_timeout = '1s'")
      const first = yield* running(session, 1100)
      expect(first).toHaveLength(1100)
      yield* running(session, 5)
      yield* begin(caller)
      yield* caller.rows(
        "select pg_advisory_xact_lock(hashtextextended('effect-awa/awa/attempt/' || j || '/1', 0)) from unnest($1::bigint[]) j",
        [first.slice(0, 1050).map((attempt) => String(attempt.job_id))]
      )
      yield* age(session, "2 min")
      expect([yield* rescue(session, "1 min", 5), yield* mark(session)]).toEqual([0, 0n])
      expect([yield* rescue(session, "1 min", 50), yield* mark(session)]).toEqual([50, 1n])
      yield* caller.script("rollback")
      expect([yield* rescue(session, "1 min", 2000), yield* mark(session)]).toEqual([1055, 2n])
    })
  )

  // A row without attempts only moves a lane's cursor
  it.scopedLive("takes nothing from a batch that has no attempts", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* running(session, 2)
      yield* session.script("update awa.claim_batches_0 set n = 0")
      yield* age(session, "2 min")
      expect([yield* rescue(session), yield* mark(session)]).toEqual([0, 1n])
    })
  )

  // A claim draws its batch id before it commits: the mark can pass it.
  it.scopedLive("that passed a claim which had not committed goes back when the segment is drained", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [slow, session] = [yield* db.session, yield* db.session]
      yield* enqueue(session, 1, { queue: "slow" })
      yield* begin(slow)
      const attempts = yield* claim(slow, { queue: "slow" })
      yield* close(session, yield* running(session, 1))
      yield* age(session, "2 min")
      expect([yield* rescue(session), yield* mark(session)]).toEqual([0, 2n])
      yield* slow.script("commit")
      yield* age(session, "2 min")
      expect(yield* rescue(session)).toBe(0)
      yield* rotate(session)
      expect(yield* drain(session)).toBe(1)
      expect(yield* rescue(session)).toBe(1)
      expect(yield* evidence(session, attempts)).toEqual([["closed", "rescued"]])
    })
  )

  it.scopedLive("keeps settled history, and a long attempt in the middle of it, from being walked at every tick", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 5000)
      const attempts = yield* claim(session, { limit: 5000 })
      yield* close(session, attempts.slice(1))
      yield* beat(session, attempts.slice(0, 1))
      yield* session.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '10 min'")
      const first = yield* explainBuffers(session, "select awa.rescue_stale('1 min', 100)")
      const second = yield* explainBuffers(session, "select awa.rescue_stale('1 min', 100)")
      expect(first).toBeGreaterThan(5000)
      expect(second).toBeLessThan(500)
    })
  )

  it.scopedLive("stops before a claim that is not stale, whatever is behind it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = [...(yield* running(session, 1)), ...(yield* running(session, 1))]
      // as two claims at once, of which the first took its time between its id and its clock
      yield* session.script(
        "update awa.claim_batches_0 set claimed_at = claimed_at - case batch_id when 1 then interval '59 s' else '61 s' end"
      )
      expect([yield* rescue(session), yield* mark(session)]).toEqual([1, 0n])
      yield* age(session, "2 s")
      expect([yield* rescue(session), yield* mark(session)]).toEqual([1, 2n])
      expect(yield* evidence(session, attempts)).toEqual([
        ["closed", "rescued"],
        ["closed", "rescued"]
      ])
    })
  )

  // F-54: an id is drawn before its claim commits
  it.scopedLive("is not passed by a claim that commits later, whose id is lower than a young one's", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [late, other, session] = [yield* db.session, yield* db.session, yield* db.session]
      yield* enqueue(session, 1, { queue: "one" })
      yield* enqueue(session, 1, { queue: "two" })
      yield* begin(late)
      const first = yield* claim(late, { queue: "one" })
      const second = yield* claim(other, { queue: "two" })
      expect(only(first).batch_id).toBeLessThan(only(second).batch_id)
      expect([yield* rescue(session), yield* mark(session)]).toEqual([0, 0n])
      yield* late.script("commit")
      yield* age(session, "2 min")
      expect(yield* rescue(session)).toBe(2)
      expect(yield* evidence(session, [...first, ...second])).toEqual([
        ["closed", "rescued"],
        ["closed", "rescued"]
      ])
    })
  )

  it.scopedLive("leaves alone the claims behind it that are young, but for the deadlines, when it is told to", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 100)
      for (let n = 0; n < 100; n++) yield* claim(session, { limit: 1 })
      const fetched = Effect.map(
        session.value(
          "select idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'awa' and relname = 'claim_batches_0'"
        ),
        Number
      )
      const walked = (beaten: boolean) =>
        Effect.gen(function* () {
          yield* begin(session)
          const before = yield* fetched // what was not flushed yet is in it
          yield* session.value("select awa.rescue_stale('1 min', 100, $1)", [beaten])
          const after = yield* fetched
          yield* session.script("rollback")
          return after - before
        })
      expect(yield* walked(false)).toBeLessThan(10)
      expect(yield* walked(true)).toBeGreaterThanOrEqual(100)
    })
  )
})

it.scopedLive("rescue looks at beaten attempts only when it is told to", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    yield* beat(session, yield* running(session, 1))
    yield* running(session, 1)
    yield* age(session, "2 min")
    const rescueUnbeaten = session.value("select awa.rescue_stale('1 min', 10, false)")
    expect([yield* rescueUnbeaten, yield* rescueUnbeaten, yield* rescue(session)]).toEqual([1, 0, 1])
  })
)

// A worker that dies with thousands of attempts: each call does its share, and none walks all of them.
it.scopedLive("rescue after a mass crash takes everybody, in order, a limited share at a time", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    yield* enqueue(session, 5000)
    for (let n = 0; n < 10; n++) yield* claim(session, { limit: 500 })
    yield* close(session, yield* running(session, 10))
    yield* age(session, "2 min")
    expect([yield* rescue(session, "1 min", 600), yield* mark(session)]).toEqual([600, 1n])
    expect(yield* session.value("select max(batch_id) from awa.closures where outcome = 'rescued'")).toBe(2n)
    expect(yield* explainBuffers(session, "select awa.rescue_stale('1 min', 1)")).toBeLessThan(1200 * 8)
    expect(yield* mark(session)).toBe(1n)
    let rescued = 601
    for (let n = 0; n < 20 && rescued < 5000; n++) rescued += Number(yield* rescue(session, "1 min", 900))
    expect([rescued, yield* rescue(session), yield* mark(session)]).toEqual([5000, 0, 11n])
    expect(yield* session.value("select count(*) from awa.attempts where outcome is null")).toBe(0n)
  })
)
