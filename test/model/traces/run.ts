/** A real worker on a real database, with faults between them, until every job has ended. */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, type Redacted, Schema } from "effect"
import {
  ApplicationPool,
  Claim,
  CompleteInTx,
  Completion,
  Heartbeat,
  Job,
  Maintenance,
  Reconciliation,
  RetryPolicy,
  RuntimePool,
  Wakeup,
  Worker
} from "effect-awa"
import { FaultProxy, TestDatabase } from "effect-awa/testing"
import { database } from "../../runtime/support.js"
import type { JobEnd, Trace } from "./events.js"
import { tracesOf } from "./events.js"
import * as Recorder from "./recorder.js"

class Declined extends Schema.TaggedError<Declined>()("Declined", {}) {}

/** What a handler does: on its first attempts, or always. */
const behaviour = Schema.Literal("well", "fails first", "fails after its commit", "rolls back first", "is slow")
const payload = Schema.Struct({ behaviour })
type Behaviour = typeof behaviour.Type

const options = { payload, error: Declined, maxAttempts: 3, retry: RetryPolicy.make({ base: "10 millis" }) }
const Owned = Job.make("owned", options)
const Ordinary = Job.make("ordinary", options)

const permits = 3

const row = (job: bigint, lease: bigint) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`insert into application_rows (tag, value) values (${String(job)}, ${String(lease)})`
  )

const handlers = Layer.mergeAll(
  Owned.toLayerCallerOwned(({ attempt, finalize, jobId, payload, runLease }) => {
    const first = attempt === 1
    const write = row(jobId, runLease)
    switch (payload.behaviour) {
      case "well":
        return finalize(write)
      case "fails first":
        return first ? new Declined() : finalize(write)
      case "fails after its commit":
        return Effect.zipLeft(finalize(write), new Declined())
      case "rolls back first":
        return finalize(Effect.zipRight(write, first ? new Declined() : Effect.void))
      case "is slow":
        return finalize(Effect.zipLeft(write, Effect.sleep("60 millis")))
    }
  }),
  Ordinary.toLayer(({ attempt, payload }) => {
    if (payload.behaviour === "is slow") return Effect.sleep("60 millis")
    return payload.behaviour !== "well" && attempt === 1 ? new Declined() : Effect.void
  })
)

/** Beats and staleness are out of the way: rescue acts only when the run says so. */
const worker = (runtimeUrl: Redacted.Redacted) => {
  const runtime = Recorder.runtimePool.pipe(Layer.provide(RuntimePool.layer({ url: runtimeUrl })))
  const pools = Recorder.applicationPool.pipe(
    Layer.provide(ApplicationPool.layer({ maximumDuration: "2 seconds" })),
    Layer.provideMerge(runtime)
  )
  const services = Layer.mergeAll(
    Claim.layer,
    Heartbeat.layer,
    Recorder.completeInTx.pipe(Layer.provide(CompleteInTx.layer)),
    Recorder.completion.pipe(Layer.provide(Completion.layer())),
    Recorder.reconciliation.pipe(Layer.provide(Reconciliation.layer())),
    Maintenance.layer({ staleness: "1 hour" }),
    Wakeup.layer({ queues: ["default"] })
  ).pipe(Layer.provideMerge(pools))
  const queues = { default: { concurrency: permits } }
  const beat = "30 minutes"
  return Worker.layer({ jobs: [Owned, Ordinary], queues, beat, busyTick: "50 millis", idleTick: "200 millis" }).pipe(
    Layer.provide(handlers),
    Layer.provide(services)
  )
}

/** Answers that are lost, and statements that never arrive. Those that commit a call are told by what came before them. */
const faults = (application: FaultProxy.FaultProxy["Type"], runtime: FaultProxy.FaultProxy["Type"], seed: number) => {
  const { committed, cutAfter, cutBefore } = FaultProxy
  const some = (rate: number, salt: number) => ({ probability: { rate, seed: seed + salt } })
  const called = new Map<number, boolean>()
  const commitOf = (call: RegExp) => (statement: FaultProxy.ProxiedStatement) => {
    if (/^begin/i.test(statement.sql)) called.delete(statement.connection.id)
    if (call.test(statement.sql)) called.set(statement.connection.id, true)
    return /^commit$/i.test(statement.sql) && called.get(statement.connection.id) === true
  }
  return Effect.all(
    [
      application.rule({ match: /commit$/i, action: cutAfter(), expect: committed, ...some(0.15, 1) }),
      application.rule({ match: /commit$/i, action: cutBefore(), ...some(0.1, 2) }),
      application.rule({ match: /complete_job/, action: cutAfter(), ...some(0.05, 3) }),
      runtime.rule({
        match: commitOf(/settle_attempt|close_(attempts|completed)/),
        action: cutAfter(),
        ...some(0.25, 4)
      }),
      runtime.rule({ match: /attempt_evidence/, action: cutAfter(), ...some(0.15, 5) }),
      runtime.rule({ match: /settle_attempt|close_(attempts|completed)/, action: cutBefore(), ...some(0.15, 6) }),
      runtime.rule({ match: /\.claim\(/, action: cutAfter(), ...some(0.04, 7) })
    ],
    { discard: true }
  )
}

/** Lets everything end: what waits for later is due now, and what nobody works on is rescued, now and then also what somebody does. */
const untilEnded = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const worker = yield* Worker.Worker
  for (let round = 1; ; round++) {
    yield* sql`update awa.deferred_jobs set run_at = clock_timestamp(), xid = pg_current_xact_id()
      where run_at > clock_timestamp()`
    const open = yield* sql`select from awa.jobs where state not in ('completed', 'failed') limit 1`
    if (open.length === 0 && (yield* worker.inFlight) === 0) return
    if (round % 25 === 0) yield* sql`select awa.rescue_stale('0 seconds', 1000)`
    yield* Effect.sleep("20 millis")
  }
})

const outcomes = Schema.Struct({
  job: Schema.String,
  kind: Schema.String,
  lease: Schema.Number,
  outcome: Schema.String
})
const effects = Schema.Struct({ job: Schema.String, lease: Schema.Number })

const endsOf = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ended = yield* Effect.flatMap(
    sql`select job_id::text as job, kind, run_lease::integer as lease, outcome from awa.attempts order by job_id, run_lease`,
    Schema.decodeUnknown(Schema.Array(outcomes))
  )
  const rows = yield* Effect.flatMap(
    sql`select tag as job, value::integer as lease from application_rows`,
    Schema.decodeUnknown(Schema.Array(effects))
  )
  return [...new Set(ended.map(({ job }) => job))].map((job): JobEnd => {
    const own = ended.filter((one) => one.job === job)
    const leases = rows.filter((one) => one.job === job).map(({ lease }) => lease)
    return { job, owned: own[0]?.kind === "owned", outcomes: own, effects: leases }
  })
})

/** Runs so many jobs of each kind under seeded faults, and answers what was recorded of each. */
export const recordRun = (jobs: number, seed: number): Effect.Effect<ReadonlyArray<Trace>, unknown> =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.TestDatabase
    const application = yield* FaultProxy.makeUrl(url)
    const runtime = yield* FaultProxy.makeUrl(url)
    const client = PgClient.layer({ url: yield* application.through(url), maxConnections: 10 })
    const started = worker(yield* runtime.through(url)).pipe(Layer.provide(client))
    const behaviours: ReadonlyArray<Behaviour> = behaviour.literals
    const payloads = Array.from({ length: jobs }, (_, i) => ({
      behaviour: behaviours[(i + seed) % behaviours.length] ?? "well"
    }))
    return yield* Effect.gen(function* () {
      yield* faults(application, runtime, seed)
      yield* Owned.enqueueAll(payloads)
      yield* Ordinary.enqueueAll(payloads)
      yield* untilEnded
      const { events } = yield* Recorder.Recorder
      return tracesOf([...events], permits, yield* endsOf)
    }).pipe(Effect.provide(started))
  }).pipe(Effect.scoped, Effect.provide(Layer.merge(database(), Recorder.layer)))
