/** Rescue when things are not as they should be: contract C-02, C-03, C-17.2; storage.md "Guard and locks"; F-1, F-46, F-67, F-82. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Fs from "node:fs"
import * as Path from "node:path"
import type { PgFault, Session } from "./database.js"
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
  fileDatabase,
  only,
  rotate
} from "./support.js"

const database = fileDatabase({
  then: `
create schema hurdle;
create function hurdle.raise() returns trigger language plpgsql as $$
begin
  raise exception 'the hurdle refuses';
end $$;`
})

const running = (session: Session, n = 1, options: EnqueueOptions = {}) =>
  Effect.flatMap(enqueue(session, n, options), () => claim(session, { limit: n }))

const toLeases = (session: Session) => session.value("select awa.materialize_segment_0(awa.claim_slot_base(), 0, 1000)")

/** The two authorities over an attempt, and rescue from each. */
const authorities = [
  {
    where: "in the ring",
    place: () => Effect.void,
    rescue: (session: Session, limit = 100, staleness = "1 min") =>
      session.value("select awa.rescue_stale($1, $2)", [staleness, limit])
  },
  {
    where: "under lease",
    place: (session: Session): Effect.Effect<unknown, PgFault> => toLeases(session),
    rescue: (session: Session, limit = 100, staleness = "1 min") =>
      session.value("select awa.rescue_leases($1, $2)", [staleness, limit])
  }
] as const

/** As if these attempts had been claimed, and beaten for, a while ago. */
const age = (session: Session, by = "2 min") =>
  session.script(`
    update awa.claim_batches_0 set claimed_at = claimed_at - interval '${by}';
    update awa.claim_batches_1 set claimed_at = claimed_at - interval '${by}';
    update awa.attempt_state set heartbeat_at = heartbeat_at - interval '${by}';
    update awa.leases set heartbeat_at = heartbeat_at - interval '${by}'`)

const open = (session: Session, attempts: ReadonlyArray<Attempt>) =>
  Effect.map(evidence(session, attempts), (all) => all.flatMap(([status], i) => (status === "open" ? [i] : [])))

const quarantined = (session: Session) =>
  Effect.map(session.rows("select job_id, reason from awa.quarantined_jobs order by job_id"), (rows) =>
    rows.map(({ job_id, reason }) => [job_id, reason])
  )

/** What can be wrong with one job, and where its rescue must then end: in quarantine with a reason, or open until it is mended. */
interface Badness {
  readonly what: string
  readonly spoil: (bad: Attempt, under: string) => string
  readonly mend: (under: string) => string
  readonly reason?: RegExp
}

const trigger = (table: string, bad: Attempt, when = "insert", column = "new.job_id") =>
  `create trigger hurdle before ${when} on awa.${table} for each row when (${column} = ${bad.job_id}) execute function hurdle.raise()`

const closureOf = (under: string) => (under === "in the ring" ? "closures_0" : "lease_closures")

const bodyOf = (under: string, bad: Attempt) =>
  under === "in the ring"
    ? `awa.ready_entries_0 t where t.job_id = ${bad.job_id}`
    : `awa.leases t where t.job_id = ${bad.job_id}`

const setBody = (assignment: string) => (bad: Attempt, under: string) =>
  `update ${bodyOf(under, bad).replace(" where", ` set ${assignment} where`)}`

const badness: ReadonlyArray<Badness> = [
  {
    what: "whose errors are no list",
    spoil: setBody(`errors = '"nonsense"'`),
    mend: () => "select 1",
    reason: /^22023, on its way from outcome rescued: /
  },
  {
    what: "that a constraint of the site refuses",
    spoil: (bad) => `alter table awa.deferred_jobs add constraint hurdle check (job_id <> ${bad.job_id})`,
    mend: () => "alter table awa.deferred_jobs drop constraint hurdle",
    reason: /^23514, on its way from outcome rescued: .*hurdle/
  },
  {
    what: "that a unique index of the site knows already",
    spoil: (bad) => `
      insert into awa.deferred_jobs (job_id, queue, priority, state, run_at, run_lease, attempt, max_attempts, kind, args, created_at, xid)
      values (999, 'q', 2, 'scheduled', 'infinity', 0, 0, 1, 'k', '{"twin": ${bad.job_id}}', clock_timestamp(), '5');
      create unique index hurdle on awa.deferred_jobs ((case when job_id in (999, ${bad.job_id}) then 1 end))`,
    mend: () => "drop index awa.hurdle; delete from awa.deferred_jobs where job_id = 999",
    reason: /^23505, on its way from outcome rescued: .*hurdle/
  },
  {
    what: "that a trigger refuses on its way back into the ring",
    spoil: (bad) => trigger("ready_entries_0", bad),
    mend: () => "drop trigger hurdle on awa.ready_entries_0",
    reason: /^P0001, on its way into the ring: the hurdle refuses$/
  },
  {
    what: "whose unique key cannot be given back",
    spoil: (bad, under) => `
      insert into awa.unique_claims values (sha256('k'), ${bad.job_id}, 1, null);
      ${setBody("unique_key = '\\x01'::bytea || sha256('k'), max_attempts = 1")(bad, under)};
      ${trigger("unique_claims", bad, "delete", "old.job_id")}`,
    mend: () => "drop trigger hurdle on awa.unique_claims; delete from awa.unique_claims",
    reason: /^P0001, on its way from outcome rescued: the hurdle refuses$/
  },
  {
    what: "that not even the quarantine takes",
    spoil: (bad) => `${trigger("deferred_jobs", bad)}; ${trigger("quarantined_jobs", bad)}`,
    mend: () => "drop trigger hurdle on awa.deferred_jobs; drop trigger hurdle on awa.quarantined_jobs"
  },
  {
    what: "whose end cannot be recorded",
    spoil: (bad, under) =>
      under === "in the ring"
        ? `create trigger hurdle before insert on awa.closures_0 for each row when (new.batch_index = ${bad.batch_index} and new.batch_id = ${bad.batch_id})
           execute function hurdle.raise()`
        : trigger("lease_closures", bad),
    mend: (under) => `drop trigger hurdle on awa.${closureOf(under)}`
  }
]

for (const { place, rescue, where } of authorities) {
  describe(`rescue ${where}`, () => {
    // F-46, F-82: one bad row never stops the sweep
    for (const { mend, reason, spoil, what } of badness) {
      it.scopedLive(`takes the others past an attempt ${what}`, () =>
        Effect.gen(function* () {
          const session = yield* (yield* database).session
          const attempts = yield* running(session, 7)
          const [, , , bad] = attempts
          if (bad === undefined) throw new Error("seven attempts")
          yield* place(session)
          yield* Effect.acquireUseRelease(
            session.script(spoil(bad, where)),
            () =>
              Effect.gen(function* () {
                yield* age(session)
                expect(yield* rescue(session)).toBe(reason === undefined ? 6 : 7)
                expect(yield* open(session, attempts)).toEqual(reason === undefined ? [3] : [])
                if (reason === undefined) {
                  expect((yield* session.notices).join()).toMatch(
                    new RegExp(`attempt of job ${bad.job_id}, run lease 1, cannot be ended: P0001 the hurdle refuses`)
                  )
                  expect(yield* quarantined(session)).toEqual([])
                } else {
                  expect(yield* quarantined(session)).toEqual([[bad.job_id, expect.stringMatching(reason)]])
                }
                // and the next sweep comes by as well
                yield* claim(session)
                yield* place(session)
                yield* age(session)
                expect(yield* rescue(session)).toBe(6)
              }),
            () => Effect.ignore(session.script(mend(where)))
          )
          if (reason !== undefined) return
          yield* age(session)
          expect(yield* rescue(session)).toBe(1)
          expect(yield* open(session, attempts)).toEqual([])
        })
      )
    }

    // the longest history that is kept: twenty errors of 8 KiB
    it.scopedLive("keeps the newest twenty errors of a history that is full", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const [attempt] = yield* running(session)
        if (attempt === undefined) throw new Error("one attempt")
        yield* place(session)
        yield* session.script(
          setBody(
            "errors = (select jsonb_agg(jsonb_build_object('n', n, 'error', repeat('x', 8192))) from generate_series(1, 20) n)"
          )(attempt, where)
        )
        yield* age(session)
        expect(yield* rescue(session)).toBe(1)
        expect(
          yield* session.value(
            "select jsonb_array_length(errors) || ' from ' || (errors -> 0 ->> 'n') from awa.ready_entries_0 where run_lease = 1"
          )
        ).toBe("20 from 2")
      })
    )

    it.scopedLive("does not starve what is stale behind what is not due, whatever its limit", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const first = yield* running(session, 60)
        const stale = yield* running(session, 5)
        yield* place(session)
        yield* age(session)
        yield* beat(session, first) // all of them stand before the stale ones, in every order
        expect([yield* rescue(session, 3), yield* rescue(session, 3), yield* rescue(session, 3)]).toEqual([3, 2, 0])
        expect(yield* open(session, stale)).toEqual([])
        expect(yield* open(session, first)).toHaveLength(60)
      })
    )

    // C-17.2: a finalization is in flight for as long as its transaction is prepared, over any number of sweeps
    it.scopedLive("leaves an attempt to a prepared transaction for ever, and says whose it is", () =>
      Effect.gen(function* () {
        const db = yield* database
        const [caller, session] = [yield* db.session, yield* db.session]
        for (const end of ["commit", "rollback"]) {
          const attempts = yield* running(session, 2)
          const [first] = attempts
          if (first === undefined) throw new Error("two attempts")
          yield* place(session)
          yield* age(session)
          yield* begin(caller)
          yield* complete(caller, first)
          yield* caller.script("prepare transaction 'forgotten'")
          yield* session.script("set lock_timeout = '1ms'")
          expect([yield* rescue(session), yield* rescue(session), yield* rescue(session, 100, "0")]).toEqual([1, 0, 0])
          expect(yield* open(session, attempts)).toEqual([0])
          expect(yield* beat(session, [first])).toEqual(where === "in the ring" ? [] : [[1, "busy"]])
          expect(
            yield* session.rows("select job_id, gid, pid, since <= clock_timestamp() as past from awa.held_attempts()")
          ).toEqual([{ job_id: first.job_id, gid: "forgotten", pid: null, past: true }])
          yield* session.script("set lock_timeout = 0")
          yield* session.script(`${end} prepared 'forgotten'`)
          expect(yield* session.rows("select * from awa.held_attempts()")).toEqual([])
          expect(yield* rescue(session, 100, "0")).toBe(end === "commit" ? 0 : 1)
          expect(yield* evidence(session, [first])).toEqual([["closed", end === "commit" ? "completed" : "rescued"]])
          yield* close(session, yield* claim(session))
        }
      })
    )

    // F-58: the deadline is the queue's, as it was when the attempt was claimed
    it.scopedLive("ends an attempt past the deadline of its queue, however young and however well beaten for", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        yield* session.value(`select awa.set_queue('q', '{"attempt_deadline_ms": 3600000}')`)
        const attempts = yield* running(session, 3)
        yield* session.value(`select awa.set_queue('q', '{"attempt_deadline_ms": null}')`)
        const without = yield* running(session, 1)
        yield* place(session)
        yield* beat(session, attempts.slice(0, 2))
        expect(yield* rescue(session)).toBe(0)
        yield* session.script(`
          update awa.claim_batches_0 set deadline_at = deadline_at - interval '1 hour';
          update awa.leases set deadline_at = deadline_at - interval '1 hour'`)
        expect(yield* rescue(session)).toBe(3)
        expect(yield* open(session, [...attempts, ...without])).toEqual([3])
      })
    )
  })
}

// F-1: what was chosen is looked at again by the statement that ends it
it.scopedLive("rescue that had to wait on its way spares an attempt that was beaten for meanwhile", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [flushing, session, worker] = [yield* db.session, yield* db.session, yield* db.session]
    const [first] = yield* running(session)
    if (first === undefined) throw new Error("one attempt")
    yield* rotate(session)
    const attempts = yield* running(session, 2)
    const [spared] = attempts
    if (spared === undefined) throw new Error("two attempts")
    yield* beat(session, attempts)
    yield* age(session)
    yield* begin(flushing)
    expect(yield* close(flushing, [first])).toEqual(["closed"])
    const rescuing = yield* Effect.fork(session.value("select awa.rescue_stale('1 min', 100)"))
    yield* blocked(worker, session)
    expect(yield* beat(worker, [spared])).toEqual([])
    yield* flushing.script("commit")
    expect(yield* Fiber.join(rescuing)).toBe(1)
    expect(yield* evidence(session, [first, ...attempts])).toEqual([
      ["closed", "completed"],
      ["open", null],
      ["closed", "rescued"]
    ])
  })
)

// storage.md: a beat in an open transaction, of a runtime that froze, keeps nobody waiting
it.scopedLive("rescue does not wait for a beat that is in flight, whose row goes with the next sweep", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [beating, session] = [yield* db.session, yield* db.session]
    const attempts = yield* running(session, 2)
    yield* beat(session, attempts)
    yield* age(session)
    yield* begin(beating)
    yield* beat(beating, attempts.slice(0, 1))
    yield* session.script("set lock_timeout = '1ms'")
    expect(yield* session.value("select awa.rescue_stale('1 min', 100)")).toBe(2)
    yield* beating.script("commit")
    expect(yield* beat(session, attempts)).toEqual([
      [1, "rescued"],
      [2, "rescued"]
    ])
    expect(yield* session.value("select awa.sweep('1 day')")).toBe(1)
    expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
  })
)

// schema/README.md, "Lock order": a beat's new rows before its old ones
it.scopedLive("a beat that waits for a new row holds none of the old ones", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [leading, beating, other] = [yield* db.session, yield* db.session, yield* db.session]
    const [old, fresh] = yield* running(leading, 2)
    if (old === undefined || fresh === undefined) throw new Error("two attempts")
    yield* beat(leading, [old])
    yield* begin(leading)
    yield* leading.rows(
      "insert into awa.attempt_state (job_id, run_lease, claim_slot, batch_id, batch_index, heartbeat_at) values ($1, 1, 0, $2, $3, now())",
      [fresh.job_id, fresh.batch_id, fresh.batch_index]
    )
    const waiting = yield* Effect.fork(beat(beating, [old, fresh]))
    yield* blocked(other, beating)
    expect(
      bigints(column(yield* other.rows("select job_id from awa.attempt_state for update nowait"), "job_id"))
    ).toEqual([old.job_id])
    yield* leading.script("commit")
    expect(yield* Fiber.join(waiting)).toEqual([])
  })
)

// What a ring that cannot turn because of a finalization says of itself
it.scopedLive("the ring names the transaction, prepared or open, that holds an attempt of its oldest segment", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [caller, session] = [yield* db.session, yield* db.session]
    const [a, b] = yield* running(session, 2)
    if (a === undefined || b === undefined) throw new Error("two attempts")
    yield* beat(session, [a, b])
    yield* rotate(session)
    yield* drain(session)
    yield* begin(caller)
    yield* complete(caller, a)
    yield* caller.script("prepare transaction 'forgotten'")
    yield* begin(caller)
    yield* complete(caller, b)
    expect(
      yield* session.rows(
        "select pid, gid, detail from awa.ring_blockers('0') where reason = 'finalization' order by detail"
      )
    ).toEqual([
      { pid: null, gid: "forgotten", detail: `holds the attempt of job ${a.job_id}, run lease 1` },
      { pid: caller.pid, gid: null, detail: `holds the attempt of job ${b.job_id}, run lease 1` }
    ])
    yield* caller.script("rollback")
  })
)

const progressOf = (session: Session, attempt: Attempt) =>
  session.rows("select progress from awa.attempts where job_id = $1 and outcome = 'completed'", [attempt.job_id])

// C-14: what the caller's snapshot cannot see of a lease is 40001, the progress of a later beat included
it.scopedLive(
  "a completion under lease, in a snapshot older than the last beat, is 40001; tried again it has the progress",
  () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      for (const isolation of ["repeatable read", "serializable"]) {
        const attempt = only(yield* running(session))
        yield* beat(session, [attempt], { 1: { step: 1 } })
        yield* toLeases(session)
        yield* begin(caller, isolation)
        yield* caller.script("select from awa.segments")
        yield* beat(session, [attempt], { 1: { step: 2 } })
        expect((yield* Effect.flip(complete(caller, attempt))).code).toBe("40001")
        yield* caller.script("rollback")
        expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
        yield* begin(caller, isolation)
        yield* complete(caller, attempt)
        expect(yield* caller.command("commit")).toBe("COMMIT")
        expect(yield* progressOf(session, attempt)).toEqual([{ progress: { step: 2 } }])
      }
    })
)

// C-12, C-31: a transaction that outlasts a beat is not failed by it
it.scopedLive(
  "a completion in the ring, in a snapshot older than the last beat, has the progress that it says, or that it sees",
  () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      for (const isolation of ["repeatable read", "serializable"]) {
        for (const [said, stored] of [
          [{ step: 2 }, { step: 2 }],
          [null, { step: 1 }]
        ]) {
          const attempt = only(yield* running(session))
          yield* beat(session, [attempt], { 1: { step: 1 } })
          yield* begin(caller, isolation)
          yield* caller.script("select from awa.segments")
          yield* beat(session, [attempt], { 1: { step: 2 } })
          yield* complete(caller, attempt, { progress: said })
          expect(yield* caller.command("commit")).toBe("COMMIT")
          expect(yield* progressOf(session, attempt)).toEqual([{ progress: stored }])
        }
      }
    })
)

// F-67: no replica's clock decides anything: what the runtime calls takes lengths of time, and no time
it("no routine that a runtime calls takes a time, but the filter of an operator", () => {
  const manifest = Fs.readFileSync(Path.join(import.meta.dirname, "../../schema/manifest.json"), "utf8")
  const routines = [
    ...manifest.matchAll(/"name": "([^"]+)",\s+"arguments": "([^"]*)",[^}]*"searchPath": ("[^"]*"|null)/g)
  ]
  const entries = routines.filter(([, , , searchPath]) => searchPath !== "null")
  expect(entries.length).toBeGreaterThan(40)
  expect(
    entries.flatMap(([, name, args]) => (/(^|, )(?!OUT )\w+ (timestamp|date|time)/.test(args ?? "") ? [name] : []))
  ).toEqual(["redrive_where"])
})
