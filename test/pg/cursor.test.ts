import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  begin,
  besideOlder,
  blocked,
  claim,
  claimIds,
  column,
  enqueue,
  explainBuffers,
  fileDatabase
} from "./support.js"

const alone = fileDatabase()

const xid = (session: Session) => session.value("select pg_current_xact_id()")

// A claim of several lanes draws its id in the first of them: in the snapshots of the others it is in no list, and when
// their cursor passes it, what the transaction enqueues afterwards lies behind.
it.scopedLive("a claim over several lanes that then enqueues loses nothing", () =>
  Effect.gen(function* () {
    const db = yield* alone
    const [claimer, other, observer] = [yield* db.session, yield* db.session, yield* db.session]
    // Stops the claim between its first lane and its second.
    yield* observer.script(
      `create function pause_after_lane_1() returns trigger language plpgsql as $$ begin
         perform pg_advisory_xact_lock(4711); return null; end $$;
       create trigger pause after insert on awa.claim_batches_0 for each row when (new.priority = 1)
         execute function pause_after_lane_1()`
    )
    yield* Effect.addFinalizer(() =>
      Effect.ignore(
        observer.script("rollback; drop trigger pause on awa.claim_batches_0; drop function pause_after_lane_1()")
      )
    )
    yield* enqueue(other, 1, { opts: { priority: 1 } })
    yield* enqueue(other, 1, { opts: { priority: 2 } }) // a lane that was found empty is not looked at again
    yield* begin(observer)
    yield* observer.script("select pg_advisory_xact_lock(4711)")
    yield* begin(claimer)
    const claiming = yield* Effect.fork(claim(claimer))
    yield* blocked(other, claimer)
    const ahead = yield* enqueue(other, 1, { opts: { priority: 2 } })
    yield* observer.script("commit")
    const attempts = yield* claiming
    expect(attempts.map((attempt) => attempt.job_id)).toContain(ahead[0])
    const behind = yield* enqueue(claimer, 2, { opts: { priority: 2 } })
    yield* claimer.script("commit")
    expect(yield* claimIds(other)).toEqual(behind)
  })
)

for (const [ring, database] of [
  ["one segment", alone],
  ["beside an older segment", besideOlder(alone)]
] as const) {
  describe(ring, () => {
    // storage.md: a transaction that commits late has entries behind the cursor
    describe("a late committer", () => {
      it.scopedLive("behind the cursor is read once it has ended, and only once", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [late, early, claimer] = [yield* db.session, yield* db.session, yield* db.session]
          yield* begin(late)
          const behind = yield* enqueue(late, 2)
          const ahead = yield* enqueue(early, 1)
          expect(yield* claimIds(claimer)).toEqual(ahead)
          expect(yield* claimIds(claimer)).toEqual([])
          yield* late.script("commit")
          expect(yield* claimIds(claimer)).toEqual(behind)
          expect(yield* claimIds(claimer)).toEqual([])
        })
      )

      it.scopedLive("is remembered over claims by others, also when it only had its id before the cursor passed", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [late, early, one, other] = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
          yield* begin(late)
          yield* xid(late)
          for (const claimer of [one, other, one]) {
            const ahead = yield* enqueue(early, 1)
            expect(yield* claimIds(claimer)).toEqual(ahead)
          }
          const behind = yield* enqueue(late, 2)
          expect(yield* claimIds(other)).toEqual([])
          yield* late.script("commit")
          expect(yield* claimIds(one)).toEqual(behind)
        })
      )

      it.scopedLive("is one of several: each is read when it ends, an aborted one leaves nothing", () =>
        Effect.gen(function* () {
          const db = yield* database
          const late = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
          const claimer = yield* db.session
          const behind: Array<ReadonlyArray<bigint>> = []
          for (const session of late) {
            yield* begin(session)
            behind.push(yield* enqueue(session, 2))
          }
          const ahead = yield* enqueue(claimer, 1)
          expect(yield* claimIds(claimer)).toEqual(ahead)
          yield* late[2]?.script("commit") ?? Effect.void
          expect(yield* claimIds(claimer, { limit: 2 })).toEqual(behind[2]) // full before it comes to the cursor
          yield* late[1]?.script("rollback") ?? Effect.void
          expect(yield* claimIds(claimer)).toEqual([])
          yield* late[3]?.script("commit") ?? Effect.void
          yield* late[0]?.script("commit") ?? Effect.void
          expect(yield* claimIds(claimer)).toEqual([...(behind[0] ?? []), ...(behind[3] ?? [])])
          expect(yield* claimIds(claimer)).toEqual([])
        })
      )

      it.scopedLive("that was read in part is continued where the claim stopped", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [late, claimer, other] = [yield* db.session, yield* db.session, yield* db.session]
          yield* begin(late)
          const behind = yield* enqueue(late, 8)
          yield* enqueue(claimer, 1)
          yield* claim(claimer)
          yield* late.script("commit")
          const ahead = yield* enqueue(other, 2)
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual(behind.slice(0, 3))
          expect(yield* claimIds(other, { limit: 3 })).toEqual(behind.slice(3, 6))
          // the rest of it, then on from the cursor
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual([...behind.slice(6), ...ahead.slice(0, 1)])
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual(ahead.slice(1))
        })
      )

      it.scopedLive("in part read to exactly its end is not read again", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [late, claimer] = [yield* db.session, yield* db.session]
          yield* begin(late)
          const behind = yield* enqueue(late, 3)
          yield* enqueue(claimer, 1)
          yield* claim(claimer)
          yield* late.script("commit")
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual(behind)
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual([])
          const ahead = yield* enqueue(claimer, 4)
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual(ahead.slice(0, 3))
          expect(yield* claimIds(claimer, { limit: 3 })).toEqual(ahead.slice(3))
        })
      )

      it.scopedLive("that is prepared and commits from another session is not lost", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [late, claimer] = [yield* db.session, yield* db.session]
          const prepared: Array<ReadonlyArray<bigint>> = []
          for (const gid of ["kept", "given_up"]) {
            yield* begin(late)
            // A transaction that notified cannot be prepared; PostgreSQL's rule.
            prepared.push(yield* enqueue(late, 2, { opts: { notify: false } }))
            yield* late.script(`prepare transaction '${db.name}_${gid}'`)
          }
          const ahead = yield* enqueue(claimer, 1)
          expect(yield* claimIds(claimer)).toEqual(ahead)
          yield* claimer.script(`rollback prepared '${db.name}_given_up'`)
          expect(yield* claimIds(claimer)).toEqual([])
          yield* claimer.script(`commit prepared '${db.name}_kept'`)
          expect(yield* claimIds(claimer)).toEqual(prepared[0])
        })
      )

      it.scopedLive("may have written inside savepoints, released or rolled back", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [late, claimer] = [yield* db.session, yield* db.session]
          yield* begin(late)
          yield* late.script("savepoint a")
          const released = yield* enqueue(late, 2)
          yield* late.script("release a")
          yield* late.script("savepoint b")
          yield* enqueue(late, 2)
          yield* late.script("rollback to b")
          const plain = yield* enqueue(late, 1)
          yield* enqueue(claimer, 1)
          yield* claim(claimer)
          yield* late.script("commit")
          expect(yield* claimIds(claimer)).toEqual([...released, ...plain])
        })
      )

      // storage.md: ordering by seq with the same idea is wrong and passes casual tests
      it.scopedLive("may own a higher id than any transaction that has ended, and a lower seq than the cursor's", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [low, high, claimer] = [yield* db.session, yield* db.session, yield* db.session]
          yield* begin(low)
          yield* xid(low)
          yield* begin(high)
          const second = yield* enqueue(high, 1)
          const first = yield* enqueue(low, 1)
          yield* low.script("commit")
          expect(yield* claimIds(claimer)).toEqual(first)
          yield* high.script("commit")
          expect(yield* claimIds(claimer)).toEqual(second)
        })
      )
    })

    describe("the order of a lane", () => {
      // storage.md: if A committed before B's transaction obtained its xid, A is claimed first
      it.scopedLive("is that of the transactions, whatever numbers their sessions had cached", () =>
        Effect.gen(function* () {
          const db = yield* database
          const [one, two] = [yield* db.session, yield* db.session]
          const ids: Array<ReadonlyArray<bigint>> = []
          // Each session draws entry_seq from a cache of its own: the numbers alternate between two ranges.
          for (const session of [one, two, one, two, two, one]) ids.push(yield* enqueue(session, 2))
          const seqs = column(yield* one.rows("select seq from awa.ready_entries order by xid, seq"), "seq")
          expect(seqs).not.toEqual([...seqs].sort((a, b) => Number(a) - Number(b)))
          const taken: Array<bigint> = []
          for (let n = 0; n < 4; n++) taken.push(...(yield* claimIds(one, { limit: 3 })))
          expect(taken).toEqual(ids.flat())
        })
      )

      it.scopedLive("inside one call is the order of its jobs", () =>
        Effect.gen(function* () {
          const session = yield* (yield* database).session
          const ids = yield* enqueue(session, 200)
          expect(ids).toEqual([...ids].sort((a, b) => Number(a - b)))
          expect([
            ...(yield* claimIds(session, { limit: 150 })),
            ...(yield* claimIds(session, { limit: 150 }))
          ]).toEqual(ids)
        })
      )
    })

    // The reading jumps from one transaction in progress to the next; the limit may end it between any two.
    it.scopedLive("a lane between many open transactions is read in order, whatever the limit", () =>
      Effect.gen(function* () {
        const db = yield* database
        const session = yield* db.session
        const open: Array<Session> = []
        const ahead: Array<bigint> = []
        const behind: Array<bigint> = []
        for (let n = 0; n < 8; n++) {
          const late = yield* db.session
          open.push(late)
          yield* begin(late)
          behind.push(...(yield* enqueue(late, 2)))
          ahead.push(...(yield* enqueue(session, 3)))
        }
        const taken: Array<bigint> = []
        for (const limit of [1, 4, 2, 7, 3, 20]) taken.push(...(yield* claimIds(session, { limit })))
        expect(taken).toEqual(ahead)
        for (const late of open) yield* late.script("commit")
        const late: Array<bigint> = []
        for (const limit of [3, 1, 5, 20]) late.push(...(yield* claimIds(session, { limit })))
        expect(late).toEqual(behind)
        expect(yield* claimIds(session)).toEqual([])
      })
    )

    // storage.md: with a larger cache the newest row is not the highest id, and a job was claimed twice
    it.scopedLive("claims by several sessions follow one another: the batch ids have no cache", () =>
      Effect.gen(function* () {
        const db = yield* database
        const [one, two, three] = [yield* db.session, yield* db.session, yield* db.session]
        const ids = yield* enqueue(one, 12)
        const taken: Array<bigint> = []
        for (const session of [one, two, one, three, two, one, two, three, one, two, three, one]) {
          taken.push(...(yield* claimIds(session, { limit: 1 })))
        }
        expect(taken).toEqual(ids)
        expect(yield* one.value("select seqcache from pg_sequence where seqrelid = 'awa.batch_seq'::regclass")).toBe(1n)
      })
    )

    // storage.md: an empty poll must not walk uncommitted entries again and again
    it.scopedLive("uncommitted entries cost an empty poll a probe, and hide nothing that stands behind them", () =>
      Effect.gen(function* () {
        const db = yield* database
        const [writer, claimer] = [yield* db.session, yield* db.session]
        yield* enqueue(claimer, 1)
        yield* claim(claimer)
        const poll = "select * from awa.claim('q', 10, 1)"
        const quiet = yield* explainBuffers(claimer, poll)
        yield* begin(writer)
        for (let n = 0; n < 10; n++) yield* enqueue(writer, 5000)
        yield* xid(claimer) // a later transaction has ended: the writer is one of those in progress
        yield* explainBuffers(claimer, poll)
        expect((yield* explainBuffers(claimer, poll)) - quiet).toBeLessThan(300) // the entries fill a thousand
        const behind = yield* enqueue(claimer, 2)
        expect(yield* claimIds(claimer)).toEqual(behind)
        yield* writer.script("rollback")
      })
    )
  })
}
