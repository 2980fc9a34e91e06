/**
 * C-16, C-12, F-70, F-71: workers over a transaction-mode pooler whose few server connections are everybody's. Nothing may rely
 * on a session: no named statement, no session lock, no setting; and what the pooler does to its clients is survived.
 */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Metric, Redacted, Schedule, Scope } from "effect"
import { Wakeup, Worker } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import pg from "pg"
import { inject } from "vitest"
import { eventually, insertRow, keptLocks } from "../runtime/support.js"
import { Charge, Direct, Notify, world, type WorldOptions } from "../runtime/world.js"
import { makePgBouncer, type PgBouncer, type PoolerOptions } from "./pgbouncer.js"

const backends = 3

/** A pooler with three server connections, and a world behind it. */
const pooled = <A, E, R>(
  settings: Readonly<Record<string, string>>,
  options: Omit<WorldOptions, "through">,
  body: (pooler: PgBouncer, setting: ReturnType<typeof world>) => Effect.Effect<A, E, R>,
  mode: PoolerOptions["mode"] = "transaction"
) =>
  Effect.gen(function* () {
    const pooler = yield* makePgBouncer({
      server: inject("postgresUrl"),
      mode,
      settings: { default_pool_size: String(backends), server_idle_timeout: "600", ...settings }
    })
    const setting = world({ ...options, through: pooler.through })
    return yield* body(pooler, setting).pipe(Effect.provide(setting.clients))
  }).pipe(Effect.scoped)

const booking: WorldOptions = {
  owned: (job) => job.finalize(insertRow(job.payload.tag)),
  ordinary: (job) => Effect.asVoid(insertRow(job.payload.tag)),
  worker: { beat: "100 millis", wakeup: { poll: "200 millis", probe: "1 second" } }
}

/** An answer to a claim may be lost with the pooler: its attempts are rescued once they are stale. */
const rescuing: WorldOptions = { ...booking, staleness: "5 seconds" }

/** Starts so many workers, each with its own pools, for as long as the scope lasts. */
const start = (setting: ReturnType<typeof world>, count: number) =>
  Effect.forEach(Array.from({ length: count }), () =>
    Effect.gen(function* () {
      const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
      return Context.get(yield* Layer.buildWithScope(setting.worker, scope), Worker.Worker)
    })
  )

const once = { unique: { by: ["kind", "args"], states: "all", window: "1 hour" }, maxAttempts: 100 } as const

const enqueueBoth = (from: number, to: number) =>
  Effect.gen(function* () {
    const tags = Array.from({ length: to - from }, (_, i) => ({ tag: String(from + i) }))
    yield* Charge.enqueueAll(tags, once)
    yield* Notify.enqueueAll(
      tags.map(({ tag }) => ({ tag: `o${tag}` })),
      once
    )
  }).pipe(
    // the application's own enqueue meets the pooler's faults as well: whether it took effect may stay unknown
    Effect.retry({ while: (error) => error._tag === "SqlError", schedule: Schedule.spaced("50 millis") })
  )

/** Every job ended, and every caller-owned one left exactly one row. */
const account = (jobs: number) =>
  Effect.gen(function* () {
    const sql = yield* Direct
    yield* eventually(
      "the end of every job",
      // what failed with its pooler need not wait for its retry
      sql`update awa.deferred_jobs set run_at = clock_timestamp(), xid = pg_current_xact_id()
        where run_at > clock_timestamp()`.pipe(
        Effect.zipRight(sql<{ n: number }>`select count(*)::int as n from awa.jobs where state = 'completed'`),
        Effect.map(([row]) => row?.n === 2 * jobs),
        Effect.delay("100 millis")
      ),
      "150 seconds"
    )
    assert.deepStrictEqual(
      yield* sql`select count(*)::int as n, count(distinct tag)::int as tags from application_rows where tag not like 'o%'`,
      [{ n: jobs, tags: jobs }]
    )
  })

/** What every server connection of the pooler holds beyond a transaction: all of them are asked at once. */
const leftInSessions = (pooler: PgBouncer, url: string) =>
  Effect.promise(async () => {
    const clients = Array.from(
      { length: backends },
      () => new pg.Client({ connectionString: pooler.through(url), application_name: "test" })
    )
    for (const client of clients) {
      client.on("error", () => undefined)
      await client.connect()
      await client.query("begin")
    }
    const answers = await Promise.all(
      clients.map(
        async (client) =>
          (
            await client.query<Record<string, unknown>>(`select pg_backend_pid() as pid,
              (select count(*)::int from pg_prepared_statements) as prepared,
              (select count(*)::int from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as locks,
              (select count(*)::int from pg_cursors where is_holdable) as cursors,
              (select coalesce(string_agg(name, ' ' order by name), '') from pg_settings where source = 'session'
                and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')) as settings`)
          ).rows[0]
      )
    )
    for (const client of clients) await client.query("rollback")
    for (const client of clients) await client.end()
    return answers
  })

/** What a worker says of its wake-up: itself, in its row, and in the gauge. */
const wakeup = (worker: Worker.Worker["Type"]) =>
  Effect.gen(function* () {
    const sql = yield* Direct
    const [row] = yield* sql<{ mode: string }>`select capabilities ->> 'wakeup' as mode from awa.runtimes
      where runtime_id = ${String(worker.runtimeId)}`
    const { value } = yield* Metric.value(Metric.tagged(Wakeup.listeningGauge, "schema", "awa"))
    return [yield* worker.wakeup, row?.mode, value]
  })

const becomes = (worker: Worker.Worker["Type"], mode: Wakeup.WakeupMode) =>
  eventually(
    `${mode}, everywhere`,
    Effect.map(wakeup(worker), (said) => said.join() === [mode, mode, mode === "listening" ? 1 : 0].join()),
    "40 seconds"
  )

describe("a transaction-mode pooler with three server connections", () => {
  for (const reset of ["", "DISCARD ALL"]) {
    it.scopedLive(
      `${reset === "" ? "that leaves sessions as they are" : "that discards sessions after every transaction"}: two workers, every job exactly once`,
      () =>
        pooled(
          reset === "" ? {} : { server_reset_query: reset, server_reset_query_always: "1" },
          booking,
          (pooler, setting) =>
            Effect.gen(function* () {
              const sql = yield* Direct
              const { url } = yield* TestDatabase.TestDatabase
              yield* start(setting, 2)
              const watching = yield* Effect.fork(keptLocks(sql))
              for (let i = 0; i < 4; i++) yield* enqueueBoth(i * 50, (i + 1) * 50)
              yield* account(200)
              assert.deepStrictEqual(yield* Fiber.join(watching), [])
              const sessions = yield* leftInSessions(pooler, Redacted.value(url))
              assert.strictEqual(new Set(sessions.map((session) => session?.["pid"])).size, backends)
              for (const session of sessions) {
                assert.deepInclude(session, { prepared: 0, locks: 0, cursors: 0, settings: "" })
              }
            })
        ),
      240_000
    )
  }
})

describe("LISTEN through a pooler", () => {
  it.scopedLive(
    "is not believed in transaction mode: polling takes over, visibly, until it is heard again",
    () =>
      // one server connection: what is sent from the listening connection itself would be heard there, and prove nothing
      pooled({ default_pool_size: "1" }, booking, (pooler, setting) =>
        Effect.gen(function* () {
          const [worker] = yield* start(setting, 1)
          if (worker === undefined) throw new Error("one worker")
          const told = () => setting.lines.filter(({ message }) => message.includes("polling every")).length
          yield* becomes(worker, "polling")
          yield* eventually(
            "a line in the log",
            Effect.sync(() => told() === 1)
          )
          yield* enqueueBoth(0, 5)
          yield* account(5)
          assert.strictEqual(told(), 1) // once, although LISTEN was tried again meanwhile
          yield* pooler.restart({ mode: "session", settings: { default_pool_size: "40" } })
          yield* becomes(worker, "listening")
          yield* enqueueBoth(5, 10)
          yield* account(10)
          yield* pooler.restart()
          yield* becomes(worker, "polling")
          yield* enqueueBoth(10, 15)
          yield* account(15)
          assert.deepStrictEqual(yield* wakeup(worker), ["polling", "polling", 0])
        })
      ),
    240_000
  )

  it.scopedLive(
    "goes past it by a url of its own",
    () =>
      pooled({}, { ...booking, listenDirectly: true }, (_, setting) =>
        Effect.gen(function* () {
          const [worker] = yield* start(setting, 1)
          if (worker === undefined) throw new Error("one worker")
          yield* becomes(worker, "listening")
          yield* enqueueBoth(0, 5)
          yield* account(5)
        })
      ),
    120_000
  )
})

describe("a pooler that fails its clients", () => {
  it.scopedLive(
    "by being restarted in the middle is survived, and every job runs to one end",
    () =>
      pooled({}, rescuing, (pooler, setting) =>
        Effect.gen(function* () {
          yield* start(setting, 2)
          for (let i = 0; i < 4; i++) {
            yield* enqueueBoth(i * 25, (i + 1) * 25)
            yield* Effect.sleep("100 millis")
            if (i < 3) yield* pooler.restart()
          }
          yield* account(100)
        })
      ),
    240_000
  )

  it.scopedLive(
    "by ending server connections all the time is survived",
    () =>
      pooled({ server_lifetime: "1" }, rescuing, (pooler, setting) =>
        Effect.gen(function* () {
          yield* start(setting, 2)
          for (let i = 0; i < 6; i++) {
            yield* enqueueBoth(i * 20, (i + 1) * 20)
            yield* Effect.sleep("700 millis")
          }
          yield* account(120)
          assert.include(yield* pooler.log, "server lifetime over")
        })
      ),
    240_000
  )

  it.scopedLive(
    "by answering that it takes no more connections is survived",
    () =>
      pooled({}, rescuing, (pooler, setting) =>
        Effect.gen(function* () {
          const { url } = yield* TestDatabase.TestDatabase
          const [worker] = yield* start(setting, 1)
          if (worker === undefined) throw new Error("one worker")
          yield* enqueueBoth(0, 10)
          yield* account(10)
          // others fill it while it forgets everybody
          const most = 12
          yield* pooler.restart({ settings: { default_pool_size: String(backends), max_client_conn: String(most) } })
          yield* Effect.scoped(
            Effect.gen(function* () {
              const refused = yield* Effect.iterate(0, {
                while: (refusals) => refusals < 3,
                body: (refusals) =>
                  Effect.map(take(pooler.through(Redacted.value(url))), (taken) => (taken ? refusals : refusals + 1))
              })
              assert.strictEqual(refused, 3)
              const sql = yield* Direct
              yield* sql`select awa.insert_job('charge', '{"tag": "10"}'), awa.insert_job('notify', '{"tag": "o10"}')`
              yield* eventually(
                "the pooler's own word",
                Effect.map(pooler.log, (log) => log.includes("no more connections allowed")),
                "60 seconds"
              )
              yield* Effect.sleep("1 second")
            })
          )
          yield* account(11)
        })
      ),
    240_000
  )
})

/** Takes a client connection for as long as the scope lasts; false when it was refused. */
const take = (url: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client({ connectionString: url })
      client.on("error", () => undefined)
      try {
        await client.connect()
        return client
      } catch {
        return undefined
      }
    }),
    (client) => Effect.promise(() => client?.end().catch(() => undefined) ?? Promise.resolve())
  ).pipe(Effect.map((client) => client !== undefined))
