/** Who waits for whom: storage.md "Guard and locks", schema/README.md "Lock order"; F-81. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { inject } from "vitest"
import { allPairs, locks } from "../stress/locks/rounds.js"
import type { Session } from "./database.js"
import {
  beat,
  begin,
  bigints,
  blocked,
  claim,
  close,
  column,
  complete,
  edit,
  enqueue,
  evidence,
  fault,
  fileDatabase
} from "./support.js"

const database = fileDatabase()

const seed = Number(process.env["AWA_STRESS_SEED"] ?? Math.floor(Math.random() * 2 ** 31))

// The long form is `npm run locks`.
it.live(
  `every pair of paths against the same attempts finds no deadlock (AWA_STRESS_SEED=${seed})`,
  () =>
    Effect.gen(function* () {
      const share = (first: number) =>
        locks({ server: inject("postgresUrl"), seed, rounds: allPairs + 30, share: { first, of: 2 }, edit })
      const reports = yield* Effect.all([share(0), share(1)], { concurrency: 2 })
      const told = JSON.stringify(reports, null, 1)
      for (const report of reports) {
        expect(report.faults, told).toEqual([])
        expect(report.deadlocks, told).toBe(0)
        // the run was what it claims to have been: sessions waited for each other, and some of them lost
        expect(report.waits, told).toBeGreaterThan(0)
        expect((report.ends["WA001"] ?? 0) + (report.ends["WA002"] ?? 0), told).toBeGreaterThan(0)
      }
      expect(
        reports.reduce((sum, { pairs }) => sum + pairs, 0),
        told
      ).toBeGreaterThanOrEqual(allPairs)
    }),
  600_000
)

const running = (session: Session, n: number) => Effect.flatMap(enqueue(session, n), () => claim(session, { limit: n }))

const shows = (session: Session, sql: string) =>
  Effect.map(session.rows(sql), (rows) => bigints(column(rows, "job_id")))

describe("whoever waits holds nothing that comes later:", () => {
  it.scopedLive("complete_job, for a closure, not the attempt's state", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [flushing, caller, session] = [yield* db.session, yield* db.session, yield* db.session]
      const [attempt] = yield* running(session, 1)
      if (attempt === undefined) throw new Error("one attempt")
      yield* beat(session, [attempt])
      yield* begin(flushing)
      yield* close(flushing, [attempt])
      const waiting = yield* Effect.fork(Effect.either(complete(caller, attempt)))
      yield* blocked(session, caller)
      expect(yield* shows(session, "select job_id from awa.attempt_state for update nowait")).toEqual([attempt.job_id])
      yield* flushing.script("commit")
      expect(yield* Fiber.join(waiting)).toMatchObject({ left: { code: "WA001" } })
    })
  )

  it.scopedLive("rescue, for a closure, not those behind it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [flushing, other, session] = [yield* db.session, yield* db.session, yield* db.session]
      const attempts = yield* running(session, 3)
      yield* begin(flushing)
      yield* close(flushing, attempts.slice(1, 2))
      const rescuing = yield* Effect.fork(session.value("select awa.rescue_stale('0', 10)"))
      yield* blocked(other, session)
      yield* other.script("set lock_timeout = '100ms'")
      yield* fault(close(other, attempts.slice(0, 1)), "55P03")
      expect(yield* close(other, attempts.slice(2))).toEqual(["closed"])
      yield* flushing.script("commit")
      expect(yield* Fiber.join(rescuing)).toBe(1)
      expect(yield* evidence(session, attempts)).toEqual([
        ["closed", "rescued"],
        ["closed", "completed"],
        ["closed", "completed"]
      ])
    })
  )

  it.scopedLive("a flush, for a lease, not those of later jobs, whatever its order", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, flushing, session] = [yield* db.session, yield* db.session, yield* db.session]
      const attempts = yield* running(session, 3)
      yield* session.value("select awa.materialize_segment_0(awa.claim_slot_base(), 0, 10)")
      yield* begin(holder)
      yield* holder.rows("select from awa.leases where job_id = $1 for update", [attempts[1]?.job_id])
      const waiting = yield* Effect.fork(close(flushing, [...attempts].reverse()))
      yield* blocked(session, flushing)
      expect(yield* shows(session, "select job_id from awa.leases order by job_id for update skip locked")).toEqual([
        attempts[2]?.job_id
      ])
      yield* holder.script("commit")
      expect(yield* Fiber.join(waiting)).toEqual(["closed", "closed", "closed"])
    })
  )

  it.scopedLive("prune, for what a caller promised, not the claims", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session, other] = [yield* db.session, yield* db.session, yield* db.session]
      const [attempt] = yield* running(session, 1)
      if (attempt === undefined) throw new Error("one attempt")
      yield* close(session, [attempt])
      yield* begin(caller)
      yield* caller.rows("select awa.expect_completion($1, $2, $3, $4, $5, $6)", [
        attempt.job_id,
        attempt.run_lease,
        attempt.claim_slot,
        attempt.receipt_id,
        attempt.batch_id,
        attempt.batch_index
      ])
      const pruning = yield* Effect.fork(session.value("select awa.prune_0('0')"))
      yield* blocked(other, session)
      yield* caller.script("set local lock_timeout = '1ms'")
      yield* fault(complete(caller, attempt), "WA001")
      yield* caller.script("rollback")
      expect(yield* Fiber.join(pruning)).toBe(true)
    })
  )

  it.scopedLive("a cancellation, as a flush: first what is in the ring, then the leases of the same segment", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session, observer] = [yield* db.session, yield* db.session, yield* db.session]
      const leased = yield* running(session, 2)
      yield* session.value("select awa.materialize_segment_0(awa.claim_slot_base(), 0, 10)")
      yield* session.script("select nextval('awa.entry_seq') from generate_series(1, 64)")
      for (let n = 0; n < 2; n++) yield* session.value("select awa.rotate('0', 1)")
      const inRing = yield* running(session, 1)
      yield* begin(holder)
      yield* holder.rows("select from awa.leases where job_id = $1 for update", [leased[0]?.job_id])
      const ids = [...leased, ...inRing].map(({ job_id }) => job_id)
      const cancelling = yield* Effect.fork(session.rows("select answer from awa.cancel_jobs($1)", [ids]))
      yield* blocked(observer, session)
      // the closure of the later segment is not taken while an earlier segment's lease is waited for
      yield* observer.script("set lock_timeout = '100ms'")
      yield* begin(observer)
      expect(yield* close(observer, inRing)).toEqual(["closed"])
      yield* observer.script("rollback")
      yield* holder.script("commit")
      yield* Fiber.join(cancelling)
    })
  )
})

// ADR-042: a deadlock aborts the transaction, whose attempts stay open; in the documented order there is none
describe("two transactions that complete the same two attempts", () => {
  for (const [order, reversed] of [
    ["the documented order", false],
    ["opposite orders", true]
  ] as const) {
    it.scopedLive(`in ${order} ${reversed ? "are one 40P01, and the other is whole" : "follow one another"}`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [one, two, session] = [yield* db.session, yield* db.session, yield* db.session]
        const attempts = yield* running(session, 2)
        const [a, b] = attempts
        if (a === undefined || b === undefined) throw new Error("two attempts")
        for (const caller of [one, two]) yield* caller.script("set deadlock_timeout = '10ms'")
        yield* begin(one)
        yield* complete(one, a)
        yield* begin(two)
        const second = yield* Effect.fork(
          Effect.either(Effect.zipRight(complete(two, reversed ? b : a), complete(two, reversed ? a : b)))
        )
        yield* blocked(session, two)
        const first = yield* Effect.either(complete(one, b))
        yield* one.script("commit")
        const answers = [first, yield* Fiber.join(second)]
        yield* two.script("commit")
        const codes = answers.map((answer) => (answer._tag === "Left" ? answer.left.code : "completed"))
        expect(codes).toContain("completed")
        if (!reversed) expect(codes).toEqual(["completed", "WA001"])
        else expect(codes.filter((code) => code === "40P01")).toHaveLength(1)
        expect(yield* evidence(session, attempts)).toEqual([
          ["closed", "completed"],
          ["closed", "completed"]
        ])
      })
    )
  }
})
