import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  begin,
  blocked,
  claim,
  claimIds,
  close,
  column,
  complete,
  currentSlot,
  drain,
  enqueue,
  fault,
  fileDatabase,
  only,
  prune,
  recycle,
  rotate,
  states
} from "./support.js"

const database = fileDatabase({ ring: 4 })

/** Work that leaves nothing behind: enqueued, claimed, closed. */
const work = (session: Session) =>
  Effect.gen(function* () {
    yield* enqueue(session, 1)
    yield* close(session, yield* claim(session))
  })

describe("a sealed segment", () => {
  it.scopedLive("is not drained while a writer is in flight, prepared or open", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [open, prepared, session] = [yield* db.session, yield* db.session, yield* db.session]
      yield* begin(open)
      const [one] = yield* enqueue(open, 1)
      yield* begin(prepared)
      const [two] = yield* enqueue(prepared, 1, { opts: { notify: false } })
      yield* prepared.script(`prepare transaction '${db.name}'`)
      yield* rotate(session)
      expect(yield* drain(session)).toBe(0)
      yield* open.script("commit")
      expect(yield* claimIds(session)).toEqual([one])
      expect(yield* drain(session)).toBe(0)
      yield* session.script(`commit prepared '${db.name}'`)
      expect(yield* drain(session)).toBe(0) // its entry is not claimed
      expect(yield* claimIds(session)).toEqual([two])
      expect(yield* drain(session)).toBe(1)
    })
  )

  it.scopedLive(
    "is not drained while an entry is unclaimed, ahead of a cursor, behind it, or in a lane without one",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [late, session] = [yield* db.session, yield* db.session]
        yield* begin(late)
        const behind = yield* enqueue(late, 2)
        const ahead = yield* enqueue(session, 2)
        const lane = yield* enqueue(session, 1, { queue: "z", opts: { priority: 4 } })
        expect(yield* claimIds(session, { limit: 1 })).toEqual(ahead.slice(0, 1))
        yield* late.script("commit")
        yield* rotate(session)
        expect(yield* drain(session)).toBe(0)
        expect(yield* claimIds(session, { limit: 1 })).toEqual(behind.slice(0, 1))
        expect(yield* drain(session)).toBe(0)
        expect(yield* claimIds(session, { limit: 2 })).toEqual([behind[1], ahead[1]])
        expect(yield* drain(session)).toBe(0)
        expect(yield* claimIds(session, { queue: "z" })).toEqual(lane)
        expect(yield* drain(session)).toBe(1)
      })
  )

  it.scopedLive("whose last entries are only behind the cursor is not drained", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [late, session] = [yield* db.session, yield* db.session]
      yield* begin(late)
      const behind = yield* enqueue(late, 1)
      yield* enqueue(session, 1)
      yield* claim(session)
      yield* late.script("commit")
      yield* rotate(session)
      expect(yield* drain(session)).toBe(0)
      expect(yield* claimIds(session)).toEqual(behind)
      expect(yield* drain(session)).toBe(1)
    })
  )

  it.scopedLive("is not drained by a claim that is rolled back", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [claimer, session] = [yield* db.session, yield* db.session]
      yield* enqueue(session, 1)
      yield* rotate(session)
      yield* begin(claimer)
      yield* claim(claimer)
      expect(yield* drain(session)).toBe(0)
      yield* claimer.script("rollback")
      expect(yield* drain(session)).toBe(0)
      expect(yield* claimIds(session)).toHaveLength(1)
    })
  )

  // storage.md: claimers skip drained segments; they look into others only for the lanes that are there
  it.scopedLive(
    "tells which lanes it has when no writer can reach it any more, and only until it is opened again",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [late, session] = [yield* db.session, yield* db.session]
        const lanes = session.value("select (select lanes from awa.segment_lanes where slot = 0) as lanes")
        const waiting = [...(yield* enqueue(session, 2)), ...(yield* enqueue(session, 1, { opts: { priority: 1 } }))]
        const other = yield* enqueue(session, 1, { queue: "z", opts: { priority: 4 } })
        yield* begin(late)
        const behind = yield* enqueue(late, 1, { queue: "late" })
        yield* rotate(session)
        expect(yield* drain(session)).toBe(0)
        expect(yield* lanes).toBeNull()
        yield* late.script("commit")
        expect(yield* drain(session)).toBe(0)
        expect(yield* lanes).toEqual({ q: 3, z: 8, late: 2 })
        // what is written there decides where a claim looks, for each of its lanes
        yield* session.script(`update awa.segment_lanes set lanes = '{"q": 1}' where slot = 0`)
        const first = yield* claim(session)
        expect(first.map((attempt) => attempt.job_id)).toEqual([waiting[2]])
        yield* close(session, first)
        expect(yield* claimIds(session, { queue: "z" })).toEqual([])
        yield* session.script(`update awa.segment_lanes set lanes = '{"q": 3, "z": 8, "late": 2}' where slot = 0`)
        for (const queue of ["q", "z", "late"]) yield* close(session, yield* claim(session, { queue }))
        expect(
          yield* session.value("select array_agg(job_id order by job_id) from awa.jobs where state = 'completed'")
        ).toEqual([...waiting, ...other, ...behind].sort((a, b) => Number(a - b)))
        expect(yield* drain(session)).toBe(1)
        expect(yield* prune(session)).toBe(0)
        for (let turn = 0; turn < 3; turn++) yield* rotate(session)
        expect(yield* currentSlot(session)).toBe(0)
        const again = yield* enqueue(session, 1, { queue: "new" })
        expect(yield* claimIds(session, { queue: "new" })).toEqual(again)
      })
  )

  it.scopedLive("of more lanes than a claim would want to read about is looked into for each", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (let queue = 0; queue < 200; queue++) yield* enqueue(session, 1, { queue: `q${queue}` })
      yield* rotate(session)
      expect(yield* drain(session)).toBe(0)
      expect(yield* session.value("select (select lanes from awa.segment_lanes where slot = 0) as lanes")).toBeNull()
      expect(yield* claimIds(session, { queue: "q199" })).toHaveLength(1)
    })
  )

  // storage.md: enqueue reads the current segment, takes a shared lock on it and re-reads
  it.scopedLive("that was drained while an enqueue waited for its lock does not get the entry", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [writer, drainer, session] = [yield* db.session, yield* db.session, yield* db.session]
      yield* work(session)
      yield* begin(drainer)
      yield* drainer.script("select pg_advisory_xact_lock(hashtextextended('effect-awa/awa/segment/0', 0))")
      const writing = yield* Effect.fork(enqueue(writer, 1))
      yield* blocked(session, writer)
      yield* rotate(session)
      expect(yield* drain(drainer)).toBe(1)
      yield* drainer.script("commit")
      const ids = yield* writing
      expect(yield* session.value("select count(*) from awa.ready_entries_1")).toBe(1n)
      expect(yield* claimIds(session)).toEqual(ids)
    })
  )
})

describe("prune", () => {
  it.scopedLive("waits for every closure, and for the history to have lived its time", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 2)
      const attempts = yield* claim(session)
      yield* close(session, attempts.slice(0, 1))
      yield* rotate(session)
      expect(yield* prune(session)).toBeNull() // not drained
      expect(yield* drain(session)).toBe(1)
      expect(yield* prune(session)).toBeNull() // one is open
      yield* close(session, attempts.slice(1))
      expect(yield* prune(session, "1 hour")).toBeNull()
      yield* session.script("update awa.segments set drained_at = drained_at - interval '1 hour'")
      expect(yield* prune(session, "1 hour")).toBeNull() // drained long ago, closed just now
      yield* session.script("update awa.closures_0 set closed_at = closed_at - interval '1 hour'")
      expect(yield* prune(session, "1 hour")).toBe(0)
      expect(yield* states(session)).toBe("free open free free")
      for (const table of ["ready_entries", "claim_batches", "closures"]) {
        expect(yield* session.value(`select count(*) from awa.${table}_0`)).toBe(0n)
      }
    })
  )

  it.scopedLive("keeps a segment with an open attempt that has state; what is left of a closed one goes with it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 1)
      const attempts = yield* claim(session)
      yield* session.rows("select * from awa.heartbeat($1, $2, $3, $4, $5, $6, '{}')", [
        attempts.map((a) => a.claim_slot),
        attempts.map((a) => a.batch_id),
        attempts.map((a) => a.batch_index),
        attempts.map((a) => a.job_id),
        attempts.map((a) => a.run_lease),
        attempts.map((a) => a.receipt_id)
      ])
      yield* rotate(session)
      yield* drain(session)
      expect(yield* prune(session)).toBeNull()
      yield* close(session, attempts) // without hasState: the row stays behind
      expect(yield* prune(session)).toBe(0)
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
    })
  )

  it.scopedLive("gives up quickly when anything holds a lock, and does its work afterwards", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [reader, session] = [yield* db.session, yield* db.session]
      for (const table of ["ready_entries_0", "claim_batches_0", "closures_0"]) {
        yield* session.value("select reset.everything()")
        yield* work(session)
        yield* rotate(session)
        yield* drain(session)
        yield* begin(reader, "repeatable read")
        yield* reader.script(`select count(*) from awa.${table}`)
        yield* session.script("set lock_timeout = '8s'")
        const started = performance.now()
        yield* fault(prune(session), "55P03")
        expect(performance.now() - started).toBeLessThan(5000)
        expect(yield* session.value("select current_setting('lock_timeout')")).toBe("8s")
        yield* reader.script("commit")
        expect(yield* prune(session)).toBe(0)
      }
    })
  )

  it.scopedLive("takes the oldest drained segment, and only that", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (let n = 0; n < 2; n++) {
        yield* work(session)
        yield* rotate(session)
      }
      expect(yield* drain(session)).toBe(2)
      expect([yield* prune(session), yield* prune(session), yield* prune(session)]).toEqual([0, 1, null])
      // Round the ring: the oldest is the one with the lowest generation, not the lowest slot.
      for (let n = 0; n < 3; n++) {
        yield* work(session)
        yield* rotate(session)
      }
      expect(yield* states(session)).toBe("sealed open sealed sealed")
      expect(yield* drain(session)).toBe(3)
      expect([yield* prune(session), yield* prune(session), yield* prune(session)]).toEqual([2, 3, 0])
    })
  )

  // storage.md, "Locks and plans": TRUNCATE of an unrelated segment must not meet the callers' locks
  it.scopedLive("does not meet the locks of a caller whose claim is in another segment", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      yield* work(session)
      yield* rotate(session)
      yield* drain(session)
      yield* enqueue(session, 1)
      const attempt = only(yield* claim(session))
      yield* begin(caller)
      yield* enqueue(caller, 1)
      yield* complete(caller, attempt)
      const locked = yield* session.rows(
        `select distinct c.relname from pg_locks l join pg_class c on c.oid = l.relation
         where l.pid = $1 and c.relkind = 'r' and c.relname ~ '_[0-9]+$' order by 1`,
        [caller.pid]
      )
      expect(column(locked, "relname")).toEqual(["claim_batches_1", "closures_1", "ready_entries_1"])
      expect(yield* prune(session)).toBe(0)
      yield* caller.script("commit")
    })
  )
})

// storage.md: once a segment was pruned and reused the key alone is free again, and a stale flush was accepted
it.scopedLive("a flush that comes after its segment was pruned and reused is stale", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    yield* enqueue(session, 1)
    const gone = yield* claim(session)
    expect(yield* close(session, gone, { closer: 7 })).toEqual(["closed"])
    for (let n = 0; n < 4; n++) {
      yield* recycle(session)
      yield* enqueue(session, 1)
      const now = yield* claim(session)
      expect(yield* close(session, gone, { closer: 7 })).toEqual(["stale"])
      expect(yield* close(session, gone, { closer: 8, outcome: "retried" })).toEqual(["stale"])
      expect(yield* close(session, now)).toEqual(["closed"])
    }
    expect(yield* currentSlot(session)).toBe(0)
    expect(yield* session.value("select count(*) from awa.closures where batch_id = $1", [gone[0]?.batch_id])).toBe(0n)
    expect(yield* session.value("select count(*) from awa.deferred_jobs")).toBe(0n)
  })
)
