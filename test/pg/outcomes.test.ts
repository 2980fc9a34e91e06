import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { beat, claim, claimIds, close, column, enqueue, fileDatabase, only } from "./support.js"

const database = fileDatabase()

const count = (session: Session, table: string) => session.value(`select count(*) from awa.${table}`)

/** Some running attempts. */
const running = (session: Session, n: number, options: { opts?: Record<string, unknown> } = {}) =>
  Effect.flatMap(enqueue(session, n, options), () => claim(session, { limit: n }))

/** The next attempt of a job that is runnable at once. */
const next = (session: Session) => Effect.map(claim(session, { limit: 1 }), only)

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
