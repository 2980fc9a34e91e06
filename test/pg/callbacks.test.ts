/** Callbacks: storage.md "Long things leave the ring"; contract C-02, C-14. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { notifyChannel } from "../../src/internal/renderSql.js"
import type { Session } from "./database.js"
import {
  type Attempt,
  attemptsOf,
  beat,
  begin,
  claim,
  close,
  complete,
  enqueue,
  type EnqueueOptions,
  evidence,
  explainBuffers,
  fault,
  fileDatabase,
  only,
  recycle,
  rotate,
  settle
} from "./support.js"

const database = fileDatabase()

const oneRunning = (session: Session, options: EnqueueOptions = {}) =>
  Effect.flatMap(enqueue(session, 1, options), () => Effect.map(claim(session), only))

const token = (attempt: Attempt) => [
  attempt.claim_slot,
  attempt.batch_id,
  attempt.batch_index,
  attempt.job_id,
  attempt.run_lease,
  attempt.receipt_id
]

const register = (session: Session, attempt: Attempt, timeout = "1 hour") =>
  Effect.map(
    session.rows("select * from awa.register_callback($1, $2, $3, $4, $5, $6, $7::interval)", [
      ...token(attempt),
      timeout
    ]),
    only
  )

const isString = Schema.is(Schema.String)

/** A running attempt with a callback, and the callback's id. */
const withCallback = (session: Session, options: EnqueueOptions = {}) =>
  Effect.gen(function* () {
    const attempt = yield* oneRunning(session, options)
    const { answer, callback_id } = yield* register(session, attempt)
    expect(answer).toBe("registered")
    if (!isString(callback_id)) throw new Error("no id")
    return { attempt, id: callback_id }
  })

const wait = (session: Session, attempt: Attempt, id: string) =>
  Effect.map(
    session.rows("select answer, result, error from awa.wait_callback($1, $2, $3, $4, $5, $6, $7)", [
      ...token(attempt),
      id
    ]),
    ([row]) => [row?.["answer"], row?.["result"] ?? row?.["error"] ?? null]
  )

const stopWaiting = (session: Session, attempt: Attempt, id: string) =>
  session.value("select awa.stop_waiting($1, $2, $3, $4, $5, $6, $7)", [...token(attempt), id])

const park = (session: Session, attempt: Attempt, id: string, progress: unknown = null) =>
  session.value("select awa.park_attempt($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb)", [
    ...token(attempt),
    id,
    progress === null ? null : JSON.stringify(progress)
  ])

const resume = (session: Session, id: string, result: unknown = { ok: 1 }) =>
  session.value("select awa.resume_callback($1, $2::text::jsonb)", [id, JSON.stringify(result)])
const completeBy = (session: Session, id: string) =>
  session.value(`select awa.complete_callback($1, '{"by": 1}')`, [id])
const failBy = (session: Session, id: string, error = "declined") =>
  session.value("select awa.fail_callback($1, $2)", [id, error])
const extend = (session: Session, id: string) => session.value("select awa.heartbeat_callback($1)", [id])

const state = (session: Session) => session.value("select state from awa.leases")

const timeOut = (session: Session) =>
  session.script("update awa.leases set callback_deadline = clock_timestamp() - interval '1 ms'")

const rescue = (session: Session, staleness = "1 hour") =>
  session.value("select awa.rescue_leases($1::interval, 100)", [staleness])

/** Due at once, whatever the pause was. */
const promoteAll = (session: Session) =>
  session.script(
    "update awa.deferred_jobs set run_at = clock_timestamp(); select awa.promote_jobs(array(select job_id from awa.deferred_jobs))"
  )

const unknownId = "00000000-0000-4000-8000-000000000000"

/** Every verb, for those that have to be told that they come too late. */
const verbs = [resume, completeBy, failBy, extend]

describe("a registered callback", () => {
  it.scopedLive("makes a lease of its attempt, whose token stays good for all", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* beat(session, [attempt], { 1: { step: 1 } })
      const { callback_id, deadline } = yield* register(session, attempt, "2 hours")
      expect(
        yield* session.rows("select state, progress, callback_id, callback_deadline, callback_timeout from awa.leases")
      ).toEqual([
        {
          state: "running",
          progress: { step: 1 },
          callback_id,
          callback_deadline: deadline,
          callback_timeout: "02:00:00"
        }
      ])
      yield* recycle(session)
      expect(yield* beat(session, [attempt])).toEqual([])
      expect(yield* complete(session, attempt)).toMatchObject({ outcome: "completed" })
    })
  )

  it.scopedLive("is refused to what is not a running attempt, and to a timeout that is none", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      const attempt = yield* oneRunning(session)
      for (const timeout of ["0", "-1 s", "101 years"]) yield* fault(register(session, attempt, timeout), "22023")
      for (const forged of [
        { receipt_id: attempt.receipt_id + 1n },
        { run_lease: 2n },
        { claim_slot: attempt.claim_slot ^ (1 << 12) },
        { claim_slot: attempt.claim_slot | 255 }
      ]) {
        expect(yield* register(session, { ...attempt, ...forged })).toMatchObject({
          answer: "stale",
          callback_id: null
        })
      }
      expect(yield* session.value("select count(*) from awa.leases")).toBe(0n)
      yield* begin(caller)
      yield* complete(caller, attempt)
      expect(yield* register(session, attempt)).toMatchObject({ answer: "busy", callback_id: null })
      yield* caller.script("commit")
      expect(yield* register(session, attempt)).toMatchObject({ answer: "stale", callback_id: null })
      expect(yield* session.value("select count(*) from awa.leases")).toBe(0n)
      yield* fault(Effect.zipRight(begin(session, "repeatable read"), register(session, attempt)), "25001")
    })
  )

  it.scopedLive("is replaced by the next one", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      const { callback_id } = yield* register(session, attempt)
      expect(callback_id).not.toBe(id)
      expect(yield* resume(session, id)).toBe("unknown")
      expect(yield* wait(session, attempt, id)).toEqual(["replaced", null])
      expect(yield* park(session, attempt, id)).toBe("replaced")
      expect(yield* wait(session, attempt, String(callback_id))).toEqual(["waiting", null])
    })
  )
})

describe("a sequential wait", () => {
  // C-14: the attempt waits for the outside, and cannot be completed now; after the answer the same token completes it
  it.scopedLive("holds completion off until it is answered; then the same token completes the job", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      expect(yield* wait(session, attempt, id)).toEqual(["waiting", null])
      expect(yield* state(session)).toBe("waiting")
      yield* fault(complete(session, attempt), "WA002")
      expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
      expect(yield* beat(session, [attempt])).toEqual([])
      expect(yield* resume(session, id, { amount: 3 })).toBe("resumed")
      yield* fault(complete(session, attempt), "WA002") // not before the handler has it
      expect(yield* wait(session, attempt, id)).toEqual(["answered", { amount: 3 }])
      expect(yield* state(session)).toBe("running")
      expect(yield* wait(session, attempt, id)).toEqual(["answered", { amount: 3 }]) // its answer may have been lost
      yield* begin(session)
      expect(yield* complete(session, attempt)).toMatchObject({ outcome: "completed", run_lease: 1n })
      yield* session.script("commit")
      expect(yield* Effect.forEach(verbs, (verb) => verb(session, id))).toEqual(verbs.map(() => "already"))
    })
  )

  it.scopedLive("tells the runtime by a payload that no queue's name can be", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [listening, session] = [yield* db.session, yield* db.session]
      const { attempt, id } = yield* withCallback(session)
      yield* wait(session, attempt, id)
      yield* listening.script(`listen ${notifyChannel("awa")}`)
      yield* resume(session, id)
      yield* listening.script("select 1")
      expect(yield* listening.notifications).toEqual([`\u0001callback/${id}`])
    })
  )

  it.scopedLive("keeps an answer that came before it, also a failed one, and is over with the first answer", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      expect(yield* resume(session, id)).toBe("resumed")
      expect(yield* failBy(session, id)).toBe("already")
      expect(yield* wait(session, attempt, id)).toEqual(["answered", { ok: 1 }])
      const next = String((yield* register(session, attempt))["callback_id"])
      expect(yield* failBy(session, next, "x".repeat(5000))).toBe("failed")
      expect(yield* resume(session, next)).toBe("already")
      expect(yield* wait(session, attempt, next)).toEqual([
        "failed",
        { name: "CallbackFailed", message: "x".repeat(2000) }
      ])
      expect(yield* state(session)).toBe("running")
    })
  )

  it.scopedLive("times out, by itself: the attempt is running again, and an answer comes too late", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      yield* wait(session, attempt, id)
      yield* timeOut(session)
      expect(yield* rescue(session)).toBe(0) // its handler is alive, and sees it
      expect(yield* wait(session, attempt, id)).toEqual(["timed_out", null])
      expect(yield* state(session)).toBe("running")
      expect(yield* Effect.forEach(verbs, (verb) => verb(session, id))).toEqual(verbs.map(() => "unknown"))
      expect(yield* close(session, [attempt])).toEqual(["closed"])
    })
  )

  it.scopedLive("is rescued when its handler does not see the timeout, or is gone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const [change, error] of [
        ["callback_deadline = clock_timestamp() - interval '2 hours'", "CallbackTimeout"],
        ["heartbeat_at = clock_timestamp() - interval '2 hours'", "AttemptAbandoned"]
      ]) {
        const { attempt, id } = yield* withCallback(session, { opts: { max_attempts: 1 } })
        yield* wait(session, attempt, id)
        yield* session.script(`update awa.leases set ${change}`)
        expect(yield* rescue(session)).toBe(1)
        expect(
          yield* session.value("select errors -> 0 -> 'error' ->> 'name' from awa.terminal_jobs where job_id = $1", [
            attempt.job_id
          ])
        ).toBe(error)
        expect(yield* wait(session, attempt, id)).toEqual(["stale", null])
        expect(yield* resume(session, id)).toBe("unknown")
      }
    })
  )

  it.scopedLive("can be given up and taken up again", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      yield* wait(session, attempt, id)
      expect(yield* stopWaiting(session, attempt, id)).toBe("held")
      expect(yield* state(session)).toBe("running")
      expect(yield* resume(session, id)).toBe("resumed")
      expect(yield* wait(session, attempt, id)).toEqual(["answered", { ok: 1 }])
    })
  )

  it.scopedLive(
    "ends with its handler: what a worker reports of it is accepted, and an answer goes on with the job",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const { attempt, id } = yield* withCallback(session)
        yield* wait(session, attempt, id)
        yield* resume(session, id, [7])
        expect(yield* close(session, [attempt], { outcome: "released" })).toEqual(["closed"])
        const again = yield* session.rows("select run_lease, attempt, callback_result from awa.claim('q', 10, 1)")
        expect(again).toEqual([{ run_lease: 2n, attempt: 1, callback_result: [7] }])
      })
  )
})

describe("a parked attempt", () => {
  it.scopedLive("has no handler any more: its token is stale, its completion WA002, and it is not beaten for", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      expect(yield* park(session, attempt, id, { step: 2 })).toBe("parked")
      expect(yield* park(session, attempt, id)).toBe("parked") // its answer may have been lost
      expect(yield* evidence(session, [attempt])).toEqual([["parked", null]])
      yield* fault(complete(session, attempt), "WA002")
      expect(yield* close(session, [attempt])).toEqual(["stale"])
      expect(yield* settle(session, attempt, "retried")).toBe("stale")
      expect(yield* wait(session, attempt, id)).toEqual(["stale", null])
      expect(yield* register(session, attempt)).toMatchObject({ answer: "stale", callback_id: null })
      expect(yield* beat(session, [attempt])).toEqual([[1, "parked"]])
      yield* session.script(
        "update awa.leases set heartbeat_at = '2000-01-01', deadline_at = '2000-01-01', claimed_at = '2000-01-01'"
      )
      expect(yield* rescue(session)).toBe(0) // only its callback counts
      expect(yield* session.rows("select state, progress from awa.leases")).toEqual([
        { state: "parked", progress: { step: 2 } }
      ])
    })
  )

  it.scopedLive("goes on with the result at once, its attempt refunded; a later answer is told so", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session, { opts: { max_attempts: 1 } })
      yield* park(session, attempt, id, { step: 2 })
      yield* recycle(session)
      expect(yield* resume(session, id, { amount: 3 })).toBe("resumed")
      expect(yield* resume(session, id, { amount: 4 })).toBe("already")
      const again = yield* session.rows(
        "select run_lease, attempt, progress, callback_result from awa.claim('q', 10, 1)"
      )
      expect(again).toEqual([{ run_lease: 2n, attempt: 1, progress: { step: 2 }, callback_result: { amount: 3 } }])
      expect(yield* park(session, attempt, id)).toBe("stale")
    })
  )

  // the answer is given once: whoever gave it will not give it again
  it.scopedLive("keeps its answer until the job has ended, however the attempts end that saw it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const again = Effect.gen(function* () {
        yield* promoteAll(session)
        return only(yield* session.rows("select *, callback_result::text as result from awa.claim('q', 10, 1)"))
      })
      const next = Effect.map(again, (row) => ({ attempt: only(attemptsOf([row])), result: row["result"] }))
      for (const [answer, stored] of [
        [{ amount: 3 }, '{"amount": 3}'],
        [null, "null"]
      ] as const) {
        const { attempt, id } = yield* withCallback(session)
        yield* park(session, attempt, id)
        yield* resume(session, id, answer)
        let seen = yield* next
        for (const outcome of ["released", "retried", "snoozed"]) {
          expect([outcome, seen.result]).toEqual([outcome, stored])
          expect(yield* close(session, [seen.attempt], { outcome })).toEqual(["closed"])
          seen = yield* next
        }
        yield* session.script("update awa.claim_batches_0 set claimed_at = '2000-01-01'")
        expect(yield* session.value("select awa.rescue_stale('1 minute', 10)")).toBe(1)
        seen = yield* next
        expect(seen.result).toBe(stored)
        // as an attempt that outlived its segment
        expect(
          yield* session.value("select awa.materialize_attempts_0($1, array[$2::bigint], array[$3::int])", [
            seen.attempt.claim_slot,
            seen.attempt.batch_id,
            seen.attempt.batch_index
          ])
        ).toBe(1)
        expect(yield* close(session, [seen.attempt], { outcome: "retried" })).toEqual(["closed"])
        seen = yield* next
        expect(seen.result).toBe(stored)
        // given another callback that nobody answers, the next attempt finds what this one found
        yield* register(session, seen.attempt)
        expect(yield* close(session, [seen.attempt], { outcome: "released" })).toEqual(["closed"])
        seen = yield* next
        expect(seen.result).toBe(stored)
        yield* close(session, [seen.attempt])
      }
      expect(
        yield* session.value(
          "select count(*) from awa.lease_closures where callback_result is not null and callback_id is null"
        )
      ).toBe(0n)
    })
  )

  it.scopedLive("is completed from outside: that is the end of the job, and whatever its handler does is stale", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const when of ["running", "waiting", "parked"]) {
        const { attempt, id } = yield* withCallback(session)
        if (when === "waiting") yield* wait(session, attempt, id)
        if (when === "parked") yield* park(session, attempt, id)
        expect(yield* state(session)).toBe(when)
        expect(yield* completeBy(session, id)).toBe("completed")
        expect(yield* Effect.forEach(verbs, (verb) => verb(session, id))).toEqual(verbs.map(() => "already"))
        expect(yield* wait(session, attempt, id)).toEqual(["stale", null])
        expect(yield* close(session, [attempt])).toEqual(["stale"])
        yield* fault(complete(session, attempt), "WA001")
        expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
        expect(
          yield* session.rows("select outcome, callback_result from awa.lease_closures where job_id = $1", [
            attempt.job_id
          ])
        ).toEqual([{ outcome: "completed", callback_result: { by: 1 } }])
      }
    })
  )

  it.scopedLive("fails with its callback: the attempt counts, and the last one ends the job", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session, { opts: { max_attempts: 2 } })
      yield* park(session, attempt, id)
      expect(yield* failBy(session, id)).toBe("failed")
      expect(yield* failBy(session, id)).toBe("already")
      yield* promoteAll(session)
      const second = only(yield* claim(session))
      expect(second).toMatchObject({ job_id: attempt.job_id, run_lease: 2n, attempt: 2 })
      const { callback_id } = yield* register(session, second)
      yield* park(session, second, String(callback_id))
      expect(yield* failBy(session, String(callback_id), "for good")).toBe("failed")
      expect(
        yield* session.rows(
          "select state, errors -> 0 -> 'error' as first, errors -> 1 -> 'error' as last from awa.terminal_jobs"
        )
      ).toEqual([
        {
          state: "failed",
          first: { name: "CallbackFailed", message: "declined" },
          last: { name: "CallbackFailed", message: "for good" }
        }
      ])
    })
  )

  it.scopedLive("is rescued when the callback does not come in time; a heartbeat gives it that time anew", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      yield* park(session, attempt, id)
      yield* timeOut(session)
      expect(yield* extend(session, id)).toBe("extended")
      expect(yield* rescue(session)).toBe(0)
      expect(
        yield* session.value("select callback_deadline > clock_timestamp() + interval '59 min' from awa.leases")
      ).toBe(true)
      yield* timeOut(session)
      expect(yield* rescue(session)).toBe(1)
      expect(yield* evidence(session, [attempt])).toEqual([["closed", "rescued"]])
      expect(yield* Effect.forEach(verbs, (verb) => verb(session, id))).toEqual(verbs.map(() => "unknown"))
      expect(only(yield* claim(session))).toMatchObject({ job_id: attempt.job_id, run_lease: 2n, attempt: 2 })
      expect(
        yield* session.value("select errors -> 0 -> 'error' ->> 'name' from awa.ready_entries where run_lease = 1")
      ).toBe("CallbackTimeout")
    })
  )

  it.scopedLive("goes on at once when the answer was there before it was parked", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const early = yield* withCallback(session)
      yield* resume(session, early.id)
      expect(yield* park(session, early.attempt, early.id)).toBe("released")
      const again = only(yield* session.rows("select * from awa.claim('q', 10, 1)"))
      expect(again).toMatchObject({ job_id: early.attempt.job_id, attempt: 1, callback_result: { ok: 1 } })
      const failed = yield* withCallback(session)
      yield* failBy(session, failed.id)
      expect(yield* park(session, failed.attempt, failed.id)).toBe("retried")
      expect(yield* evidence(session, [early.attempt, failed.attempt])).toEqual([
        ["closed", "released"],
        ["closed", "retried"]
      ])
    })
  )

  it.scopedLive("cannot be what never registered a callback", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      expect(yield* park(session, attempt, unknownId)).toBe("replaced")
      yield* close(session, [attempt])
      expect(yield* park(session, attempt, unknownId)).toBe("stale")
    })
  )
})

describe("an answer", () => {
  it.scopedLive("of an unknown callback, or too large, changes nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { id } = yield* withCallback(session)
      expect(yield* Effect.forEach(verbs, (verb) => verb(session, unknownId))).toEqual(verbs.map(() => "unknown"))
      yield* fault(resume(session, id, "x".repeat(140_000)), "22023")
      expect(yield* resume(session, id, "x".repeat(60_000))).toBe("resumed")
    })
  )

  it.scopedLive("is part of the application's transaction, and busy while another one completes the attempt", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [app, session] = [yield* db.session, yield* db.session]
      const { attempt, id } = yield* withCallback(session)
      yield* begin(app)
      yield* complete(app, attempt)
      expect(yield* Effect.forEach(verbs, (verb) => verb(session, id))).toEqual(verbs.map(() => "busy"))
      expect(yield* wait(session, attempt, id)).toEqual(["busy", null])
      expect(yield* park(session, attempt, id)).toBe("busy")
      yield* app.script("rollback")
      expect(yield* park(session, attempt, id)).toBe("parked")
      for (const isolation of ["read committed", "serializable"]) {
        yield* begin(app, isolation)
        expect(yield* resume(app, id)).toBe("resumed")
        yield* app.script("rollback")
      }
      expect(yield* state(session)).toBe("parked")
      yield* begin(app, "repeatable read")
      expect(yield* resume(app, id)).toBe("resumed")
      expect(yield* resume(session, id)).toBe("busy")
      yield* app.script("commit")
      expect(yield* resume(session, id)).toBe("already")
      expect(yield* claim(session)).toHaveLength(1)
    })
  )

  // as for complete_job: what the snapshot cannot see is not unknown
  it.scopedLive("in a snapshot that is older than the callback is 40001", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [app, session] = [yield* db.session, yield* db.session]
      yield* begin(app, "repeatable read")
      yield* app.script("select count(*) from awa.segments")
      const { id } = yield* withCallback(session)
      yield* fault(resume(app, id), "40001")
      yield* app.script("rollback")
      expect(yield* resume(app, id)).toBe("resumed")
    })
  )

  it.scopedLive("needs EXECUTE on its function and nothing else", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, id } = yield* withCallback(session)
      yield* park(session, attempt, id)
      yield* session.script(`
        do $do$ begin create role awa_webhook nologin; exception when duplicate_object then null; end $do$;
        grant usage on schema awa to awa_webhook;
        grant execute on function awa.resume_callback(uuid, jsonb) to awa_webhook;
        revoke execute on all functions in schema awa from public;
        set role awa_webhook`)
      yield* fault(session.value("select count(*) from awa.leases"), "42501")
      yield* fault(failBy(session, id), "42501")
      expect(yield* resume(session, id)).toBe("resumed")
      yield* session.script("reset role; drop owned by awa_webhook")
    })
  )
})

describe("a callback registered in a later segment", () => {
  it.scopedLive("of an attempt that was materialized already replaces nothing but the callback", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* rotate(session)
      yield* session.value("select awa.drain_segments()")
      expect(yield* session.value("select awa.materialize_long('0', 10)")).toBe(1)
      yield* session.value("select awa.prune_segment('0')")
      const { answer, callback_id } = yield* register(session, attempt)
      expect(answer).toBe("registered")
      expect(yield* park(session, attempt, String(callback_id))).toBe("parked")
      expect(yield* resume(session, String(callback_id))).toBe("resumed")
    })
  )
})

// storage.md: plans decide, and must not depend on statistics
describe("with many parked attempts", () => {
  it.scopedLive("each call touches the rows in question, by plans that were made when there were none", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("analyze awa.leases; analyze awa.lease_closures")
      const calls = (attempt: Attempt, id: string): ReadonlyArray<readonly [string, string]> => {
        const literal = token(attempt).map(String)
        const one = literal.join(", ")
        const many = literal.map((value) => `array[${value}]`).join(", ")
        return [
          ["wait", `select awa.wait_callback(${one}, '${id}')`],
          ["stop", `select awa.stop_waiting(${one}, '${id}')`],
          ["beat", `select awa.heartbeat(${many}, '{}')`],
          ["evidence", `select awa.attempt_evidence(${many})`],
          ["due", "select awa.next_callback_due()"],
          ["rescue", "select awa.rescue_leases('1 hour', 100)"],
          ["heartbeat", `select awa.heartbeat_callback('${id}')`],
          ["unknown", `select awa.heartbeat_callback('${unknownId}')`],
          ["resume", `select awa.resume_callback('${id}')`],
          ["close", `select awa.close_attempts(1, ${many}, array['completed']::awa.outcome[], '{}', false)`]
        ]
      }
      const once = Effect.gen(function* () {
        const { attempt, id } = yield* withCallback(session)
        const blocks: Array<readonly [string, number]> = []
        for (const [name, sql] of calls(attempt, id)) blocks.push([name, yield* explainBuffers(session, sql)])
        return blocks
      })
      yield* once
      yield* session.script(`
        insert into awa.leases (job_id, run_lease, receipt_id, claim_slot, batch_id, batch_index, runtime_id, state, queue, priority,
          attempt, max_attempts, created_at, claimed_at, heartbeat_at, kind, args, callback_id, callback_timeout, callback_deadline)
        select 1000000 + n, 1, n, 0, 1000000 + n, 1, 1, 'parked', 'q', 2, 1, 25, clock_timestamp(), clock_timestamp(),
          clock_timestamp(), 'k', '{}', gen_random_uuid(), '1 day', clock_timestamp() + interval '1 day'
        from generate_series(1, 30000) n`)
      const size = yield* session.value("select pg_relation_size('awa.leases') / 8192 > 800")
      expect(size).toBe(true)
      expect((yield* once).filter(([, blocks]) => blocks > 300)).toEqual([])
    })
  )
})
