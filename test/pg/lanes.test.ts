/** Which of a queue's lanes a claim takes from: priorities that age, and the fleet-wide rate. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { begin, claim, claimIds, claimRows, close, column, enqueue, fileDatabase, isBigint, rotate } from "./support.js"

const database = fileDatabase({ ring: 4 })

const queue = (session: Session, settings: Readonly<Record<string, string | number>>) =>
  session.value(
    `insert into awa.queues (queue, ${Object.keys(settings).join(", ")})
     values ('q', ${Object.keys(settings)
       .map((_, i) => `$${i + 1}`)
       .join(", ")}) returning 1`,
    Object.values(settings)
  )

/** Makes the entries of a priority older than they are. */
const age = (session: Session, priority: number, by: string) =>
  session.script(
    `update awa.ready_entries_0 set ready_at = created_at - interval '${by}' where priority = ${priority};
     update awa.ready_entries_1 set ready_at = created_at - interval '${by}' where priority = ${priority}`
  )

describe("priorities", () => {
  it.scopedLive("come in their order while nothing has waited", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const low = yield* enqueue(session, 3, { opts: { priority: 4 } })
      const high = yield* enqueue(session, 3, { opts: { priority: 1 } })
      const middle = yield* enqueue(session, 3)
      expect(yield* claimIds(session, { limit: 7 })).toEqual([...high, ...middle, low[0]])
      expect(yield* claimIds(session)).toEqual(low.slice(1))
    })
  )

  // storage.md: FIFO per (queue, priority); issue: aging at claim time, no rewriting
  it.scopedLive("age: an entry of priority p counts as if it had come (p - 1) times the queue's aging later", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* queue(session, { aging: "1 minute" })
      const low = yield* enqueue(session, 3, { opts: { priority: 4 } })
      yield* age(session, 4, "181 seconds") // just before what has come now with priority 1
      const high = yield* enqueue(session, 3, { opts: { priority: 1 } })
      expect(yield* claimIds(session, { limit: 4 })).toEqual([...low, high[0]])
      const other = yield* enqueue(session, 1, { opts: { priority: 3 } })
      yield* age(session, 3, "119 seconds") // just after it
      expect(yield* claimIds(session)).toEqual([...high.slice(1), ...other])
    })
  )

  it.scopedLive("are no reason to leave behind what stands behind a tombstone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [old] = yield* enqueue(session)
      yield* age(session, 2, "1 hour")
      yield* session.rows("select * from awa.reprioritize_jobs($1::bigint[], 3)", [[old]])
      const [fresh] = yield* enqueue(session) // later than the other lane's next one, which is as old as the tombstone
      expect([...(yield* claimIds(session, { limit: 2 }))].sort()).toEqual([old, fresh].sort())
    })
  )

  it.scopedLive("never starve a lane: under steady work of the first one, the last one's job has its turn", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* queue(session, { aging: "50 milliseconds" })
      const [patient] = yield* enqueue(session, 1, { opts: { priority: 4 } })
      yield* enqueue(session, 50, { opts: { priority: 1 } })
      let claimed: ReadonlyArray<bigint> = []
      for (let round = 0; round < 100 && !claimed.includes(patient ?? 0n); round++) {
        yield* enqueue(session, 10, { opts: { priority: 1 } }) // as much as is taken: the first lane is never empty
        claimed = yield* claimIds(session, { limit: 10 })
        yield* Effect.sleep("5 millis")
      }
      expect(claimed).toContain(patient)
      // never because the first lane ran dry
      expect(yield* claimIds(session, { limit: 1000 })).toHaveLength(51)
    })
  )

  it.scopedLive("take of a lane only what comes before the next lane's first, but a quarter of the call at least", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* queue(session, { aging: "1 minute" })
      const low = yield* enqueue(session, 20, { opts: { priority: 2 } })
      yield* age(session, 2, "10 minutes")
      const late = yield* enqueue(session, 20, { opts: { priority: 2 } })
      const high = yield* enqueue(session, 20, { opts: { priority: 1 } })
      expect(yield* claimIds(session, { limit: 40 })).toEqual([...low, ...high])
      expect(yield* claimIds(session, { limit: 40 })).toEqual(late)
    })
  )

  it.scopedLive(
    "of an older segment wait for higher ones of a newer segment, and each lane keeps its order over both",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const old = yield* enqueue(session, 2, { opts: { priority: 3 } })
        yield* rotate(session)
        const [high, low] = [
          yield* enqueue(session, 2, { opts: { priority: 1 } }),
          yield* enqueue(session, 2, { opts: { priority: 3 } })
        ]
        expect(yield* claimIds(session)).toEqual([...high, ...old, ...low])
      })
  )

  it.scopedLive("a lane that is held is busy, the others are claimed; one that has nothing is not busy", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      const first = yield* enqueue(session, 1, { opts: { priority: 1 } })
      yield* begin(holder)
      expect(yield* claimIds(holder)).toEqual(first)
      expect(yield* claimRows(session)).toEqual([expect.objectContaining({ lane_busy: true })]) // uncommitted: still there
      const second = yield* enqueue(session, 1)
      const rows = yield* claimRows(session)
      expect(column(rows, "job_id")).toEqual([...second, null])
      yield* holder.script("commit")
      expect(yield* claimRows(session)).toEqual([])
    })
  )

  it.scopedLive("are not left when all that a call may take of one before the next has a tombstone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* queue(session, { aging: "0" })
      const gone = yield* enqueue(session, 30, { opts: { priority: 1 } })
      const other = yield* enqueue(session, 1, { opts: { priority: 2 } })
      const left = yield* enqueue(session, 2, { opts: { priority: 1 } })
      yield* session.rows("select answer from awa.cancel_jobs($1)", [[...gone, ...other]])
      expect(yield* claimIds(session, { limit: 40 })).toEqual(left)
    })
  )

  // storage.md: FIFO, exactly
  it.scopedLive("keep their own order from one segment to the next, whatever another lane has in between", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* queue(session, { aging: "0" })
      const first = yield* enqueue(session, 2, { opts: { priority: 1 } })
      const other = yield* enqueue(session, 2, { opts: { priority: 2 } })
      const second = yield* enqueue(session, 4, { opts: { priority: 1 } })
      yield* rotate(session)
      const third = yield* enqueue(session, 1, { opts: { priority: 1 } })
      // as a job that was promoted late, or given this priority
      yield* session.script("update awa.ready_entries_1 set ready_at = created_at - interval '1 hour'")
      expect(yield* claimIds(session, { limit: 9 })).toEqual([...first, ...other, ...second, ...third])
    })
  )
})

describe("the rate of a queue", () => {
  it.scopedLive("is the fleet's: claims of the last interval are its account, whoever made them", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = [yield* db.session, yield* db.session]
      yield* queue(session, { rate_limit: 5, rate_interval: "600 milliseconds" })
      const jobs = yield* enqueue(session, 12, {})
      const first = yield* claim(session, { limit: 3 })
      const second = yield* claimRows(other, { limit: 10 })
      expect(first.map((a) => a.job_id)).toEqual(jobs.slice(0, 3))
      // the last row says when there may be more: a claimer that took this for the end of the queue would sleep on it
      expect(column(second, "job_id")).toEqual([...jobs.slice(3, 5), null])
      expect(second[2]?.["retry_ms"]).toBeGreaterThan(0)
      const refused = yield* claimRows(session, { limit: 10 })
      expect(refused).toEqual([expect.objectContaining({ job_id: null, lane_busy: false })])
      const wait = refused[0]?.["retry_ms"]
      expect(wait).toBeGreaterThan(0)
      expect(wait).toBeLessThanOrEqual(600)
      yield* close(session, first) // ending gives nothing back: it is a rate
      expect(column(yield* claimRows(session), "job_id")).toEqual([null])
      yield* Effect.sleep("650 millis")
      expect(column(yield* claimRows(session), "job_id").filter(isBigint)).toEqual(jobs.slice(5, 10))
    })
  )

  it.scopedLive("counts lanes, segments and heads together, and is one claimer's at a time", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = [yield* db.session, yield* db.session]
      yield* queue(session, { rate_limit: 4, rate_interval: "1 hour" })
      yield* enqueue(session, 2, { opts: { priority: 1 } })
      yield* enqueue(session, 2, { opts: { priority: 4 } })
      yield* rotate(session)
      yield* enqueue(session, 5, {})
      yield* begin(session)
      expect(yield* claimIds(session, { limit: 3 })).toHaveLength(3)
      // the first has not committed: nobody may count without it, and nobody waits
      expect(yield* claimRows(other)).toEqual([expect.objectContaining({ job_id: null, retry_ms: 5 })])
      yield* session.script("commit")
      expect(column(yield* claimRows(other), "job_id").filter(isBigint)).toHaveLength(1)
    })
  )
})

describe("a claim's wait", () => {
  it.scopedLive("does not exist: with every lane held it answers busy at once", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [holder, session] = [yield* db.session, yield* db.session]
      for (const priority of [1, 2, 3, 4]) yield* enqueue(session, 1, { opts: { priority } })
      yield* begin(holder)
      expect(yield* claimIds(holder, { limit: 4 })).toHaveLength(4)
      yield* session.script("set statement_timeout = '2 s'")
      expect(yield* claimRows(session)).toEqual([expect.objectContaining({ lane_busy: true })])
    })
  )
})
