import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  beat,
  begin,
  blocked,
  claim,
  claimIds,
  close,
  column,
  complete,
  enqueue,
  evidence,
  fault,
  fileDatabase,
  only,
  rotate,
  settle
} from "./support.js"

const database = fileDatabase()

const count = (session: Session, table: string) => session.value(`select count(*) from awa.${table}`)

/** Some running attempts. */
const running = (session: Session, n: number, options: { opts?: Record<string, unknown> } = {}) =>
  Effect.flatMap(enqueue(session, n, options), () => claim(session, { limit: n }))

/** The next attempt of a job that is runnable at once. */
const next = (session: Session) => Effect.map(claim(session, { limit: 1 }), only)

describe("a close", () => {
  // storage.md: every close checks in the same call that its claim exists and that job id, run lease and receipt match. F-3, F-6
  it.scopedLive("answers stale to a token that is not exactly the attempt's, and touches nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [one, two] = yield* running(session, 2)
      if (one === undefined || two === undefined) throw new Error("two attempts")
      const forged: ReadonlyArray<Partial<Attempt>> = [
        { job_id: two.job_id },
        { run_lease: 2n },
        { run_lease: 0n },
        { receipt_id: two.receipt_id },
        { receipt_id: one.receipt_id + 1n },
        { batch_index: two.batch_index },
        { batch_index: 0 },
        { batch_index: 3 },
        { batch_index: -1 },
        { batch_id: one.batch_id + 1n },
        { claim_slot: one.claim_slot ^ (1 << 12) }, // another installation
        { claim_slot: one.claim_slot + 1 }, // another segment
        { claim_slot: one.claim_slot | 255 } // no segment
      ]
      const attempts = forged.map((part) => ({ ...one, ...part }))
      const answers = yield* Effect.forEach(attempts, (attempt) => close(session, [attempt]))
      expect(answers.flat()).toEqual(forged.map(() => "stale"))
      expect(yield* close(session, attempts)).toEqual(forged.map(() => "stale"))
      expect(yield* count(session, "closures")).toBe(0n)
      // beside its own forgeries, in one flush
      expect(yield* close(session, [...attempts.slice(0, 2), one, ...attempts.slice(2)])).toEqual([
        "stale",
        "stale",
        "closed",
        ...forged.slice(2).map(() => "stale")
      ])
      expect(yield* count(session, "closures")).toBe(1n)
    })
  )

  // C-04
  it.scopedLive("that is repeated says so to its own flush, is stale to any other, and disposes of the job once", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 3)
      const options = {
        closer: 5,
        outcome: ["retried", "completed", "failed"],
        detail: { error: "x", delay_ms: 60_000 }
      }
      expect(yield* close(session, attempts, options)).toEqual(["closed", "closed", "closed"])
      expect(yield* close(session, attempts, options)).toEqual(["repeated", "repeated", "repeated"])
      expect(yield* close(session, attempts, { ...options, closer: 6 })).toEqual(["stale", "stale", "stale"])
      expect([
        yield* count(session, "closures"),
        yield* count(session, "deferred_jobs"),
        yield* count(session, "terminal_jobs")
      ]).toEqual([3n, 1n, 1n])
      expect(yield* session.value("select jsonb_array_length(errors) from awa.deferred_jobs")).toBe(1)
    })
  )

  it.scopedLive("that is repeated after its job ran again does not make it run once more", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 1)
      expect(yield* close(session, attempts, { closer: 5, outcome: "retried" })).toEqual(["closed"])
      expect(yield* close(session, attempts, { closer: 5, outcome: "retried" })).toEqual(["repeated"])
      const again = yield* next(session)
      expect(yield* close(session, attempts, { closer: 5, outcome: "retried" })).toEqual(["repeated"])
      expect(yield* close(session, [again])).toEqual(["closed"])
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* count(session, "deferred_jobs")).toBe(0n)
    })
  )

  it.scopedLive("of one attempt with two outcomes in the same flush takes one of them", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = only(yield* running(session, 1))
      const answers = yield* close(session, [attempt, attempt], { outcome: ["completed", "retried"] })
      expect([...answers].sort()).toEqual(["closed", "repeated"])
      const again = yield* claimIds(session)
      const outcome = yield* session.value("select outcome::text from awa.closures where batch_id = $1", [
        attempt.batch_id
      ])
      expect([outcome, again.length]).toEqual(answers[0] === "closed" ? ["completed", 0] : ["retried", 1])
    })
  )

  it.scopedLive("spans segments, and answers in the order of its items", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts: Array<Attempt> = []
      for (let n = 0; n < 3; n++) {
        attempts.push(...(yield* running(session, 2)))
        yield* rotate(session)
      }
      const mixed = [4, 0, 5, 2, 1, 3].flatMap((i) => attempts.slice(i, i + 1))
      expect(yield* close(session, mixed.slice(0, 3))).toEqual(["closed", "closed", "closed"])
      expect(yield* close(session, mixed, { closer: 2 })).toEqual([
        "stale",
        "stale",
        "stale",
        "closed",
        "closed",
        "closed"
      ])
    })
  )

  it.scopedLive("refuses what no worker may report", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 1)
      for (const outcome of ["rescued", "materialized", "gated", "dead_lettered"]) {
        yield* fault(close(session, attempts, { outcome }), "22023")
      }
      expect(yield* close(session, attempts)).toEqual(["closed"])
    })
  )

  // storage.md: batches run under a short lock_timeout and bisect
  it.scopedLive(
    "is not held up by a caller that hung after complete_job: lock_timeout, and the neighbours close without it",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [hung, session] = [yield* db.session, yield* db.session]
        const attempts = yield* running(session, 5)
        const [, , caught] = attempts
        if (caught === undefined) throw new Error("five attempts")
        yield* begin(hung)
        yield* complete(hung, caught)
        const flush = (some: ReadonlyArray<Attempt>) =>
          begin(session).pipe(
            Effect.andThen(session.script("set local lock_timeout = '100ms'")),
            Effect.andThen(close(session, some)),
            Effect.tap(() => session.script("commit")),
            Effect.tapError(() => session.script("rollback"))
          )
        yield* fault(flush(attempts), "55P03")
        expect(yield* flush(attempts.slice(0, 2))).toEqual(["closed", "closed"])
        yield* fault(flush(attempts.slice(2)), "55P03")
        yield* fault(flush([caught]), "55P03")
        expect(yield* flush(attempts.slice(3))).toEqual(["closed", "closed"])
        yield* hung.script("commit")
        expect(yield* flush([caught])).toEqual(["stale"])
      })
  )

  it.scopedLive("that met a caller's finalization in flight closes the attempt if that is rolled back", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, flusher, session] = [yield* db.session, yield* db.session, yield* db.session]
      const attempts = yield* running(session, 2)
      yield* begin(caller)
      yield* complete(caller, only(attempts.slice(0, 1)))
      const flushing = yield* Effect.fork(close(flusher, attempts))
      yield* blocked(session, flusher)
      yield* caller.script("rollback")
      expect(yield* flushing).toEqual(["closed", "closed"])
    })
  )
})

describe("an attempt that is closed as", () => {
  it.scopedLive("completed does not run again, and reads back", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 1)
      yield* close(session, attempts, { detail: { progress: { at: 9 } } })
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* session.rows("select state, run_lease, attempt, progress from awa.jobs")).toEqual([
        { state: "completed", run_lease: 1n, attempt: 1, progress: { at: 9 } }
      ])
    })
  )

  it.scopedLive("retried waits its delay, keeps its errors, and counts", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 1)
      yield* close(session, attempts, { outcome: "retried", detail: { error: { name: "E" }, delay_ms: 90_000 } })
      expect(
        yield* session.rows(
          `select state, run_lease, attempt, errors -> 0 ->> 'attempt' as n, errors -> 0 -> 'error' as error,
             run_at between clock_timestamp() + '80 s' and clock_timestamp() + '90 s' as waits from awa.deferred_jobs`
        )
      ).toEqual([{ state: "retryable", run_lease: 1n, attempt: 1, n: "1", error: { name: "E" }, waits: true }])
      expect(yield* claimIds(session)).toEqual([])
      yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp()")
      expect(yield* session.value("select promoted from awa.promote_due(10)")).toBe(1)
      const again = yield* next(session)
      expect([again.job_id, again.run_lease, again.attempt]).toEqual([attempts[0]?.job_id, 2n, 2])
    })
  )

  // F-51: every path to retry passes one exhaustion check
  it.scopedLive("retried for the last time is failed, with all its errors, whatever delay it asked for", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 1, { opts: { max_attempts: 3 }, args: { n: 1 } })
      for (let n = 1; n <= 3; n++) {
        const attempt = yield* next(session)
        expect([attempt.attempt, attempt.run_lease]).toEqual([n, BigInt(n)])
        const delay_ms = n === 3 ? 1000 : 0
        yield* close(session, [attempt], { outcome: "retried", detail: { error: `e${n}`, delay_ms } })
      }
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* count(session, "deferred_jobs")).toBe(0n)
      expect(
        yield* session.rows(
          `select state, attempt, run_lease, args, jsonb_path_query_array(errors, '$[*].error') as errors,
             jsonb_path_query_array(errors, '$[*].run_lease') as leases from awa.terminal_jobs`
        )
      ).toEqual([
        { state: "failed", attempt: 3, run_lease: 3n, args: { n: 1 }, errors: ["e1", "e2", "e3"], leases: [1, 2, 3] }
      ])
    })
  )

  it.scopedLive("failed, cancelled or discarded is terminal at once", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 3)
      yield* close(session, attempts, { outcome: ["failed", "cancelled", "discarded"], detail: { error: "x" } })
      const rows = yield* session.rows("select state, attempt from awa.terminal_jobs order by job_id")
      expect(rows).toEqual(["failed", "cancelled", "discarded"].map((state) => ({ state, attempt: 1 })))
      expect(yield* count(session, "deferred_jobs")).toBe(0n)
    })
  )

  // F-15, C-05: the attempt is refunded, the lease still rises
  it.scopedLive("snoozed or released does not count as an attempt; the lease rises all the same", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [id] = yield* enqueue(session, 1, { opts: { max_attempts: 2 } })
      for (let n = 1; n <= 6; n++) {
        const attempt = yield* next(session)
        expect([attempt.job_id, attempt.attempt, attempt.run_lease]).toEqual([id, 1, BigInt(n)])
        yield* close(session, [attempt], { outcome: n % 2 === 0 ? "released" : "snoozed" })
      }
      const last = yield* next(session)
      yield* close(session, [last], { outcome: "retried" })
      const final = yield* next(session)
      expect([final.attempt, final.run_lease]).toEqual([2, 8n])
    })
  )

  it.scopedLive("snoozed for a while waits for it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 1)
      yield* close(session, attempts, { outcome: "snoozed", detail: { delay_ms: 3_600_000 } })
      expect(
        yield* session.rows("select state, run_at > clock_timestamp() + '59 min' as waits from awa.deferred_jobs")
      ).toEqual([{ state: "snoozed", waits: true }])
    })
  )

  it.scopedLive("retried twenty-five times keeps the last twenty errors", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 1, { opts: { max_attempts: 100 } })
      for (let n = 1; n <= 25; n++) {
        yield* close(session, [yield* next(session)], { outcome: "retried", detail: { error: n } })
      }
      yield* next(session)
      const errors = yield* session.value(
        "select jsonb_path_query_array(errors, '$[*].error') from awa.ready_entries order by seq desc"
      )
      expect(errors).toEqual(Array.from({ length: 20 }, (_, i) => i + 6))
    })
  )

  it.scopedLive("anything keeps the progress that was last flushed, or takes the one that it brings", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 2)
      yield* beat(session, attempts, { 1: { step: 1 }, 2: { step: 2 } })
      yield* close(session, attempts.slice(0, 1), { outcome: "retried", hasState: true })
      yield* close(session, attempts.slice(1), {
        outcome: "retried",
        hasState: true,
        detail: { progress: { step: 3 } }
      })
      const again = yield* claim(session)
      expect(again.map((attempt) => attempt.progress)).toEqual([{ step: 1 }, { step: 3 }])
      expect(yield* count(session, "attempt_state")).toBe(0n)
      yield* close(session, again)
      expect(column(yield* session.rows("select progress from awa.jobs order by job_id"), "progress")).toEqual([
        { step: 1 },
        { step: 3 }
      ])
    })
  )
})

describe("settle", () => {
  // storage.md: the attempt lock in its try form, with "busy" as an answer
  it.scopedLive("is busy while a finalization is in flight, and never waits for it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      const attempt = only(yield* running(session, 1))
      yield* begin(caller)
      yield* complete(caller, attempt)
      yield* session.script("set lock_timeout = '1ms'")
      expect(yield* settle(session, attempt, "retried")).toBe("busy")
      yield* caller.script("rollback")
      expect(yield* settle(session, attempt, "retried", { error: "x" })).toBe("closed")
      expect(yield* settle(session, attempt, "retried", { error: "x" })).toBe("repeated")
      expect(yield* settle(session, attempt, "retried", {}, 2)).toBe("stale")
      expect(yield* claimIds(session)).toEqual([attempt.job_id])
    })
  )

  it.scopedLive("after the caller committed is stale, and touches nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = only(yield* running(session, 1))
      yield* complete(session, attempt)
      expect(yield* settle(session, attempt, "retried")).toBe("stale")
      expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
      expect(yield* claimIds(session)).toEqual([])
    })
  )
})

// C-17: unknown is never open
it.scopedLive("evidence tells open, closed, superseded and unknown apart", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    const [open, closed] = yield* running(session, 2)
    if (open === undefined || closed === undefined) throw new Error("two attempts")
    yield* close(session, [closed], { outcome: "snoozed", detail: { delay_ms: 1000 } })
    expect(
      yield* evidence(session, [
        open,
        closed,
        { ...open, receipt_id: open.receipt_id + 5n },
        { ...open, run_lease: 2n },
        { ...open, claim_slot: open.claim_slot ^ (1 << 12) },
        { ...open, batch_id: 99n },
        { ...open, claim_slot: open.claim_slot + 1 },
        { ...open, claim_slot: open.claim_slot | 255 }
      ])
    ).toEqual([
      ["open", null],
      ["closed", "snoozed"],
      ["superseded", null],
      ["superseded", null],
      ["superseded", null],
      ["unknown", null],
      ["unknown", null],
      ["unknown", null]
    ])
  })
)
