import { SqlClient, type SqlError } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Config, Context, type Duration, Effect, Layer, Redacted, Schema } from "effect"
import type { Attempt, FinalizationReceipt } from "effect-awa"
import * as Job from "effect-awa/Job"
import type * as JobError from "effect-awa/JobError"
import type * as JobOutcome from "effect-awa/JobOutcome"
import type * as Reconciliation from "effect-awa/Reconciliation"
import type { WorkerLayerOptions } from "effect-awa/layers/Worker"
import { FaultProxy, TestDatabase, Testing } from "effect-awa/testing"
import { throughPooler } from "../tools/throughPooler.js"
import { collectLogs, database, type LogLine, type server } from "./support.js"

export class Declined extends Schema.TaggedError<Declined>()("Declined", {}) {}

const payload = Schema.Struct({ tag: Schema.String })
export type Payload = typeof payload.Type

/** Completed by its handler, in the application's own transaction. */
export const Charge = Job.make("charge", { payload, error: Declined, maxAttempts: 3 })
/** Completed by the runtime, in a batch. */
export const Notify = Job.make("notify", { payload, error: Declined, maxAttempts: 3 })

type HandlerError =
  Declined | JobOutcome.OutcomeSelected | JobError.CallbackError | JobError.PayloadRejected | SqlError.SqlError
export type Owned = Attempt.OwnedAttempt<"charge", Payload>
export type Receipt = FinalizationReceipt.FinalizationReceipt<"charge">
export type OwnedHandler = (
  job: Owned
) => Effect.Effect<Receipt, JobError.FinalizeError | HandlerError, SqlClient.SqlClient>
export type OrdinaryHandler = (
  job: Attempt.Attempt<"notify", Payload>
) => Effect.Effect<void | JobOutcome.JobOutcome, HandlerError, SqlClient.SqlClient>

/** The proxies between the program and the server: one before the application's pool, one before the runtime's. */
export class Proxies extends Context.Tag("test/Proxies")<
  Proxies,
  {
    readonly application: FaultProxy.FaultProxy["Type"]
    readonly runtime: FaultProxy.FaultProxy["Type"]
  }
>() {}

export const proxies = (through: (url: string) => string) =>
  Layer.scoped(
    Proxies,
    Effect.gen(function* () {
      const database = yield* TestDatabase.TestDatabase
      const url = Redacted.make(through(Redacted.value(database.url)))
      return { application: yield* FaultProxy.makeUrl(url), runtime: yield* FaultProxy.makeUrl(url) }
    })
  )

/** COMMIT with what completes: prepared, two statements in one round trip; behind a pooler one text. */
export const closing = /^\s*(select [^]*complete_job\([^]*; )?commit\b/i

/** A client of the test itself, which no fault touches. */
export class Direct extends Context.Tag("test/Direct")<Direct, SqlClient.SqlClient>() {}

const direct = Layer.effect(Direct, SqlClient.SqlClient)

const throughProxy = Layer.unwrapEffect(
  Effect.gen(function* () {
    const { application } = yield* Proxies
    const { applicationUrl } = yield* TestDatabase.TestDatabase
    return PgClient.layer({
      url: yield* application.through(applicationUrl),
      maxConnections: 10,
      applicationName: "application"
    })
  })
)

type WorkerOptions = WorkerLayerOptions<[typeof Charge, typeof Notify]>

export interface WorldOptions {
  readonly owned?: OwnedHandler
  readonly ordinary?: OrdinaryHandler
  readonly worker?: Partial<
    Pick<
      WorkerOptions,
      "queues" | "concurrency" | "shutdownGrace" | "interruptGrace" | "beat" | "wakeup" | "callerOwned"
    > & { readonly reconciliation: Reconciliation.ReconciliationOptions }
  >
  /** Another server than the run's. */
  readonly server?: typeof server
  /** Leads a url through what stands before that server. */
  readonly through?: (url: string) => string
  /** Whether the runtime listens past what stands before the server. */
  readonly listenDirectly?: boolean
  readonly staleness?: Duration.DurationInput
  readonly applicationTransaction?: Duration.DurationInput
}

/** A database, both proxies, the handlers and a worker; rescue acts only when the test says so. */
export const world = (options: WorldOptions) => {
  const lines: Array<LogLine> = []
  const logs = collectLogs(lines)
  const data = database(undefined, options.server)
  const clients = throughProxy.pipe(
    Layer.provideMerge(proxies(options.through ?? throughPooler)),
    Layer.provideMerge(direct),
    Layer.provideMerge(data)
  )
  const handlers = Layer.mergeAll(
    Charge.toLayerCallerOwned(options.owned ?? ((job) => job.finalize(Effect.void))),
    Notify.toLayer(options.ordinary ?? (() => Effect.void))
  )
  const worker = Layer.unwrapEffect(
    Effect.gen(function* () {
      const { runtime } = yield* Proxies
      const { runtimeUrl } = yield* TestDatabase.TestDatabase
      return Testing.worker({
        jobs: [Charge, Notify],
        maintenance: { staleness: options.staleness ?? "1 hour" },
        beat: options.staleness === undefined ? "1 second" : "50 millis",
        database: Config.succeed(yield* runtime.through(runtimeUrl)),
        ...(options.listenDirectly === true ? { listenDatabase: Config.succeed(runtimeUrl) } : {}),
        ...(options.applicationTransaction === undefined
          ? {}
          : { applicationTransaction: options.applicationTransaction }),
        ...options.worker
      })
    })
  ).pipe(Layer.provide(handlers))
  return { lines, clients: Layer.provideMerge(clients, logs), worker }
}

/** Runs a test in a world of its own. */
export const run = <A, E, R>(
  options: WorldOptions,
  body: (lines: ReadonlyArray<LogLine>) => Effect.Effect<A, E, R>
) => {
  const { clients, lines, worker } = world(options)
  return Effect.scoped(body(lines)).pipe(Effect.provide(Layer.provideMerge(worker, clients)))
}

/** The names of the errors that a job has met, oldest first. */
export const errorNames = (row: Testing.JobRow): ReadonlyArray<string> =>
  Schema.decodeUnknownSync(
    Schema.NullOr(Schema.Array(Schema.Struct({ error: Schema.Struct({ name: Schema.String }) })))
  )(row.errors)?.map(({ error }) => error.name) ?? []
