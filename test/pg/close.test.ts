import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  begin,
  blocked,
  claim,
  claimIds,
  close,
  closeCompleted,
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
      for (const outcome of ["rescued", "materialized"]) {
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

// C-04: what the flush did not close is classified by a second statement
describe("a flush of plain completions", () => {
  it.scopedLive("closes exactly the attempts that the tokens are of, over segments, and a repetition closes none", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts: Array<Attempt> = []
      for (let n = 0; n < 3; n++) {
        attempts.push(...(yield* running(session, 2)))
        yield* rotate(session)
      }
      const mixed = [4, 0, 5, 2, 1, 3].flatMap((i) => attempts.slice(i, i + 1))
      expect(yield* closeCompleted(session, mixed.slice(0, 4), 5)).toBe(4)
      expect(yield* closeCompleted(session, mixed.slice(0, 4), 5)).toBe(0)
      expect(yield* closeCompleted(session, mixed, 6)).toBe(2)
      // the other statement tells its own from another flush's
      expect(yield* close(session, mixed, { closer: 6 })).toEqual([
        ...["stale", "stale", "stale", "stale"],
        ...["repeated", "repeated"]
      ])
      expect(yield* session.rows("select distinct state from awa.jobs")).toEqual([{ state: "completed" }])
    })
  )

  // storage.md: job id, run lease and receipt match the item. F-3, F-6
  it.scopedLive("passes by every token that is not exactly the attempt's", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [one, two] = yield* running(session, 2)
      if (one === undefined || two === undefined) throw new Error("two attempts")
      const forged: ReadonlyArray<Partial<Attempt>> = [
        { job_id: two.job_id },
        { run_lease: 2n },
        { receipt_id: two.receipt_id },
        { receipt_id: one.receipt_id + 1n },
        { batch_index: two.batch_index, receipt_id: two.receipt_id },
        { batch_index: 0, receipt_id: one.receipt_id - 1n },
        { batch_index: 3, receipt_id: one.receipt_id + 2n },
        { batch_id: one.batch_id + 1n },
        { claim_slot: one.claim_slot ^ (1 << 12) }, // another installation
        { claim_slot: one.claim_slot + 1 }, // another segment
        { claim_slot: one.claim_slot | 255 } // no segment
      ]
      const attempts = forged.map((part) => ({ ...one, ...part }))
      for (const attempt of attempts) expect(yield* closeCompleted(session, [attempt])).toBe(0)
      expect(yield* count(session, "closures")).toBe(0n)
      expect(yield* closeCompleted(session, [...attempts, one, one])).toBe(1)
    })
  )

  it.scopedLive("gives back the unique keys of what it closed, and no other's", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const key of ["a", "b", "c"]) yield* enqueue(session, 1, { opts: { unique: { key } } })
      yield* enqueue(session, 1)
      const attempts = yield* claim(session, { limit: 4 })
      const [a, b, , plain] = attempts
      if (a === undefined || b === undefined || plain === undefined) throw new Error("four attempts")
      const held = session.value("select count(*) from awa.unique_claims")
      expect(yield* settle(session, b, "retried", { delay_ms: 60_000 })).toBe("closed")
      // somebody else ended b; and a place alone is no attempt
      expect(
        yield* closeCompleted(session, [{ ...plain, batch_index: 3, receipt_id: plain.receipt_id - 1n }, a, b, plain])
      ).toBe(2)
      expect(yield* held).toBe(2n)
      expect(yield* running(session, 1, { opts: { unique: { key: "a" } } })).toHaveLength(1) // its twin is a new job
      expect(yield* running(session, 1, { opts: { unique: { key: "c" } } })).toHaveLength(0)
    })
  )

  it.scopedLive("of attempts that became leases closes none, and the other statement closes their leases", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const long = yield* running(session, 2)
      yield* rotate(session)
      yield* session.rows("select awa.drain_segments()")
      expect(yield* session.value("select awa.materialize_long('0', 10)")).toBe(2)
      const attempts = [...long, ...(yield* running(session, 1))]
      expect(yield* closeCompleted(session, attempts, 5)).toBe(1)
      expect(yield* close(session, attempts, { closer: 5 })).toEqual(["closed", "closed", "repeated"])
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
