/** The lease as second authority over an attempt: storage.md "Long things leave the ring", contract C-02, C-04, C-13 … C-15, C-23. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  beat,
  begin,
  bigints,
  blocked,
  claim,
  close,
  column,
  complete,
  drain,
  enqueue,
  type EnqueueOptions,
  evidence,
  fault,
  fileDatabase,
  only,
  prune,
  rotate,
  settle
} from "./support.js"

const database = fileDatabase()

const running = (session: Session, n = 1, options: EnqueueOptions = {}) =>
  Effect.flatMap(enqueue(session, n, options), () => claim(session, { limit: n }))

const materialize = (session: Session, keep = "0", limit = 100) =>
  session.value("select awa.materialize_long($1::interval, $2)", [keep, limit])

const rescueLeases = (session: Session, staleness = "1 hour", limit = 100) =>
  session.value("select awa.rescue_leases($1::interval, $2)", [staleness, limit])

const leases = (session: Session) => session.rows("select * from awa.leases order by job_id, run_lease")

const closures = (session: Session) => session.rows("select * from awa.lease_closures order by job_id, run_lease")

/** The segment of what runs is due: what is open in it becomes leases. */
const due = (session: Session, expected: number) =>
  Effect.gen(function* () {
    yield* rotate(session)
    expect(yield* drain(session)).toBe(1)
    expect(yield* materialize(session)).toBe(expected)
  })

/** Some attempts under lease, with their receipt claims in the ring. */
const leased = (session: Session, n = 1, options: EnqueueOptions = {}) =>
  Effect.tap(running(session, n, options), () => due(session, n))

const oneLeased = (session: Session, options: EnqueueOptions = {}) => Effect.map(leased(session, 1, options), only)

/** Where the receipt claim of a lease is: still there, gone, or gone and another one in its segment. */
const places = ["in the ring", "pruned", "pruned, and its segment in use again"]

const go = (session: Session, place: string) =>
  Effect.gen(function* () {
    if (place === "in the ring") return
    const slot = yield* prune(session)
    expect(slot).not.toBeNull()
    if (place === "pruned") return
    for (let n = 0; n < 3; n++) {
      yield* Effect.flatMap(running(session, 1, { queue: "other" }), () => claim(session, { queue: "other" })).pipe(
        Effect.flatMap((attempts) => close(session, attempts))
      )
      yield* rotate(session)
      yield* drain(session)
      yield* prune(session)
    }
    yield* enqueue(session, 1, { queue: "other" })
    const [user] = yield* claim(session, { queue: "other" })
    expect((user?.claim_slot ?? -1) & 255).toBe(slot)
  })

const state = (session: Session, attempt: Attempt) =>
  session.rows("select state, attempt, run_lease, progress, errors from awa.deferred_jobs where job_id = $1", [
    attempt.job_id
  ])

describe("materialization", () => {
  it.scopedLive("comes when the oldest drained segment is due, takes what is open, and carries the body over", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [a, b, c] = yield* running(session, 3, { args: { big: 1 }, opts: { priority: 3, max_attempts: 7 } })
      if (!a || !b || !c) throw new Error("three attempts")
      yield* close(session, [a])
      yield* beat(session, [b], { 1: { step: 1 } })
      yield* rotate(session)
      expect(yield* materialize(session)).toBe(0) // sealed, not drained
      yield* drain(session)
      expect(yield* materialize(session, "1 hour")).toBe(0) // drained, not due
      expect(yield* prune(session)).toBeNull()
      expect(yield* materialize(session)).toBe(2)
      const rows = yield* leases(session)
      expect(column(rows, "job_id")).toEqual([b.job_id, c.job_id])
      for (const [i, attempt] of [b, c].entries()) {
        expect(rows[i]).toMatchObject({
          job_id: attempt.job_id,
          run_lease: attempt.run_lease,
          receipt_id: attempt.receipt_id,
          claim_slot: attempt.claim_slot,
          batch_id: attempt.batch_id,
          batch_index: attempt.batch_index,
          runtime_id: 1n,
          state: "running",
          queue: "q",
          priority: 3,
          attempt: 1,
          max_attempts: 7,
          kind: "k",
          args: { big: 1 },
          progress: i === 0 ? { step: 1 } : null,
          callback_id: null
        })
      }
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
      expect(yield* session.value("select array_agg(outcome::text order by batch_index) from awa.closures")).toEqual([
        "completed",
        "materialized",
        "materialized"
      ])
      expect(yield* materialize(session)).toBe(0)
      expect(yield* prune(session)).not.toBeNull()
    })
  )

  it.scopedLive("takes a limited share at a time, and does nothing while another runtime leads", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = [yield* db.session, yield* db.session]
      yield* running(session, 5)
      yield* rotate(session)
      yield* drain(session)
      yield* begin(other)
      expect(yield* other.value("select awa.lead()")).toBe(true)
      expect(yield* materialize(session)).toBeNull() // somebody else leads
      yield* other.script("commit")
      expect(yield* materialize(session, "0", 2)).toBe(2)
      expect(yield* materialize(session, "0", 2)).toBe(2)
      expect(yield* materialize(session, "0", 2)).toBe(1)
    })
  )

  // design: a row of claim_batches with n = 0 is no attempt, and a claim from the head has a negative priority
  it.scopedLive("knows a batch that claimed nothing, and a claim from a lane's head, for what they are", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [attempt] = yield* running(session, 1, { opts: { priority: 4 } })
      yield* session.script(`
        update awa.ready_entries_0 set priority = -4;
        update awa.claim_batches_0 set priority = -4;
        insert into awa.claim_batches_0 (batch_id, queue, priority, receipt_base, claimed_at, runtime_id, n, cursor_xid, cursor_seq,
          pending_xids, pending_seqs, job_ids, run_leases, xids, seqs)
        select nextval('awa.batch_seq'), queue, priority, receipt_base + 9, claimed_at, runtime_id, 0, cursor_xid, cursor_seq,
          pending_xids, pending_seqs, '{99}', '{1}', xids, seqs from awa.claim_batches_0;`)
      yield* rotate(session)
      yield* session.script("update awa.segments set state = 'drained', drained_at = clock_timestamp() where slot = 0")
      expect(yield* materialize(session)).toBe(1)
      expect(yield* leases(session)).toMatchObject([{ job_id: attempt?.job_id, priority: 4 }])
      expect(yield* session.value("select count(*) from awa.closures")).toBe(1n)
    })
  )

  // storage.md: busy means that a finalization is in flight, whose end decides
  it.scopedLive("does not wait for an open complete_job, and leaves its attempt to it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      const [a, b] = yield* running(session, 2)
      if (!a || !b) throw new Error("two attempts")
      yield* begin(caller)
      yield* complete(caller, a)
      yield* session.script("set lock_timeout = '1ms'")
      yield* due(session, 1)
      expect(column(yield* leases(session), "job_id")).toEqual([b.job_id])
      yield* caller.script("rollback")
      expect(yield* materialize(session)).toBe(1)
      yield* begin(caller)
      yield* complete(caller, a)
      expect(yield* caller.command("commit")).toBe("COMMIT")
      expect(yield* evidence(session, [a, b])).toEqual([
        ["closed", "completed"],
        ["open", null]
      ])
    })
  )

  // one row wedges nothing
  it.scopedLive("leaves behind the one that cannot leave, and moves the others", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempts = yield* running(session, 5)
      yield* session.script(
        `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
         create trigger refuse before insert on awa.closures_0 for each row when (new.batch_index = 3) execute function refuse()`
      )
      yield* Effect.addFinalizer(() =>
        Effect.ignore(session.script("drop trigger refuse on awa.closures_0; drop function refuse()"))
      )
      yield* rotate(session)
      yield* drain(session)
      expect(yield* materialize(session)).toBe(4)
      expect(yield* materialize(session)).toBe(0)
      expect(column(yield* leases(session), "job_id")).toEqual(
        attempts.filter(({ batch_index }) => batch_index !== 3).map(({ job_id }) => job_id)
      )
    })
  )

  // the closure is the guard: whoever inserts it first wins
  it.scopedLive("leaves alone what a flush has just closed", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [flushing, session] = [yield* db.session, yield* db.session]
      const attempts = yield* running(session, 2)
      yield* rotate(session)
      yield* drain(session)
      yield* begin(flushing)
      expect(yield* close(flushing, attempts.slice(0, 1))).toEqual(["closed"])
      const moving = yield* Effect.fork(materialize(session))
      yield* blocked(flushing, session)
      yield* flushing.script("commit")
      expect(yield* Fiber.join(moving)).toBe(1)
      expect(column(yield* leases(session), "job_id")).toEqual([attempts[1]?.job_id])
    })
  )

  it.scopedLive(
    "carries the progress of a beat that is under way, and a beat that comes too late finds the lease",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [beating, session] = [yield* db.session, yield* db.session]
        const [a] = yield* running(session, 1)
        if (!a) throw new Error("one attempt")
        yield* rotate(session)
        yield* drain(session)
        // the beat has written and not committed
        yield* begin(beating)
        expect(yield* beat(beating, [a], { 1: { step: 1 } })).toEqual([])
        const moving = yield* Effect.fork(materialize(session))
        yield* blocked(beating, session)
        yield* beating.script("commit")
        expect(yield* Fiber.join(moving)).toBe(1)
        expect(yield* leases(session)).toMatchObject([{ progress: { step: 1 } }])
        // the beat has looked and not written
        const [b] = yield* running(session, 1)
        if (!b) throw new Error("another one")
        yield* session.script("select awa.prune_segment('0')")
        yield* rotate(session)
        yield* drain(session)
        yield* begin(session)
        expect(yield* materialize(session)).toBe(1)
        const late = yield* Effect.fork(beat(beating, [b], { 1: { step: 2 } }))
        yield* blocked(session, beating)
        yield* session.script("commit")
        expect(yield* Fiber.join(late)).toEqual([])
        expect(yield* leases(session)).toMatchObject([{ progress: { step: 1 } }, { progress: { step: 2 } }])
        expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
      })
  )
})

for (const place of places) {
  describe(`a lease whose receipt claim is ${place}`, () => {
    // C-13, C-15, C-23
    it.scopedLive("is completed by complete_job with the same token, once, and reads back", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const attempt = yield* oneLeased(session, { args: { a: 1 } })
        yield* go(session, place)
        expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
        for (const token of [
          { receipt_id: attempt.receipt_id + 1n },
          { run_lease: 9n },
          { batch_index: attempt.batch_index + 1 }
        ]) {
          yield* fault(complete(session, attempt, { token }), "WA001")
        }
        yield* begin(session)
        const receipt = yield* complete(session, attempt, { progress: { done: true } })
        yield* session.script("commit")
        expect(receipt).toMatchObject({ outcome: "completed", run_lease: 1n, claim_slot: attempt.claim_slot })
        expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
        const [closed] = yield* closures(session)
        expect(closed).toMatchObject({
          job_id: attempt.job_id,
          outcome: "completed",
          closed_at: receipt["finalized_at"],
          xid: receipt["finalized_xid"],
          closer: null,
          attempt: 1,
          args: { a: 1 },
          progress: { done: true }
        })
        expect(yield* leases(session)).toEqual([])
        const error = yield* fault(complete(session, attempt), "WA001")
        expect(error.detail).toContain("completed")
        expect(yield* close(session, [attempt], { outcome: "retried" })).toEqual(["stale"])
        expect(yield* beat(session, [attempt])).toEqual([[1, "completed"]])
      })
    )

    // C-04: closed by this flush earlier is done, anything else is stale
    it.scopedLive("is closed by a flush, whose repetition is known and whose rival is stale", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const [a, b] = yield* leased(session, 2)
        if (!a || !b) throw new Error("two leases")
        yield* go(session, place)
        const [inRing] = yield* running(session, 1)
        if (!inRing) throw new Error("one in the ring")
        const flush = [
          a,
          inRing,
          { ...b, receipt_id: b.receipt_id + 7n },
          { ...b, claim_slot: b.claim_slot ^ (1 << 12) },
          b
        ]
        const options = { closer: 5, outcome: ["completed", "completed", "completed", "completed", "retried"] }
        expect(
          yield* close(session, flush, { ...options, detail: { error: { name: "E" }, delay_ms: 60_000 } })
        ).toEqual(["closed", "closed", "stale", "stale", "closed"])
        expect(yield* close(session, flush, options)).toEqual(["repeated", "repeated", "stale", "stale", "repeated"])
        expect(yield* close(session, [a, b], { closer: 6 })).toEqual(["stale", "stale"])
        expect(yield* state(session, b)).toMatchObject([
          {
            state: "retryable",
            attempt: 1,
            run_lease: 1n,
            errors: [{ attempt: 1, outcome: "retried", error: { name: "E" } }]
          }
        ])
        expect(yield* leases(session)).toEqual([])
        expect(yield* evidence(session, [a, b])).toEqual([
          ["closed", "completed"],
          ["closed", "retried"]
        ])
      })
    )

    // C-02
    it.scopedLive("is beaten for, keeps its progress, and is released with it", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const attempt = yield* oneLeased(session)
        yield* go(session, place)
        yield* session.script("update awa.leases set heartbeat_at = heartbeat_at - interval '2 hours'")
        expect(yield* beat(session, [attempt], { 1: { step: 1 } })).toEqual([])
        expect(yield* beat(session, [attempt])).toEqual([])
        expect(yield* beat(session, [{ ...attempt, receipt_id: 1n }], { 1: "forged" })).toEqual([[1, null]])
        expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
        expect(yield* rescueLeases(session)).toBe(0)
        expect(yield* settle(session, attempt, "released")).toBe("closed")
        const again = only(yield* claim(session))
        expect(again).toMatchObject({ job_id: attempt.job_id, run_lease: 2n, attempt: 1, progress: { step: 1 } })
      })
    )
  })
}

describe("a lease", () => {
  it.scopedLive("is rescued when nobody beats for it or it passed its deadline; the crash counts", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [a, b, c, d] = yield* leased(session, 4, { opts: { max_attempts: 2 } })
      if (!a || !b || !c || !d) throw new Error("four leases")
      yield* session.script(`
        update awa.leases set heartbeat_at = heartbeat_at - interval '2 hours' where job_id in (${a.job_id}, ${d.job_id});
        update awa.leases set deadline_at = clock_timestamp() where job_id = ${b.job_id};
        update awa.leases set attempt = 2 where job_id = ${d.job_id};`)
      expect(yield* rescueLeases(session, "1 hour", 1)).toBe(1)
      expect(yield* rescueLeases(session)).toBe(2)
      expect(yield* rescueLeases(session)).toBe(0)
      expect(yield* evidence(session, [a, b, c, d])).toEqual([
        ["closed", "rescued"],
        ["closed", "rescued"],
        ["open", null],
        ["closed", "rescued"]
      ])
      const again = yield* claim(session)
      expect(again.map((attempt) => [attempt.job_id, attempt.run_lease, attempt.attempt])).toEqual([
        [a.job_id, 2n, 2],
        [b.job_id, 2n, 2]
      ])
      expect(
        yield* session.rows("select state, errors -> 0 -> 'error' ->> 'name' as error from awa.terminal_jobs")
      ).toEqual([{ state: "failed", error: "AttemptAbandoned" }])
      // what its handler says afterwards is stale, and complete_job tells why
      expect(yield* close(session, [a])).toEqual(["stale"])
      expect((yield* fault(complete(session, b), "WA001")).detail).toContain("rescued")
      expect(yield* beat(session, [a])).toEqual([[1, "rescued"]])
    })
  )

  it.scopedLive("is not rescued while a finalization of it is in flight; nor while somebody renews it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session, other] = [yield* db.session, yield* db.session, yield* db.session]
      const [a, b] = yield* leased(session, 2)
      if (!a || !b) throw new Error("two leases")
      yield* session.script("update awa.leases set heartbeat_at = heartbeat_at - interval '2 hours'")
      yield* begin(caller)
      yield* complete(caller, a)
      yield* begin(other)
      yield* beat(other, [b])
      yield* session.script("set lock_timeout = '1ms'")
      expect(yield* rescueLeases(session)).toBe(0)
      expect(yield* beat(session, [a, b])).toEqual([
        [1, "busy"],
        [2, "busy"]
      ])
      expect(yield* settle(session, a, "retried")).toBe("busy")
      yield* other.script("commit")
      yield* caller.script("commit")
      expect(yield* rescueLeases(session)).toBe(0)
      expect(yield* evidence(session, [a, b])).toEqual([
        ["closed", "completed"],
        ["open", null]
      ])
    })
  )

  it.scopedLive("of which a caller completes one does not keep a flush from closing the others", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      const [a, b] = yield* leased(session, 2)
      if (!a || !b) throw new Error("two leases")
      yield* begin(caller)
      yield* complete(caller, a)
      yield* session.script("set lock_timeout = '50ms'")
      yield* fault(close(session, [a, b]), "55P03")
      expect(yield* close(session, [b])).toEqual(["closed"])
      yield* caller.script("rollback")
      expect(yield* close(session, [a])).toEqual(["closed"])
    })
  )

  // C-14: a lease change that the caller's snapshot cannot see is 40001
  for (const isolation of ["repeatable read", "serializable"]) {
    it.scopedLive(
      `that a ${isolation} snapshot cannot see, or not as it is, is 40001; otherwise it completes there`,
      () =>
        Effect.gen(function* () {
          const db = yield* database
          const [caller, session] = [yield* db.session, yield* db.session]
          const [a, b] = yield* running(session, 2)
          if (!a || !b) throw new Error("two attempts")
          const look = Effect.zipRight(begin(caller, isolation), caller.script("select count(*) from awa.segments"))
          yield* look
          yield* due(session, 2)
          yield* fault(complete(caller, a), "40001")
          yield* caller.script("rollback")
          yield* look
          expect(yield* prune(session)).not.toBeNull()
          yield* complete(caller, a)
          expect(yield* caller.command("commit")).toBe("COMMIT")
          yield* look
          expect(yield* beat(session, [b])).toEqual([])
          yield* fault(complete(caller, b), "40001")
          yield* caller.script("rollback")
          yield* look
          expect(yield* close(session, [b])).toEqual(["closed"])
          yield* fault(complete(caller, b), "40001")
          yield* caller.script("rollback")
          expect(yield* evidence(session, [a, b])).toEqual([
            ["closed", "completed"],
            ["closed", "completed"]
          ])
        })
    )
  }
})

// C-13: released in the same commit that ends the job
describe("the unique key of a job that completes", () => {
  const key = (byte: string) => `'\\x${"0".repeat(63)}${byte}'::bytea`

  /** Four jobs with keys: held until the job ends, or also after it completed. */
  const holders = (session: Session) =>
    Effect.gen(function* () {
      const ids = yield* enqueue(session, 4)
      for (const [i, id] of ids.entries()) {
        const states = i < 2 ? 1 : 2
        yield* session.script(`
          insert into awa.unique_claims values (${key(String(i))}, ${id}, ${states}, clock_timestamp() + interval '1 hour');
          update awa.ready_entries_0 set unique_key = '\\x0${states}'::bytea || ${key(String(i))} where job_id = ${id};`)
      }
      const attempts = yield* claim(session)
      yield* session.script(`
        update awa.claim_batches_0 b set unique_keys = (
          select array_agg(r.unique_key order by t.idx)
          from unnest(b.job_ids) with ordinality t(job_id, idx) join awa.ready_entries_0 r on r.job_id = t.job_id)`)
      return attempts
    })

  const held = (session: Session) =>
    Effect.map(session.rows("select job_id from awa.unique_claims order by job_id"), (rows) => column(rows, "job_id"))

  for (const where of ["in the ring", "under lease"]) {
    for (const how of ["a flush", "complete_job"]) {
      it.scopedLive(`${where} by ${how} is released, unless it is held for longer`, () =>
        Effect.gen(function* () {
          const session = yield* (yield* database).session
          const attempts = yield* holders(session)
          if (where === "under lease") yield* due(session, 4)
          const [a, b, c, d] = attempts
          if (!a || !b || !c || !d) throw new Error("four attempts")
          if (how === "a flush") {
            expect(yield* close(session, [a, c])).toEqual(["closed", "closed"])
          } else {
            yield* begin(session)
            yield* complete(session, a)
            yield* complete(session, c)
            yield* session.script("rollback")
            expect(yield* held(session)).toEqual(attempts.map(({ job_id }) => job_id))
            yield* complete(session, a)
            yield* complete(session, c)
          }
          expect(yield* held(session)).toEqual([b.job_id, c.job_id, d.job_id])
          // a job that goes on keeps its key
          expect(yield* close(session, [b], { outcome: "retried", detail: { delay_ms: 60_000 } })).toEqual(["closed"])
          expect(yield* held(session)).toEqual([b.job_id, c.job_id, d.job_id])
        })
      )
    }
  }
})

// C-02, C-04: one winner, whoever comes, and whichever authority it meets
it.scopedLive(
  "of a flush, a caller, rescue, a callback and materialization at the same time exactly one ends each attempt",
  () =>
    Effect.gen(function* () {
      const db = yield* database
      const owner = yield* db.session
      const n = 240
      const attempts = yield* running(owner, n, { opts: { max_attempts: 1 } })
      yield* rotate(owner)
      yield* drain(owner)
      const won = new Map<bigint, Array<string>>()
      const win = (id: bigint, how: string) => won.set(id, [...(won.get(id) ?? []), how])
      const shuffled = (seed: number) =>
        attempts
          .map((attempt, i) => [(Math.imul(i + 1, seed) >>> 0) % 9973, attempt] as const)
          .sort(([a], [b]) => a - b)
          .map(([, attempt]) => attempt)
      const flushing = Effect.gen(function* () {
        const session = yield* db.session
        yield* session.script("set lock_timeout = '50ms'")
        const all = shuffled(7919)
        for (let i = 0; i < n; i += 6) {
          const part = all.slice(i, i + 6)
          const answers = yield* Effect.either(
            close(session, part, { closer: i + 1, outcome: "discarded", hasState: true })
          )
          if (Either.isRight(answers)) part.forEach((a, k) => answers.right[k] === "closed" && win(a.job_id, "flush"))
        }
      })
      const completing = Effect.gen(function* () {
        const session = yield* db.session
        for (const attempt of shuffled(104729)) {
          yield* begin(session)
          const done = yield* Effect.either(complete(session, attempt))
          yield* session.script(Either.isRight(done) ? "commit" : "rollback")
          if (Either.isRight(done)) win(attempt.job_id, "caller")
          else expect(["WA001", "WA002"]).toContain(done.left.code)
        }
      })
      const calling = Effect.gen(function* () {
        const session = yield* db.session
        for (const attempt of shuffled(1299709).slice(0, n / 2)) {
          const [row] = yield* session.rows("select * from awa.register_callback($1, $2, $3, $4, $5, $6, '1 hour')", [
            attempt.claim_slot,
            attempt.batch_id,
            attempt.batch_index,
            attempt.job_id,
            attempt.run_lease,
            attempt.receipt_id
          ])
          if (row?.["answer"] !== "registered") continue
          const answer = yield* session.value("select awa.complete_callback($1)", [row["callback_id"]])
          if (answer === "completed") win(attempt.job_id, "callback")
        }
      })
      const beating = Effect.gen(function* () {
        const session = yield* db.session
        for (let i = 0; i < 30; i++) yield* beat(session, shuffled(i + 3).slice(0, 40), { 1: { i } })
      })
      const maintaining = Effect.gen(function* () {
        const session = yield* db.session
        for (let i = 0; i < 60; i++) yield* materialize(session, "0", 5)
      })
      yield* Effect.all([flushing, completing, calling, beating, maintaining], { concurrency: "unbounded" })
      yield* materialize(owner, "0", n)
      yield* rescueLeases(owner, "0")
      expect([...won.values()].filter((all) => all.length !== 1)).toEqual([])
      const ends = yield* owner.rows(`
        select job_id, array_agg(outcome::text) as outcomes from awa.attempts e
        group by job_id order by job_id`)
      expect(ends.map((row) => row["job_id"])).toEqual(attempts.map(({ job_id }) => job_id))
      for (const { job_id, outcomes } of ends) {
        const [how = "rescue"] = won.get(bigints([job_id])[0] ?? 0n) ?? []
        expect([job_id, outcomes]).toEqual([job_id, [{ flush: "discarded", rescue: "rescued" }[how] ?? "completed"]])
      }
      const left = yield* owner.value("select count(*) from awa.leases")
      expect(left).toBe(0n)
      expect(new Set([...won.values()].flat()).size).toBe(3)
    }),
  60_000
)
