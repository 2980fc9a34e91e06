/** A worker whose clock may be wrong. It says how wrong when it is ready, and stops when its standard input ends. */
import { NodeRuntime, NodeStream } from "@effect/platform-node"
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Config, Console, Effect, Layer, Stream } from "effect"
import { Worker } from "effect-awa"
import * as JobOutcome from "effect-awa/JobOutcome"
import * as WorkerLayer from "effect-awa/layers/Worker"
import { ClockSkew } from "effect-awa/testing"
import { Hang, Later, Overdue, Timed } from "./ClockSkew.jobs.js"

const note = (tag: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`insert into public.application_rows (tag) values (${tag})`)

const handlers = Layer.mergeAll(
  Timed.toLayerCallerOwned((job) => job.finalize(note(job.payload.tag))),
  // Its second attempt enqueues as a producer whose clock is wrong.
  Later.toLayer((job) =>
    job.runLease === 1n
      ? Effect.succeed(JobOutcome.retryAfter("1 second", "later"))
      : Effect.asVoid(Timed.enqueue({ tag: "by a worker" }, { delay: "1 second" }))
  ),
  // Until it is killed, or taken back by the database.
  Hang.toLayer((job) => (job.runLease === 1n ? Effect.never : Effect.void)),
  Overdue.toLayer((job) => (job.runLease === 1n ? Effect.never : Effect.void))
)

const WorkerLive = Layer.unwrapEffect(
  Effect.map(Config.all({ url: Config.redacted("FAULTS_URL"), name: Config.string("FAULTS_NAME") }), ({ name, url }) =>
    WorkerLayer.layer({
      jobs: [Timed, Later, Hang, Overdue],
      queues: { default: { concurrency: 4 }, overdue: { concurrency: 2 } },
      database: Config.succeed(url),
      name,
      beat: "500 millis",
      busyTick: "100 millis",
      idleTick: "500 millis",
      maintenance: { staleness: "4 seconds" },
      shutdownGrace: "1 second"
    }).pipe(
      Layer.provide(handlers),
      Layer.provideMerge(PgClient.layer({ url, applicationName: name, maxConnections: 4 }))
    )
  )
)

const program = Effect.gen(function* () {
  const worker = yield* Worker.Worker
  yield* Console.log(`ready ${Math.round(yield* ClockSkew.observed)}`)
  yield* Effect.raceFirst(worker.join, Stream.runDrain(NodeStream.stdin))
})

program.pipe(Effect.provide(WorkerLive), NodeRuntime.runMain())
