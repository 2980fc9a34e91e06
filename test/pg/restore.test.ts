/** A database that was restored or copied: what is noticed, what goes on by itself, and what `rebase_storage` makes of the rest. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { Session } from "./database.js"
import {
  beat,
  begin,
  bigints,
  blocked,
  claim,
  claimIds,
  close,
  column,
  complete,
  currentSlot,
  enqueue,
  evidence,
  fault,
  fileDatabase,
  only,
  rotate,
  states
} from "./support.js"

const database = fileDatabase()

const adopt = (session: Session) => session.value("select awa.adopt_database()")

const storageFault = (session: Session) => session.value("select awa.storage_fault()")

const rebase = (session: Session) => session.value("select awa.rebase_storage()")

/** Other tests of this server cannot be told to hold no transaction open: what is stored becomes older than all of them. */
const agedStorage = (session: Session) =>
  session
    .value("select min(xid)::text::bigint - 10 from awa.ready_entries")
    .pipe(Effect.flatMap((by) => shift(session, `- ${String(by)}`)))

/** Moves all stored transaction ids. */
const shift = (session: Session, by: string) =>
  session.script(`do $$
    declare v_slot integer;
    begin
      for v_slot in select slot from awa.segments loop
        execute format('update awa.ready_entries_%s set xid = (xid::text::bigint ${by})::text::xid8', v_slot);
        execute format('update awa.ready_tombstones_%s set xid = (xid::text::bigint ${by})::text::xid8', v_slot);
        execute format('update awa.claim_batches_%s set cursor_xid = (cursor_xid::text::bigint ${by})::text::xid8,
          xids = array(select (x::text::bigint ${by})::text::xid8 from unnest(xids) with ordinality u(x, i) order by i),
          pending_xids = array(select (x::text::bigint ${by})::text::xid8 from unnest(pending_xids) with ordinality u(x, i) order by i)', v_slot);
      end loop;
      update awa.deferred_jobs set xid = (xid::text::bigint ${by})::text::xid8;
    end $$`)

/** What is stored is another server's. */
const fromElsewhere = (session: Session) =>
  session.script("update awa.meta set system_identifier = system_identifier + 1")

const fromAnotherDatabase = (session: Session) =>
  session.script("update awa.meta set database_oid = database_oid::bigint + 1")

/** As a dump from a busy server is, restored into a young one. */
const transplant = (session: Session) => Effect.zipRight(shift(session, "+ 1000000000000"), fromElsewhere(session))

// C-34
describe("adopt_database", () => {
  it.scopedLive(
    "adopts a database of another server whose transaction ids were carried on, under a new installation id",
    () =>
      Effect.gen(function* () {
        const session = yield* Effect.flatMap(database, (db) => db.session)
        yield* enqueue(session, 2)
        const [attempt] = yield* claim(session, { limit: 1 })
        if (attempt === undefined) throw new Error("an attempt")
        yield* agedStorage(session)
        expect(yield* adopt(session)).toBe("ours")
        yield* fromElsewhere(session)
        expect(yield* adopt(session)).toBe("adopted")
        expect(yield* adopt(session)).toBe("ours")
        yield* fault(complete(session, attempt), "WA003")
        expect(yield* close(session, [attempt])).toEqual(["stale"])
      })
  )

  it.scopedLive(
    "refuses stored transaction ids that lie ahead of the server's, also where the identity is the same",
    () =>
      Effect.gen(function* () {
        const session = yield* Effect.flatMap(database, (db) => db.session)
        yield* enqueue(session)
        expect(yield* storageFault(session)).toBeNull()
        yield* shift(session, "+ 1000000000000")
        // a clone of the server, and later a dump of the original in it
        expect(yield* adopt(session)).toBe("refused")
        expect(yield* storageFault(session)).toContain("ahead")
        yield* fromElsewhere(session)
        expect(yield* adopt(session)).toBe("refused")
      })
  )

  for (const [sequence, spoil] of [
    ["job_ids", "select setval('awa.job_ids', 1, false)"],
    ["batch_seq", "select setval('awa.batch_seq', 1, false)"],
    ["entry_seq", "select setval('awa.entry_seq', 1, false)"],
    ["spill_positions", "insert into awa.spill_heads values ('q', 2, 1, 7)"],
    ["runtime_ids", "insert into awa.runtimes (runtime_id, name, contract, capabilities) values (9, 'r', 1, '{}')"]
  ] as const) {
    it.scopedLive(`refuses a copy whose sequence ${sequence} stayed behind`, () =>
      Effect.gen(function* () {
        const session = yield* Effect.flatMap(database, (db) => db.session)
        yield* enqueue(session, 3)
        yield* claim(session)
        yield* agedStorage(session)
        yield* session.script(spoil)
        yield* fromElsewhere(session)
        expect(yield* adopt(session)).toBe("refused")
        expect(yield* storageFault(session)).toContain(`sequence ${sequence} is behind`)
      })
    )
  }

  it.scopedLive("refuses a copy whose segment_cursor names no open segment of its generation", () =>
    Effect.gen(function* () {
      const session = yield* Effect.flatMap(database, (db) => db.session)
      yield* enqueue(session)
      yield* agedStorage(session)
      yield* fromElsewhere(session)
      for (const value of [0, 5, 8]) {
        yield* session.value("select setval('awa.segment_cursor', $1)", [value])
        expect(yield* adopt(session)).toBe("refused")
        expect(yield* storageFault(session)).toContain("segment_cursor")
      }
      yield* session.value("select setval('awa.segment_cursor', 4)")
      expect(yield* adopt(session)).toBe("adopted")
    })
  )

  it.scopedLive(
    "waits for transactions of this database that are older than what is stored: a cursor would hide theirs",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [session, old, prepared] = yield* Effect.all([db.session, db.session, db.session])
        yield* begin(old)
        yield* old.value("select pg_current_xact_id()")
        yield* begin(prepared)
        yield* prepared.script(`select pg_current_xact_id(); prepare transaction '${db.name}'`)
        yield* enqueue(session)
        yield* claim(session)
        yield* fromAnotherDatabase(session)
        expect(yield* adopt(session)).toBe("refused")
        expect(yield* storageFault(session)).toContain("a transaction is open")
        yield* old.script("commit")
        expect(yield* adopt(session)).toBe("refused")
        yield* session.script(`rollback prepared '${db.name}'`)
        yield* begin(old) // a newer one hides nothing
        yield* old.value("select pg_current_xact_id()")
        expect(yield* adopt(session)).toBe("adopted")
      })
  )

  it.scopedLive("does not take another server's transaction id that is in use here for an old one", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, open] = yield* Effect.all([db.session, db.session])
      yield* begin(open)
      yield* open.value("select pg_current_xact_id()")
      yield* enqueue(session)
      yield* fromElsewhere(session)
      expect(yield* adopt(session)).toBe("refused")
    })
  )
})

/** Some jobs in every state that a job can be in, over three segments. */
const history = (session: Session, other: Session) =>
  Effect.gen(function* () {
    const completed = yield* enqueue(session, 2)
    yield* close(session, yield* claim(session))
    const [longest] = yield* enqueue(session, 1)
    const [first] = yield* claim(session)
    if (first === undefined) throw new Error("an attempt")
    yield* beat(session, [first], { "1": { step: 3 } })
    // behind the cursor, in the pending list of the batch that passed it
    yield* begin(other)
    const late = yield* enqueue(other, 2)
    const passing = yield* enqueue(session, 1)
    const [second] = yield* claim(session)
    yield* other.script("commit")
    yield* rotate(session)
    const sealed = yield* enqueue(session, 2)
    const [dropped] = yield* enqueue(session, 1)
    yield* session.script(`insert into awa.ready_tombstones_1 (queue, priority, xid, seq, job_id, reason, created_at)
      select queue, priority, xid, seq, job_id, 'cancelled', clock_timestamp() from awa.ready_entries_1 where job_id = ${String(dropped)}`)
    yield* rotate(session)
    const urgent = yield* enqueue(session, 2, { opts: { priority: 1 } })
    const current = yield* enqueue(session, 2)
    const later = yield* enqueue(session, 1, { opts: { delay_ms: 3_600_000 } })
    return {
      completed,
      longest,
      passing: only(passing),
      late,
      sealed,
      dropped,
      urgent,
      current,
      later: only(later),
      attempts: [first, second]
    }
  })

const headOf = (session: Session, priority = 2) =>
  Effect.map(
    session.rows("select job_id from awa.spilled_entries where queue = 'q' and priority = $1 order by position", [
      priority
    ]),
    (rows) => bigints(column(rows, "job_id"))
  )

describe("rebase_storage", () => {
  it.scopedLive("keeps everything that has to run, in its order, and nothing else, in a database of its own", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = yield* Effect.all([db.session, db.session])
      const jobs = yield* history(session, other)
      // the late ones and two of the sealed segment leave the ring, one of them is claimed from the head
      expect(yield* session.value("select awa.spill_0('q', 2::smallint, 10)")).toBe(2)
      expect(yield* session.value("select awa.spill_1('q', 2::smallint, 1)")).toBe(1)
      yield* session.script("insert into awa.queues (queue, aging) values ('q', '0')")
      const [copied] = yield* claim(session, { limit: 1 })
      expect(copied).toMatchObject({ job_id: jobs.late[0], run_lease: 1n })
      yield* transplant(session)
      expect(yield* adopt(session)).toBe("refused")
      expect(yield* rebase(session)).toMatchObject({
        released: 3,
        leases: 0,
        kept_in_head: 2,
        moved: 5,
        parked: 0,
        truncated: null,
        drained: 3
      })
      expect(yield* headOf(session)).toEqual([
        jobs.longest,
        jobs.passing,
        ...jobs.late,
        ...jobs.sealed,
        ...jobs.current
      ])
      expect(yield* headOf(session, 1)).toEqual(jobs.urgent)
      expect(yield* adopt(session)).toBe("ours")
      expect(yield* states(session)).toBe("drained drained drained open")
      expect(yield* currentSlot(session)).toBe(3)
      expect(
        yield* session.rows(
          "select job_id, run_lease, attempt, progress, errors -> 0 -> 'error' ->> 'name' as error, errors -> 0 -> 'outcome' as outcome from awa.spilled_entries where errors is not null order by position"
        )
      ).toEqual([
        {
          job_id: jobs.longest,
          run_lease: 1n,
          attempt: 0,
          progress: { step: 3 },
          error: "DatabaseRestored",
          outcome: "released"
        },
        {
          job_id: jobs.passing,
          run_lease: 1n,
          attempt: 0,
          progress: null,
          error: "DatabaseRestored",
          outcome: "released"
        },
        {
          job_id: jobs.late[0],
          run_lease: 1n,
          attempt: 0,
          progress: null,
          error: "DatabaseRestored",
          outcome: "released"
        }
      ])
      for (const attempt of [...jobs.attempts, copied]) {
        if (attempt === undefined) throw new Error("an attempt")
        yield* fault(complete(session, attempt), "WA003")
        expect(yield* close(session, [attempt])).toEqual(["stale"])
        expect(yield* evidence(session, [attempt])).toEqual([["superseded", "released"]])
      }
      expect(yield* session.rows("select job_id, xid from awa.deferred_jobs")).toEqual([
        { job_id: jobs.later, xid: 0n }
      ])
      for (const table of ["attempt_state", "runtimes"]) {
        expect(yield* session.value(`select count(*) from awa.${table}`)).toBe(0n)
      }
      // what was completed is still there to read, and what was dropped is not back
      expect(yield* session.rows("select job_id from awa.attempts where outcome = 'completed' order by 1")).toEqual(
        jobs.completed.map((job_id) => ({ job_id }))
      )
      yield* fault(rebase(session), "55000")
    })
  )

  it.scopedLive("lets every job run exactly once, in order, before what comes after", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = yield* Effect.all([db.session, db.session])
      const jobs = yield* history(session, other)
      yield* transplant(session)
      yield* rebase(session)
      const [after] = yield* enqueue(session)
      const taken = yield* claim(session)
      expect(taken.map((attempt) => attempt.job_id)).toEqual([
        ...jobs.urgent,
        jobs.longest,
        jobs.passing,
        ...jobs.late,
        ...jobs.sealed,
        ...jobs.current,
        after
      ])
      expect(taken.find((attempt) => attempt.job_id === jobs.longest)).toMatchObject({
        run_lease: 2n,
        attempt: 1,
        progress: { step: 3 }
      })
      expect(yield* claimIds(session)).toEqual([])
      expect(new Set(yield* close(session, taken))).toEqual(new Set(["closed"]))
      expect(yield* session.value("select count(*) from awa.attempts where outcome = 'completed'")).toBe(13n)
    })
  )

  it.scopedLive("puts what was enqueued here before it behind what was restored", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = yield* Effect.all([db.session, db.session])
      const restored = yield* enqueue(session, 3)
      yield* transplant(session)
      const here = yield* enqueue(session, 2)
      // in a savepoint: the row is another transaction id's than the entry says
      yield* other.script("begin; select pg_current_xact_id(); savepoint s")
      const inside = yield* enqueue(other, 1)
      yield* other.script("commit")
      expect(yield* rebase(session)).toMatchObject({ moved: 6 })
      expect(yield* headOf(session)).toEqual([...restored, ...here, ...inside])
    })
  )

  it.scopedLive("sets sequences that stayed behind after what is stored", () =>
    Effect.gen(function* () {
      const session = yield* Effect.flatMap(database, (db) => db.session)
      const jobs = yield* enqueue(session, 5)
      const taken = yield* claim(session, { limit: 2 })
      yield* fromElsewhere(session)
      yield* session.script(
        "select setval(s, 1, false) from unnest('{awa.job_ids,awa.runtime_ids,awa.entry_seq,awa.batch_seq,awa.spill_positions}'::regclass[]) s;" +
          "select setval('awa.segment_cursor', 0)"
      )
      expect(yield* rebase(session)).toMatchObject({ released: 2, moved: 3 })
      expect(yield* adopt(session)).toBe("ours")
      const [fresh] = yield* enqueue(session)
      expect(fresh).toBeGreaterThan(jobs[4] ?? 0n)
      const batches = yield* session.rows("select batch_id from awa.claim_batches where n = 0")
      expect(bigints(column(batches, "batch_id")).every((id) => id > (taken[0]?.batch_id ?? 0n))).toBe(true)
    })
  )

  it.scopedLive("ends leases of handlers that are gone, and keeps parked ones", () =>
    Effect.gen(function* () {
      const session = yield* Effect.flatMap(database, (db) => db.session)
      yield* session.script(`insert into awa.leases
          (job_id, run_lease, receipt_id, claim_slot, batch_id, batch_index, runtime_id, state, queue, priority, attempt, max_attempts,
           created_at, claimed_at, heartbeat_at, kind, args, progress, callback_id, callback_answered, callback_result)
        select 10 * i, 4, 77, 256, 100 - i, 1, 1, s, 'q', 2, 3, 25, now(), now(), now(), 'k', '{}', jsonb_build_object('at', s),
          gen_random_uuid(), s = 'waiting', case when s = 'waiting' then '"answer"'::jsonb end
        from unnest('{running,waiting,parked}'::text[]) with ordinality u(s, i)`)
      yield* fromElsewhere(session)
      expect(yield* rebase(session)).toMatchObject({ released: 2, leases: 2, parked: 1 })
      expect(
        yield* session.rows(
          "select job_id, run_lease, attempt, progress, callback_result from awa.spilled_entries order by position"
        )
      ).toEqual([
        { job_id: 20n, run_lease: 4n, attempt: 2, progress: { at: "waiting" }, callback_result: "answer" },
        { job_id: 10n, run_lease: 4n, attempt: 2, progress: { at: "running" }, callback_result: null }
      ])
      expect(yield* session.rows("select job_id, outcome from awa.lease_closures order by 1")).toEqual([
        { job_id: 10n, outcome: "released" },
        { job_id: 20n, outcome: "released" }
      ])
      expect(yield* session.rows("select job_id, state from awa.leases")).toEqual([{ job_id: 30n, state: "parked" }])
    })
  )

  it.scopedLive("a crash in the middle is noticed, and loses nothing when it is run again", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = yield* Effect.all([db.session, db.session])
      const restored = yield* enqueue(session, 3)
      yield* agedStorage(session)
      yield* fromElsewhere(session)
      yield* begin(session)
      yield* rebase(session)
      yield* session.script("rollback")
      // it would have been adopted; the cursor, which no rollback takes back, tells that it must not
      expect(yield* storageFault(session)).toContain("segment_cursor")
      expect(yield* adopt(session)).toBe("refused")
      const here = yield* enqueue(other, 2) // where the cursor points
      expect(yield* rebase(session)).toMatchObject({ moved: 5 })
      expect(yield* headOf(session)).toEqual([...restored, ...here])
      expect(yield* adopt(session)).toBe("ours")
    })
  )

  it.scopedLive("empties the oldest segment when none is free, and says so", () =>
    Effect.gen(function* () {
      const session = yield* Effect.flatMap(database, (db) => db.session)
      const jobs: Array<bigint> = []
      for (const last of [false, false, false, true]) {
        jobs.push(...(yield* enqueue(session)))
        if (!last) yield* rotate(session)
      }
      yield* transplant(session)
      expect(yield* states(session)).not.toContain("free")
      expect(yield* rebase(session)).toMatchObject({
        moved: 4,
        segment: 0,
        truncated: { segment: 0, generation: 1 },
        drained: 3
      })
      expect(yield* headOf(session)).toEqual(jobs)
      expect(yield* currentSlot(session)).toBe(0)
      expect(yield* adopt(session)).toBe("ours")
    })
  )

  it.scopedLive("moves nothing twice when its own result is copied again", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, other] = yield* Effect.all([db.session, db.session])
      const jobs = yield* history(session, other)
      yield* transplant(session)
      expect(yield* rebase(session)).toMatchObject({ released: 2, moved: 8 })
      const [running] = yield* claim(session, { limit: 1 }) // of the first lane, from its head
      expect(running?.job_id).toBe(jobs.urgent[0])
      yield* transplant(session)
      expect(yield* rebase(session)).toMatchObject({
        released: 1,
        kept_in_head: 9,
        moved: 0,
        truncated: { segment: 0 }
      })
      expect(yield* headOf(session)).toEqual([
        jobs.longest,
        jobs.passing,
        ...jobs.late,
        ...jobs.sealed,
        ...jobs.current
      ])
      expect(yield* headOf(session, 1)).toEqual(jobs.urgent)
    })
  )

  it.scopedLive("is refused while a runtime may be at work, and where nothing is wrong", () =>
    Effect.gen(function* () {
      const session = yield* Effect.flatMap(database, (db) => db.session)
      yield* enqueue(session)
      expect((yield* fault(rebase(session), "55000")).message).toContain("nothing to rebase")
      yield* session.value("select awa.beat_runtime(null, 'alive', 1, '{}')")
      yield* transplant(session)
      expect((yield* fault(rebase(session), "55000")).message).toContain("alive")
      yield* session.script("update awa.runtimes set beat_at = beat_at - interval '61 seconds'")
      expect(yield* rebase(session)).toMatchObject({ moved: 1 })
    })
  )

  it.scopedLive("waits for whoever enqueues, no longer than its lock_timeout, and nobody's job is lost to it", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, application, waiting] = yield* Effect.all([db.session, db.session, db.session])
      const [restored] = yield* enqueue(session)
      yield* transplant(session)
      yield* begin(application)
      const [open] = yield* enqueue(application)
      yield* session.script("set lock_timeout = '50ms'")
      yield* fault(rebase(session), "55P03")
      expect(yield* states(session)).toBe("open free free free")
      yield* application.script("commit")
      yield* session.script("reset lock_timeout")
      // the enqueue begins when the rebase has all it needs but one table
      yield* begin(application)
      yield* application.script("lock table awa.ready_tombstones_3 in access share mode")
      const rebasing = yield* Effect.fork(rebase(session))
      yield* blocked(application, session)
      const enqueueing = yield* Effect.fork(enqueue(waiting))
      yield* blocked(application, waiting)
      yield* application.script("commit")
      yield* Fiber.join(rebasing)
      const [after] = yield* Fiber.join(enqueueing)
      expect(yield* headOf(session)).toEqual([restored, open])
      expect(yield* session.rows("select job_id, segment from awa.ready_entries where job_id = $1", [after])).toEqual([
        { job_id: after, segment: yield* currentSlot(session) }
      ])
    })
  )

  it.scopedLive("a claim takes nothing twice, whether it was first or waited", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, claiming, observer] = yield* Effect.all([db.session, db.session, db.session])
      const restored = yield* enqueue(session, 2)
      yield* fromElsewhere(session)
      yield* session.script("select setval('awa.segment_cursor', 0)")
      yield* begin(observer)
      yield* observer.script("lock table awa.claim_batches_0 in access exclusive mode")
      const first = yield* Effect.fork(claim(claiming, { limit: 1 }))
      yield* blocked(observer, claiming)
      yield* begin(session)
      const rebasing = yield* Effect.fork(rebase(session))
      yield* blocked(observer, session)
      yield* observer.script("commit")
      yield* Fiber.join(rebasing)
      const late = yield* Effect.fork(claim(observer))
      yield* blocked(claiming, observer)
      yield* session.script("commit")
      const before = yield* Fiber.join(first)
      expect(before.map((attempt) => attempt.job_id)).toEqual(restored.slice(0, 1))
      expect(yield* close(session, before)).toEqual(["stale"])
      expect((yield* Fiber.join(late)).map((attempt) => attempt.job_id)).toEqual(restored)
      expect(yield* claimIds(session)).toEqual([])
    })
  )
})
