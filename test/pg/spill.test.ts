/** Entries that would keep the oldest segment in the ring: a lane's head, its order, and tombstones on the way. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck, Fiber } from "effect"
import type { Session } from "./database.js"
import {
  attemptsOf,
  begin,
  bigints,
  blocked,
  claim,
  claimIds,
  claimRows,
  close,
  column,
  complete,
  currentSlot,
  drain,
  enqueue,
  evidence,
  explainBuffers,
  fileDatabase,
  only,
  prune,
  rotate,
  states
} from "./support.js"

const database = fileDatabase({ ring: 4 })

const spill = (session: Session, limit = 1000) => session.value("select awa.spill_oldest($1)", [limit])

/** Until three of the four slots are taken: then the oldest has to go. */
const crowd = (session: Session) =>
  Effect.gen(function* () {
    yield* rotate(session)
    yield* enqueue(session, 1, { queue: "other" })
    yield* rotate(session)
    expect(yield* session.value("select count(*) from awa.segments where state = 'free'")).toBe(1n)
  })

const bury = (session: Session, job: bigint | undefined) =>
  Effect.gen(function* () {
    for (const slot of [0, 1, 2, 3]) {
      yield* session.value(
        `insert into awa.ready_tombstones_${slot} select queue, priority, xid, seq, job_id, 'deleted', clock_timestamp()
         from awa.ready_entries_${slot} where job_id = $1 returning 1`,
        [job]
      )
    }
  })

describe("a spill", () => {
  it.scopedLive("moves what nobody claimed to the lane's head, which is claimed before the ring, in order", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const first = yield* enqueue(session, 3)
      const claimed = yield* claim(session, { limit: 1 })
      yield* rotate(session)
      expect(yield* spill(session)).toBe(0) // there is room
      yield* enqueue(session, 1, { queue: "other" })
      yield* rotate(session)
      const later = yield* enqueue(session, 2)
      expect(yield* spill(session)).toBe(2)
      expect(yield* spill(session)).toBe(0)
      yield* close(session, claimed)
      expect(yield* drain(session)).toBe(1)
      expect(yield* prune(session)).toBe(0)
      const attempts = yield* claim(session)
      expect(attempts.map((a) => a.job_id)).toEqual([...first.slice(1), ...later])
      expect(attempts.map((a) => [a.priority, a.run_lease, a.attempt])).toEqual(attempts.map(() => [2, 1n, 1]))
      expect(yield* claimRows(session)).toEqual([])
      expect(yield* evidence(session, attempts)).toEqual(attempts.map(() => ["open", null]))
      expect(yield* close(session, attempts.slice(1))).toEqual(["closed", "closed", "closed"])
      yield* complete(session, only(attempts.slice(0, 1)))
      expect(yield* evidence(session, attempts)).toEqual(attempts.map(() => ["closed", "completed"]))
    })
  )

  it.scopedLive("keeps the order of many spills and claims between them, priorities apart", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [one, two] = [yield* enqueue(session, 5), yield* enqueue(session, 5, { opts: { priority: 3 } })]
      yield* crowd(session)
      expect(yield* spill(session, 2)).toBe(2)
      expect(yield* claimIds(session, { limit: 1 })).toEqual(one.slice(0, 1))
      expect(yield* spill(session, 4)).toBe(4)
      expect(yield* claimIds(session, { limit: 3 })).toEqual(one.slice(1, 4))
      expect(yield* spill(session)).toBe(4)
      const after = yield* enqueue(session, 1)
      expect(yield* claimIds(session, { limit: 2 })).toEqual([one[4], ...after])
      expect(yield* claimIds(session)).toEqual(two)
    })
  )

  it.scopedLive("an attempt of the head fails and is retried as any other", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [job] = yield* enqueue(session, 1, { args: { n: 1 } })
      yield* crowd(session)
      yield* spill(session)
      const attempts = yield* claim(session)
      expect(yield* close(session, attempts, { outcome: "retried", detail: { delay_ms: 0, error: "no" } })).toEqual([
        "closed"
      ])
      const again = yield* claim(session)
      expect(again).toEqual([
        expect.objectContaining({ job_id: job, run_lease: 2n, attempt: 2, priority: 2, args: { n: 1 } })
      ])
    })
  )

  it.scopedLive("waits for nobody: a lane that is claimed from is left for the next time", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [claimer, session] = [yield* db.session, yield* db.session]
      const jobs = yield* enqueue(session, 4)
      const rest = yield* enqueue(session, 1, { queue: "r" })
      yield* crowd(session)
      yield* begin(claimer)
      expect(yield* claimIds(claimer, { limit: 2 })).toEqual(jobs.slice(0, 2))
      yield* session.script("set statement_timeout = '2 s'")
      expect(yield* spill(session)).toBe(1)
      yield* claimer.script("commit")
      expect(yield* spill(session)).toBe(2)
      expect(yield* claimIds(session)).toEqual(jobs.slice(2))
      expect(yield* claimIds(session, { queue: "r" })).toEqual(rest)
    })
  )

  it.scopedLive("leaves what a transaction in progress may still commit, and takes it when it has", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [late, session] = [yield* db.session, yield* db.session]
      yield* begin(late)
      const pending = yield* enqueue(late, 2)
      const jobs = yield* enqueue(session, 2)
      yield* crowd(session)
      expect(yield* spill(session)).toBe(2)
      expect(yield* drain(session)).toBe(0)
      yield* late.script("commit")
      expect(yield* drain(session)).toBe(0)
      expect(yield* spill(session)).toBe(2)
      expect(yield* drain(session)).toBe(1)
      expect(yield* claimIds(session)).toEqual([...jobs, ...pending])
    })
  )

  // storage.md: FIFO, exactly; busy is not empty
  it.scopedLive("is seen by a claim that began before it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const session = yield* db.session
      const claimer = yield* db.session
      const holder = yield* db.session
      const first = yield* enqueue(session, 2)
      yield* crowd(session)
      const later = yield* enqueue(session, 2)
      // A session of its own holds what the claim waits for: at COMMIT a transaction lets go of its tables before its lanes, and
      // the claim would find one that is still held.
      yield* begin(holder)
      yield* holder.script("lock table awa.queues in access exclusive mode")
      const claiming = yield* Effect.fork(claimIds(claimer))
      yield* blocked(session, claimer)
      expect(yield* spill(session)).toBe(2)
      yield* holder.script("commit")
      expect(yield* Fiber.join(claiming)).toEqual([...first, ...later])
    })
  )

  it.scopedLive("leaves what it moved to a claim that finds nothing in the ring, and one segment", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = yield* enqueue(session, 2)
      yield* rotate(session)
      yield* enqueue(session, 1, { queue: "other" })
      yield* rotate(session)
      expect(yield* spill(session)).toBe(2)
      yield* claim(session, { queue: "other" })
      yield* drain(session)
      expect(yield* session.rows("select slot from awa.segments where state in ('open', 'sealed')")).toHaveLength(1)
      expect(yield* claimIds(session)).toEqual(ids)
      expect(yield* claimIds(session)).toEqual([])
    })
  )

  it.scopedLive("between a claim's look at the heads and its lock does not turn a lane's order", () =>
    Effect.gen(function* () {
      const db = yield* database
      const session = yield* db.session
      const claimer = yield* db.session
      const holder = yield* db.session
      yield* session.value("select awa.set_queue($1, '{\"aging_ms\": 0}')", ["q"]) // the oldest entry is the next one
      const first = yield* enqueue(session, 2)
      for (const priority of [1, 3, 4]) yield* enqueue(session, 1, { opts: { priority } })
      yield* rotate(session)
      yield* enqueue(session, 1, { queue: "other" })
      yield* enqueue(session, 1, { opts: { priority: 1 } })
      yield* rotate(session)
      const later = yield* enqueue(session, 2)
      expect(yield* spill(session, 1)).toBe(1)
      // The claim has found every lane, all but one of them in the ring, and has seen the head of that one, when it comes to this
      // lock: how far the head is read.
      yield* begin(holder)
      yield* holder.script(
        `lock table awa.claim_batches_${String(yield* currentSlot(session))} in access exclusive mode`
      )
      const claiming = yield* Effect.fork(claimIds(claimer))
      yield* blocked(session, claimer)
      expect(yield* spill(session)).toBe(4)
      yield* holder.script("commit")
      const lane = [...first, ...later]
      expect((yield* Fiber.join(claiming)).filter((id) => lane.includes(id))).toEqual(lane)
    })
  )

  it.scopedLive("an emptied head is jumped over, also when the segments that knew how far it was read are gone", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, reader] = [yield* db.session, yield* db.session]
      yield* begin(reader, "repeatable read")
      yield* reader.value("select count(*) from awa.jobs") // pins the horizon: the head's dead rows stay
      yield* enqueue(session, 2000)
      yield* crowd(session)
      expect(yield* spill(session, 5000)).toBe(2000)
      yield* reader.script("commit; begin isolation level repeatable read; select count(*) from awa.meta")
      yield* close(session, yield* claim(session, { limit: 2000 }))
      yield* close(session, yield* claim(session, { queue: "other" }))
      for (let i = 0; i < 3; i++) {
        yield* enqueue(session, 1)
        yield* close(session, yield* claim(session))
        yield* rotate(session)
        yield* drain(session)
        while ((yield* prune(session)) !== null);
      }
      yield* enqueue(session, 1)
      expect(yield* session.rows("select last_position - first_position as unread from awa.spill_heads")).toEqual([])
      const claiming = "select * from awa.claim('q', 10, 1)"
      yield* explainBuffers(session, claiming) // the session learns of functions and tables
      expect(yield* explainBuffers(session, claiming)).toBeLessThan(400)
    })
  )
})

describe("an entry with a tombstone", () => {
  it.scopedLive("is passed by the claim, wherever it stands", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs = yield* enqueue(session, 6)
      for (const i of [0, 2, 3, 5]) yield* bury(session, jobs[i])
      expect(yield* claimIds(session, { limit: 2 })).toEqual([jobs[1], jobs[4]])
      expect(yield* claimRows(session)).toEqual([])
      const later = yield* enqueue(session, 1)
      expect(yield* claimIds(session)).toEqual(later)
    })
  )

  it.scopedLive("does not stand before what is behind it, however many there are", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs = yield* enqueue(session, 250)
      for (const job of jobs) yield* bury(session, job)
      const live = yield* enqueue(session, 1)
      expect(yield* claimIds(session, { limit: 10 })).toEqual(live)
    })
  )

  for (const limit of [1, 20, 500]) {
    const late = (isLate: boolean) =>
      Effect.gen(function* () {
        const db = yield* database
        const [writer, session] = [yield* db.session, yield* db.session]
        if (isLate) {
          yield* begin(writer)
          yield* writer.rows("select pg_current_xact_id()")
          yield* enqueue(session, 1)
          expect(yield* claimIds(session)).toHaveLength(1) // the cursor has passed it, and waits for its end
        }
        yield* enqueue(writer, 25_000)
        if (isLate) yield* writer.script("commit")
        yield* session.rows(`insert into awa.ready_tombstones_0
          select e.queue, e.priority, e.xid, e.seq, e.job_id, 'deleted', clock_timestamp() from awa.ready_entries_0 e
          where not exists (select from awa.claim_batches_0 b where e.job_id = any (b.job_ids))`)
        const live = yield* enqueue(session, 1)
        yield* session.rows("set statement_timeout = 5000") // as the runtime's claims have
        const looks: Array<ReadonlyArray<bigint>> = []
        for (;;) {
          const rows = yield* claimRows(session, { limit })
          looks.push(attemptsOf(rows).map((attempt) => attempt.job_id))
          if (!rows.some((row) => row["lane_busy"] === true)) break
        }
        // each claim commits what it has passed, and says that there may be more
        expect(looks).toEqual([[], [], live])
      })

    it.scopedLive(`by the ten thousand is passed within a claim's time, ${limit} wanted at a time`, () => late(false))

    it.scopedLive(`by the thousand is asked for entry by entry, ${limit} wanted at a time`, () =>
      // a hash of them all would be made anew in each step
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        yield* enqueue(session, 2_000)
        yield* session.rows(`insert into awa.ready_tombstones_0
          select queue, priority, xid, seq, job_id, 'deleted', clock_timestamp() from awa.ready_entries_0`)
        const looks = Effect.map(
          session.value(
            "select idx_scan from pg_stat_xact_user_tables where schemaname = 'awa' and relname = 'ready_tombstones_0'"
          ),
          Number
        )
        yield* begin(session)
        const before = yield* looks
        expect(yield* claimIds(session, { limit })).toEqual([])
        expect((yield* looks) - before).toBeGreaterThanOrEqual(2_000)
        yield* session.script("rollback")
      })
    )

    it.scopedLive(`by the ten thousand of a late transaction is passed as well, ${limit} wanted at a time`, () =>
      late(true)
    )
  }

  // storage.md: inside a lane the order is FIFO
  it.scopedLive(
    "by the ten thousand stands before what is in a newer segment as well, as long as something may be behind it",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        yield* enqueue(session, 12_000)
        yield* session.rows(`insert into awa.ready_tombstones_0
        select queue, priority, xid, seq, job_id, 'deleted', clock_timestamp() from awa.ready_entries_0`)
        const older = yield* enqueue(session, 1)
        yield* rotate(session)
        const newer = yield* enqueue(session, 1)
        expect(yield* claimIds(session, { limit: 10 })).toEqual([])
        expect(yield* claimIds(session, { limit: 10 })).toEqual([...older, ...newer])
      })
  )

  it.scopedLive("costs no live one its turn, whatever is buried and however many are wanted", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const cases = FastCheck.sample(
        FastCheck.tuple(
          FastCheck.array(
            FastCheck.record({ priority: FastCheck.constantFrom(1, 2, 4), buried: FastCheck.boolean() }),
            {
              minLength: 1,
              maxLength: 150
            }
          ),
          FastCheck.integer({ min: 1, max: 40 })
        ),
        { numRuns: 40, seed: 20_261_202 }
      )
      for (const [i, [jobs, limit]] of cases.entries()) {
        const queue = `q${i}`
        const [inserted] = yield* session.rows(
          `select array_agg(job_id order by ord) as ids from (
             select job_id, row_number() over () as ord from awa.insert_jobs($1::text::jsonb)) i`,
          [JSON.stringify(jobs.map(({ priority }) => ({ kind: "k", queue, args: {}, opts: { priority } })))]
        )
        const ids = bigints([inserted?.["ids"]].flat())
        const buried = ids.filter((_, j) => jobs[j]?.buried)
        yield* session.rows(
          `insert into awa.ready_tombstones_0
           select queue, priority, xid, seq, job_id, 'deleted', clock_timestamp() from awa.ready_entries_0 where job_id = any ($1)`,
          [buried]
        )
        const claimed: Array<bigint> = []
        for (;;) {
          const found = yield* claimIds(session, { queue, limit })
          if (found.length === 0) break
          expect(found.length).toBeLessThanOrEqual(limit)
          claimed.push(...found)
        }
        const live = (lane: number) => ids.filter((_, j) => jobs[j]?.priority === lane && !jobs[j].buried)
        for (const lane of [1, 2, 4]) {
          expect(
            claimed.filter((id) => live(lane).includes(id)),
            JSON.stringify({ limit, jobs })
          ).toEqual(live(lane))
        }
        expect(claimed).toHaveLength(ids.length - buried.length)
      }
    })
  )

  it.scopedLive("of a transaction that committed late is passed as well", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [late, session] = [yield* db.session, yield* db.session]
      yield* begin(late)
      const jobs = yield* enqueue(late, 5)
      yield* enqueue(session, 1)
      yield* claimIds(session)
      yield* late.script("commit")
      for (const i of [0, 1, 4]) yield* bury(session, jobs[i])
      expect(yield* claimIds(session, { limit: 1 })).toEqual([jobs[2]])
      expect(yield* claimIds(session, { limit: 5 })).toEqual([jobs[3]])
      expect(yield* claimRows(session)).toEqual([])
    })
  )

  it.scopedLive("keeps its segment from nothing: drained and pruned with it", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs = yield* enqueue(session, 3)
      yield* close(session, yield* claim(session, { limit: 1 }))
      yield* bury(session, jobs[1])
      yield* rotate(session)
      expect(yield* drain(session)).toBe(0)
      yield* bury(session, jobs[2])
      expect(yield* drain(session)).toBe(1)
      expect(yield* prune(session)).toBe(0)
      expect(yield* states(session)).toBe("free open free free")
      expect(yield* session.value("select count(*) from awa.ready_tombstones_0")).toBe(0n)
    })
  )

  it.scopedLive("is not spilled", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const jobs = yield* enqueue(session, 3)
      yield* bury(session, jobs[1])
      yield* crowd(session)
      expect(yield* spill(session)).toBe(2)
      expect(yield* claimIds(session)).toEqual([jobs[0], jobs[2]])
    })
  )

  it.scopedLive("and the cursor agree on what is claimed", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [late, session] = [yield* db.session, yield* db.session]
      yield* begin(late)
      yield* enqueue(late, 3)
      yield* enqueue(session, 2)
      yield* claimIds(session, { limit: 1 })
      yield* late.script("commit")
      const isClaimed = () =>
        session
          .rows(
            "select job_id, awa.is_claimed_0(queue, priority, xid, seq) as is from awa.ready_entries_0 order by xid, seq"
          )
          .pipe(Effect.map((rows) => column(rows, "is")))
      expect(yield* isClaimed()).toEqual([false, false, false, true, false])
      yield* claimIds(session, { limit: 2 })
      expect(yield* isClaimed()).toEqual([true, true, false, true, false])
      yield* claimIds(session)
      expect(yield* isClaimed()).toEqual([true, true, true, true, true])
    })
  )
})

describe("a ring that does not turn", () => {
  const blockers = (session: Session, keep = "0") =>
    session
      .rows("select reason, queue, priority, pid, gid from awa.ring_blockers($1::interval) order by reason, pid", [
        keep
      ])
      .pipe(Effect.map((rows) => rows.map((row) => [row["reason"], row["queue"] ?? row["gid"] ?? row["pid"]])))

  it.scopedLive("names who keeps it: writers, prepared ones too, lanes, attempts, history, locks", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [writer, prepared, reader, session] = [
        yield* db.session,
        yield* db.session,
        yield* db.session,
        yield* db.session
      ]
      expect(yield* blockers(session)).toEqual([])
      yield* begin(writer)
      yield* enqueue(writer, 1, { queue: "w" })
      yield* begin(prepared)
      yield* enqueue(prepared, 1, { queue: "p", opts: { notify: false } })
      yield* prepared.script("prepare transaction 'forgotten'")
      yield* enqueue(session, 1)
      yield* enqueue(session, 1, { queue: "running" })
      const attempts = yield* claim(session, { queue: "running" })
      yield* rotate(session)
      expect(yield* blockers(session)).toEqual([
        ["running", "running"],
        ["unclaimed", "q"],
        ["writer", writer.pid],
        ["writer", "forgotten"]
      ])
      yield* writer.script("rollback")
      yield* session.script("rollback prepared 'forgotten'")
      yield* close(session, yield* claim(session))
      yield* close(session, attempts)
      yield* drain(session)
      yield* begin(reader)
      yield* reader.value("select count(*) from awa.closures_0")
      expect(yield* blockers(session)).toEqual([["lock", reader.pid]])
      expect(yield* blockers(session, "1 hour")).toEqual([
        ["history", null],
        ["lock", reader.pid]
      ])
      yield* reader.script("commit")
      expect(yield* blockers(session)).toEqual([])
      expect(yield* prune(session)).toBe(0)
    })
  )

  it.scopedLive("by size only while its free slots cover the history that must be kept", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const step = (keep: string) => session.value("select awa.rotate('1 hour', 10, $1::interval)", [keep])
      yield* session.script("select nextval('awa.entry_seq') from generate_series(1, 64)")
      expect(yield* step("1 hour")).toBe("idle") // full after a moment: at this pace the ring lasts for three such moments
      expect(yield* step("0")).toBe("opened")
      yield* step("0")
      yield* session.script(
        "select nextval('awa.entry_seq') from generate_series(1, 64);" +
          "update awa.segments set opened_at = opened_at - interval '31 minutes' where state = 'open'"
      )
      expect(yield* step("1 hour")).toBe("idle") // two are free, and one of them must stay
      expect(yield* step("30 minutes")).toBe("opened")
    })
  )
})
