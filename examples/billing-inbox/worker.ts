/**
 * A worker process. It is told everything by its environment, says what it has to say in JSON lines on its standard
 * output, and stops when its standard input ends: when it is told to, or when whoever started it is gone.
 */
import { NodeRuntime, NodeStream } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Config, Effect, Layer, Logger, Stream } from "effect"
import { Worker } from "effect-awa"
import * as WorkerLayer from "effect-awa/layers/Worker"
import { ChargeAtLeastOnce } from "./atLeastOnce.js"
import { Charge, ChargeLive, SendReceipt, SendReceiptLive } from "./business.js"
import { PaymentsLive } from "./payments.js"

const settings = Config.all({
  name: Config.string("WORKER_NAME"),
  schema: Config.string("AWA_SCHEMA"),
  /** The application's connections lead through the fault proxy. */
  application: Config.redacted("APPLICATION_DATABASE_URL"),
  atLeastOnce: Config.boolean("AT_LEAST_ONCE")
})

const WorkerLive = Layer.unwrapEffect(
  Effect.map(settings, ({ application, atLeastOnce, name, schema }) =>
    WorkerLayer.layer({
      jobs: [Charge, SendReceipt],
      queues: { billing: { concurrency: 20 }, mail: { concurrency: 10 } },
      database: Config.redacted("AWA_DATABASE_URL"),
      schema,
      name,
      runtimeConnections: 4,
      // Short, so that a storm of half a minute is long. The queue's deadline (inbox.ts) is shorter than a beat: an
      // attempt that is held at the proxy is taken back, and its transaction let go, before a heartbeat interrupts it.
      beat: "4 seconds",
      busyTick: "250 millis",
      maintenance: { staleness: "9 seconds" },
      applicationTransaction: "15 seconds"
    }).pipe(
      Layer.provide([atLeastOnce ? ChargeAtLeastOnce : ChargeLive, SendReceiptLive]),
      Layer.provide([PaymentsLive, PgClient.layer({ url: application, applicationName: name, maxConnections: 12 })])
    )
  )
)

const program = Effect.gen(function* () {
  const worker = yield* Worker.Worker
  yield* Effect.log("ready")
  yield* Effect.raceFirst(worker.join, Stream.runDrain(NodeStream.stdin))
  yield* worker.drain
  yield* Effect.annotateLogs(Effect.log("drained"), { inFlight: yield* worker.inFlight })
})

program.pipe(
  Effect.provide(WorkerLive),
  Effect.tapErrorCause((cause) => Effect.logFatal("failed", cause)),
  Effect.provide(Logger.json),
  NodeRuntime.runMain({ disableErrorReporting: true })
)
