/**
 * A worker process: started, stopped, killed and suspended by the tests. It says what it does in JSON lines.
 */
import { NodeRuntime, NodeStream } from "@effect/platform-node"
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Cause, Config, Effect, Layer, Logger, Redacted, Schema, Stream } from "effect"
import { Worker } from "effect-awa"
import * as WorkerLayer from "effect-awa/layers/Worker"
import { Pay, type Payload, Settings, Work } from "./jobs.js"

const block = (millis: number) =>
  Effect.sync(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis))

const exhaustMemory = Effect.sync(() => {
  const hoard: Array<Array<number>> = []
  for (;;) hoard.push(new Array<number>(1_000_000).fill(Math.random()))
})

interface Running {
  readonly payload: Payload
  readonly attempt: number
}

const deedOf = ({ attempt, payload: { attempts = attempt, deed } }: Running): Payload["deed"] =>
  attempt <= attempts ? deed : "finish"

const deeds = (job: Running): Effect.Effect<void> => {
  const { millis = 0 } = job.payload
  switch (deedOf(job)) {
    case "finish":
    case "hold-transaction":
      return Effect.void
    case "sleep":
      return Effect.scoped(
        Effect.zipRight(
          Effect.addFinalizer(() => Effect.log("its scope closed")),
          Effect.sleep(millis)
        )
      )
    case "ignore-interruption":
      return Effect.uninterruptible(Effect.sleep(millis))
    case "block":
      return block(millis)
    case "block-at-interruption":
      return Effect.onInterrupt(Effect.never, () => block(millis))
    case "kill":
      return Effect.zipRight(
        Effect.sync(() => process.kill(process.pid, "SIGKILL")),
        Effect.never
      )
    case "exit":
      return Effect.sync(() => process.exit(7))
    case "exhaust-memory":
      return exhaustMemory
    case "throw-in-timer":
      return Effect.zipRight(
        Effect.sync(() =>
          setTimeout(() => {
            throw new Error("nobody catches this")
          })
        ),
        Effect.never
      )
    case "reject-unhandled":
      return Effect.zipRight(
        Effect.sync(() => void Promise.reject(new Error("nobody catches this either"))),
        Effect.never
      )
  }
}

const began = (job: Running) => Effect.log(`began ${job.payload.tag} ${job.attempt}`)

const WorkLive = Work.toLayer((job) =>
  began(job).pipe(
    Effect.zipRight(job.progress.set({ at: job.payload.tag })),
    Effect.zipRight(deeds(job)),
    Effect.zipRight(Effect.log(`done ${job.payload.tag} ${job.attempt}`))
  )
)

const PayLive = Pay.toLayerCallerOwned((job) => {
  const pay = Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* began(job)
    yield* deeds(job)
    const { millis = 0, tag } = job.payload
    const hold = Effect.zipRight(Effect.log(`holds ${tag} ${job.attempt}`), Effect.sleep(millis))
    return yield* job.finalize(
      Effect.gen(function* () {
        yield* sql`insert into application_rows (tag, value) values (${tag}, ${String(job.runLease)})`
        if (deedOf(job) === "hold-transaction") yield* hold
      })
    )
  }).pipe(
    // not tapErrorCause, which is passed over when a beat's interruption comes before the failure
    Effect.onError((cause) =>
      Effect.log(
        `failed ${job.payload.tag} ${job.attempt}: ${Cause.isInterruptedOnly(cause) ? "interrupted" : Cause.pretty(cause)}`
      )
    )
  )
  // whoever blocked goes for its commit, and says what came of it, whatever the next beat says
  return deedOf(job) === "block" ? Effect.uninterruptible(pay) : pay
})

const main = Effect.gen(function* () {
  const settings = yield* Schema.Config("CHILD", Settings)
  const hanging = {
    start: Layer.effectDiscard(Effect.zipRight(Effect.log("starts"), Effect.never)),
    finalizer: Layer.scopedDiscard(Effect.addFinalizer(() => Effect.never))
  }
  const live = WorkerLayer.layer({
    jobs: [Work, Pay],
    queues: { default: { concurrency: settings.concurrency } },
    database: Config.succeed(Redacted.make(settings.database)),
    name: settings.name,
    beat: settings.beat,
    busyTick: 50,
    idleTick: 200,
    maintenance: { staleness: settings.staleness },
    shutdownGrace: settings.shutdownGrace,
    interruptGrace: settings.interruptGrace,
    shutdownDeadline: settings.shutdownDeadline,
    applicationTransaction: settings.applicationTransaction
  }).pipe(
    Layer.provide([WorkLive, PayLive]),
    Layer.tap(() => Effect.log("ready")),
    Layer.provide([
      PgClient.layer({ url: Redacted.make(settings.application), applicationName: settings.name }),
      settings.hang === undefined ? Layer.empty : hanging[settings.hang]
    ])
  )
  if (!settings.drainOnEnd) return yield* WorkerLayer.launch(live)
  yield* Effect.gen(function* () {
    const worker = yield* Worker.Worker
    yield* Effect.raceFirst(worker.join, Stream.runDrain(NodeStream.stdin))
    yield* Effect.log("drains")
    yield* worker.drain
    yield* Effect.log(`drained, ${yield* worker.inFlight} in flight`)
  }).pipe(Effect.provide(live))
})

main.pipe(
  Effect.tapErrorCause((cause) => Effect.logFatal("failed", cause)),
  Effect.provide(Logger.json),
  NodeRuntime.runMain({ disableErrorReporting: true, disablePrettyLogger: true })
)
