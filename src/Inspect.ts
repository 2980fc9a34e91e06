/**
 * What operators read: jobs, their attempts, queues and the storage.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { StoredQueue } from "./Admin.js"
import { decodeAs, isoColumn, queueColumns, readQueue } from "./internal/adminCall.js"
import type * as Column from "./internal/column.js"
import * as JobId from "./JobId.js"
import { DatabaseError, RuntimePool } from "./RuntimePool.js"

/**
 * The states of a job. `completed` is history, and is readable for as long as the ring keeps it.
 *
 * @since 0.1.0
 * @category models
 */
export const JobState = Schema.Literal(
  "available",
  "running",
  "waiting",
  "parked",
  "scheduled",
  "retryable",
  "snoozed",
  "gated",
  "completed",
  "failed",
  "cancelled",
  "discarded",
  "dead_lettered",
  "quarantined"
)
/**
 * @since 0.1.0
 * @category models
 */
export type JobState = typeof JobState.Type

/**
 * An error of an earlier attempt, as the job carries it.
 *
 * @since 0.1.0
 * @category models
 */
export const RecordedError = Schema.Struct({
  attempt: Schema.Int,
  run_lease: Schema.Int,
  at: Schema.DateTimeUtc,
  outcome: Schema.String,
  error: Schema.Unknown
})

/**
 * A job in its present state. Times are the server's; what does not apply is undefined.
 *
 * - `runLease`: how many attempts were ever begun, `attempt`: how many of them count
 * - `errors`: of the last 20 attempts that failed
 * - `runAt`: when a deferred job is due; `readyAt`: since when an available one can be claimed
 * - `reason`: of a dead letter or of the quarantine
 *
 * @since 0.1.0
 * @category models
 */
export const JobRecord = Schema.Struct({
  jobId: JobId.JobId,
  queue: Schema.String,
  priority: Schema.Int,
  kind: Schema.String,
  args: Schema.Unknown,
  state: JobState,
  runLease: Schema.BigIntFromSelf,
  attempt: Schema.Int,
  maxAttempts: Schema.Int,
  progress: Schema.Unknown,
  errors: Schema.Array(RecordedError),
  createdAt: Schema.DateTimeUtc,
  runAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  claimedAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  finalizedAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  readyAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  reason: Schema.UndefinedOr(Schema.String)
})
/**
 * @since 0.1.0
 * @category models
 */
export type JobRecord = typeof JobRecord.Type

/**
 * One attempt of a job. `outcome` undefined: it is open. `authority`: `lease` when it left the ring. `callerOwned`: it was
 * completed by `complete_job`.
 *
 * @since 0.1.0
 * @category models
 */
export const AttemptRecord = Schema.Struct({
  jobId: JobId.JobId,
  runLease: Schema.BigIntFromSelf,
  attempt: Schema.Int,
  authority: Schema.Literal("claim", "lease"),
  queue: Schema.String,
  priority: Schema.Int,
  runtimeId: Schema.BigIntFromSelf,
  claimedAt: Schema.DateTimeUtc,
  deadlineAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  outcome: Schema.UndefinedOr(Schema.String),
  closedAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  progress: Schema.Unknown,
  error: Schema.Unknown,
  callerOwned: Schema.Boolean
})
/**
 * @since 0.1.0
 * @category models
 */
export type AttemptRecord = typeof AttemptRecord.Type

/**
 * How many jobs of a queue are in a state. Not exact: there are more than that.
 *
 * @since 0.1.0
 * @category models
 */
export const QueueCount = Schema.Struct({
  queue: Schema.String,
  state: JobState,
  count: Schema.Int,
  isExact: Schema.Boolean
})
/**
 * @since 0.1.0
 * @category models
 */
export type QueueCount = typeof QueueCount.Type

/**
 * A slot of the ring.
 *
 * @since 0.1.0
 * @category models
 */
export const SegmentRecord = Schema.Struct({
  slot: Schema.Int,
  generation: Schema.BigIntFromSelf,
  state: Schema.Literal("free", "open", "sealed", "drained"),
  isCurrent: Schema.Boolean,
  openedAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  sealedAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  drainedAt: Schema.UndefinedOr(Schema.DateTimeUtc),
  bytes: Schema.BigIntFromSelf
})

/**
 * The ring. `historySince`: whatever became runnable since then still reads back, however it ended.
 *
 * @since 0.1.0
 * @category models
 */
export const StorageHealth = Schema.Struct({
  segments: Schema.Array(SegmentRecord),
  freeSlots: Schema.Int,
  historySince: Schema.UndefinedOr(Schema.DateTimeUtc)
})
/**
 * @since 0.1.0
 * @category models
 */
export type StorageHealth = typeof StorageHealth.Type

/**
 * The read side for operators, the CLI and consoles. Every answer is of one statement in the runtime pool. None scans what
 * it is not asked for: jobs are found by index, counts stop at a cap. For lists of another shape there are the views `jobs`
 * and `attempts`, which scan.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Inspect, JobId } from "effect-awa"
 *
 * const state = Effect.gen(function* () {
 *   const inspect = yield* Inspect.Inspect
 *   return yield* inspect.job(JobId.make(42n))
 * })
 * ```
 *
 * @since 0.1.0
 * @category services
 */
export class Inspect extends Context.Tag("effect-awa/Inspect")<
  Inspect,
  {
    /** A job by its id, wherever it is; none when nothing is left of it. */
    readonly job: (jobId: JobId.JobId) => Effect.Effect<Option.Option<JobRecord>, DatabaseError>
    /** Every attempt of a job that is remembered, oldest first (contract C-23). */
    readonly attempts: (jobId: JobId.JobId) => Effect.Effect<ReadonlyArray<AttemptRecord>, DatabaseError>
    /** Jobs per queue and state, completed ones excepted; counted up to `cap` each, 10000 unless said otherwise. */
    readonly counts: (cap?: number) => Effect.Effect<ReadonlyArray<QueueCount>, DatabaseError>
    /** The queues that have settings. */
    readonly queues: Effect.Effect<ReadonlyArray<StoredQueue>, DatabaseError>
    readonly storage: Effect.Effect<StorageHealth, DatabaseError>
  }
>() {}

/** The statement answered something that this version of the library does not know. */
const undecodable =
  (operation: string) =>
  (reason: string): DatabaseError =>
    new DatabaseError({ operation, sqlState: undefined, retryable: false, reason })

const orUndefined = (value: unknown): unknown => value ?? undefined

const readJob = (row: Column.Row): unknown => ({
  jobId: row[0],
  queue: row[1],
  priority: row[2],
  kind: row[3],
  args: row[4],
  state: row[5],
  runLease: row[6],
  attempt: row[7],
  maxAttempts: row[8],
  progress: row[9],
  errors: row[10] ?? [],
  createdAt: row[11],
  runAt: orUndefined(row[12]),
  claimedAt: orUndefined(row[13]),
  finalizedAt: orUndefined(row[14]),
  readyAt: orUndefined(row[15]),
  reason: orUndefined(row[16])
})

const readAttempt = (row: Column.Row): unknown => ({
  jobId: row[0],
  runLease: row[1],
  attempt: row[2],
  authority: row[3],
  queue: row[4],
  priority: row[5],
  runtimeId: row[6],
  claimedAt: row[7],
  deadlineAt: orUndefined(row[8]),
  outcome: orUndefined(row[9]),
  closedAt: orUndefined(row[10]),
  progress: row[11],
  error: row[12],
  callerOwned: row[13] ?? false
})

const readSegment = (row: Column.Row): unknown => ({
  slot: row[0],
  generation: row[1],
  state: row[2],
  isCurrent: row[3],
  openedAt: orUndefined(row[4]),
  sealedAt: orUndefined(row[5]),
  drainedAt: orUndefined(row[6]),
  bytes: row[7]
})

/**
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Inspect["Type"], never, RuntimePool> = Effect.map(RuntimePool, (pool) => {
  const ask = <A, I>(
    name: string,
    text: string,
    values: ReadonlyArray<unknown>,
    schema: Schema.Schema<A, I>,
    read: (rows: ReadonlyArray<Column.Row>) => unknown
  ) =>
    Effect.flatMap(pool.call({ name, text, values, timeoutMillis: 30_000 }), (rows) =>
      decodeAs(schema, undecodable(name))(read(rows))
    )
  const schema = pool.quotedSchema
  const jobText =
    "select job_id, queue, priority, kind, args, state, run_lease, attempt, max_attempts, progress, errors, " +
    `${["created_at", "run_at", "claimed_at", "finalized_at", "ready_at"].map(isoColumn).join(", ")}, reason ` +
    `from ${schema}.job($1::bigint)`
  const attemptsText =
    "select job_id, run_lease, attempt, authority, queue, priority, runtime_id, " +
    `${["claimed_at", "deadline_at"].map(isoColumn).join(", ")}, outcome, ${isoColumn("closed_at")}, ` +
    `progress, error, caller_owned from ${schema}.job_attempts($1::bigint)`
  const storageText =
    "select slot, generation, state, is_current, " +
    `${["opened_at", "sealed_at", "drained_at"].map(isoColumn).join(", ")}, bytes, free_slots, ` +
    `${isoColumn("history_since")} from ${schema}.storage_health()`
  return {
    job: (jobId) =>
      Effect.map(
        ask("job", jobText, [String(jobId)], Schema.Array(JobRecord), (rows) => rows.map(readJob)),
        ([job]) => Option.fromNullable(job)
      ),
    attempts: (jobId) =>
      ask("job_attempts", attemptsText, [String(jobId)], Schema.Array(AttemptRecord), (rows) => rows.map(readAttempt)),
    counts: (cap = 10_000) =>
      ask(
        "queue_counts",
        `select queue, state, n::integer, is_exact from ${schema}.queue_counts($1::integer)`,
        [cap],
        Schema.Array(QueueCount),
        (rows) => rows.map(([queue, state, count, isExact]) => ({ queue, state, count, isExact }))
      ),
    queues: ask(
      "queues",
      `select ${queueColumns} from ${schema}.queues order by queue`,
      [],
      Schema.Array(StoredQueue),
      (rows) => rows.map(readQueue)
    ),
    storage: ask("storage_health", storageText, [], StorageHealth, (rows) => ({
      segments: rows.map(readSegment),
      freeSlots: rows[0]?.[8],
      historySince: orUndefined(rows[0]?.[9])
    }))
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Inspect, never, RuntimePool> = Layer.effect(Inspect, make)
