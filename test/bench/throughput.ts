/**
 * Jobs per second, and statements per job, of the whole path, beside a raw SQL floor in the same run: the same functions called
 * by a bare driver loop, without Effect, decoding or permits.
 *
 * `npm run bench:throughput -- --jobs 20000 --owned 4000`
 */
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "@effect/sql"
import { Job } from "effect-awa"
import { EmbeddedPostgres, layer as embedded } from "effect-awa/layers/EmbeddedPostgres"
import * as Worker from "effect-awa/layers/Worker"
import { migrate } from "effect-awa/Migrations"
import { FaultProxy } from "effect-awa/testing"
import { Config, Effect, Layer, Redacted, Schema } from "effect"
import { parseArgs } from "node:util"
import pg from "pg"

const { values: options } = parseArgs({
  options: { jobs: { type: "string", default: "20000" }, owned: { type: "string", default: "4000" } }
})
const jobs = Number(options.jobs)
const owned = Number(options.owned)

const Ordinary = Job.make("ordinary", { payload: Schema.Struct({ i: Schema.Int }) })
const Owned = Job.make("owned", { payload: Schema.Struct({ i: Schema.Int }), queue: "owned" })

const perSecond = (count: number, millis: number) => `${Math.round((count / millis) * 1000)}/s`

/** Enqueues in calls of 1,000. */
const enqueue = <Kind extends string>(job: Job.Job<Kind, { readonly i: number }, never>, count: number) =>
  Effect.forEach(
    Array.from({ length: Math.ceil(count / 1000) }, (_, call) => Math.min(1000, count - call * 1000)),
    (size) => job.enqueueAll(Array.from({ length: size }, (_, i) => ({ i }))),
    { discard: true }
  )

/** The floor: claim 500, close 500, on two pipelined connections. */
const floor = async (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 2 })
  const started = performance.now()
  let done = 0
  const loop = async () => {
    for (;;) {
      const { rows } = await pool.query(
        "select claim_slot, batch_id, batch_index, job_id, run_lease, receipt_id, args from awa.claim('default', 500, 0) where not lane_busy"
      )
      if (rows.length === 0) {
        if (done >= jobs) return
        continue
      }
      const column = (name: string) => rows.map((row: Record<string, unknown>) => row[name])
      await pool.query("select * from awa.close_attempts(1, $1, $2, $3, $4, $5, $6, $7::awa.outcome[], '{}', false)", [
        ...["claim_slot", "batch_id", "batch_index", "job_id", "run_lease", "receipt_id"].map(column),
        rows.map(() => "completed")
      ])
      done += rows.length
    }
  }
  await Promise.all([loop(), loop()])
  const millis = performance.now() - started
  await pool.end()
  return millis
}

/** The floor of a caller-owned job: BEGIN, one insert, complete_job, COMMIT, by a bare driver on 20 connections. */
const ownedFloor = async (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 20 })
  const { rows } = await pool.query<Record<string, unknown>>(
    "select job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index from awa.claim('owned', 10000, 0) where not lane_busy"
  )
  let next = 0
  const loop = async () => {
    for (let row = rows[next++]; row !== undefined; row = rows[next++]) {
      const connection = await pool.connect()
      await connection.query("begin")
      await connection.query("insert into ledger (i) values ($1)", [next])
      await connection.query("select * from awa.complete_job($1, $2, $3, $4, $5, $6, null)", Object.values(row))
      await connection.query("commit")
      connection.release()
    }
  }
  const started = performance.now()
  await Promise.all(Array.from({ length: 20 }, loop))
  const millis = performance.now() - started
  await pool.end()
  return { count: rows.length, millis }
}

const program = Effect.gen(function* () {
  const server = yield* EmbeddedPostgres
  const url = server.url("postgres")
  yield* migrate({ url })
  const proxy = yield* FaultProxy.makeUrl(url)
  const client = PgClient.layer({ url, maxConnections: 20 })
  let finished = 0
  const count = Effect.sync(() => {
    finished += 1
  })
  const handlers = Layer.mergeAll(
    Ordinary.toLayer(() => count),
    Owned.toLayerCallerOwned((job) =>
      Effect.zipLeft(
        job.finalize(
          Effect.flatMap(SqlClient.SqlClient, (sql) => sql`insert into ledger (i) values (${job.payload.i})`)
        ),
        count
      )
    )
  )
  const worker = (queue: string, concurrency: number, through: Redacted.Redacted) =>
    Worker.layer({
      jobs: [Ordinary, Owned],
      queues: { [queue]: { concurrency } },
      database: Config.succeed(through)
    }).pipe(Layer.provide(handlers))
  const until = (total: number) => Effect.repeat(Effect.sleep("5 millis"), { until: () => finished >= total })

  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`create table ledger (i integer not null)`
    const measured = (
      what: string,
      total: number,
      run: Effect.Effect<unknown, unknown, SqlClient.SqlClient | PgClient.PgClient>
    ) =>
      Effect.gen(function* () {
        finished = 0
        const started = performance.now()
        yield* run
        console.log(`${what.padEnd(44)} ${perSecond(total, performance.now() - started)}`)
      })

    yield* measured("enqueue, 1,000 a call", jobs, enqueue(Ordinary, jobs))
    const floorMillis = yield* Effect.promise(() => floor(Redacted.value(url)))
    console.log(`${"claim + close, raw SQL floor".padEnd(44)} ${perSecond(jobs, floorMillis)}`)

    yield* enqueue(Ordinary, jobs)
    yield* measured("ordinary jobs, concurrency 1,000", jobs, Effect.provide(until(jobs), worker("default", 1000, url)))

    yield* enqueue(Owned, Math.min(owned, 10_000))
    const raw = yield* Effect.promise(() => ownedFloor(Redacted.value(url)))
    console.log(`${"begin, insert, complete_job, commit: floor".padEnd(44)} ${perSecond(raw.count, raw.millis)}`)
    yield* sql`truncate ledger`

    yield* enqueue(Owned, owned)
    yield* measured("caller-owned jobs, concurrency 20", owned, Effect.provide(until(owned), worker("owned", 20, url)))

    const ledger = yield* sql<{ n: number }>`select count(*)::int as n from ledger`
    console.log(`${"ledger rows".padEnd(44)} ${ledger[0]?.n} of ${owned}`)

    for (const [name, enqueued, queue, concurrency] of [
      ["ordinary", enqueue(Ordinary, 2000), "default", 1000],
      ["caller-owned", enqueue(Owned, 2000), "owned", 20]
    ] as const) {
      const calls = new Map<string, number>()
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* proxy.rule({
            match: ({ sql: text }) => {
              const call = /"awa"\.(\w+)/.exec(text)?.[1]
              if (call !== undefined) calls.set(call, (calls.get(call) ?? 0) + 1)
              return false
            },
            action: FaultProxy.cutBefore()
          })
          yield* enqueued
          finished = 0
          yield* Effect.provide(until(2000), worker(queue, concurrency, yield* proxy.through(url)))
        })
      )
      const shown = [...calls].map(([call, n]) => `${call} ${(n / 2000).toFixed(3)}`).join(", ")
      console.log(`runtime statements per ${name} job: ${shown}`)
    }
  }).pipe(Effect.provide(client))
}).pipe(Effect.scoped, Effect.provide(embedded()))

await Effect.runPromise(program)
