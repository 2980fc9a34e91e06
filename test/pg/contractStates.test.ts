import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { contract } from "../tools/contract/data.js"
import type { PgFault, Row, Session } from "./database.js"
import {
  ask,
  beatWorker,
  claimed,
  closeAll,
  completeJob,
  completeJobs,
  expectIt,
  insertAlike,
  insertMany,
  insertOne,
  registerKinds,
  settleIt,
  take,
  tokenOf
} from "./contractSupport.js"
import { begin, fault, fileDatabase } from "./support.js"

const database = fileDatabase()

/** `other` is a session whose commits a snapshot of the first may not see. */
type Case = (session: Session, other: Session) => Effect.Effect<unknown, PgFault>

const isolations = ["read committed", "repeatable read", "serializable"]

const job = (part: Row = {}) => ({ kind: "k", queue: "q", args: {}, opts: {}, ...part })

const wrongVersion = (attempt: Row) => ({ claim_slot: Number(attempt["claim_slot"]) ^ (3 << 8) })

const inRepeatableRead =
  (call: (session: Session) => Effect.Effect<unknown, PgFault>): Case =>
  (session) =>
    Effect.zipRight(begin(session, "repeatable read"), call(session))

/** A snapshot from before whatever comes now. */
const look = (session: Session) =>
  Effect.zipRight(begin(session, "repeatable read"), session.rows("select 1 from awa.meta"))

const withAttempt =
  (call: (session: Session, attempt: Row, worker: unknown) => Effect.Effect<unknown, PgFault>): Case =>
  (session) =>
    Effect.flatMap(claimed(session), ({ attempt, worker }) => call(session, attempt, worker))

const kinds = [{ kind: "k", schema: {} }]

const unique = { unique: { key: "held", on_conflict: "error" } }

const enqueues = (name: string, one: (session: Session, opts: unknown) => Effect.Effect<unknown, PgFault>) => ({
  [`${name} 22023`]: (session: Session) => one(session, { priority: 9 }),
  [`${name} WA005`]: (session: Session) => one(session, { prio: 1 }),
  [`${name} 23505`]: (session: Session) => Effect.zipRight(one(session, unique), one(session, unique)),
  [`${name} 40001`]: (session: Session, other: Session) =>
    Effect.all([look(session), one(other, unique), one(session, unique)])
})

const readCommittedOnly = (
  name: string,
  call: (session: Session, attempt: Row, worker: unknown) => Effect.Effect<unknown, PgFault>
) => ({
  [`${name} 25001`]: withAttempt((session, attempt, worker) =>
    Effect.zipRight(begin(session, "repeatable read"), call(session, attempt, worker))
  )
})

const finalizes = (
  name: string,
  call: (session: Session, attempt: Row, token?: Row) => Effect.Effect<unknown, PgFault>
): Readonly<Record<string, Case>> => ({
  [`${name} 40001`]: (session, other) =>
    Effect.gen(function* () {
      yield* look(session)
      const { attempt } = yield* claimed(other)
      yield* call(session, attempt)
    }),
  [`${name} WA001`]: withAttempt((session, attempt) =>
    Effect.zipRight(settleIt(session, attempt, "discarded"), call(session, attempt))
  ),
  [`${name} WA006`]: withAttempt((session, attempt) =>
    Effect.zipRight(session.value("select awa.disable_caller_owned('q')"), call(session, attempt))
  ),
  [`${name} WA002`]: withAttempt((session, attempt) =>
    Effect.gen(function* () {
      const [job, lease, slot, receipt, batch, index] = tokenOf(attempt)
      const fields = [slot, batch, index, job, lease, receipt]
      const id = yield* session.value(
        "select callback_id from awa.register_callback($1, $2, $3, $4, $5, $6, '1 hour')",
        fields
      )
      yield* session.rows("select awa.park_attempt($1, $2, $3, $4, $5, $6, $7, null)", [...fields, id])
      yield* call(session, attempt)
    })
  ),
  [`${name} WA003`]: withAttempt((session, attempt) => call(session, attempt, { job_id: null })),
  [`${name} WA004`]: withAttempt((session, attempt) => call(session, attempt, wrongVersion(attempt)))
})

/** How each function is made to raise each state that it is said to raise. */
const raised: Readonly<Record<string, Case>> = {
  "require_contract WA004": (session) => session.rows("select awa.require_contract(2)"),
  ...enqueues("insert_job", insertOne),
  ...enqueues("insert_jobs", (session, opts) => insertMany(session, [job(), job({ opts })])),
  ...enqueues("insert_batch", (session, opts) => insertAlike(session, opts)),
  "register_kinds 22023": (session) => registerKinds(session, [{ kind: "k" }]),
  "register_kinds WA005": (session) => registerKinds(session, [{ kind: "k", schema: {}, retry: 1 }]),
  "register_kinds 40001": (session, other) =>
    Effect.all([look(session), registerKinds(other, kinds), registerKinds(session, kinds)]),
  "complete_job 22023": withAttempt((session, attempt) =>
    session.rows("select awa.complete_job($1, $2, $3, $4, $5, $6, to_jsonb(repeat('x', 200000)))", [
      ...tokenOf(attempt)
    ])
  ),
  ...finalizes("complete_job", completeJob),
  ...finalizes("complete_jobs", completeJobs),
  "complete_jobs 22023": (session) =>
    session.rows("select * from awa.complete_jobs('{}', '{}', '{}', '{}', '{}', '{}')"),
  "expect_completion 3B001": withAttempt((session, attempt) =>
    Effect.gen(function* () {
      yield* begin(session)
      yield* session.script("savepoint s")
      yield* expectIt(session, attempt)
    })
  ),
  "expect_completion WA003": withAttempt((session, attempt) => expectIt(session, attempt, { batch_index: 0 })),
  "expect_completion WA004": withAttempt((session, attempt) => expectIt(session, attempt, wrongVersion(attempt))),
  "expect_completion WA007, by COMMIT": withAttempt((session, attempt) =>
    Effect.gen(function* () {
      yield* begin(session)
      yield* expectIt(session, attempt)
      yield* session.command("commit")
    })
  ),
  "worker_register 22023": (session) => session.rows("select awa.worker_register('')"),
  "worker_register WA004": (session) => session.rows("select awa.worker_register('w', 2)"),
  "worker_register 25001": inRepeatableRead((session) => session.rows("select awa.worker_register('w')")),
  "worker_register 55000": (session) =>
    Effect.gen(function* () {
      yield* session.rows("select setval('awa.segment_cursor', 0)")
      yield* session.rows("select awa.worker_register('w')")
    }),
  "worker_claim 22023": withAttempt((session, _, worker) =>
    Effect.gen(function* () {
      yield* fault(take(session, null), "22023")
      yield* fault(session.rows("select * from awa.worker_claim(1, null)"), "22023")
      yield* take(session, worker, 0)
    })
  ),
  ...readCommittedOnly("worker_claim", (session, _, worker) => take(session, worker)),
  "worker_beat 22023": withAttempt((session, attempt) => beatWorker(session, 4711, [attempt])),
  "worker_beat WA003": withAttempt((session, _, worker) => beatWorker(session, worker, [{}])),
  ...readCommittedOnly("worker_beat", (session, attempt, worker) => beatWorker(session, worker, [attempt])),
  "worker_evidence 22023": (session) => ask(session, null),
  "worker_evidence WA003": (session) => ask(session, [{}]),
  ...readCommittedOnly("worker_evidence", (session, attempt) => ask(session, [attempt])),
  "worker_settle 22023": withAttempt((session, attempt) => settleIt(session, attempt, "rescued")),
  "worker_settle WA003": (session) => settleIt(session, {}, "failed"),
  "worker_settle WA005": withAttempt((session, attempt) => settleIt(session, attempt, "failed", { delay: 1 })),
  ...readCommittedOnly("worker_settle", (session, attempt) => settleIt(session, attempt, "failed")),
  "worker_close 22023": withAttempt((session, attempt) => closeAll(session, [{ ...attempt, outcome: "failed" }], null)),
  "worker_close WA003": (session) => closeAll(session, [{ outcome: "failed" }]),
  "worker_close WA005": withAttempt((session, attempt) =>
    closeAll(session, [{ ...attempt, outcome: "failed", detail: { delay: 1 } }])
  ),
  ...readCommittedOnly("worker_close", (session, attempt) => closeAll(session, [{ ...attempt, outcome: "failed" }]))
}

// C-14
describe("the SQLSTATEs of schema/contract.json", () => {
  const said = contract.functions.flatMap(({ name, states }) => states.map((state) => `${name} ${state}`))

  it("are those that are raised here", () => {
    expect(Object.keys(raised).sort()).toEqual([...said].sort())
  })

  for (const [name, run] of Object.entries(raised)) {
    it.scopedLive(name, () =>
      Effect.gen(function* () {
        const { session: connect } = yield* database
        const session = yield* connect
        const other = yield* connect
        const state = String(name.split(" ")[1]).slice(0, 5)
        yield* fault(run(session, other), state)
        yield* session.script("rollback")
      })
    )
  }
})

describe("the isolation of schema/contract.json", () => {
  const anywhere: Readonly<Record<string, (session: Session, attempt: Row) => Effect.Effect<unknown, PgFault>>> = {
    require_contract: (session) => session.rows("select awa.require_contract(1)"),
    insert_job: (session) => insertOne(session, {}),
    insert_jobs: (session) => insertMany(session, [job()]),
    insert_batch: (session) => insertAlike(session, {}),
    register_kinds: (session) => registerKinds(session, kinds),
    expect_completion: expectIt,
    complete_jobs: (session, attempt) =>
      Effect.all([session.script("savepoint one"), completeJobs(session, attempt), session.script("rollback to one")]),
    complete_job: completeJob,
    worker_retire: (session) => session.rows("select awa.worker_retire(1)")
  }

  it.scopedLive("`any` is any", () =>
    Effect.gen(function* () {
      const names = contract.functions.filter(({ isolation }) => isolation === "any").map(({ name }) => name)
      expect(names.sort()).toEqual(Object.keys(anywhere).sort())
      const session = yield* (yield* database).session
      for (const isolation of isolations) {
        const { attempt } = yield* claimed(session)
        yield* begin(session, isolation)
        for (const call of Object.values(anywhere)) yield* call(session, attempt)
        expect(yield* session.command("commit")).toBe("COMMIT")
        expect(yield* session.value("select count(*) from awa.deferred_jobs")).toBe(0n)
        expect(yield* ask(session, [attempt])).toMatchObject([{ outcome: "completed" }])
        yield* session.rows("select * from awa.claim('q', 10, 1)")
      }
    })
  )

  it.scopedLive("`READ COMMITTED` is no other, and a claim comes before whatever its transaction writes", () =>
    Effect.gen(function* () {
      const only = contract.functions.filter(({ isolation }) => isolation === "READ COMMITTED")
      expect(only.filter(({ states }) => !states.includes("25001"))).toEqual([])
      const session = yield* (yield* database).session
      yield* begin(session)
      yield* insertOne(session, {})
      yield* fault(take(session, 1), "25001")
    })
  )
})

describe("what schema/contract.json says of waiting", () => {
  it.scopedLive("is so while a finalization is in flight: only what says so waits for it", () =>
    Effect.gen(function* () {
      const { session: connect } = yield* database
      const [session, handler] = [yield* connect, yield* connect]
      const { attempt, worker } = yield* claimed(session)
      yield* insertOne(session, {})
      yield* begin(handler)
      yield* expectIt(handler, attempt)
      yield* completeJob(handler, attempt)
      yield* insertOne(handler, unique)
      yield* registerKinds(handler, kinds)
      yield* session.script("set lock_timeout = 300")
      const waits = {
        complete_job: completeJob(session, attempt),
        worker_close: closeAll(session, [{ ...attempt, outcome: "failed" }]),
        insert_job: insertOne(session, unique),
        insert_jobs: insertMany(session, [job({ opts: unique })]),
        insert_batch: insertAlike(session, unique),
        register_kinds: registerKinds(session, kinds)
      }
      for (const [name, call] of Object.entries(waits)) {
        expect(contract.functions.find((fn) => fn.name === name)?.waits).not.toBe("never")
        yield* fault(call, "55P03")
      }
      yield* session.rows("select awa.require_contract(1), awa.worker_register('another')")
      expect(yield* beatWorker(session, worker, [attempt])).toEqual([])
      expect(yield* ask(session, [attempt])).toMatchObject([{ status: "open" }])
      expect(yield* settleIt(session, attempt, "failed")).toBe("busy")
      expect(yield* take(session, worker)).toHaveLength(1)
      yield* insertOne(session, {})
      yield* session.rows("select awa.worker_retire($1)", [worker])
      yield* session.script("set lock_timeout = 0")
      expect(yield* handler.command("commit")).toBe("COMMIT")
    })
  )
})
