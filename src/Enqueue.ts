/**
 * Enqueueing jobs in the caller's transaction.
 *
 * @since 0.1.0
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { InstalledSchema } from "./InstalledSchema.js"
import { nameFault } from "./internal/names.js"
import { quoteIdentifier } from "./internal/renderSql.js"
import { sqlMessageOf, sqlStateOf } from "./internal/sqlState.js"
import { storageFault } from "./internal/storable.js"
import { PayloadRejected } from "./JobError.js"
import * as JobId from "./JobId.js"

/**
 * How a job is enqueued.
 *
 * @since 0.1.0
 * @category models
 */
export interface EnqueueOptions {
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

/** Compact JSON; the server's own check allows for the spaces that it stores. */
const maxPayloadBytes = 1_048_576

const optionFault = (options: EnqueueOptions): PayloadRejected | undefined => {
  const { delay, maxAttempts, priority, runAt } = options
  if (priority !== undefined && ![1, 2, 3, 4].includes(priority)) {
    return new PayloadRejected({ path: "priority", rule: "expected an integer from 1 to 4" })
  }
  if (maxAttempts !== undefined && !(Number.isInteger(maxAttempts) && maxAttempts >= 1 && maxAttempts <= 32767)) {
    return new PayloadRejected({ path: "maxAttempts", rule: "expected an integer from 1 to 32767" })
  }
  if (delay !== undefined && !Duration.isFinite(Duration.decode(delay))) {
    return new PayloadRejected({ path: "delay", rule: "expected a finite duration" })
  }
  if (delay !== undefined && runAt !== undefined) {
    return new PayloadRejected({ path: "runAt", rule: "not together with delay" })
  }
  return undefined
}

const encodeOne = (job: EncodedJob): Effect.Effect<string, PayloadRejected> =>
  Effect.suspend(() => {
    const { kind, options } = job
    const queue = options.queue ?? "default"
    const kindFault = nameFault(kind)
    if (kindFault !== undefined) return new PayloadRejected({ path: "kind", rule: kindFault })
    const queueFault = nameFault(queue)
    if (queueFault !== undefined) return new PayloadRejected({ path: "queue", rule: queueFault })
    const badOption = optionFault(options)
    if (badOption !== undefined) return badOption
    const fault = storageFault(job.args, "payload")
    if (fault !== undefined) return new PayloadRejected(fault)
    const args = JSON.stringify(job.args)
    if (Buffer.byteLength(args, "utf8") > maxPayloadBytes) {
      return new PayloadRejected({ path: "payload", rule: "at most 1 MiB of JSON" })
    }
    const opts: Record<string, unknown> = {}
    if (options.priority !== undefined) opts["priority"] = options.priority
    if (options.maxAttempts !== undefined) opts["max_attempts"] = options.maxAttempts
    if (options.runAt !== undefined) opts["run_at"] = DateTime.formatIso(DateTime.toUtc(options.runAt))
    if (options.delay !== undefined) opts["delay_ms"] = Math.ceil(Duration.toMillis(options.delay))
    if (options.notify === false) opts["notify"] = false
    return Effect.succeed(
      `{"kind":${JSON.stringify(kind)},"queue":${JSON.stringify(queue)},"opts":${JSON.stringify(opts)},"args":${args}}`
    )
  })

const refused = (error: SqlError): PayloadRejected | SqlError => {
  const state = Option.getOrUndefined(sqlStateOf(error))
  return state === "22023" || state === "WA005" || state === "22P05" || state === "54000"
    ? new PayloadRejected({ path: "job", rule: sqlMessageOf(error) })
    : error
}

/**
 * Enqueues jobs in one statement on the ambient transaction, or in one of its own outside any. The ids come back in order.
 * Fails with `PayloadRejected`, before anything is sent, on a job that PostgreSQL could not store or that breaks a rule.
 *
 * @since 0.1.0
 * @category combinators
 */
export const insertJobs = Effect.fnUntraced(function* (
  jobs: ReadonlyArray<EncodedJob>
): Effect.fn.Return<ReadonlyArray<JobId.JobId>, PayloadRejected | SqlError, SqlClient> {
  if (jobs.length === 0) return []
  const encoded = yield* Effect.forEach(jobs, encodeOne)
  const client = yield* SqlClient
  const schema = quoteIdentifier(yield* InstalledSchema)
  // past the client's own name and type transformations: one text column, read by position
  const rows = yield* client
    .unsafe(`select i::text from ${schema}.insert_jobs($1::text::jsonb) i`, [`[${encoded.join(",")}]`])
    .values.pipe(Effect.mapError(refused))
  const ids = rows.flatMap(([id]) => (typeof id === "string" ? [JobId.make(BigInt(id))] : []))
  return ids.length === jobs.length
    ? ids
    : yield* new SqlError({ message: "insert_jobs answered another number of jobs", cause: rows.length })
})
