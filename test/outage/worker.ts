import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { type Duration, Effect, Layer, type Redacted, Schema } from "effect"
import * as ApplicationPool from "effect-awa/ApplicationPool"
import * as Claim from "effect-awa/Claim"
import * as CompleteInTx from "effect-awa/CompleteInTx"
import * as Completion from "effect-awa/Completion"
import * as Heartbeat from "effect-awa/Heartbeat"
import * as Job from "effect-awa/Job"
import * as Maintenance from "effect-awa/Maintenance"
import * as RetryPolicy from "effect-awa/RetryPolicy"
import * as RuntimePool from "effect-awa/RuntimePool"
import * as Wakeup from "effect-awa/Wakeup"
import * as Worker from "effect-awa/Worker"
import { listeningLogger, listeningPool, listeningReconciliation, type Recorder } from "../runtime/matrix/recorder.js"

const settings = {
  payload: Schema.Struct({ n: Schema.Int }),
  maxAttempts: 1_000, // a failure that an outage caused must not be what ends a job
  retry: RetryPolicy.make({ base: "200 millis", maximum: "2 seconds" })
}

/** Completed by its handler, with its row. */
export const Owned = Job.make("owned", settings)
/** Completed by the runtime; its row may be written twice. */
export const Ordinary = Job.make("ordinary", settings)
/** Holds its permit until all permits are held. */
export const Gathering = Job.make("gathering", settings)

export interface WorkerSettings {
  readonly runtime: Redacted.Redacted
  readonly application: Redacted.Redacted
  readonly concurrency: number
  readonly budget: Duration.DurationInput
  readonly staleness: Duration.DurationInput
  readonly beat: Duration.DurationInput
}

/** How many gather, and the latch that opens when all are there. */
export interface Gathered {
  here: number
  readonly all: Effect.Latch
}

const row = (kind: string, job: { readonly jobId: bigint; readonly runLease: bigint }) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`insert into application_rows (kind, job_id, run_lease)
      values (${kind}, ${String(job.jobId)}, ${String(job.runLease)})`
  )

const handlersOf = (concurrency: number, gathered: Gathered) =>
  Layer.mergeAll(
    // the work, then the write: at any moment some are before, some in, and some after their transaction
    Owned.toLayerCallerOwned((job) => Effect.delay(job.finalize(row("owned", job)), ((job.payload.n * 17) % 40) * 10)),
    Ordinary.toLayer((job) => Effect.asVoid(Effect.delay(row("ordinary", job), ((job.payload.n * 17) % 40) * 10))),
    Gathering.toLayer(() =>
      Effect.suspend(() => {
        gathered.here++
        return gathered.here >= concurrency ? Effect.asVoid(gathered.all.open) : gathered.all.await
      })
    )
  )

/** A worker whose statements and proofs are recorded. */
export const layer = (options: WorkerSettings, recorder: Recorder, gathered: Gathered) => {
  const { application, beat, budget, concurrency, runtime, staleness } = options
  const client = PgClient.layer({ url: application, maxConnections: concurrency })
  const pools = ApplicationPool.layer().pipe(
    Layer.provideMerge(Layer.provide(listeningPool(recorder), RuntimePool.layer({ url: runtime }))),
    Layer.provideMerge(client)
  )
  const services = Layer.mergeAll(
    Claim.layer,
    CompleteInTx.layer,
    Completion.layer(),
    Heartbeat.layer,
    listeningReconciliation(recorder, { budget, staleness }),
    Maintenance.layer({ staleness }),
    Wakeup.layer({ queues: ["default"] })
  ).pipe(Layer.provideMerge(pools))
  return Worker.layer({
    jobs: [Owned, Ordinary, Gathering],
    queues: { default: { concurrency } },
    beat,
    busyTick: "200 millis",
    shutdownGrace: "5 seconds"
  }).pipe(
    Layer.provide(Layer.provide(handlersOf(concurrency, gathered), client)),
    Layer.provide(services),
    Layer.provide(listeningLogger(recorder))
  )
}
