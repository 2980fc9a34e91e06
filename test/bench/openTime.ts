/**
 * How long application transactions are open, and how old the horizon becomes by them: the documented short path, in which the
 * handler asks its provider first and opens the transaction around the final write only, beside a handler that holds its
 * transaction over the call, and one that would hold it for the whole run and is refused.
 *
 *     npm run bench:open-time -- --jobs 2000
 *
 * --jobs    of the short path; the others run fewer
 * --call    how long the provider takes, in milliseconds; 50
 * --url     a superuser's url of a server to use; an embedded server unless said
 * --out     where the results go; .tmp/bench-open-time
 */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Config, Effect, Layer, Redacted, Schema } from "effect"
import { Job } from "effect-awa"
import * as Worker from "effect-awa/layers/Worker"
import { availableParallelism } from "node:os"
import { parseArgs } from "node:util"
import * as Engine from "./engine.js"
import { resultText, type Table, write } from "./storage/report.js"
import { serverUrl, withDatabase } from "./storage/server.js"
import { quantile } from "./storage/statistics.js"

const { values: flags } = parseArgs({
  options: {
    jobs: { type: "string", default: "2000" },
    call: { type: "string", default: "50" },
    url: { type: "string" },
    out: { type: "string", default: ".tmp/bench-open-time" }
  }
})
const jobs = Number(flags.jobs)
const callMillis = Number(flags.call)
const concurrency = 20
const maximumMillis = 1_000

const payload = Schema.Struct({ i: Schema.Int })
const Short = Job.make("short", { payload, queue: "short" })
const Held = Job.make("held", { payload, queue: "held" })
const Whole = Job.make("whole-run", { payload, queue: "whole-run", maxAttempts: 1 })

const provider = Effect.sleep(callMillis)
const book = (i: number) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql`insert into ledger (i) values (${i})`)

let ended = 0
const counted = <A, E, R>(handler: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.ensuring(
    handler,
    Effect.sync(() => {
      ended += 1
    })
  )

const handlers = Layer.mergeAll(
  Short.toLayerCallerOwned((job) => counted(Effect.zipRight(provider, job.finalize(book(job.payload.i))))),
  Held.toLayerCallerOwned((job) => counted(job.finalize(Effect.zipRight(book(job.payload.i), provider)))),
  Whole.toLayerCallerOwned((job) => counted(job.finalize(Effect.zipRight(book(job.payload.i), Effect.sleep("1 hour")))))
)

const property = (of: object, key: string | symbol): unknown => Reflect.get(of, key)

/**
 * The program's client, with a clock: from BEGIN's departure to the answer of what ended the transaction, or the end of its
 * connection. A proxy, since the client is a function too.
 */
const timed = (client: PgClient.PgClient, open: Array<number>): PgClient.PgClient =>
  new Proxy(client, {
    get: (target, key) =>
      key === "reserve"
        ? Effect.map(target.reserve, (connection) => {
            let began = 0
            return new Proxy(connection, {
              get: (inner, name) =>
                name === "executeRaw"
                  ? (sql: string, params: ReadonlyArray<unknown>) => {
                      if (sql.startsWith("begin")) began = performance.now()
                      return Effect.ensuring(
                        inner.executeRaw(sql, params),
                        Effect.sync(() => {
                          if (/commit|rollback/.test(sql)) open.push(performance.now() - began)
                        })
                      )
                    }
                  : property(inner, name)
            })
          })
        : property(target, key)
  })

interface Horizon {
  readonly millis: Array<number>
  readonly xids: Array<number>
}

/** The oldest snapshot that an application's transaction holds, sampled on a connection of its own. */
const sample = (url: string, into: Horizon) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = await Engine.connect(url)
      const running = new AbortController()
      const loop = (async () => {
        while (!running.signal.aborted) {
          const { rows } = await client.query<{ millis: number; xids: number }>(
            `select coalesce(max(extract(epoch from clock_timestamp() - xact_start) * 1000), 0)::float8 as millis,
               coalesce(max(greatest(age(backend_xmin), age(backend_xid))), 0) as xids
             from pg_stat_activity where datname = current_database() and application_name = 'application' and xact_start is not null`
          )
          into.millis.push(rows[0]?.millis ?? 0)
          into.xids.push(rows[0]?.xids ?? 0)
          await new Promise((resolve) => setTimeout(resolve, 5))
        }
      })()
      return { client, loop, stop: () => running.abort() }
    }),
    ({ client, loop, stop }) =>
      Effect.promise(async () => {
        stop()
        await loop
        await client.end()
      })
  )

type Numbers = { readonly [name: string]: number }

const measure = <Kind extends string>(
  url: string,
  job: Job.Job<Kind, { readonly i: number }, never>,
  queue: string,
  count: number
) =>
  Effect.gen(function* () {
    const open: Array<number> = []
    const horizon: Horizon = { millis: [], xids: [] }
    const secret = Redacted.make(url)
    const clients = PgClient.layer({ url: secret, maxConnections: concurrency, applicationName: "application" })
    const worker = Layer.unwrapEffect(
      Effect.map(PgClient.PgClient, (client) =>
        Worker.layer({
          jobs: [Short, Held, Whole],
          queues: { [queue]: { concurrency } },
          database: Config.succeed(secret),
          applicationTransaction: maximumMillis
        }).pipe(Layer.provide(handlers), Layer.provide(Layer.succeed(PgClient.PgClient, timed(client, open))))
      )
    )
    yield* Effect.gen(function* () {
      for (let from = 0; from < count; from += 1000) {
        yield* job.enqueueAll(Array.from({ length: Math.min(1000, count - from) }, (_, i) => ({ i: from + i })))
      }
      yield* sample(url, horizon)
      ended = 0
      yield* Effect.scoped(
        Effect.zipRight(Layer.build(worker), Effect.repeat(Effect.sleep("5 millis"), { until: () => ended >= count }))
      )
    }).pipe(Effect.scoped, Effect.provide(clients))
    const numbers: Numbers = {
      transactions: open.length,
      "open p50": quantile(open, 0.5),
      "open p99": quantile(open, 0.99),
      "open max": Math.max(...open),
      "horizon age p50": quantile(horizon.millis, 0.5),
      "horizon age p99": quantile(horizon.millis, 0.99),
      "horizon age max": Math.max(...horizon.millis),
      "horizon age max, transactions": Math.max(...horizon.xids)
    }
    return numbers
  })

const program = Effect.gen(function* () {
  const server = yield* serverUrl(flags.url, false)
  yield* Effect.promise(() =>
    withDatabase(server, async ({ url }) => {
      const version = await Engine.withClient(url, async (client) => {
        await client.query("create table ledger (i integer not null)")
        return Engine.version(client)
      })
      const run = <Kind extends string>(
        job: Job.Job<Kind, { readonly i: number }, never>,
        queue: string,
        count: number
      ) => Effect.runPromise(measure(url, job, queue, count))
      const all = [
        ["the short path: call, then transaction", await run(Short, "short", jobs)],
        ["the call inside the transaction", await run(Held, "held", Math.ceil(jobs / 4))],
        [
          `a transaction for the whole run, refused after ${maximumMillis} ms`,
          await run(Whole, "whole-run", concurrency)
        ]
      ] as const
      const names = Object.keys(all[0][1])
      const table: Table = {
        title: `Application transactions, in ms; ${concurrency} at once, a provider that takes ${callMillis} ms`,
        columns: ["handler", ...names],
        rows: all.map(([what, numbers]) => [what, ...names.map((name) => numbers[name] ?? 0)])
      }
      const result = { name: "Open time", checks: [], tables: [table], charts: [], notes: [] }
      const environment: Table = {
        title: "Environment",
        columns: ["what", "value"],
        rows: [
          ["started", new Date().toISOString()],
          ["processors", String(availableParallelism())],
          ["Node", process.version],
          ["PostgreSQL", version]
        ]
      }
      await write(flags.out, "How long application transactions are open", environment, [result])
      console.log(resultText(result))
    })
  )
})

await Effect.runPromise(Effect.scoped(program))
