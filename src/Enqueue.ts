/**
 * Enqueueing jobs in the caller's transaction.
 *
 * @since 0.1.0
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import type * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { InstalledSchema } from "./InstalledSchema.js"
import {
  batchText,
  encodeBatch,
  encodeJob,
  insertText,
  jobsText,
  readAnswers,
  readIds,
  refusedBatch,
  refusedJobs,
  saidMissing
} from "./internal/enqueueCall.js"
import type { DuplicateJob, PayloadRejected } from "./JobError.js"
import type * as JobId from "./JobId.js"

/**
 * What the enqueue of a job does whose unique key another job holds. `skip` answers the other job. `replace` gives the other
 * job what this one says, as long as it waits to run (scheduled or retryable); afterwards it is `skip`. `error` fails with
 * `DuplicateJob`.
 *
 * @since 0.1.0
 * @category models
 */
export type OnConflict = "skip" | "replace" | "error"

/**
 * What a unique key is made of, and what happens to a twin.
 *
 * @since 0.1.0
 * @category models
 */
export interface UniqueKey<out Policy extends OnConflict = OnConflict> {
  /** The parts of the job that twins have in common: `["kind", "args"]`, or `["kind"]` beside a `key`, unless said otherwise. */
  readonly by?: ReadonlyArray<"kind" | "queue" | "args"> | undefined
  /** A key of the application's own, besides what `by` says; at most 8192 bytes. */
  readonly key?: string | undefined
  /** `skip` unless said otherwise. */
  readonly onConflict?: Policy | undefined
}

/**
 * A key that the job gives back: when it is claimed for the first time (`unclaimed`), or when it has ended (`incomplete`,
 * unless said otherwise).
 *
 * @since 0.1.0
 * @category models
 */
export interface UniqueWhilePending<out Policy extends OnConflict = OnConflict> extends UniqueKey<Policy> {
  readonly states?: "unclaimed" | "incomplete" | undefined
  /** The key is held at most this long, counted from the enqueue; no bound unless said otherwise. */
  readonly window?: Duration.DurationInput | undefined
}

/**
 * A key that is held for its window although the job has ended: if it completed (`successful`), or however (`all`).
 *
 * @since 0.1.0
 * @category models
 */
export interface UniqueForWindow<out Policy extends OnConflict = OnConflict> extends UniqueKey<Policy> {
  readonly states: "successful" | "all"
  /** How long the key is held, counted from the enqueue. Afterwards the next enqueue takes it over. */
  readonly window: Duration.DurationInput
}

/**
 * Keeps out twins of a job. The database decides, in any isolation level: an enqueue waits for the end of a transaction that
 * enqueues a twin, so one that is rolled back swallows nothing. The key is given back in the commit that ends the job.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 *
 * // one pending synchronization per account; a later one replaces the payload of one that still waits
 * export const Sync = Job.make("sync", {
 *   payload: Schema.Struct({ account: Schema.Int, cursor: Schema.String }),
 *   unique: ({ account }) => ({ key: String(account), states: "unclaimed", onConflict: "replace" })
 * })
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export type Unique<Policy extends OnConflict = OnConflict> = UniqueWhilePending<Policy> | UniqueForWindow<Policy>

/**
 * How a job is enqueued.
 *
 * @since 0.1.0
 * @category models
 */
export interface EnqueueOptions<out Policy extends OnConflict = OnConflict> {
  /** The job's queue; the definition's, or `default`. */
  readonly queue?: string | undefined
  /** From 1 (first) to 4 (last); 2 unless said otherwise. */
  readonly priority?: 1 | 2 | 3 | 4 | undefined
  /** Not before this time. */
  readonly runAt?: DateTime.DateTime | undefined
  /** Not before this long from now, by the database's clock. Not together with `runAt`. */
  readonly delay?: Duration.DurationInput | undefined
  /** How many attempts the job has, from 1 to 32767; 25 unless said otherwise. */
  readonly maxAttempts?: number | undefined
  /** Whether workers are told at once (they find the job in any case); true unless said otherwise. */
  readonly notify?: boolean | undefined
  /** Whether twins are kept out, instead of what the definition says; `false`: not at all. */
  readonly unique?: Unique<Policy> | false | undefined
}

/**
 * `inserted`: a new job. `existing`: another job holds the unique key and was left as it is. `replaced`: another job holds it
 * and has the new payload, queue, priority and number of attempts now, and the new time if one was named; its id, its attempts
 * so far and its progress stay.
 *
 * @since 0.1.0
 * @category models
 */
export type Answer = "inserted" | "existing" | "replaced"

/**
 * What became of one job of a call.
 *
 * @since 0.1.0
 * @category models
 */
export interface EnqueueAnswer {
  readonly id: JobId.JobId
  readonly answer: Answer
}

/**
 * A job as encoded for the database.
 *
 * @since 0.1.0
 * @category models
 */
export interface EncodedJob {
  readonly kind: string
  readonly args: unknown
  readonly options: EnqueueOptions
}

/**
 * Enqueues jobs in one statement on the ambient transaction, or in one of its own outside any. The answers come back in order.
 * Fails with `PayloadRejected`, before anything is sent, on a job that PostgreSQL could not store or that breaks a rule, and
 * with `DuplicateJob` on a job that is `unique` with `onConflict: "error"` and has a twin. A failure keeps all of them out, and
 * inside a transaction it aborts it.
 *
 * @since 0.1.0
 * @category combinators
 */
export const insertJobs = Effect.fnUntraced(function* (
  jobs: ReadonlyArray<EncodedJob>
): Effect.fn.Return<ReadonlyArray<EnqueueAnswer>, PayloadRejected | DuplicateJob | SqlError, SqlClient> {
  if (jobs.length === 0) return []
  const encoded = yield* Effect.forEach(jobs, encodeJob)
  const client = yield* SqlClient
  const schema = yield* InstalledSchema
  // past the client's own name and type transformations: text columns, read by position
  const rows = yield* client
    .unsafe(insertText(schema), [jobsText(encoded)])
    .values.pipe(Effect.mapError(saidMissing(schema)), Effect.mapError(refusedJobs))
  const answers = readAnswers(
    rows.map(([id, answer]) => [id, answer] as const),
    jobs.length
  )
  return (
    answers ?? (yield* new SqlError({ message: "insert_jobs answered another number of jobs", cause: rows.length }))
  )
})

/**
 * Enqueues jobs of one kind that differ in nothing but their payloads, which are encoded already: the same as `insertJobs`, and
 * faster. Their options may not say `unique`. The ids come back in order.
 *
 * @example
 * ```ts
 * import { Enqueue } from "effect-awa"
 *
 * export const ids = Enqueue.insertBatch("greet", [{ name: "Ada" }, { name: "Grace" }], { queue: "mail" })
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const insertBatch = Effect.fnUntraced(function* (
  kind: string,
  payloads: ReadonlyArray<unknown>,
  options: Omit<EnqueueOptions, "unique">
): Effect.fn.Return<ReadonlyArray<JobId.JobId>, PayloadRejected | SqlError, SqlClient> {
  if (payloads.length === 0) return []
  const parameters = yield* encodeBatch(kind, payloads, options)
  const client = yield* SqlClient
  const schema = yield* InstalledSchema
  const [row] = yield* client
    .unsafe(batchText(schema), parameters)
    .values.pipe(Effect.mapError(saidMissing(schema)), Effect.mapError(refusedBatch))
  return (
    readIds(row?.[0], payloads.length) ??
    (yield* new SqlError({ message: "insert_batch answered another number of jobs", cause: row }))
  )
})
