import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import { notifyChannel } from "../../src/internal/renderSql.js"
import type { Session } from "./database.js"
import {
  beat,
  begin,
  bigints,
  blocked,
  claim,
  claimIds,
  claimRows,
  close,
  column,
  complete,
  drain,
  enqueue,
  explainBuffers,
  fault,
  fileDatabase,
  only,
  prune,
  rotate,
  states
} from "./support.js"

const database = fileDatabase()

type Verb = "cancel" | "delete" | "reprioritize" | "redrive"

const answers = (session: Session, verb: Verb, ids: ReadonlyArray<bigint>, priority = 1) =>
  Effect.map(
    verb === "reprioritize"
      ? session.rows("select answer from awa.reprioritize_jobs($1, $2)", [ids, priority])
      : session.rows(`select answer from awa.${verb}_jobs($1)`, [ids]),
    (rows) => column(rows, "answer")
  )

/** The state of a job: by its id and in the view, which must say the same. */
const stateOf = (session: Session, id: bigint) =>
  Effect.gen(function* () {
    const byId = yield* session.rows("select * from awa.job($1)", [id])
    expect(yield* session.rows("select * from awa.jobs where job_id = $1", [id])).toEqual(byId)
    return byId.length === 0 ? "none" : only(byId)["state"]
  })

const run = (session: Session, outcome: string, detail: Record<string, unknown> = {}) =>
  Effect.gen(function* () {
    const [id] = yield* enqueue(session, 1)
    yield* close(session, yield* claim(session), { outcome, detail })
    return id ?? 0n
  })

/** Unclaimed entries of the lane (q, 2) leave the first segment for their lane's head. */
const spill = (session: Session) => session.value("select awa.spill_0('q', 2::smallint, 1000)")

/** As materializing does: the attempt leaves the ring for a lease. */
const toLease = (session: Session, id: bigint, state = "running") =>
  session.rows(
    `with a as (select * from awa.attempts where job_id = $1 and outcome is null),
       closed as (
         insert into awa.closures_0 (batch_id, batch_index, outcome, closed_at, xid)
         select batch_id, batch_index, 'materialized', clock_timestamp(), pg_current_xact_id() from a)
     insert into awa.leases (job_id, run_lease, receipt_id, claim_slot, batch_id, batch_index, runtime_id, state, queue, priority, attempt,
       max_attempts, created_at, claimed_at, heartbeat_at, kind, args, unique_key)
     select a.job_id, a.run_lease, a.receipt_id, (m.fingerprint << 12) | 256, a.batch_id, a.batch_index, a.runtime_id, $2, a.queue,
       a.priority, a.attempt, e.max_attempts, e.created_at, a.claimed_at, clock_timestamp(), e.kind, e.args, e.unique_key
     from a join awa.ready_entries_0 e using (xid, seq), awa.meta m`,
    [id, state]
  )

const running = (session: Session) => Effect.map(Effect.zipRight(enqueue(session, 1), claimIds(session)), only)

const lease = (state: string) => (session: Session) =>
  Effect.gen(function* () {
    const id = yield* running(session)
    yield* toLease(session, id, state)
    return id
  })

const endedLease = (outcome: string) => (session: Session) =>
  Effect.gen(function* () {
    const id = yield* lease("running")(session)
    yield* session.rows(
      `with l as (delete from awa.leases where job_id = $1 returning *)
       insert into awa.lease_closures (job_id, run_lease, receipt_id, outcome, closed_at, xid, queue, priority, attempt, max_attempts,
         created_at, claimed_at, runtime_id, kind, args)
       select job_id, run_lease, receipt_id, $2::text::awa.outcome, clock_timestamp(), pg_current_xact_id(), queue, priority, attempt,
         max_attempts, created_at, claimed_at, runtime_id, kind, args from l`,
      [id, outcome]
    )
    return id
  })

const first = (ids: ReadonlyArray<bigint>) => only(ids)

/** How a job comes to be in a state; then what each verb answers, and the state after it. */
const table: ReadonlyArray<{
  readonly state: string
  readonly where?: string
  readonly make: (session: Session) => Effect.Effect<bigint, unknown>
  readonly cancel: readonly [string, string]
  readonly delete: readonly [string, string]
  readonly reprioritize: readonly [string, string]
  readonly redrive: readonly [string, string]
}> = [
  ...[
    { state: "available", make: (s: Session) => Effect.map(enqueue(s, 1), first) },
    {
      state: "available",
      where: "in its lane's head",
      make: (s: Session) => Effect.tap(Effect.map(enqueue(s, 1), first), spill(s))
    },
    { state: "scheduled", make: (s: Session) => Effect.map(enqueue(s, 1, { opts: { delay_ms: 60_000 } }), first) },
    { state: "retryable", make: (s: Session) => run(s, "retried", { delay_ms: 60_000 }) },
    { state: "snoozed", make: (s: Session) => run(s, "snoozed", { delay_ms: 60_000 }) }
  ].map(
    (entry) =>
      ({
        ...entry,
        cancel: ["cancelled", "cancelled"],
        delete: ["deleted", "none"],
        reprioritize: ["reprioritized", entry.state],
        redrive: ["live", entry.state]
      }) as const
  ),
  ...[
    { state: "running", make: running },
    {
      state: "running",
      where: "claimed from its lane's head",
      make: (s: Session) =>
        enqueue(s, 1).pipe(Effect.zipRight(spill(s)), Effect.zipRight(claimIds(s)), Effect.map(only))
    }
  ].map(
    (entry) =>
      ({
        ...entry,
        cancel: ["cancelled", "cancelled"],
        delete: ["running", "running"],
        reprioritize: ["running", "running"],
        redrive: ["live", "running"]
      }) as const
  ),
  ...["running", "waiting", "parked"].map(
    (state) =>
      ({
        state,
        where: "with a lease",
        make: lease(state),
        cancel: ["cancelled", "cancelled"],
        delete: ["running", state],
        reprioritize: ["running", state],
        redrive: ["live", state]
      }) as const
  ),
  ...[
    { state: "completed", make: (s: Session) => run(s, "completed") },
    { state: "completed", where: "with a lease", make: endedLease("completed") }
  ].map(
    (entry) =>
      ({
        ...entry,
        cancel: ["finished", "completed"],
        delete: ["finished", "completed"],
        reprioritize: ["finished", "completed"],
        redrive: ["finished", "completed"]
      }) as const
  ),
  ...[
    { state: "failed", make: (s: Session) => run(s, "failed", { error: { name: "E" } }) },
    { state: "cancelled", make: (s: Session) => run(s, "cancelled") },
    { state: "discarded", make: (s: Session) => run(s, "discarded") },
    { state: "dead_lettered", make: (s: Session) => run(s, "dead_lettered", { reason: "no such customer" }) },
    {
      state: "quarantined",
      make: (s: Session) =>
        Effect.tap(run(s, "failed"), () =>
          s.script(`with t as (delete from awa.terminal_jobs returning *)
            insert into awa.quarantined_jobs (job_id, run_lease, queue, priority, attempt, max_attempts, kind, args, progress, errors,
              created_at, unique_key, reason, quarantined_at)
            select job_id, run_lease, queue, priority, attempt, max_attempts, kind, args, progress, errors, created_at, unique_key,
              'a test', clock_timestamp() from t`)
        )
    }
  ].map(
    (entry) =>
      ({
        ...entry,
        cancel: ["finished", entry.state],
        delete: ["deleted", "none"],
        reprioritize: ["finished", entry.state],
        redrive: ["redriven", "available"]
      }) as const
  ),
  {
    state: "none",
    where: "deleted before",
    make: (s) => Effect.tap(Effect.map(enqueue(s, 1), first), (id) => answers(s, "delete", [id])),
    cancel: ["finished", "none"],
    delete: ["finished", "none"],
    reprioritize: ["finished", "none"],
    redrive: ["finished", "none"]
  },
  {
    state: "none",
    where: "never there",
    make: () => Effect.succeed(77n),
    cancel: ["unknown", "none"],
    delete: ["unknown", "none"],
    reprioritize: ["unknown", "none"],
    redrive: ["unknown", "none"]
  }
]

const runnable = ["available", "scheduled", "retryable", "snoozed"]

for (const verb of ["cancel", "delete", "reprioritize", "redrive"] as const) {
  describe(verb, () => {
    for (const { make, state, where, [verb]: expected } of table) {
      const [answer, after] = expected
      it.scopedLive(`of a job that is ${state}${where === undefined ? "" : `, ${where}`}: ${answer}`, () =>
        Effect.gen(function* () {
          const session = yield* (yield* database).session
          const id = yield* make(session)
          expect(yield* stateOf(session, id)).toBe(state)
          const chain = yield* session.rows("select run_lease from awa.job_attempts($1)", [id])
          expect(yield* answers(session, verb, [id])).toEqual([answer])
          expect(yield* stateOf(session, id)).toBe(after)
          if (answer === "reprioritized") {
            expect(yield* session.value("select priority from awa.job($1)", [id])).toBe(1)
            expect(yield* answers(session, verb, [id])).toEqual(["unchanged"])
          }
          // what is runnable runs once, and what is not does not
          yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp()")
          yield* session.value("select promoted from awa.promote_due(10)")
          expect(yield* claimIds(session)).toEqual(runnable.includes(after) ? [id] : [])
          const leases = bigints(
            column(yield* session.rows("select run_lease from awa.job_attempts($1)", [id]), "run_lease")
          )
          expect(leases.slice(0, chain.length)).toEqual(column(chain, "run_lease")) // history stays
          expect(new Set(leases).size).toBe(leases.length)
        })
      )
    }
  })
}

describe("a list", () => {
  it.scopedLive("is answered id by id, has its limit, and needs READ COMMITTED", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [a, b] = yield* enqueue(session, 2)
      const rows = yield* session.rows("select * from awa.cancel_jobs($1)", [[b, 99n, a, a, null]])
      expect(rows).toEqual([
        { job_id: a, answer: "cancelled" },
        { job_id: b, answer: "cancelled" },
        { job_id: 99n, answer: "unknown" }
      ])
      const many = Array.from({ length: 1001 }, (_, i) => BigInt(i))
      for (const verb of ["cancel", "delete", "reprioritize", "redrive"] as const) {
        expect((yield* fault(answers(session, verb, many), "22023")).message).toContain("at most 1000")
        expect(yield* answers(session, verb, [])).toEqual([])
        yield* begin(session, "repeatable read")
        yield* fault(answers(session, verb, [1n]), "25001")
        yield* session.script("rollback")
      }
      expect((yield* fault(answers(session, "reprioritize", [1n], 5), "22023")).message).toContain("priority")
    })
  )

  it.scopedLive("of a thousand jobs in several lanes is cancelled in one call", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = yield* enqueue(session, 400)
      const other = yield* enqueue(session, 300, { queue: "other", opts: { priority: 4 } })
      const later = yield* enqueue(session, 300, { opts: { delay_ms: 60_000 } })
      yield* claim(session, { limit: 100 })
      const all = [...ids, ...other, ...later]
      expect(new Set(yield* answers(session, "cancel", all))).toEqual(new Set(["cancelled"]))
      expect(yield* session.value("select count(*) from awa.terminal_jobs where state = 'cancelled'")).toBe(1000n)
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* claimIds(session, { queue: "other" })).toEqual([])
    })
  )
})

describe("cancel", () => {
  // C-02: exactly one of two wins
  it.scopedLive("against a claim: whoever holds the lane wins, the other is answered busy", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two] = [yield* db.session, yield* db.session]
      const [a, b] = yield* enqueue(one, 2)
      yield* begin(one)
      expect(yield* claimIds(one, { limit: 1 })).toEqual([a])
      yield* two.script("set statement_timeout = '5s'")
      expect(yield* answers(two, "cancel", [a ?? 0n, b ?? 0n])).toEqual(["busy", "busy"])
      yield* one.script("commit")
      yield* begin(two)
      expect(yield* answers(two, "cancel", [b ?? 0n])).toEqual(["cancelled"])
      expect((yield* claimRows(one)).map((row) => row["lane_busy"])).toEqual([true])
      yield* two.script("commit")
      expect(yield* claimIds(one)).toEqual([])
      expect(yield* answers(two, "cancel", [a ?? 0n])).toEqual(["cancelled"]) // running: its attempt ends
      const rows = yield* two.rows("select job_id, run_lease from awa.terminal_jobs order by job_id")
      expect(rows).toEqual([
        { job_id: a, run_lease: 1n },
        { job_id: b, run_lease: 0n }
      ])
    })
  )

  it.scopedLive(
    "and delete in the same second as claims: every job is taken by one of them, none by both, none by neither",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [one, two] = [yield* db.session, yield* db.session]
        const ids = yield* enqueue(one, 400)
        const claimed: Array<bigint> = []
        const deleted: Array<bigint> = []
        const left = () => ids.filter((id) => !claimed.includes(id) && !deleted.includes(id))
        const claiming = Effect.gen(function* () {
          while (left().length > 0) claimed.push(...(yield* claimIds(one, { limit: 2 })))
        })
        const deleting = Effect.gen(function* () {
          for (let next = left(); next.length > 0; next = left()) {
            const rows = yield* two.rows("select * from awa.delete_jobs($1)", [next.slice(0, 4)]) // what is claimed next
            for (const row of rows) if (row["answer"] === "deleted") deleted.push(...bigints([row["job_id"]]))
          }
        })
        yield* Effect.all([claiming, deleting], { concurrency: 2 })
        expect(claimed.length).toBeGreaterThan(0)
        expect(deleted.length).toBeGreaterThan(0)
        expect([...claimed, ...deleted].sort((a, b) => Number(a - b))).toEqual(ids)
      })
  )

  // storage.md: cancel takes the attempt lock in the try form
  for (const end of ["commit", "rollback"]) {
    it.scopedLive(`does not wait for an open transaction that completed the job; ${end} decides`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [application, operator] = [yield* db.session, yield* db.session]
        yield* enqueue(operator, 1)
        const attempt = only(yield* claim(operator))
        yield* begin(application)
        yield* complete(application, attempt)
        yield* operator.script("set lock_timeout = '1ms'; set statement_timeout = '5s'")
        const tries = yield* Effect.forEach([1, 2, 3], () =>
          Effect.timed(answers(operator, "cancel", [attempt.job_id]))
        )
        expect(tries.map(([, answer]) => answer)).toEqual([["busy"], ["busy"], ["busy"]])
        // the closure's key would be waited for, for 250 ms: not even that
        expect(Math.min(...tries.map(([elapsed]) => Duration.toMillis(elapsed)))).toBeLessThan(250)
        yield* application.script(end)
        expect(yield* answers(operator, "cancel", [attempt.job_id])).toEqual([
          end === "commit" ? "finished" : "cancelled"
        ])
        expect(yield* stateOf(operator, attempt.job_id)).toBe(end === "commit" ? "completed" : "cancelled")
      })
    )
  }

  it.scopedLive("of a job whose flush is in flight is busy for that job alone", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [worker, operator] = [yield* db.session, yield* db.session]
      const ids = yield* enqueue(operator, 3)
      const attempts = yield* claim(operator)
      yield* begin(worker)
      yield* close(worker, attempts.slice(0, 1))
      expect(yield* answers(operator, "cancel", ids)).toEqual(["busy", "cancelled", "cancelled"])
      yield* worker.script("commit")
      expect(yield* stateOf(operator, ids[0] ?? 0n)).toBe("completed")
    })
  )

  it.scopedLive("of a running job tells its runtime, and makes what it reports later stale", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script(`listen ${notifyChannel("awa")}`)
      const ids = yield* enqueue(session, 2)
      const attempts = yield* claim(session, { limit: 1 })
      yield* beat(session, attempts, { 1: { at: 5 } })
      yield* session.notifications
      expect(yield* answers(session, "cancel", ids)).toEqual(["cancelled", "cancelled"])
      yield* session.value("select 1")
      expect(yield* session.notifications).toEqual([`\u0001cancel/${ids[0]}/1`])
      expect(yield* close(session, attempts)).toEqual(["stale"])
      yield* fault(complete(session, only(attempts)), "WA001")
      expect(yield* beat(session, attempts)).toEqual([[1, "cancelled"]])
      const row = only(yield* session.rows("select state, progress, errors from awa.job($1)", [ids[0]]))
      expect(row).toMatchObject({ state: "cancelled", progress: { at: 5 }, errors: [{ error: { name: "Cancelled" } }] })
      expect(yield* session.value("select count(*) from awa.attempt_state")).toBe(0n)
    })
  )

  it.scopedLive("of a row that promotion holds is busy", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two] = [yield* db.session, yield* db.session]
      const ids = yield* enqueue(one, 1, { opts: { delay_ms: 60_000 } })
      yield* begin(one)
      yield* one.script("select from awa.deferred_jobs for update")
      for (const verb of ["cancel", "delete", "reprioritize"] as const) {
        expect(yield* answers(two, verb, ids)).toEqual(["busy"])
      }
    })
  )

  for (const [preset, held] of [
    [0, false],
    [1, false],
    [2, false],
    [3, true]
  ] as const) {
    it.scopedLive(`of an unclaimed job ${held ? "keeps" : "releases"} its unique key of preset ${preset}`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const ids = yield* enqueue(session, 1)
        yield* keyed(session, "ready_entries_0", ids[0] ?? 0n, preset)
        expect(yield* answers(session, "cancel", ids)).toEqual(["cancelled"])
        expect(yield* session.value("select count(*) from awa.unique_claims")).toBe(held ? 1n : 0n)
        expect(yield* answers(session, "delete", ids)).toEqual(["deleted"])
        expect(yield* session.value("select count(*) from awa.unique_claims")).toBe(0n)
      })
    )
  }

  it.scopedLive("of a job whose end cannot be stored quarantines that job alone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = yield* enqueue(session, 3)
      yield* session.script(`alter table awa.terminal_jobs add constraint refuses check (job_id <> ${ids[1]})`)
      expect(yield* answers(session, "cancel", ids)).toEqual(["cancelled", "cancelled", "cancelled"])
      yield* session.script("alter table awa.terminal_jobs drop constraint refuses")
      expect(yield* Effect.forEach(ids, (id) => stateOf(session, id))).toEqual([
        "cancelled",
        "quarantined",
        "cancelled"
      ])
      expect(yield* answers(session, "redrive", ids)).toEqual(["redriven", "redriven", "redriven"])
      expect(yield* claimIds(session)).toEqual(ids)
    })
  )
})

/** Gives a stored job a unique key, held by it or by another. */
const keyed = (session: Session, where: string, id: bigint, preset: number, holder = id, key = "key") =>
  Effect.zipRight(
    session.rows(
      `update awa.${where} set unique_key = set_byte('\\x00', 0, $2::integer) || sha256($3::text::bytea) where job_id = $1`,
      [id, preset, key]
    ),
    session.rows(
      `insert into awa.unique_claims values (sha256($3::text::bytea), $1, $2::smallint, case when $2 > 1 then clock_timestamp() + '1 hour' end)
       on conflict do nothing`,
      [holder, preset, key]
    )
  )

describe("reprioritize", () => {
  it.scopedLive("keeps one runnable copy, and the order in which the jobs could run", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const [a = 0n, b = 0n, c = 0n, d = 0n] = yield* enqueue(session, 4)
      const ready = yield* session.rows("select job_id, ready_at from awa.jobs order by job_id")
      expect(yield* answers(session, "reprioritize", [d, b])).toEqual(["reprioritized", "reprioritized"])
      expect(yield* answers(session, "reprioritize", [b], 3)).toEqual(["reprioritized"])
      expect(yield* answers(session, "reprioritize", [b], 1)).toEqual(["reprioritized"])
      expect(yield* session.rows("select job_id, ready_at from awa.jobs order by job_id")).toEqual(ready) // aging goes on
      yield* rotate(session)
      expect(yield* answers(session, "reprioritize", [a], 4)).toEqual(["reprioritized"])
      expect(yield* claimIds(session)).toEqual([d, b, c, a])
      expect(yield* claimIds(session)).toEqual([])
    })
  )

  it.scopedLive("of many in one call keeps their order", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = yield* enqueue(session, 20)
      yield* answers(session, "reprioritize", [...ids].reverse())
      expect(yield* claimIds(session)).toEqual(ids)
    })
  )

  it.scopedLive("keeps what the job has: leases, attempts, errors, progress, its callback's answer and its key", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const id = yield* run(session, "retried", { error: { name: "E" }, progress: { at: 1 }, delay_ms: 0 })
      yield* keyed(session, "ready_entries_0", id, 1)
      yield* session.script("update awa.ready_entries_0 set callback_result = 'null'") // a result like any other
      const body =
        "select run_lease, attempt, errors, progress, unique_key, callback_result::text, created_at, max_attempts, args from awa.ready_entries where priority = $1 and run_lease = 1"
      const before = yield* session.rows(body, [2])
      expect(yield* answers(session, "reprioritize", [id])).toEqual(["reprioritized"])
      expect(yield* session.rows(body, [1])).toEqual(before)
      expect(yield* session.value("select count(*) from awa.unique_claims")).toBe(1n)
      expect(only(yield* claim(session))).toMatchObject({ run_lease: 2n, attempt: 2, priority: 1 })
    })
  )

  it.scopedLive("against a claim that is not yet committed is busy, and then running", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [one, two] = [yield* db.session, yield* db.session]
      const ids = yield* enqueue(one, 1)
      yield* begin(one)
      yield* claim(one)
      expect(yield* answers(two, "reprioritize", ids)).toEqual(["busy"])
      expect(yield* answers(two, "delete", ids)).toEqual(["busy"])
      yield* one.script("commit")
      expect(yield* answers(two, "reprioritize", ids)).toEqual(["running"])
      expect(yield* answers(two, "delete", ids)).toEqual(["running"])
    })
  )
})

describe("redrive", () => {
  it.scopedLive("gives all attempts back, and keeps the lease's number, the errors and the progress", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.value(`select awa.set_queue('q', '{"dead_letter": true}')`)
      yield* enqueue(session, 1, { opts: { max_attempts: 2 } })
      const old = yield* claim(session)
      yield* close(session, old, { outcome: "retried", detail: { error: { name: "one" }, progress: { at: 1 } } })
      yield* close(session, yield* claim(session), { outcome: "retried", detail: { error: { name: "two" } } })
      const id = only(old).job_id
      expect(yield* stateOf(session, id)).toBe("dead_lettered")
      expect(yield* session.value("select answer from awa.redrive_where('dlq', 'q', 'k', null, null, 10)")).toBe(
        "redriven"
      )
      const next = only(yield* claim(session))
      expect(next).toMatchObject({ job_id: id, run_lease: 3n, attempt: 1, max_attempts: 2, progress: { at: 1 } })
      expect(yield* close(session, old, { closer: 9 })).toEqual(["stale"])
      const chain = yield* session.rows(
        "select run_lease, attempt, outcome, error -> 'name' as error from awa.job_attempts($1)",
        [id]
      )
      expect(chain).toEqual([
        { run_lease: 1n, attempt: 1, outcome: "retried", error: "one" },
        { run_lease: 2n, attempt: 2, outcome: "retried", error: "two" },
        { run_lease: 3n, attempt: 1, outcome: null, error: null }
      ])
    })
  )

  it.scopedLive("selects by queue, kind and time, and goes on behind those that stay", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      for (const queue of ["a", "b"]) {
        yield* enqueue(session, 3, { queue })
        yield* close(session, yield* claim(session, { queue }), { outcome: "failed" })
      }
      const where = (
        queue: string | null,
        kind: string | null,
        before: string | null,
        after: number | null,
        limit = 10
      ) =>
        Effect.map(
          session.rows("select job_id from awa.redrive_where('terminal', $1, $2, $3, $4, $5)", [
            queue,
            kind,
            before,
            after,
            limit
          ]),
          (rows) => column(rows, "job_id")
        )
      expect(yield* where("a", "other", null, null)).toEqual([])
      expect(yield* where(null, null, "2020-01-01T00:00:00Z", null)).toEqual([])
      expect(yield* where("a", null, null, null, 2)).toEqual([1n, 2n])
      expect(yield* where(null, "k", null, 4)).toEqual([5n, 6n])
      expect(yield* where(null, null, null, null)).toEqual([3n, 4n])
      yield* fault(session.value("select awa.redrive_where('elsewhere', null, null, null, null, 1)"), "22023")
    })
  )

  it.scopedLive("of a job whose unique key another one holds leaves it where it is", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const id = yield* run(session, "failed")
      const twin = yield* run(session, "failed")
      yield* keyed(session, "terminal_jobs", id, 1, 1000n)
      yield* keyed(session, "terminal_jobs", twin, 1, 1000n)
      expect(yield* answers(session, "redrive", [id, twin])).toEqual(["duplicate", "duplicate"])
      expect([yield* stateOf(session, id), yield* stateOf(session, twin)]).toEqual(["failed", "failed"])
      expect(yield* session.value("select job_id from awa.unique_claims")).toBe(1000n)
      yield* session.script("update awa.unique_claims set states = 2, expires_at = clock_timestamp() - interval '1 s'")
      expect(yield* answers(session, "redrive", [id, twin])).toEqual(["redriven", "duplicate"]) // past its window; and one of two
      expect(yield* session.rows("select job_id, states, expires_at from awa.unique_claims")).toEqual([
        { job_id: id, states: 1, expires_at: null }
      ])
      // whatever its preset was, its next end releases it
      yield* session.script(`update awa.claim_batches_0 set unique_keys = null`)
      expect(
        yield* session.value(
          "select get_byte(unique_key, 0) from awa.ready_entries_0 where job_id = $1 and run_lease = 1",
          [id]
        )
      ).toBe(1)
    })
  )

  it.scopedLive(
    "takes the key of a preset with a window until the job's end, and keeps one that is still its own",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const two = yield* run(session, "failed")
        const three = yield* run(session, "failed")
        yield* keyed(session, "terminal_jobs", two, 2, two, "two")
        yield* keyed(session, "terminal_jobs", three, 3, three, "three")
        yield* session.script("delete from awa.unique_claims where states = 2") // as the end of its job did
        expect(yield* answers(session, "redrive", [two, three])).toEqual(["redriven", "redriven"])
        expect(
          yield* session.rows(
            `select u.job_id, u.states, get_byte(e.unique_key, 0) as preset, u.expires_at is null as stays
           from awa.unique_claims u join awa.ready_entries_0 e on e.job_id = u.job_id and e.run_lease = 1 order by 1`
          )
        ).toEqual([
          { job_id: two, states: 1, preset: 1, stays: true },
          { job_id: three, states: 3, preset: 3, stays: false }
        ])
      })
  )

  it.scopedLive("by two at once leaves the job its key", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [other, session] = [yield* db.session, yield* db.session]
      const [id, held] = [yield* run(session, "failed"), yield* run(session, "failed")]
      yield* keyed(session, "terminal_jobs", id, 1)
      yield* session.script("delete from awa.unique_claims") // as the end of the job did
      yield* begin(other)
      expect(yield* answers(other, "redrive", [id])).toEqual(["redriven"])
      const second = yield* Effect.fork(answers(session, "redrive", [id]))
      yield* blocked(other, session)
      yield* other.script("commit")
      expect(yield* Fiber.join(second)).toEqual(["busy"])
      expect(yield* session.value("select job_id from awa.unique_claims")).toBe(id)
      // one that is quarantined has held its key all the while
      yield* session.script(
        `insert into awa.quarantined_jobs
         select job_id, run_lease, queue, priority, attempt, max_attempts, kind, args, progress, errors, created_at, null, 'x', now()
         from awa.terminal_jobs where job_id = ${held};
         delete from awa.terminal_jobs where job_id = ${held}`
      )
      yield* keyed(session, "quarantined_jobs", held, 1, held, "held")
      yield* begin(other)
      expect(yield* answers(other, "redrive", [held])).toEqual(["redriven"])
      expect(yield* answers(session, "redrive", [held])).toEqual(["busy"])
      yield* other.script("commit")
      expect(yield* session.value("select count(*) from awa.unique_claims")).toBe(2n)
    })
  )

  it.scopedLive("of one that cannot be stored refuses that one alone", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = [yield* run(session, "failed"), yield* run(session, "failed"), yield* run(session, "failed")]
      yield* session.script(`alter table awa.deferred_jobs add constraint refuses check (job_id <> ${ids[1]})`)
      expect(yield* answers(session, "redrive", ids)).toEqual(["redriven", "refused", "redriven"])
      yield* session.script("alter table awa.deferred_jobs drop constraint refuses")
      expect(yield* Effect.forEach(ids, (id) => stateOf(session, id))).toEqual(["available", "failed", "available"])
    })
  )

  it.scopedLive("does not wait for whoever holds the row, or an enqueue that takes the same key", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [other, session] = [yield* db.session, yield* db.session]
      const id = yield* run(session, "failed")
      const free = yield* run(session, "failed")
      yield* begin(other)
      yield* other.script(`select from awa.terminal_jobs where job_id = ${id} for update`)
      yield* session.script("set statement_timeout = '5s'")
      expect(yield* answers(session, "redrive", [id])).toEqual(["busy"])
      expect(yield* answers(session, "delete", [id])).toEqual(["busy"])
      yield* other.script("commit")
      yield* keyed(session, "terminal_jobs", id, 1)
      yield* session.script("delete from awa.unique_claims")
      yield* begin(other)
      yield* other.script("insert into awa.unique_claims values (sha256('key'), 1000, 1, null)")
      expect(yield* answers(session, "redrive", [id, free])).toEqual(["busy", "redriven"])
      yield* other.script("rollback")
      expect(yield* answers(session, "redrive", [id])).toEqual(["redriven"])
    })
  )

  it.scopedLive("waits once, and not for each, where an open transaction has the keys of many", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [session, open] = [yield* db.session, yield* db.session]
      const twins = JSON.stringify(
        Array.from({ length: 40 }, (_, i) => ({
          kind: "k",
          queue: "q",
          args: i,
          opts: { unique: {} }
        }))
      )
      const insert = "select job_id from awa.insert_jobs($1::text::jsonb)"
      const ids = bigints(column(yield* session.rows(insert, [twins]), "job_id"))
      yield* answers(session, "cancel", ids)
      yield* begin(open)
      yield* open.rows(insert, [twins])
      const [took, all] = yield* Effect.timed(answers(session, "redrive", ids))
      expect(all).toEqual(ids.map(() => "busy"))
      expect(Duration.toSeconds(took)).toBeLessThan(5) // 40 waits are 10 s
      yield* open.script("rollback")
      expect(yield* answers(session, "redrive", ids)).toEqual(ids.map(() => "redriven"))
    })
  )
})

describe("a queue", () => {
  it.scopedLive("that is paused gives nothing to claims until it is resumed", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script(`listen ${notifyChannel("awa")}`)
      const ids = yield* enqueue(session, 1)
      expect(yield* session.value("select awa.pause_queue('q')")).toBe(true)
      expect(yield* session.value("select awa.pause_queue('q')")).toBe(false)
      expect(yield* claimIds(session)).toEqual([])
      yield* session.notifications
      expect(yield* session.value("select awa.resume_queue('q')")).toBe(true)
      yield* session.value("select 1")
      expect(yield* session.notifications).toEqual(["q"])
      expect(yield* session.value("select awa.resume_queue('q')")).toBe(false)
      expect(yield* session.value("select awa.resume_queue('never')")).toBe(false)
      expect(yield* claimIds(session)).toEqual(ids)
      yield* fault(session.value("select awa.pause_queue('')"), "22023")
    })
  )

  it.scopedLive(
    "runs while a claim is being made, an attempt is open or a handler waits; a parked attempt has no handler",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [worker, session] = [yield* db.session, yield* db.session]
        const runs = (queue = "q") => session.value("select awa.queue_running($1)", [queue])
        yield* enqueue(session, 2)
        expect(yield* runs()).toBe(false)
        yield* begin(worker)
        const attempts = yield* claim(worker)
        expect(yield* runs()).toBe(true) // not yet committed
        yield* worker.script("commit")
        expect([yield* runs(), yield* runs("other")]).toEqual([true, false])
        yield* close(worker, attempts.slice(0, 1))
        yield* beat(worker, attempts.slice(1))
        yield* session.script("update awa.segments set rescued_to = 1000 where slot = 0") // rescue has looked at all of it
        expect(yield* runs()).toBe(true)
        yield* close(worker, attempts.slice(1), { hasState: true })
        expect(yield* runs()).toBe(false)
        yield* session.script("update awa.segments set rescued_to = 0 where slot = 0")
        expect(yield* runs()).toBe(false)
        const id = yield* lease("waiting")(session)
        expect(yield* runs()).toBe(true)
        yield* session.rows("update awa.leases set state = 'parked' where job_id = $1", [id])
        expect(yield* runs()).toBe(false)
      })
  )

  it.scopedLive("is set field by field; a field that breaks its rule is named", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const set = (settings: unknown, queue = "q") =>
        session.rows(
          "select queue, paused, aging::text, dead_letter, attempt_deadline::text, rate_limit, rate_interval::text from awa.set_queue($1, $2::text::jsonb)",
          [queue, JSON.stringify(settings)]
        )
      const fresh = { queue: "q", paused: false, aging: "00:01:00", dead_letter: false, attempt_deadline: null }
      expect(yield* set({})).toEqual([{ ...fresh, rate_limit: null, rate_interval: null }])
      expect(yield* set({ aging_ms: 0, attempt_deadline_ms: 1500, rate_limit: 10, rate_interval_ms: 1000 })).toEqual([
        { ...fresh, aging: "00:00:00", attempt_deadline: "00:00:01.5", rate_limit: 10, rate_interval: "00:00:01" }
      ])
      expect(yield* set({ dead_letter: true, aging_ms: null, rate_limit: null, rate_interval_ms: null })).toEqual([
        { ...fresh, dead_letter: true, attempt_deadline: "00:00:01.5", rate_limit: null, rate_interval: null }
      ])
      for (const [field, value] of [
        ["aging_ms", -1],
        ["aging_ms", "soon"],
        ["dead_letter", 1],
        ["attempt_deadline_ms", 0],
        ["rate_limit", 0],
        ["rate_limit", 1.5],
        ["rate_interval_ms", 0],
        ["rate_interval_ms", 100]
      ] as const) {
        expect((yield* fault(set({ [field]: value }), "22023")).message).toMatch(field)
      }
      expect((yield* fault(set({ rate: 1 }), "WA005")).message).toContain("rate")
      expect((yield* fault(set([]), "22023")).message).toContain("settings")
      expect((yield* fault(set({}, "a\u0001"), "22023")).message).toContain("queue")
    })
  )
})

describe("what operators read", () => {
  it.scopedLive("follows a job through its life, the same by id and in the views", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const id = first(yield* enqueue(session, 1, { args: { n: 1 } }))
      const seen: Array<unknown> = [yield* stateOf(session, id)]
      const look = Effect.tap(stateOf(session, id), (state) => Effect.sync(() => seen.push(state)))
      const due = session.script("update awa.deferred_jobs set run_at = clock_timestamp(); select awa.promote_due(10)")
      const attempts = yield* claim(session)
      yield* look
      yield* beat(session, attempts, { 1: { at: 2 } })
      expect(yield* session.value("select progress from awa.job($1)", [id])).toEqual({ at: 2 })
      yield* stateOf(session, id)
      yield* close(session, attempts, {
        outcome: "retried",
        hasState: true,
        detail: { delay_ms: 60_000, error: { name: "E" } }
      })
      yield* look
      yield* due
      yield* rotate(session)
      yield* answers(session, "reprioritize", [id])
      yield* look
      yield* close(session, yield* claim(session), { outcome: "snoozed", detail: { delay_ms: 60_000 } })
      yield* look
      yield* due
      const third = yield* claim(session)
      yield* close(session, third, { outcome: "failed" })
      yield* look
      yield* answers(session, "redrive", [id])
      const last = only(yield* claim(session))
      yield* complete(session, last, { progress: { at: 9 } })
      yield* look
      expect(seen).toEqual(["available", "running", "retryable", "available", "snoozed", "failed", "completed"])
      const chain = yield* session.rows(
        "select run_lease, attempt, outcome::text, caller_owned, progress, closed_at, claimed_at, runtime_id from awa.job_attempts($1)",
        [id]
      )
      expect(
        chain.map(({ attempt, caller_owned, outcome, run_lease }) => [run_lease, attempt, outcome, caller_owned])
      ).toEqual([
        [1n, 1, "retried", false],
        [2n, 2, "snoozed", false],
        [3n, 2, "failed", false],
        [4n, 1, "completed", true]
      ])
      expect(
        yield* session.rows(
          "select run_lease, attempt, outcome::text, caller_owned, progress, closed_at, claimed_at, runtime_id from awa.attempts where job_id = $1 order by run_lease",
          [id]
        )
      ).toEqual(chain)
    })
  )

  it.scopedLive("shows an attempt that left the ring once, and what was spilled as available", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ended = yield* endedLease("failed")(session)
      const open = yield* lease("waiting")(session)
      const rows = yield* session.rows("select job_id, outcome::text, attempt, kind from awa.attempts order by job_id")
      expect(rows).toEqual([
        { job_id: ended, outcome: "failed", attempt: 1, kind: "k" },
        { job_id: open, outcome: null, attempt: 1, kind: "k" }
      ])
      expect(yield* session.rows("select authority, outcome from awa.job_attempts($1)", [ended])).toEqual([
        { authority: "lease", outcome: "failed" }
      ])
      const spilled = yield* enqueue(session, 3)
      yield* spill(session)
      expect(yield* session.value("select count(*) from awa.attempts")).toBe(2n)
      expect(yield* Effect.forEach(spilled, (id) => stateOf(session, id))).toEqual([
        "available",
        "available",
        "available"
      ])
    })
  )

  // storage.md, the cursor: what was in progress below it is read later
  it.scopedLive("finds the attempt of any entry, also of those that were read behind the cursor", () =>
    Effect.gen(function* () {
      const db = yield* database
      const sessions = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
      const session = yield* db.session
      for (let round = 0; round < 8; round++) {
        for (const [i, late] of sessions.entries()) {
          if ((round + i) % 3 === 0) yield* begin(late)
          yield* enqueue(late, 1 + ((round * 7 + i * 3) % 5))
          yield* enqueue(late, 1, { opts: { priority: 1 } })
          if ((round + i) % 3 === 2) yield* late.script("commit")
          yield* claim(session, { limit: 2 + i })
        }
      }
      const check = Effect.gen(function* () {
        const expected = yield* session.rows(
          `select j.job_id, j.state, a.batch_id, a.batch_index from awa.jobs j left join awa.attempts a using (job_id) order by 1`
        )
        const found = yield* session.rows(
          `select f.job_id, f.state, f.batch_id, f.batch_index from awa.find_jobs(array(select job_id from awa.jobs)) f order by 1`
        )
        expect(found).toEqual(expected)
        return expected
      })
      expect(new Set(column(yield* check, "state"))).toEqual(new Set(["available", "running"]))
      for (const late of sessions) yield* late.script("commit")
      yield* check
      while ((yield* claim(session, { limit: 3 })).length > 0) yield* Effect.void
      expect(new Set(column(yield* check, "state"))).toEqual(new Set(["running"]))
    })
  )

  it.scopedLive("finds a job among many without reading them", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("select awa.job(1), awa.job_attempts(1)") // plans of empty tables
      for (let n = 0; n < 10; n++) {
        yield* enqueue(session, 2000)
        for (let m = 0; m < 20; m++) yield* claim(session, { limit: 90 })
      }
      yield* session.script("select awa.job(1), awa.job_attempts(1)") // read once
      for (const id of [1, 9000, 19_999]) {
        expect(yield* explainBuffers(session, `select * from awa.job(${id})`)).toBeLessThan(400)
        expect(yield* explainBuffers(session, `select * from awa.job_attempts(${id})`)).toBeLessThan(700)
        expect(yield* explainBuffers(session, `select * from awa.cancel_jobs('{${id}}')`)).toBeLessThan(1000)
      }
    })
  )

  it.scopedLive("counts up to a cap, says when there is more, and reads no more than that", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const counts = (cap: number) => session.rows("select * from awa.queue_counts($1)", [cap])
      expect(yield* counts(10)).toEqual([])
      yield* enqueue(session, 5)
      yield* claim(session, { limit: 2 })
      yield* enqueue(session, 12, { queue: "big" })
      yield* rotate(session)
      yield* enqueue(session, 12, { queue: "big", opts: { priority: 3 } })
      yield* enqueue(session, 10, { opts: { delay_ms: 60_000 } })
      yield* enqueue(session, 11, { queue: "later", opts: { delay_ms: 60_000 } })
      yield* run(session, "completed").pipe(Effect.zipRight(Effect.void))
      const row = (queue: string, state: string, n: bigint, is_exact = true) => ({ queue, state, n, is_exact })
      const found = yield* counts(10)
      expect(found).toEqual([
        row("big", "available", 10n, false),
        row("later", "scheduled", 10n, false),
        row("q", "running", 2n),
        row("q", "scheduled", 10n)
      ])
      expect(yield* counts(1000)).toContainEqual(row("big", "available", 24n))
      yield* answers(session, "cancel", [6n, 7n])
      expect(yield* counts(1000)).toContainEqual(row("big", "available", 22n)) // a tombstone is no job
      expect(yield* counts(1000)).toContainEqual(row("big", "cancelled", 2n))
      yield* enqueue(session, 30_000, { queue: "big" })
      yield* counts(10)
      expect(yield* explainBuffers(session, "select * from awa.queue_counts(10)")).toBeLessThan(1500)
      yield* fault(counts(0), "22023")
    })
  )

  it.scopedLive("shows the ring, and since when everything reads back", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const health = session.rows(
        "select slot, state, is_current, free_slots, history_since = (select s.opened_at from awa.segments s where s.slot = $1) as since from awa.storage_health()",
        [0]
      )
      yield* rotate(session)
      yield* rotate(session)
      expect(yield* health).toEqual([
        { slot: 0, state: "sealed", is_current: false, free_slots: 1, since: true },
        { slot: 1, state: "sealed", is_current: false, free_slots: 1, since: true },
        { slot: 2, state: "open", is_current: true, free_slots: 1, since: true },
        { slot: 3, state: "free", is_current: false, free_slots: 1, since: true }
      ])
      yield* session.script("update awa.segments set state = 'free' where slot = 1") // a gap: what was there is gone
      expect(
        yield* session.value(
          "select history_since = (select s.opened_at from awa.segments s where s.slot = 2) from awa.storage_health() limit 1"
        )
      ).toBe(true)
    })
  )
})

describe("tombstones", () => {
  it.scopedLive("do not keep a segment from being drained and pruned", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const ids = yield* enqueue(session, 5)
      yield* enqueue(session, 5, { queue: "nobody" })
      yield* close(session, yield* claim(session, { limit: 2 }))
      expect(new Set(yield* answers(session, "cancel", ids.slice(2)))).toEqual(new Set(["cancelled"]))
      expect(new Set(yield* answers(session, "delete", [6n, 7n, 8n, 9n, 10n]))).toEqual(new Set(["deleted"]))
      yield* rotate(session)
      expect(yield* drain(session)).toBe(1)
      expect(yield* prune(session)).toBe(0)
      expect(yield* states(session)).toBe("free open free free")
      expect(yield* session.value("select count(*) from awa.ready_tombstones")).toBe(0n)
    })
  )
})
