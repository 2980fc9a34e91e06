/** F-67: the database's clock is the only one that counts, whatever a worker's own says. */
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Redacted, Schema } from "effect"
import { TestDatabase, WorkerProcess } from "effect-awa/testing"
import { database } from "../runtime/support.js"
import { Hang, Later, Overdue, Timed } from "./ClockSkew.jobs.js"
import { eventually, fromSource } from "./support.js"

const skews: Readonly<Record<string, number>> = { ahead: 600_000, behind: -600_000 }

/** A worker in a process of its own, and how far it finds its clock ahead of the database's. */
const worker = (name: string, clockSkewMillis: number) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.TestDatabase
    const process = yield* WorkerProcess.start({
      program: new URL("ClockSkew.child.ts", import.meta.url),
      execArgv: fromSource,
      env: { FAULTS_URL: Redacted.value(url), FAULTS_NAME: name },
      clockSkewMillis
    })
    yield* process.ready
    const [observed = ""] = (yield* process.lines).flatMap((line) => /^ready (-?\d+)$/.exec(line)?.[1] ?? [])
    assert.closeTo(Number(observed), clockSkewMillis, 30_000)
    return process
  })

const Attempt = Schema.Struct({
  run_lease: Schema.String,
  outcome: Schema.NullOr(Schema.String),
  runtime: Schema.NullOr(Schema.String),
  /** Seconds, by the database's clock. */
  took: Schema.NullOr(Schema.Number),
  /** Between the attempt before it and this one. */
  pause: Schema.NullOr(Schema.Number),
  deadline: Schema.NullOr(Schema.Number)
})

const attempts = (id: bigint) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return yield* sql`
      select a.run_lease::text, a.outcome, r.name as runtime,
        extract(epoch from a.closed_at - a.claimed_at)::float8 as took,
        extract(epoch from a.claimed_at - lag(a.closed_at) over (order by a.run_lease))::float8 as pause,
        extract(epoch from a.deadline_at - a.claimed_at)::float8 as deadline
      from awa.job_attempts(${String(id)}) a left join awa.runtimes r using (runtime_id) order by a.run_lease`
  }).pipe(Effect.flatMap(Schema.decodeUnknown(Schema.Array(Attempt))))

const hasEnded = (id: bigint) =>
  eventually(
    `the end of job ${id}`,
    Effect.map(attempts(id), (all) => all.at(-1)?.outcome === "completed")
  )

/** Far less than the skew, and far more than a slow machine needs. */
const soon = 240

const within = (value: number | null | undefined, least: number) => {
  assert.isAtLeast(value ?? Number.NaN, least)
  assert.isBelow(value ?? Number.NaN, least + soon)
}

describe("workers ten minutes ahead and ten minutes behind", () => {
  it.live(
    "keep to the database's clock: schedules, retries, deadlines, heartbeats and rescue",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`insert into awa.queues (queue, attempt_deadline) values ('overdue', '1 second')`
        const processes = {
          ahead: yield* worker("ahead", skews["ahead"] ?? 0),
          behind: yield* worker("behind", skews["behind"] ?? 0)
        }
        const hang = yield* Hang.enqueueAll([{ tag: "1" }, { tag: "2" }, { tag: "3" }, { tag: "4" }, { tag: "5" }])
        const [before] = yield* sql<{ due: string }>`select (clock_timestamp() + interval '2 s')::text as due`
        const timed = yield* Timed.enqueue({ tag: "timed" }, { delay: "2 seconds" })
        const later = yield* Later.enqueueAll([1, 2, 3, 4].map((n) => ({ tag: `later ${n}` })))
        const overdue = yield* Overdue.enqueue({ tag: "overdue" })

        // A schedule is kept, by a client that says how long, and by the database.
        yield* hasEnded(timed.id)
        const [late] = yield* sql<{ by: number }>`
          select extract(epoch from claimed_at - ${before?.due}::timestamptz)::float8 as by from awa.job_attempts(${String(timed.id)})`
        within(late?.by, 0)

        // A retry waits as long as it was told to.
        for (const { id } of later) {
          yield* hasEnded(id)
          const retried = yield* attempts(id)
          assert.deepStrictEqual(
            retried.map(({ outcome }) => outcome),
            ["retried", "completed"]
          )
          within(retried[1]?.pause, 1)
        }

        // So is a schedule that a worker with a wrong clock made.
        const made = sql<{ waited: number }>`
          select extract(epoch from claimed_at - created_at)::float8 as waited from awa.jobs
          where kind = 'timed' and state = 'completed' and args ->> 'tag' = 'by a worker'`
        yield* eventually(
          "the workers' own schedules",
          Effect.map(made, (rows) => rows.length === later.length)
        )
        for (const { waited } of yield* made) within(waited, 1)

        // A deadline passes when the database says so.
        yield* hasEnded(overdue.id)
        const [taken] = yield* attempts(overdue.id)
        assert.deepInclude(taken, { outcome: "rescued", deadline: 1 })
        within(taken?.took, 1)

        // What is beaten for is nobody else's, however long it takes: twice the staleness.
        yield* eventually(
          "beats beyond the staleness",
          Effect.map(
            sql<{
              n: number
            }>`select count(*)::int as n from awa.attempt_state where heartbeat_at > clock_timestamp() - interval '4 s'
              and exists (select from awa.attempts a where a.outcome is null and a.claimed_at < clock_timestamp() - interval '9 s')`,
            ([row]) => row?.n === hang.length
          )
        )
        const held = yield* Effect.forEach(hang, ({ id }) => attempts(id))
        assert.deepStrictEqual(
          held.map((all) => all.map(({ outcome, run_lease }) => [run_lease, outcome])),
          held.map(() => [["1", null]])
        )
        const owners = held.map(([attempt]) => attempt?.runtime ?? "")
        assert.sameMembers([...new Set(owners)], ["ahead", "behind"])

        // A killed worker's attempts are rescued when the staleness is over, by one whose clock says something else.
        assert.deepStrictEqual((yield* processes.ahead.kill).signal, Option.some("SIGKILL"))
        for (const [i, { id }] of hang.entries()) {
          if (owners[i] !== "ahead") continue
          yield* hasEnded(id)
          const [killed, rescued] = yield* attempts(id)
          assert.strictEqual(killed?.outcome, "rescued")
          within(killed?.took, 4)
          assert.deepInclude(rescued, { runtime: "behind", outcome: "completed" })
        }
        assert.isTrue(yield* processes.behind.isRunning)
      }).pipe(Effect.scoped, Effect.provide(database())),
    180_000
  )
})
