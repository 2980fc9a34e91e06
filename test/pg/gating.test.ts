/** Caller-owned completion, queue by queue: contract C-14 (WA006), C-60, C-61. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  begin,
  blocked,
  claim,
  claimIds,
  claimRows,
  close,
  column,
  complete,
  drain,
  enqueue,
  type EnqueueOptions,
  evidence,
  expectCompletion,
  fault,
  fileDatabase,
  only,
  prune,
  rotate,
  settle
} from "./support.js"

const database = fileDatabase({ then: "create table public.ledger (job_id bigint);" })

const running = (session: Session, n = 1, options: EnqueueOptions = {}) =>
  Effect.flatMap(enqueue(session, n, options), () => claim(session, { limit: n }))

const oneRunning = (session: Session) => Effect.map(running(session), only)

const disable = (session: Session, queue = "q") => session.value("select awa.disable_caller_owned($1)", [queue])

const enable = (session: Session, queue = "q", limit = 1000) =>
  session.value("select awa.enable_caller_owned($1, '1 minute', $2)", [queue, limit])

/** A runtime that beat so long ago, and what it says of itself. */
const runtime = (session: Session, name: string, capabilities: unknown, ago = "0") =>
  session.rows(
    `insert into awa.runtimes (runtime_id, name, contract, capabilities, beat_at)
     values (nextval('awa.runtime_ids'), $1, 1, $2::text::jsonb, clock_timestamp() - $3::interval)`,
    [name, JSON.stringify(capabilities), ago]
  )

const states = (session: Session) =>
  Effect.map(session.rows("select state from awa.jobs order by job_id"), (rows) => column(rows, "state"))

const jobOf = (session: Session, { job_id }: Attempt) =>
  Effect.map(session.rows("select * from awa.job($1)", [job_id]), only)

const verbs = (session: Session) =>
  session.rows("select verb, detail ->> 'queue' as queue, session_role = session_user as own from awa.audit order by 1")

const anyGated = (session: Session) => session.value("select any_gated from awa.meta")

/** Attempts that were put aside. */
const aside = (session: Session, n = 1, options: EnqueueOptions = {}) =>
  Effect.tap(running(session, n, options), (attempts) => close(session, attempts, { outcome: "gated" }))

describe("complete_job", () => {
  // C-14, C-60
  it.scopedLive(
    "refuses a queue for which caller-owned completion is disabled, in every isolation level, and no other one",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const attempt = yield* oneRunning(session)
        yield* enqueue(session, 1, { queue: "other" })
        const other = only(yield* claim(session, { queue: "other" }))
        expect(yield* disable(session)).toBe(true)
        for (const isolation of ["read committed", "repeatable read", "serializable"]) {
          yield* begin(session, isolation)
          yield* session.rows("insert into public.ledger values ($1)", [attempt.job_id])
          expect((yield* fault(complete(session, attempt), "WA006")).message).toContain("the queue q")
          expect(yield* session.command("commit")).toBe("ROLLBACK")
          expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
        }
        expect(yield* session.rows("select from public.ledger")).toEqual([])
        yield* complete(session, other)
        yield* enable(session)
        yield* complete(session, attempt)
        expect(yield* evidence(session, [attempt, other])).toEqual([
          ["closed", "completed"],
          ["closed", "completed"]
        ])
      })
  )

  it.scopedLive("refuses the attempt that left the ring for a lease as well, with its segment and without", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* rotate(session)
      expect(yield* drain(session)).toBe(1)
      expect(yield* session.value("select awa.materialize_long('0', 10)")).toBe(1)
      yield* disable(session)
      yield* fault(complete(session, attempt), "WA006")
      expect(yield* prune(session)).not.toBeNull()
      yield* fault(complete(session, attempt), "WA006")
      expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
      expect(yield* settle(session, attempt, "gated")).toBe("closed")
      expect(yield* jobOf(session, attempt)).toMatchObject({ state: "gated", attempt: 0, run_lease: 1n })
    })
  )

  it.scopedLive("says of an attempt that is over that it is, disabled or not", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [a, b] = yield* running(session, 2)
      if (a === undefined || b === undefined) throw new Error("two attempts")
      yield* close(session, [a], { outcome: "failed" })
      yield* disable(session)
      expect((yield* fault(complete(session, a), "WA001")).detail).toContain("failed")
      yield* fault(complete(session, b, { token: { receipt_id: b.receipt_id + 1n } }), "WA001")
      yield* fault(complete(session, b, { token: { claim_slot: 0 } }), "WA004")
    })
  )

  it.scopedLive("that was promised and refused makes no COMMIT succeed", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* disable(session)
      yield* begin(session)
      yield* expectCompletion(session, attempt)
      yield* session.script("savepoint s")
      yield* fault(complete(session, attempt), "WA006")
      yield* session.script("rollback to savepoint s")
      yield* fault(session.script("commit"), "WA007")
    })
  )
})

describe("an attempt that is put aside", () => {
  // C-60
  it.scopedLive(
    "does not count, has no due time, and keeps its progress, its errors, its key and its callback's answer",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const opts = { max_attempts: 2, unique: { key: "k" } }
        const first = only(yield* running(session, 1, { opts }))
        yield* close(session, [first], { outcome: "retried", detail: { error: { name: "E" }, progress: { page: 1 } } })
        const attempt = only(yield* claim(session))
        expect(attempt.attempt).toBe(2)
        yield* disable(session)
        yield* close(session, [attempt], { outcome: "gated", detail: { progress: { page: 2 } } })
        const job = yield* jobOf(session, attempt)
        expect(job).toMatchObject({ state: "gated", attempt: 1, run_lease: 2n, progress: { page: 2 }, run_at: null })
        expect(JSON.stringify(job["errors"])).toContain('"run_lease":1')
        expect(JSON.stringify(job["errors"])).not.toContain('"run_lease":2')
        expect(yield* session.rows("select * from awa.jobs")).toEqual([job])
        expect(yield* session.rows("select state, n from awa.queue_counts(10)")).toEqual([{ state: "gated", n: 1n }])
        yield* fault(enqueue(session, 1, { opts: { unique: { key: "k", on_conflict: "error" } } }), "23505")
        // no tick promotes it, and none waits for it
        expect(only(yield* session.rows("select promoted, next_due_ms from awa.promote_due(10)"))).toEqual({
          promoted: 0,
          next_due_ms: null
        })
        expect(yield* session.value("select awa.sweep('1 day')")).toBe(0)
        expect(yield* states(session)).toEqual(["gated"])
        expect(yield* enable(session)).toBe(1)
        expect(only(yield* claim(session))).toMatchObject({ attempt: 2, run_lease: 3n, progress: { page: 2 } })
      })
  )

  it.scopedLive("runs again at once when its queue is enabled by then", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      expect(yield* settle(session, attempt, "gated")).toBe("closed")
      expect(only(yield* claim(session))).toMatchObject({ attempt: 1, run_lease: 2n, job_id: attempt.job_id })
    })
  )

  it.scopedLive("while its queue is being enabled is never left behind, whoever comes first", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [worker, operator, observer] = [yield* db.session, yield* db.session, yield* db.session]
      for (const first of ["worker", "operator"]) {
        yield* disable(observer)
        const attempt = yield* oneRunning(observer)
        const [before, after] = first === "worker" ? [worker, operator] : [operator, worker]
        const act = (session: Session): Effect.Effect<unknown, unknown> =>
          session === worker ? close(worker, [attempt], { outcome: "gated" }) : enable(operator)
        yield* begin(before)
        yield* act(before)
        const waiting = yield* Effect.fork(act(after))
        yield* blocked(observer, after)
        yield* before.script("commit")
        yield* Fiber.join(waiting)
        const again = yield* claim(observer)
        expect(again.map(({ job_id }) => job_id)).toEqual([attempt.job_id])
        yield* close(observer, again)
      }
    })
  )

  it.scopedLive("is cancelled, deleted and moved to another priority as one that is scheduled", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* disable(session)
      const [a, b, c] = Array.from(yield* aside(session, 3), (attempt) => attempt.job_id)
      const answer = (text: string, id: bigint | undefined) => session.value(`select answer from ${text}`, [[id]])
      expect(yield* answer("awa.cancel_jobs($1)", a)).toBe("cancelled")
      expect(yield* answer("awa.delete_jobs($1)", b)).toBe("deleted")
      expect(yield* answer("awa.reprioritize_jobs($1, 4)", c)).toBe("reprioritized")
      expect(yield* answer("awa.redrive_jobs($1)", c)).toBe("live")
      expect(yield* states(session)).toEqual(["cancelled", "gated"])
      expect(yield* answer("awa.redrive_jobs($1)", a)).toBe("redriven")
      expect(yield* enable(session)).toBe(1)
      expect(yield* session.rows("select state, priority from awa.jobs order by job_id")).toEqual([
        { state: "available", priority: 2 },
        { state: "available", priority: 4 }
      ])
    })
  )
})

describe("claim", () => {
  // C-60: the cursor skips nothing
  it.scopedLive("says with what it took that its queue is disabled, and with nothing else", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const marks = (limit = 10) =>
        Effect.map(claimRows(session, { limit }), (rows) =>
          rows.map((row) => (row["job_id"] === null ? row["args"] : "attempt"))
        )
      yield* enqueue(session, 5)
      expect(yield* marks(2)).toEqual(["attempt", "attempt"])
      yield* disable(session)
      yield* disable(session, "other")
      expect(yield* marks(2)).toEqual(["attempt", "attempt", { gated: true }])
      expect(yield* marks()).toEqual(["attempt", { gated: true }])
      expect(yield* marks()).toEqual([])
      yield* enqueue(session, 1)
      yield* enable(session)
      expect(yield* marks()).toEqual(["attempt"])
    })
  )
})

describe("enabling a queue", () => {
  // C-60
  it.scopedLive("is refused while a live runtime that claims of it does not advertise it, by name", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* disable(session)
      const job = only(yield* aside(session))
      yield* runtime(session, "new", { queues: ["q"], callerOwned: 1 })
      yield* runtime(session, "of a later version", { queues: ["q"], callerOwned: 2 })
      yield* runtime(session, "of another queue", { queues: ["other"] })
      yield* runtime(session, "gone", { queues: ["q"] }, "61 seconds")
      yield* runtime(session, "old", { queues: ["other", "q"], callerOwned: true })
      yield* runtime(session, "older", {}, "59 seconds")
      yield* runtime(session, "behind", { queues: ["q"], callerOwned: 0 })
      const refused = yield* fault(enable(session), "55000")
      expect(refused.message).toContain(
        "queue q cannot be enabled: old (runtime 5), older (runtime 6), behind (runtime 7) do not"
      )
      expect(JSON.parse(refused.detail ?? "null")).toMatchObject([
        { runtime_id: "5", name: "old", callerOwned: true },
        { runtime_id: "6", name: "older", callerOwned: null },
        { runtime_id: "7", name: "behind", callerOwned: 0 }
      ])
      // nothing was changed
      expect(yield* anyGated(session)).toBe(true)
      expect(yield* states(session)).toEqual(["gated"])
      expect(column(yield* verbs(session), "verb")).toEqual(["disable_caller_owned"])
      yield* session.rows("delete from awa.runtimes where name in ('older', 'behind')")
      expect((yield* fault(enable(session), "55000")).message).toContain("old (runtime 5) does not advertise it")
      yield* session.rows("delete from awa.runtimes where name = 'old'")
      expect(yield* enable(session)).toBe(1)
      expect(yield* claimIds(session)).toEqual([job.job_id])
      expect(yield* verbs(session)).toEqual([
        { verb: "disable_caller_owned", queue: "q", own: true },
        { verb: "enable_caller_owned", queue: "q", own: true }
      ])
    })
  )

  it.scopedLive("moves what was put aside in the order of its ids, so many in a call; a sweep comes for the rest", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* disable(session)
      yield* disable(session, "other")
      const ids = Array.from(yield* running(session, 6), (attempt) => attempt)
      yield* close(session, [...ids].reverse(), { outcome: "gated" })
      yield* enqueue(session, 1, { queue: "other" })
      yield* close(session, yield* claim(session, { queue: "other" }), { outcome: "gated" })
      expect(yield* enable(session, "q", 2)).toBe(2)
      expect(yield* anyGated(session)).toBe(true)
      expect(yield* states(session)).toEqual(["available", "available", "gated", "gated", "gated", "gated", "gated"])
      expect(yield* enable(session, "q", 3)).toBe(3)
      expect(yield* session.value("select awa.sweep('1 day')")).toBe(1)
      expect(yield* enable(session)).toBe(0)
      expect(yield* claimIds(session)).toEqual(ids.map(({ job_id }) => job_id))
      expect(yield* enable(session, "other")).toBe(1)
      expect(yield* anyGated(session)).toBe(false)
    })
  )

  it.scopedLive("leaves what another transaction holds, and does not wait for it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      yield* disable(session)
      const [a, b] = yield* aside(session, 2)
      yield* begin(holder)
      yield* holder.rows("select from awa.deferred_jobs where job_id = $1 for update", [a?.job_id])
      yield* session.script("set lock_timeout = '1ms'")
      expect(yield* enable(session)).toBe(1)
      yield* holder.script("commit")
      expect(yield* enable(session)).toBe(1)
      expect(yield* claimIds(session)).toEqual([b?.job_id, a?.job_id])
    })
  )

  it.scopedLive("wakes the queue's claimers", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* disable(session)
      yield* aside(session)
      yield* begin(session)
      expect(yield* enable(session)).toBe(1)
      // a transaction that sent a notification cannot be prepared
      expect((yield* fault(session.script("prepare transaction 'notified'"), "0A000")).message).toContain("NOTIFY")
    })
  )

  it.scopedLive(
    "and disabling another one at the same time keeps the installation's flag right, whoever comes first",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [one, two, observer] = [yield* db.session, yield* db.session, yield* db.session]
        yield* disable(observer, "a")
        yield* begin(one)
        yield* disable(one, "b")
        const waiting = yield* Effect.fork(enable(two, "a"))
        yield* blocked(observer, two)
        yield* one.script("commit")
        yield* Fiber.join(waiting)
        expect(yield* anyGated(observer)).toBe(true)
        yield* enqueue(observer, 1, { queue: "b" })
        yield* fault(complete(observer, only(yield* claim(observer, { queue: "b" }))), "WA006")
      })
  )

  it.scopedLive(
    "answers whether disabling changed anything, and refuses what is no queue's name or runs in another isolation level",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        expect([yield* disable(session), yield* disable(session)]).toEqual([true, false])
        expect(yield* session.value("select caller_owned from awa.set_queue('q', '{\"dead_letter\": true}')")).toBe(
          false
        )
        expect(yield* enable(session, "never heard of")).toBe(0)
        for (const call of [
          "awa.enable_caller_owned('')",
          "awa.disable_caller_owned('')",
          "awa.enable_caller_owned('q', '0')",
          "awa.enable_caller_owned('q', null)",
          "awa.enable_caller_owned('q', '1 minute', 0)"
        ]) {
          yield* fault(session.value(`select ${call}`), "22023")
        }
        for (const call of ["awa.enable_caller_owned('q')", "awa.disable_caller_owned('q')"]) {
          yield* begin(session, "repeatable read")
          yield* fault(session.value(`select ${call}`), "25001")
          yield* session.script("rollback")
        }
      })
  )
})
