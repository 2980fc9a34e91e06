import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  beat,
  begin,
  claim,
  claimIds,
  close,
  column,
  complete,
  enqueue,
  evidence,
  fault,
  fileDatabase,
  only
} from "./support.js"

const database = fileDatabase({ then: "create table public.ledger (job_id bigint);" })

const running = (session: Session, n = 1) => Effect.flatMap(enqueue(session, n), () => claim(session, { limit: n }))

const oneRunning = (session: Session) => Effect.map(running(session), only)

/** The business write that must share the completion's fate. */
const book = (session: Session, attempt: Attempt) =>
  session.rows("insert into public.ledger values ($1)", [attempt.job_id])

const booked = (session: Session) =>
  Effect.map(session.rows("delete from public.ledger returning job_id"), (rows) => column(rows, "job_id"))

const isolations = ["read committed", "repeatable read", "serializable"]

describe("complete_job", () => {
  // C-12, C-13, C-15, C-16
  it.scopedLive("commits with the caller's transaction, or not at all, in every isolation level", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const isolation of isolations) {
        const attempt = yield* oneRunning(session)
        yield* begin(session, isolation)
        yield* book(session, attempt)
        yield* complete(session, attempt)
        yield* session.script("rollback")
        expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
        expect(yield* booked(session)).toEqual([])

        yield* begin(session, isolation)
        yield* book(session, attempt)
        const receipt = yield* complete(session, attempt)
        expect(yield* session.command("commit")).toBe("COMMIT")
        const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = attempt
        expect(receipt).toMatchObject({
          contract_version: 1,
          job_id,
          run_lease,
          claim_slot,
          receipt_id,
          batch_id,
          batch_index
        })
        expect(receipt["outcome"]).toBe("completed")
        expect(
          yield* session.rows("select closed_at::text, xid, closer from awa.closures where batch_id = $1", [batch_id])
        ).toEqual([{ closed_at: receipt["finalized_at"], xid: receipt["finalized_xid"], closer: null }])
        expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
        expect(yield* booked(session)).toEqual([job_id])
        expect(yield* claimIds(session)).toEqual([])
      }
    })
  )

  // C-12, C-14, C-31: a transaction that outlasts a beat is not failed by it
  it.scopedLive("commits although its attempt was beaten for meanwhile, in every isolation level", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      for (const isolation of isolations) {
        const attempt = yield* oneRunning(session)
        yield* beat(session, [attempt], { 1: { step: 1 } })
        yield* begin(caller, isolation)
        yield* book(caller, attempt)
        yield* beat(session, [attempt])
        yield* complete(caller, attempt)
        expect(yield* caller.command("commit")).toBe("COMMIT")
        expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
        expect(yield* booked(session)).toEqual([attempt.job_id])
        expect(
          yield* session.rows("select progress from awa.closures where batch_id = $1", [attempt.batch_id])
        ).toEqual([{ progress: { step: 1 } }])
        yield* session.script("select awa.sweep('1 day')")
        expect(yield* session.rows("select job_id from awa.attempt_state")).toEqual([])
      }
    })
  )

  // C-14; F-2, F-16
  it.scopedLive("after another outcome is WA001 with that outcome and its time, and the caller's writes are gone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const outcome of ["completed", "retried", "failed", "snoozed"]) {
        const attempt = yield* oneRunning(session)
        yield* close(session, [attempt], { outcome, detail: { delay_ms: 60_000 } })
        yield* begin(session)
        yield* book(session, attempt)
        const stale = yield* fault(complete(session, attempt), "WA001")
        const closedAt = yield* Effect.flatMap(session.script("rollback"), () =>
          session.value("select to_json(closed_at) from awa.closures where batch_id = $1", [attempt.batch_id])
        )
        expect(JSON.parse(stale.detail ?? "")).toEqual({ outcome, closed_at: closedAt })
        expect(yield* booked(session)).toEqual([])
      }
    })
  )

  // F-2, F-3: rescued, and claimed again by somebody else
  it.scopedLive("by an attempt that was rescued is WA001, also while the next attempt runs, which is not touched", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const old = yield* oneRunning(session)
      yield* session.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '1 hour'")
      expect(yield* session.value("select awa.rescue_stale('1 min', 10)")).toBe(1)
      const now = only(yield* claim(session))
      const stale = yield* fault(complete(session, old), "WA001")
      expect(JSON.parse(stale.detail ?? "")).toMatchObject({ outcome: "rescued" })
      yield* fault(complete(session, old, { token: { run_lease: now.run_lease } }), "WA001") // the lease alone is no key
      expect(yield* evidence(session, [now])).toEqual([["open", null]])
      yield* complete(session, now)
      expect(yield* evidence(session, [now])).toEqual([["closed", "completed"]])
    })
  )

  it.scopedLive("twice is WA001 the second time, in one transaction and in two", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* begin(session)
      yield* complete(session, attempt)
      yield* session.script("savepoint a")
      const own = yield* fault(complete(session, attempt), "WA001")
      expect(JSON.parse(own.detail ?? "")).toMatchObject({ outcome: "completed" })
      yield* session.script("rollback to a; commit")
      yield* fault(complete(session, attempt), "WA001")
      expect(yield* session.value("select count(*) from awa.closures")).toBe(1n)
    })
  )

  // C-41: awa.finalized survives the definer function and is undone by a savepoint rollback
  it.scopedLive("notes itself for the commit guard, and the note goes with a savepoint", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 2)
      const [one, two] = attempts
      if (one === undefined || two === undefined) throw new Error("two attempts")
      const note = session.value("select current_setting('awa.finalized', true)")
      yield* begin(session)
      yield* complete(session, one)
      const first = `[awa/${one.receipt_id}]`
      expect(yield* note).toBe(first)
      yield* session.script("savepoint a")
      yield* complete(session, two)
      expect(yield* note).toBe(`${first}[awa/${two.receipt_id}]`)
      yield* session.script("rollback to a")
      expect(yield* note).toBe(first)
      yield* session.script("commit")
      expect(yield* note).toBe("")
      expect(yield* evidence(session, attempts)).toEqual([
        ["closed", "completed"],
        ["open", null]
      ])
      yield* begin(session)
      yield* complete(session, two) // its lock and its key went with the savepoint
      expect(yield* note).toBe(`[awa/${two.receipt_id}]`)
      yield* session.script("commit")
    })
  )

  // C-11, C-14, C-15
  it.scopedLive("refuses a token that was forged, with the state that says how", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [attempt, other] = yield* running(session, 2)
      if (attempt === undefined || other === undefined) throw new Error("two attempts")
      const { claim_slot, receipt_id } = attempt
      const big = 2n ** 63n - 1n
      const cases: ReadonlyArray<readonly [string, Readonly<Record<string, unknown>>]> = [
        ["WA001", { receipt_id: receipt_id + 1n }],
        ["WA001", { receipt_id: other.receipt_id }],
        ["WA001", { receipt_id: big }],
        ["WA001", { run_lease: 2n }],
        ["WA001", { run_lease: big }],
        ["WA001", { job_id: other.job_id }],
        ["WA001", { job_id: big }],
        ["WA001", { batch_index: other.batch_index }],
        ["WA001", { batch_index: 3 }],
        ["WA001", { batch_index: 2_147_483_647 }],
        ["WA001", { claim_slot: claim_slot + 1 }],
        ["WA003", { batch_id: attempt.batch_id + 1n }], // never drawn
        ["WA003", { batch_id: big }],
        ["WA003", { claim_slot: claim_slot ^ (1 << 12) }],
        ["WA003", { claim_slot: (claim_slot & ~255) | 4 }], // the ring has four segments
        ["WA003", { claim_slot: claim_slot | 255 }],
        ["WA004", { claim_slot: claim_slot ^ (3 << 8) }],
        ["WA004", { claim_slot: claim_slot & ~(15 << 8) }],
        ...["job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index"].flatMap((field) =>
          [null, -1, -2_147_483_648].map((value) => ["WA003", { [field]: value }] as const)
        ),
        ...["job_id", "run_lease", "receipt_id", "batch_id", "batch_index"].map(
          (field) => ["WA003", { [field]: 0 }] as const
        )
      ]
      // without the proof of whose database this is, where all is looked at in full, and with it
      for (const proof of ["proven_start", "awa.prove_identity()"]) {
        yield* session.script(`update awa.meta set proven_start = null; select ${proof} from awa.meta`)
        const answers = yield* Effect.forEach(cases, ([, token]) =>
          Effect.map(Effect.flip(complete(session, attempt, { token })), (error) => [error.code, token])
        )
        expect(answers).toEqual(cases)
      }
      expect(yield* session.value("select count(*) from awa.closures")).toBe(0n)
      yield* complete(session, attempt)
    })
  )

  it.scopedLive("knows require_contract's versions", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.rows("select awa.require_contract(1)")
      for (const version of [0, 2, null])
        yield* fault(session.rows("select awa.require_contract($1)", [version]), "WA004")
    })
  )

  // C-15: null keeps the last flushed value
  it.scopedLive("flushes its progress, or keeps the last, and removes the attempt's state", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 3)
      yield* beat(session, attempts, { 1: { step: 1 }, 2: { step: 2 } })
      yield* Effect.forEach(attempts, (attempt, i) =>
        complete(session, attempt, { progress: i === 0 ? null : { final: i } })
      )
      expect(column(yield* session.rows("select progress from awa.attempts order by batch_index"), "progress")).toEqual(
        [{ step: 1 }, { final: 1 }, { final: 2 }]
      )
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
    })
  )

  it.scopedLive("bounds the progress", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* fault(complete(session, attempt, { progress: "x".repeat(200_000) }), "22023")
      yield* complete(session, attempt, { progress: "x".repeat(60_000) })
    })
  )
})
