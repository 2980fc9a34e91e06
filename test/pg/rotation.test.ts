import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  beat,
  begin,
  claim,
  claimIds,
  close,
  currentSlot,
  drain,
  enqueue,
  fileDatabase,
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

describe("a transaction opened before a rotation, a drain and a prune", () => {
  // storage.md: callers enqueue in any isolation level … otherwise a job landed in a drained segment and was never claimed
  for (const isolation of ["read committed", "repeatable read", "serializable"]) {
    it.scopedLive(`enqueues into the current segment after them, in ${isolation}`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [old, session] = [yield* db.session, yield* db.session]
        yield* begin(old, isolation)
        yield* old.script("select pg_current_xact_id(), count(*) from awa.segments") // its snapshot, its low id
        yield* work(session)
        yield* recycle(session)
        expect(yield* states(session)).toBe("free open free free")
        const late = yield* enqueue(old, 2)
        expect(yield* claimIds(session)).toEqual([])
        yield* work(session) // the cursor passes the old transaction's id
        yield* old.script("commit")
        expect(yield* claimIds(session)).toEqual(late)
      })
    )
  }

  it.scopedLive("and that enqueued before them, too, has both claimed, in order", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [old, session] = [yield* db.session, yield* db.session]
      yield* begin(old, "repeatable read")
      const before = yield* enqueue(old, 1)
      yield* work(session)
      yield* rotate(session)
      expect(yield* drain(session)).toBe(0) // a writer is in flight there
      const after = yield* enqueue(old, 1)
      yield* old.script("commit")
      expect(yield* claimIds(session)).toEqual([...before, ...after])
    })
  )
})

describe("rotation", () => {
  it.scopedLive("can stop between its two steps, for ever or until somebody continues", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const first = yield* enqueue(session, 1)
      expect(yield* session.value("select awa.rotate('0', 1)")).toBe("opened")
      expect([yield* currentSlot(session), yield* states(session)]).toEqual([0, "open open free free"])
      const second = yield* enqueue(session, 1) // still into the old segment
      expect(yield* claimIds(session)).toEqual([...first, ...second])
      expect(yield* session.value("select awa.rotate('1 hour', 1000000)")).toBe("advanced") // whatever the limits now say
      expect([yield* currentSlot(session), yield* states(session)]).toEqual([1, "sealed open free free"])
      const third = yield* enqueue(session, 1)
      expect(yield* claimIds(session)).toEqual(third)
    })
  )

  it.scopedLive("is repaired when the second step moved the cursor and did not commit", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const first = yield* enqueue(session, 1)
      yield* session.value("select awa.rotate('0', 1)")
      yield* begin(session)
      expect(yield* session.value("select awa.rotate('0', 1)")).toBe("advanced")
      yield* session.script("rollback")
      expect([yield* currentSlot(session), yield* states(session)]).toEqual([1, "open open free free"])
      const second = yield* enqueue(session, 1)
      expect(yield* claimIds(session)).toEqual([...first, ...second])
      expect(yield* session.value("select awa.rotate('1 hour', 1000000)")).toBe("idle")
      expect(yield* states(session)).toBe("sealed open free free")
    })
  )

  // storage.md: by setval, never nextval (it logs 32 ahead: after a crash a wrong segment was current)
  it.scopedLive("leaves nothing logged ahead in the cursor's sequence", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* rotate(session)
      yield* rotate(session)
      expect(yield* session.value("select log_cnt from awa.segment_cursor")).toBe(0n)
      expect(
        yield* session.value("select seqcache from pg_sequence where seqrelid = 'awa.segment_cursor'::regclass")
      ).toBe(1n)
    })
  )

  it.scopedLive("goes by age and by size, and an idle system rotates nothing", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const step = (age: string, entries: number) => session.value("select awa.rotate($1, $2)", [age, entries])
      expect(yield* step("0", 1)).toBe("idle") // nothing was ever enqueued
      yield* enqueue(session, 40)
      expect(yield* step("1 hour", 1000)).toBe("idle")
      expect(yield* step("1 hour", 40)).toBe("opened")
      expect(yield* step("0", 1)).toBe("advanced")
      expect(yield* step("0", 1)).toBe("idle")
      yield* enqueue(session, 40)
      expect(yield* step("1 hour", 1000)).toBe("idle")
      expect(yield* step("0", 1000)).toBe("opened")
    })
  )

  // storage.md, "No free segment": the current segment grows, no enqueue fails or waits, recovery is automatic
  it.scopedLive("finds the ring full behind a transaction that stays open, and goes on when it ends", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [stays, session] = [yield* db.session, yield* db.session]
      yield* begin(stays)
      const held = yield* enqueue(stays, 1)
      for (let n = 0; n < 3; n++) {
        yield* work(session)
        yield* rotate(session)
      }
      yield* session.script("select nextval('awa.entry_seq') from generate_series(1, 64)")
      expect(yield* drain(session)).toBe(2) // those behind it
      expect(yield* states(session)).toBe("sealed drained drained open")
      expect(yield* prune(session)).toBe(1)
      expect(yield* prune(session)).toBe(2)
      // The oldest still holds its slot; the ring goes round it.
      yield* work(session)
      yield* rotate(session)
      yield* work(session)
      yield* rotate(session)
      yield* enqueue(stays, 1) // and holds this one as well
      yield* session.script("set lock_timeout = '50ms'")
      const grown = yield* enqueue(session, 3)
      yield* session.script("select nextval('awa.entry_seq') from generate_series(1, 64)")
      expect(yield* session.value("select awa.rotate('0', 1)")).toBe("full")
      const more = yield* enqueue(session, 1)
      expect(yield* claimIds(session)).toEqual([...grown, ...more])
      yield* stays.script("commit")
      expect((yield* claimIds(session)).slice(0, 1)).toEqual(held)
      expect(yield* drain(session)).toBe(3)
      expect(yield* session.value("select awa.rotate('0', 1)")).toBe("full") // nothing is closed yet, nothing pruned
    })
  )

  it.scopedLive("reclaims a segment in which a beat came after the close", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, beating] = [yield* db.session, yield* db.session]
      yield* enqueue(session, 1)
      const attempts = yield* claim(session)
      // The beat has looked and found the attempt open; what it writes commits behind a close that saw no such row.
      yield* begin(beating)
      yield* beat(beating, attempts)
      expect(yield* close(session, attempts)).toEqual(["closed"])
      yield* beating.script("commit")
      yield* rotate(session)
      expect(yield* drain(session)).toBe(1)
      expect(yield* prune(session)).toBe(0)
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
    })
  )
})

describe("the leader", () => {
  it.scopedLive("is one transaction at a time, for every step", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [leader, other] = [yield* db.session, yield* db.session]
      yield* begin(leader)
      expect(yield* leader.value("select awa.rotate('1 hour', 100)")).toBe("idle")
      for (const step of [
        "(awa.promote_due(10)).promoted",
        "awa.rescue_stale('1 min', 10)",
        "awa.rotate('0', 1)",
        "awa.drain_segments()",
        "awa.prune_segment('0')",
        "awa.sweep('1 day')"
      ]) {
        expect([step, yield* other.value(`select ${step}`)]).toEqual([step, null])
      }
      yield* leader.script("commit")
      expect(yield* other.value("select awa.drain_segments()")).toBe(0)
    })
  )
})
