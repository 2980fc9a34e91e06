/**
 * An inline worker and assertions for tests of programs that use effect-awa.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as ParseResult from "effect/ParseResult"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type { OnConflict } from "../../src/Enqueue.js"
import { quoteIdentifier } from "../../src/internal/renderSql.js"
import { sqlStateOf } from "../../src/internal/sqlState.js"
import type { Job } from "../../src/Job.js"
import type { PayloadRejected } from "../../src/JobError.js"
import * as Worker from "../../src/Worker.js"
import * as WorkerLayer from "../Worker.js"
import { TestDatabase } from "./TestDatabase.js"

export {
  /**
   * @since 0.1.0
   * @category layers
   */
  database
} from "./TestDatabase.js"

/**
 * A job as it stands in the database.
 *
 * @since 0.1.0
 * @category models
 */
export class JobRow extends Schema.Class<JobRow>("effect-awa/JobRow")({
  id: Schema.BigInt,
  kind: Schema.String,
  queue: Schema.String,
  state: Schema.String,
  args: Schema.Unknown,
  attempt: Schema.Number,
  runLease: Schema.BigInt,
  errors: Schema.Unknown,
  progress: Schema.Unknown
}) {}

/**
 * What the test expected of a job is not so.
 *
 * @since 0.1.0
 * @category errors
 */
export class ExpectationFailed extends Schema.TaggedError<ExpectationFailed>("effect-awa/ExpectationFailed")(
  "ExpectationFailed",
  {
    expected: Schema.String,
    found: Schema.Array(Schema.Unknown)
  }
) {
  override get message(): string {
    return `Expected ${this.expected}; found ${JSON.stringify(this.found, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value))}`
  }
}

/**
 * @since 0.1.0
 * @category services
 */
export class Testing extends Context.Tag("effect-awa/Testing")<
  Testing,
  {
    /** All jobs, in the order of their ids. */
    readonly jobs: Effect.Effect<ReadonlyArray<JobRow>, SqlError | ParseResult.ParseError>
    /**
     * Lets the worker run until nothing is available, running or due. `scheduled` makes what waits for later due now, until
     * nothing is left. Fails when that takes longer than `atMost`; 30 seconds unless said otherwise.
     */
    readonly drain: (options?: {
      readonly scheduled?: boolean
      readonly atMost?: Duration.DurationInput
    }) => Effect.Effect<void, ExpectationFailed | SqlError | ParseResult.ParseError>
    /** The job of this kind that was enqueued with this payload. */
    readonly expectEnqueued: <Kind extends string, Payload, E, Policy extends OnConflict>(
      job: Job<Kind, Payload, E, Policy>,
      payload: Payload
    ) => Effect.Effect<JobRow, ExpectationFailed | PayloadRejected | SqlError | ParseResult.ParseError>
    /** The job, which must be in this state. */
    readonly expectState: (
      id: bigint,
      state: string
    ) => Effect.Effect<JobRow, ExpectationFailed | SqlError | ParseResult.ParseError>
  }
>() {}

const decodeRows = Schema.decodeUnknown(Schema.Array(JobRow))

/**
 * Says a statement again that met what the worker changed meanwhile: a database may be one whose transactions begin as REPEATABLE
 * READ or SERIALIZABLE.
 */
const said = <A, R>(statement: Effect.Effect<A, SqlError, R>): Effect.Effect<A, SqlError, R> =>
  Effect.retry(statement, {
    while: (error) => Option.contains(sqlStateOf(error), "40001"),
    schedule: Schedule.spaced("5 millis"),
    times: 200
  })

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const database = yield* TestDatabase
  const worker = yield* Worker.Worker
  const schema = quoteIdentifier(database.schema)

  const jobs = Effect.flatMap(
    said(
      sql.unsafe(`select job_id::text as id, kind, queue, state, args, attempt, run_lease::text as "runLease", errors, progress
      from ${schema}.jobs order by job_id`).withoutTransform
    ),
    decodeRows
  )
  const hurry = said(
    sql.unsafe(
      `update ${schema}.deferred_jobs set run_at = clock_timestamp(), xid = pg_current_xact_id()
       where run_at > clock_timestamp() and state <> 'gated'`
    )
  )
  // one statement, one snapshot: a job on its way from one place to another is seen in one of them
  const unfinished = (scheduled: boolean) =>
    Effect.map(
      said(
        sql.unsafe(`select from ${schema}.jobs where state in ('available', 'running')
          or (state in ('scheduled', 'retryable', 'snoozed') and (run_at <= clock_timestamp() or ${scheduled})) limit 1`)
      ),
      (rows) => rows.length > 0
    )

  const drain: Testing["Type"]["drain"] = (options) => {
    const scheduled = options?.scheduled === true
    const settled: Effect.Effect<void, SqlError> = Effect.gen(function* () {
      if (scheduled) yield* hurry
      if (!(yield* unfinished(scheduled)) && (yield* worker.inFlight) === 0) return
      yield* Effect.sleep(10)
      yield* settled
    })
    return settled.pipe(
      Effect.timeoutOption(options?.atMost ?? "30 seconds"),
      Effect.flatMap((done) =>
        done._tag === "Some"
          ? Effect.void
          : Effect.flatMap(
              jobs,
              (found) => new ExpectationFailed({ expected: "nothing left to do", found: found.slice(0, 20) })
            )
      )
    )
  }
  const expectState: Testing["Type"]["expectState"] = (id, state) =>
    Effect.flatMap(jobs, (all) => {
      const found = all.filter((job) => job.id === id)
      const [job] = found
      return job?.state === state
        ? Effect.succeed(job)
        : new ExpectationFailed({ expected: `job ${id} in state ${state}`, found })
    })
  const expectEnqueued: Testing["Type"]["expectEnqueued"] = (job, payload) =>
    Effect.gen(function* () {
      const encoded = yield* job.encode(payload)
      const found = (yield* jobs).filter(({ kind }) => kind === job.kind)
      const [match] = found.filter(({ args }) => canonical(args) === canonical(encoded))
      return (
        match ?? (yield* new ExpectationFailed({ expected: `a job ${job.kind} with ${canonical(encoded)}`, found }))
      )
    })
  return Testing.of({ jobs, drain, expectState, expectEnqueued })
})

/** The assertions' own connections: they take none of the application's, and its faults do not touch them. */
const ownClient = Layer.unwrapEffect(
  Effect.map(TestDatabase, ({ url }) =>
    PgClient.layer({ url, maxConnections: 2, applicationName: "effect-awa testing" })
  )
)

/** JSON with its keys in order: `jsonb` keeps no order of its own. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner
  )

/**
 * A worker for these jobs on the test's own database, with short intervals, and the assertions. The tests run on the real
 * clock: the database has no other.
 *
 * @example
 * ```ts
 * import { Config, Effect, Layer, Schema } from "effect"
 * import { Job } from "effect-awa"
 * import { Testing } from "effect-awa/testing"
 *
 * const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })
 * const GreetLive = Greet.toLayer(() => Effect.void)
 *
 * const Live = Testing.worker({ jobs: [Greet] }).pipe(
 *   Layer.provide(GreetLive),
 *   Layer.provideMerge(Testing.database({ server: Config.redacted("AWA_TEST_DATABASE_URL") }))
 * )
 *
 * export const test = Effect.gen(function*() {
 *   const testing = yield* Testing.Testing
 *   const { id } = yield* Greet.enqueue({ name: "world" })
 *   yield* testing.drain()
 *   yield* testing.expectState(id, "completed")
 * }).pipe(Effect.provide(Live))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const worker = <const Jobs extends ReadonlyArray<Worker.AnyJob>>(
  options: Omit<WorkerLayer.WorkerLayerOptions<Jobs>, "database" | "queues" | "schema"> & {
    /** The queues to work on; `default` with 10 at once unless said otherwise. */
    readonly queues?: WorkerLayer.WorkerLayerOptions<Jobs>["queues"]
    /** Where the runtime connects; the test's database, unless a proxy is put between. */
    readonly database?: Config.Config<TestDatabase["Type"]["url"]>
  }
): Layer.Layer<
  Testing | Worker.Worker,
  WorkerLayer.WorkerLayerError,
  TestDatabase | PgClient.PgClient | Worker.HandlesOf<Jobs>
> =>
  Layer.effect(Testing, make).pipe(
    Layer.provide(ownClient),
    Layer.provideMerge(
      Layer.unwrapEffect(
        Effect.map(TestDatabase, ({ runtimeUrl, schema }) =>
          WorkerLayer.layer({
            shutdownGrace: "5 seconds",
            beat: "1 second",
            busyTick: "50 millis",
            idleTick: "200 millis",
            ...options,
            queues: options.queues ?? { default: { concurrency: 10 } },
            database: options.database ?? Config.succeed(runtimeUrl),
            schema
          })
        )
      )
    )
  )
