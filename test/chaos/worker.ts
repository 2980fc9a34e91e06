/**
 * A worker process. It is told everything by its environment, says what it has to say in JSON lines, and drains when its
 * standard input ends. Before it is ready it notes in the database how its clock differs and which settings its role has.
 */
import { NodeRuntime, NodeStream } from "@effect/platform-node"
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Config, Effect, Layer, Logger, Random, Schedule, Stream } from "effect"
import { JobOutcome, Worker } from "effect-awa"
import * as WorkerLayer from "effect-awa/layers/Worker"
import * as ClockSkew from "effect-awa/layers/testing/ClockSkew"
import { Charge, Declined, Doomed, Flaky, jobs, Notify, Snoozer, Stubborn, Sync, Timed } from "./jobs.js"

const settings = Config.all({
  name: Config.string("CHAOS_NAME"),
  runtime: Config.redacted("CHAOS_RUNTIME_URL"),
  application: Config.redacted("CHAOS_APPLICATION_URL"),
  concurrency: Config.integer("CHAOS_CONCURRENCY"),
  workFrom: Config.integer("CHAOS_WORK_FROM"),
  workTo: Config.integer("CHAOS_WORK_TO")
})

type Settings = Config.Config.Success<typeof settings>

interface Owned {
  readonly payload: { readonly order: string }
  readonly jobId: bigint
  readonly runLease: bigint
}

const handlersOf = ({ name, workFrom, workTo }: Settings) => {
  const work = Effect.flatMap(Random.nextIntBetween(workFrom, workTo + 1), Effect.sleep)
  const effect = ({ jobId, payload, runLease }: Owned) =>
    Effect.flatMap(
      SqlClient.SqlClient,
      (sql) => sql`insert into chaos.effects (order_id, job_id, run_lease, worker)
                   values (${payload.order}, ${String(jobId)}, ${String(runLease)}, ${name})`
    )
  const delivery = (order: string) =>
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      Effect.asVoid(sql`insert into chaos.deliveries (order_id, worker) values (${order}, ${name})`)
    )
  // One charge in five has a follow-up: its order and its job commit with the charge.
  const followUp = (job: Owned) =>
    Effect.gen(function* () {
      if (job.jobId % 5n !== 0n) return
      const sql = yield* SqlClient.SqlClient
      const order = `${job.payload.order}/follow-up`
      const { answer, id } = yield* Notify.enqueue({ order, times: 0 })
      yield* sql`insert into chaos.orders (id, kind, expects, job_id, answer)
                 values (${order}, 'notify', 'delivery', ${String(id)}, ${answer})`
    })
  const unless = <A, E, R>(declined: boolean, go: Effect.Effect<A, E, R>): Effect.Effect<A, E | Declined, R> =>
    Effect.zipRight(
      work,
      Effect.suspend((): Effect.Effect<A, E | Declined, R> => (declined ? new Declined() : go))
    )
  return Layer.mergeAll(
    Charge.toLayerCallerOwned((job) =>
      Effect.zipRight(work, job.finalize(Effect.zipRight(effect(job), followUp(job))))
    ),
    Timed.toLayerCallerOwned((job) => Effect.zipRight(work, job.finalize(effect(job)))),
    Sync.toLayerCallerOwned((job) => Effect.zipRight(work, job.finalize(effect(job)))),
    Flaky.toLayerCallerOwned((job) => unless(job.attempt <= job.payload.times, job.finalize(effect(job)))),
    Snoozer.toLayerCallerOwned((job) =>
      Effect.gen(function* () {
        yield* work
        if (job.runLease <= job.payload.times) return yield* JobOutcome.end(JobOutcome.snooze("300 millis"))
        return yield* job.finalize(effect(job))
      })
    ),
    Notify.toLayer((job) => Effect.zipRight(work, delivery(job.payload.order))),
    Stubborn.toLayer((job) => unless(job.attempt <= job.payload.times, delivery(job.payload.order))),
    Doomed.toLayer(() => unless(true, Effect.void))
  )
}

const layerOf = (settings: Settings) =>
  WorkerLayer.layer({
    jobs,
    queues: { default: { concurrency: settings.concurrency }, billing: { concurrency: settings.concurrency } },
    database: Config.succeed(settings.runtime),
    name: settings.name,
    runtimeConnections: 4,
    // Short, so that a storm of minutes is long.
    beat: "1 second",
    busyTick: "250 millis",
    idleTick: "1 second",
    shutdownGrace: "20 seconds",
    applicationTransaction: "8 seconds",
    wakeup: { poll: "500 millis", pollWhileListening: "5 seconds", probe: "2 seconds" },
    maintenance: {
      staleness: "4 seconds",
      segmentAge: "5 seconds",
      segmentEntries: 500,
      completedHistory: "15 seconds"
    }
  }).pipe(
    Layer.provide(handlersOf(settings)),
    Layer.provideMerge(
      PgClient.layer({ url: settings.application, applicationName: settings.name, maxConnections: 10 })
    )
  )

const report = Effect.fnUntraced(function* (name: string, runtimeId: bigint) {
  const sql = yield* SqlClient.SqlClient
  const ahead = yield* ClockSkew.observed
  yield* sql`
    insert into chaos.workers (name, runtime_id, ahead_ms, settings)
    select ${name}, ${String(runtimeId)}, ${ahead}, coalesce(jsonb_object_agg(s.name, s.setting), '{}')
    from pg_catalog.pg_settings s where s.source = 'user'`
})

const program = Effect.gen(function* () {
  const { name } = yield* settings
  const worker = yield* Worker.Worker
  yield* Effect.retry(report(name, worker.runtimeId), Schedule.spaced("200 millis"))
  yield* Effect.log("ready")
  yield* Effect.raceFirst(worker.join, Stream.runDrain(NodeStream.stdin))
  yield* worker.drain
  const [inFlight, permits] = [yield* worker.inFlight, yield* worker.permits]
  yield* Effect.annotateLogs(Effect.log("drained"), { inFlight, permits })
})

program.pipe(
  Effect.provide(Layer.unwrapEffect(Effect.map(settings, layerOf))),
  Effect.tapErrorCause((cause) => Effect.logFatal("failed", cause)),
  Effect.provide(Logger.json),
  NodeRuntime.runMain({ disableErrorReporting: true, disablePrettyLogger: true })
)
