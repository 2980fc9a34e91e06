/** One process of a generation: a worker, or a migrator. It says what it does in JSON lines. */
import { NodeRuntime } from "@effect/platform-node"
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Config, Effect, Layer, Logger, Redacted, Schema } from "effect"
import { Migrations } from "effect-awa"
import * as WorkerLayer from "effect-awa/layers/Worker"
import { Pay, Settings, staleness, Work } from "./jobs.js"

const main = Effect.gen(function* () {
  const { database, does, generation, name } = yield* Schema.Config("CHILD", Settings)
  const url = Redacted.make(database)
  if (does === "migrate") {
    const { action, version } = yield* Migrations.migrate({ url })
    return yield* Effect.log(`migrated: ${action} ${version}`)
  }
  const book = (tag: string, runLease: bigint) =>
    Effect.flatMap(
      SqlClient.SqlClient,
      (sql) => sql`insert into ledger (tag, generation, run_lease) values (${tag}, ${generation}, ${String(runLease)})`
    ).pipe(Effect.asVoid)
  const handlers = Layer.merge(
    Work.toLayer((job) => Effect.zipRight(Effect.sleep("10 millis"), book(job.payload.tag, job.runLease))),
    Pay.toLayerCallerOwned((job) =>
      Effect.zipRight(Effect.sleep("10 millis"), job.finalize(book(job.payload.tag, job.runLease)))
    )
  )
  return yield* WorkerLayer.layer({
    jobs: [Work, Pay],
    queues: { default: { concurrency: 5 } },
    database: Config.succeed(url),
    name,
    beat: 250,
    busyTick: 100,
    idleTick: 200,
    maintenance: { staleness },
    shutdownGrace: 1_000,
    interruptGrace: 1_000
  }).pipe(
    Layer.provide(handlers),
    Layer.tap(() => Effect.log("ready")),
    Layer.provide(PgClient.layer({ url, maxConnections: 5, applicationName: name })),
    WorkerLayer.launch
  )
})

main.pipe(
  Effect.tapErrorCause((cause) => Effect.logFatal("failed", cause)),
  Effect.provide(Logger.json),
  NodeRuntime.runMain({ disableErrorReporting: true, disablePrettyLogger: true })
)
