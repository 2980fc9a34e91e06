/** effect-awa itself, by its public names. */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Job } from "effect-awa"
import * as Pg from "effect-awa/drivers/Pg"
import * as WorkerLayer from "effect-awa/layers/Worker"
import { migrate } from "effect-awa/Migrations"
import * as Worker from "effect-awa/Worker"
import { Config, Effect, Layer, Logger, LogLevel, ManagedRuntime, Redacted, Schema } from "effect"
import { readFileSync } from "node:fs"
import pg from "pg"
import { grouped } from "./grouped.js"
import { accountOf, type Payload, type Place, serve, type Work } from "./serve.js"

const { version } = Schema.decodeUnknownSync(Schema.parseJson(Schema.Struct({ version: Schema.String })))(
  // the bundle is in dist
  readFileSync(new URL("../../../../package.json", import.meta.url), "utf8")
)

/** As many handlers run at once: those that finish at once, and those of which so many hold a connection. */
const concurrency = 2000
const ownedConcurrency = 200
const connections = 20

const Bench = Job.make("bench", { payload: Schema.Struct({ n: Schema.Int }) })

const quiet = Logger.minimumLogLevel(LogLevel.Warning)

const change = (payload: Payload) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`update bench_accounts set n = n + 1 where id = ${accountOf(payload)}`
  )

/**
 * With `ordinary` as its first argument: the same job by an ordinary handler, for the two lanes beside each other. With `pg`: by a
 * caller-owned handler that writes by node-postgres, as the floor does and the other peers do.
 */
const [, , variant] = process.argv
const ordinaryHandler = variant === "ordinary"
const byPg = variant === "pg"

const update = "update bench_accounts set n = n + 1 where id = $1"

const handler = ({ lane, started }: Work, pool: pg.Pool) => {
  if (lane === "ordinary") return Bench.toLayer((job) => Effect.sync(() => started(job.payload)))
  const first = (payload: Payload) => Effect.sync(() => started(payload))
  if (ordinaryHandler) {
    return Bench.toLayer((job) => Effect.zipRight(first(job.payload), Effect.asVoid(change(job.payload))))
  }
  if (byPg) {
    return Bench.toLayerCallerOwned((job) => {
      const changed = (client: pg.PoolClient) => client.query(update, [accountOf(job.payload)])
      return Effect.zipRight(first(job.payload), Pg.finalize(pool, job, changed, { expect: false }))
    })
  }
  return Bench.toLayerCallerOwned((job) => Effect.zipRight(first(job.payload), job.finalize(change(job.payload))))
}

const client = ({ url }: Place, maxConnections: number) => PgClient.layer({ url: Redacted.make(url), maxConnections })

const layer = (place: Place, work: Work, pool: pg.Pool) => {
  const total = work.lane === "ordinary" ? concurrency : ownedConcurrency
  const each = { concurrency: Math.max(Math.ceil(total / work.queues.length), Math.min(total, 20)) }
  return WorkerLayer.layer({
    jobs: [Bench],
    queues: Object.fromEntries(work.queues.map((queue) => [queue, each])),
    concurrency: total,
    ...(work.lane === "owned" && !ordinaryHandler ? { callerOwned: connections } : {}),
    database: Config.succeed(Redacted.make(place.url))
  }).pipe(Layer.provide(handler(work, pool)), Layer.provide(client(place, connections)), Layer.provide(quiet))
}

await serve({
  describe: {
    name: ordinaryHandler ? "effect-awa, ordinary handler" : byPg ? "effect-awa, node-postgres" : "effect-awa",
    version,
    configuration: `concurrency ${concurrency}, caller-owned ${ownedConcurrency} on ${connections} connections; everything else as it comes: fencing, receipts, heartbeats and completed history on; enqueueAll of 1,000`,
    guarantee: "at least once, and completed exactly once; a dead worker's jobs are rescued after 60 s",
    owned: ordinaryHandler
      ? "not atomic: the update commits by itself, the completion follows in a batch"
      : byPg
        ? "the handler's update and the completion in one transaction (drivers/Pg's finalize, expect: false)"
        : "the handler's update and the completion in one transaction (job.finalize)",
    ...(ordinaryHandler
      ? {}
      : {
          atomic: true,
          grouped:
            "worker_claim of four hundred for four loops, and complete_jobs of a hundred in each transaction: SQL alone"
        })
  },
  bulk: { size: 1000, calls: 2 },
  install: ({ url }) => Effect.runPromise(migrate({ url: Redacted.make(url) })),
  producer: (place) => {
    const runtime = ManagedRuntime.make(client(place, 4))
    return Promise.resolve({
      enqueue: (queue, payloads) => runtime.runPromise(Bench.enqueueAll(payloads, { queue })),
      close: () => runtime.dispose()
    })
  },
  work: async (place, work) => {
    if (work.lane === "grouped") return grouped(place, work)
    const pool = new pg.Pool({ connectionString: place.url, max: connections }) // opens nothing until it is asked
    const runtime = ManagedRuntime.make(layer(place, work, pool))
    await runtime.runtime()
    return {
      settled: () => runtime.runPromise(Effect.flatMap(Worker.Worker, (worker) => worker.drain)),
      close: async () => {
        await runtime.dispose()
        await pool.end()
      }
    }
  },
  remaining: async ({ url }) => {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    const { rows } = await client.query<{ left: number }>(
      "select count(*)::int as left from awa.jobs where state is distinct from 'completed'"
    )
    await client.end()
    return rows[0]?.left ?? Number.NaN
  }
})
