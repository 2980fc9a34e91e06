import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import * as ApplicationPool from "effect-awa/ApplicationPool"
import * as Claim from "effect-awa/Claim"
import * as CompleteInTx from "effect-awa/CompleteInTx"
import * as Completion from "effect-awa/Completion"
import * as Job from "effect-awa/Job"
import * as Maintenance from "effect-awa/Maintenance"
import type * as Reconciliation from "effect-awa/Reconciliation"
import * as RetryPolicy from "effect-awa/RetryPolicy"
import * as RuntimePool from "effect-awa/RuntimePool"
import * as Wakeup from "effect-awa/Wakeup"
import * as Worker from "effect-awa/Worker"
import { TestDatabase } from "effect-awa/testing"
import { database } from "../support.js"
import { Declined, Direct, Proxies, proxies } from "../world.js"
import { cellHandler, Payload } from "./handler.js"
import {
  interrupting,
  listeningLogger,
  listeningPool,
  listeningReconciliation,
  makeRecorder,
  type Recorder
} from "./recorder.js"
import { exitNames } from "./table.js"

const settings = {
  payload: Payload,
  error: Declined,
  retry: RetryPolicy.make({ base: "1 hour", jitter: false })
}

export const Cell = Job.make("cell", settings)
/** Of the one row that needs it; what comes before is not cut off by it. */
export const TimedCell = Job.make("timed cell", { ...settings, timeout: "20 millis" })

/** A database for all workers of the matrix, and a proxy before the runtime's connections. */
export const shared = Layer.effect(Direct, SqlClient.SqlClient).pipe(
  Layer.provideMerge(proxies((url) => url)),
  Layer.provideMerge(database())
)

/** The queue of a row: one permit each, so that the next claim says that it was free. */
export const queueOf = (phase: string, exit: string): string => `${phase} ${exit}`

/** A worker on queues of its own, whose pool and reconciliation are listened to. */
const workerOf = (phase: string, recorder: Recorder, options: Reconciliation.ReconciliationOptions) => {
  const queues = ["warm up", ...exitNames].map((exit) => queueOf(phase, exit))
  const pool = Layer.unwrapEffect(
    Effect.gen(function* () {
      const { runtime } = yield* Proxies
      const { url } = yield* TestDatabase.TestDatabase
      return Layer.provide(listeningPool(recorder), RuntimePool.layer({ url: yield* runtime.through(url) }))
    })
  )
  const client = Layer.unwrapEffect(
    Effect.map(TestDatabase.TestDatabase, ({ url }) => PgClient.layer({ url, maxConnections: 20 }))
  )
  const pools = ApplicationPool.layer({ maximumDuration: "50 seconds" }).pipe(
    Layer.provideMerge(pool),
    Layer.provideMerge(client)
  )
  const services = Layer.mergeAll(
    Claim.layer,
    CompleteInTx.layer,
    Completion.layer(),
    interrupting(recorder),
    listeningReconciliation(recorder, options),
    Maintenance.layer({ staleness: "1 hour" }),
    Wakeup.layer({ queues })
  ).pipe(Layer.provideMerge(pools))
  const handlers = Layer.unwrapEffect(
    Effect.map(Direct, (direct) => {
      const handler = cellHandler(recorder, direct)
      return Layer.merge(Cell.toLayerCallerOwned(handler), TimedCell.toLayerCallerOwned(handler))
    })
  )
  return Worker.layer({
    jobs: [Cell, TimedCell],
    queues: Object.fromEntries(queues.map((queue) => [queue, { concurrency: 1 }])),
    beat: "20 millis",
    shutdownGrace: "1 second",
    interruptGrace: "1 second"
  }).pipe(Layer.provide(handlers), Layer.provide(services), Layer.provide(listeningLogger(recorder)))
}

/** Runs a part of the matrix in a worker of its own. */
export const withWorker = <A, E, R>(
  phase: string,
  options: Reconciliation.ReconciliationOptions,
  body: (recorder: Recorder) => Effect.Effect<A, E, R>
) =>
  Effect.suspend(() => {
    const recorder = makeRecorder()
    return Effect.scoped(Effect.provide(body(recorder), workerOf(phase, recorder, options)))
  })
