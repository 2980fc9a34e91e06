/** Many completions in one transaction of the caller: the same guarantee as complete_job's, for all of them or none. */
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
  completeMany,
  enqueue,
  evidence,
  expectCompletion,
  fault,
  fileDatabase,
  only,
  rotate,
  settle
} from "./support.js"

const database = fileDatabase({ then: "create table public.ledger (job_id bigint);" })

const running = (session: Session, n: number, options: { opts?: Record<string, unknown> } = {}) =>
  Effect.flatMap(enqueue(session, n, options), () => claim(session, { limit: n }))

const book = (session: Session, attempts: ReadonlyArray<Attempt>) =>
  session.rows("insert into public.ledger select unnest($1::bigint[])", [attempts.map(({ job_id }) => job_id)])

const booked = (session: Session) =>
  Effect.map(session.rows("delete from public.ledger returning job_id"), (rows) => column(rows, "job_id"))

const open = ["open", null]
const completed = ["closed", "completed"]

describe("complete_jobs", () => {
  // C-12, C-13, C-16
  it.scopedLive("commits all of them with the caller's transaction, or none, in every isolation level", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const isolation of ["read committed", "repeatable read", "serializable"]) {
        const attempts = yield* running(session, 3)
        yield* begin(session, isolation)
        yield* book(session, attempts)
        yield* completeMany(session, attempts)
        yield* session.script("rollback")
        expect(yield* evidence(session, attempts)).toEqual([open, open, open])
        expect(yield* booked(session)).toEqual([])

        yield* begin(session, isolation)
        yield* book(session, attempts)
        const receipts = yield* completeMany(session, [...attempts].reverse())
        expect(yield* session.command("commit")).toBe("COMMIT")
        // in the order in which they were named
        expect(column(receipts, "job_id")).toEqual([...attempts].reverse().map(({ job_id }) => job_id))
        const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = only(attempts.slice(2))
        expect(receipts[0]).toMatchObject({
          contract_version: 1,
          ...{ job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index },
          outcome: "completed"
        })
        expect(yield* evidence(session, attempts)).toEqual([completed, completed, completed])
        expect(yield* booked(session)).toHaveLength(3)
      }
    })
  )

  // C-14: stale, forged or malformed tokens raise; C-01: every field is checked
  it.scopedLive("raises for one that is not exactly its attempt's, and then completes none", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 3)
      const [one, two] = attempts
      if (one === undefined || two === undefined) throw new Error("attempts")
      const wrong: ReadonlyArray<readonly [string, Partial<Attempt>]> = [
        ["WA001", { job_id: one.job_id }],
        ["WA001", { run_lease: 2n }],
        ["WA001", { receipt_id: two.receipt_id + 7n }],
        ["WA001", { batch_index: 4 }],
        ["WA003", { batch_id: two.batch_id + 1n }],
        ["WA003", { claim_slot: two.claim_slot ^ (1 << 12) }],
        ["WA003", { claim_slot: two.claim_slot | 255 }],
        ["WA003", { job_id: 0n }],
        ["WA004", { claim_slot: two.claim_slot ^ (3 << 8) }]
      ]
      for (const [code, part] of wrong) {
        const given = attempts.map((attempt) => (attempt === two ? { ...two, ...part } : attempt))
        yield* fault(completeMany(session, given), code)
      }
      expect(yield* evidence(session, attempts)).toEqual([open, open, open])
      yield* settle(session, two, "retried")
      const stale = yield* fault(completeMany(session, attempts), "WA001")
      expect(stale.message).toContain(`job ${two.job_id}, run lease 1`)
      expect(stale.detail).toContain(`"outcome" : "retried"`)
      expect(yield* evidence(session, attempts)).toEqual([open, ["closed", "retried"], open])
      // and once more what is completed: it raises, too
      yield* completeMany(session, [one])
      yield* fault(completeMany(session, [one]), "WA001")
    })
  )

  it.scopedLive("refuses anything but six arrays of one length with each attempt once, and takes two hundred", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const call = (...arrays: ReadonlyArray<string>) =>
        fault(session.rows(`select * from awa.complete_jobs(${arrays.join(", ")})`), "22023")
      yield* call("'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'")
      yield* call("null", "null", "null", "null", "null", "null")
      yield* call("'{1,2}'", "'{1,1}'", "'{256,256}'", "'{1,2}'", "'{1,1}'", "'{1}'")
      yield* call("'{1,2}'", "'{1,1}'", "'{256,256}'", "'{1,2}'", "'{1,1}'", "null")
      yield* call("'{{1,2}}'", "'{1,1}'", "'{256,256}'", "'{1,2}'", "'{1,1}'", "'{1,2}'")
      yield* call("'[5:6]={1,2}'", "'{1,1}'", "'{256,256}'", "'{1,2}'", "'{1,1}'", "'{1,2}'")
      yield* fault(
        session.rows("select * from awa.complete_jobs('{1}', '{1}', '{null}', '{1}', '{1}', '{1}')"),
        "WA003"
      )
      const attempts = yield* running(session, 201)
      yield* fault(completeMany(session, attempts), "22023")
      yield* fault(completeMany(session, [...attempts.slice(0, 2), ...attempts.slice(0, 1)]), "22023")
      expect(yield* completeMany(session, attempts.slice(1))).toHaveLength(200)
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* session.rows("select state, count(*)::int as n from awa.jobs group by 1 order by 1")).toEqual([
        { state: "completed", n: 200 },
        { state: "running", n: 1 }
      ])
    })
  )

  // C-01, C-14: a place in a batch is no attempt, also beside the attempt whose place it is
  it.scopedLive("completes nothing for a token that only has the place of another one in the same call", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [one, two, three] = yield* running(session, 3)
      if (one === undefined || two === undefined || three === undefined) throw new Error("attempts")
      yield* beat(session, [two], { 1: { at: 1 } })
      const places: ReadonlyArray<Partial<Attempt>> = [
        { batch_index: one.batch_index },
        { batch_index: one.batch_index, receipt_id: 42n },
        { batch_index: one.batch_index, receipt_id: 42n, job_id: 987_654n, run_lease: 77n }
      ]
      for (const part of places) {
        for (const first of [one, { ...one, receipt_id: 43n }]) {
          yield* fault(completeMany(session, [first, { ...two, ...part }]), "WA001")
          yield* fault(completeMany(session, [{ ...two, ...part }, first, three]), "WA001")
        }
      }
      expect(yield* evidence(session, [one, two, three])).toEqual([open, open, open])
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(1n)
    })
  )

  // C-13: unique keys and progress in the same commit; C-23: leases read back as others
  it.scopedLive("takes leases, unique keys and progress along, over segments", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const long = yield* running(session, 1)
      yield* rotate(session)
      yield* session.rows("select awa.drain_segments()")
      expect(yield* session.value("select awa.materialize_long('0', 10)")).toBe(1)
      const unique = { unique: { key: "a" } }
      const attempts = [...long, ...(yield* running(session, 2)), ...(yield* running(session, 1, { opts: unique }))]
      yield* beat(session, attempts, { 1: { at: 1 }, 2: { at: 2 } })
      const receipts = yield* completeMany(session, attempts)
      expect(column(receipts, "job_id")).toEqual(attempts.map(({ job_id }) => job_id))
      expect(yield* evidence(session, attempts)).toEqual(attempts.map(() => completed))
      expect(yield* session.rows("select state, progress from awa.jobs order by job_id")).toEqual([
        { state: "completed", progress: { at: 1 } },
        { state: "completed", progress: { at: 2 } },
        { state: "completed", progress: null },
        { state: "completed", progress: null }
      ])
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
      expect(yield* running(session, 1, { opts: unique })).toHaveLength(1)
    })
  )

  it.scopedLive(
    "of overlapping sets in opposite orders wait for each other and never both; the later one is stale",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [first, second, session] = [yield* db.session, yield* db.session, yield* db.session]
        const attempts = yield* running(session, 4)
        yield* begin(first)
        yield* completeMany(first, attempts.slice(0, 3))
        const waiting = yield* Effect.fork(Effect.flip(completeMany(second, attempts.slice(1).reverse())))
        yield* blocked(session, second)
        // neither a settling nor a flush by the runtime waits for them (C-17)
        expect(yield* settle(session, only(attempts.slice(0, 1)), "retried")).toBe("busy")
        yield* first.script("commit")
        expect((yield* waiting).code).toBe("WA001")
        // as the places are in order, so are the locks: with complete_job in that order it makes no circle
        const [one, two] = yield* running(session, 2)
        if (one === undefined || two === undefined) throw new Error("two attempts")
        yield* begin(first)
        yield* complete(first, one)
        const both = yield* Effect.fork(Effect.flip(completeMany(second, [two, one])))
        yield* blocked(session, second)
        yield* complete(first, two)
        yield* first.script("commit")
        expect((yield* both).code).toBe("WA001")
        expect(yield* evidence(session, attempts)).toEqual([completed, completed, completed, open])
      })
  )

  // C-41, C-60
  it.scopedLive("keeps the promises of expect_completion, and is refused where caller-owned completion is off", () =>
    Effect.gen(function* () {
      const db = yield* database
      const session = yield* db.session
      const attempts = yield* running(session, 2)
      yield* begin(session)
      for (const attempt of attempts) yield* expectCompletion(session, attempt)
      yield* completeMany(session, attempts.slice(0, 1))
      yield* fault(session.script("commit"), "WA007")
      // switched off while it waits for somebody who then gives up
      const [holder, waiter] = [yield* db.session, yield* db.session]
      yield* begin(holder)
      yield* complete(holder, only(attempts.slice(1)))
      const waiting = yield* Effect.fork(Effect.flip(completeMany(waiter, attempts)))
      yield* blocked(session, waiter)
      yield* session.value("select awa.disable_caller_owned('q')")
      yield* holder.script("rollback")
      expect((yield* waiting).code).toBe("WA006")
      yield* fault(completeMany(session, attempts), "WA006")
      yield* session.value("select awa.enable_caller_owned('q')")
      yield* begin(session)
      for (const attempt of attempts) yield* expectCompletion(session, attempt)
      yield* completeMany(session, attempts)
      yield* session.script("commit")
      expect(yield* evidence(session, attempts)).toEqual([completed, completed])
    })
  )

  it.scopedLive("outside READ COMMITTED raises 40001 for a claim that its snapshot cannot see, and for an end", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      const seen = yield* running(session, 2)
      yield* begin(caller, "repeatable read")
      yield* caller.rows("select 1 from awa.meta")
      const unseen = yield* running(session, 1)
      yield* fault(completeMany(caller, [...seen, ...unseen]), "40001")
      yield* caller.script("rollback; begin isolation level repeatable read; select 1 from awa.meta")
      expect(yield* close(session, seen.slice(0, 1))).toEqual(["closed"])
      yield* fault(completeMany(caller, seen), "40001")
      yield* caller.script("rollback")
      expect(yield* evidence(session, seen)).toEqual([completed, open])
      yield* complete(session, only(seen.slice(1)))
    })
  )
})
