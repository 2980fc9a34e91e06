/**
 * What operators do to jobs and queues.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import {
  CancelAnswer,
  DeleteAnswer,
  type JobAnswer,
  RedriveAnswer,
  type RedriveFilter,
  ReprioritizeAnswer
} from "./AdminAnswer.js"
import { type AdminError, AdminRejected, type CallerOwnedRefused, DrainTimedOut } from "./AdminError.js"
import { decodeAs, idsLiteral, queueColumns, readQueue } from "./internal/adminCall.js"
import { makeEnableCallerOwned } from "./internal/enableCallerOwned.js"
import { backoffMillis } from "./internal/backoff.js"
import * as Column from "./internal/column.js"
import { nameFault } from "./internal/names.js"
import { settingsText } from "./internal/queueSettings.js"
import { isStorableTime } from "./internal/storable.js"
import * as JobId from "./JobId.js"
import { DatabaseError, RuntimePool } from "./RuntimePool.js"

/**
 * Settings of a queue. What is not given stays as it is, null is none or the default.
 *
 * @since 0.1.0
 * @category models
 */
export interface QueueSettings {
  /** A job of priority p counts as if it had come (p - 1) times this later; one minute by default. */
  readonly aging?: Duration.DurationInput | null | undefined
  /** Whether jobs that failed for good become dead letters; they do not by default. */
  readonly deadLetter?: boolean | null | undefined
  /** How long an attempt may take; no limit by default. */
  readonly attemptDeadline?: Duration.DurationInput | null | undefined
  /**
   * At most so many claims of the whole fleet in any stretch of `interval`; no limit by default. The claims that the ring still
   * has are the account, so an interval is to be no longer than the completed history is kept. A worker that waits for a rate
   * notices within half a minute that it was changed.
   */
  readonly rate?: { readonly limit: number; readonly interval: Duration.DurationInput } | null | undefined
}

/**
 * A queue's settings as they are stored.
 *
 * @since 0.1.0
 * @category models
 */
export const StoredQueue = Schema.Struct({
  queue: Schema.String,
  paused: Schema.Boolean,
  aging: Schema.DurationFromMillis,
  deadLetter: Schema.Boolean,
  attemptDeadline: Schema.UndefinedOr(Schema.DurationFromMillis),
  rateLimit: Schema.UndefinedOr(Schema.Int),
  rateInterval: Schema.UndefinedOr(Schema.DurationFromMillis),
  createdAt: Schema.DateTimeUtc,
  /** Whether `complete_job` serves the queue. */
  callerOwned: Schema.Boolean
})
/**
 * @since 0.1.0
 * @category models
 */
export type StoredQueue = typeof StoredQueue.Type

/**
 * The operators' verbs. Each is a transaction of its own in the runtime pool (never the caller's), waits for nobody's
 * transaction, and answers one row per job. A job that is locked or on the move is asked for again, with backoff, for up to
 * `patience`; what is locked even then is answered `busy`. Lists may be of any length; they are sent in parts, and an error
 * leaves the parts before it done. Needs a `RuntimePool` and no worker.
 *
 * Contract: C-02 (every end of an attempt is fenced), C-23.
 *
 * @example
 * ```ts
 * import { Effect, Redacted } from "effect"
 * import { Admin, JobId, RuntimePool } from "effect-awa"
 *
 * const program = Effect.flatMap(Admin.Admin, (admin) => admin.cancel([JobId.make(42n)])).pipe(
 *   Effect.provide(Admin.layer()),
 *   Effect.provide(RuntimePool.layer({ url: Redacted.make("postgres://localhost/app") }))
 * )
 * ```
 *
 * @since 0.1.0
 * @category services
 */
export class Admin extends Context.Tag("effect-awa/Admin")<
  Admin,
  {
    /** Ends jobs as cancelled, wherever they are. One answer for each, in the order of the ids. */
    readonly cancel: (
      jobIds: ReadonlyArray<JobId.JobId>
    ) => Effect.Effect<ReadonlyArray<JobAnswer<CancelAnswer>>, DatabaseError>
    /** Removes jobs that do not run. */
    readonly delete: (
      jobIds: ReadonlyArray<JobId.JobId>
    ) => Effect.Effect<ReadonlyArray<JobAnswer<DeleteAnswer>>, DatabaseError>
    /** Moves jobs that do not run yet to another priority, from 1 (first) to 4; their age counts on. */
    readonly reprioritize: (
      jobIds: ReadonlyArray<JobId.JobId>,
      priority: 1 | 2 | 3 | 4
    ) => Effect.Effect<ReadonlyArray<JobAnswer<ReprioritizeAnswer>>, AdminError>
    /** Runs jobs again that ended without success, at once. */
    readonly redrive: (
      jobIds: ReadonlyArray<JobId.JobId>
    ) => Effect.Effect<ReadonlyArray<JobAnswer<RedriveAnswer>>, DatabaseError>
    /** Runs again what a filter selects, in the order of the ids. */
    readonly redriveWhere: (filter: RedriveFilter) => Effect.Effect<ReadonlyArray<JobAnswer<RedriveAnswer>>, AdminError>
    /**
     * Claims take nothing of the queue any more; what runs goes on. Answers whether it was not paused before. A queue needs no
     * announcement, so one of which nothing was heard yet is paused for whatever comes.
     */
    readonly pauseQueue: (queue: string) => Effect.Effect<boolean, AdminError>
    /** Answers whether it was paused. */
    readonly resumeQueue: (queue: string) => Effect.Effect<boolean, AdminError>
    /**
     * Pauses the queue and waits until no handler of it is at work (an attempt that is parked on a callback has none).
     * Fails with `DrainTimedOut` after the time given; the queue stays paused either way.
     */
    readonly drainQueue: (
      queue: string,
      timeout: Duration.DurationInput
    ) => Effect.Effect<void, AdminError | DrainTimedOut>
    /** Changes settings of a queue, and answers them all. Workers heed them from their next claim on. */
    readonly setQueue: (queue: string, settings: QueueSettings) => Effect.Effect<StoredQueue, AdminError>
    /**
     * Serves caller-owned jobs of the queue again, once every live runtime that claims of it can: otherwise `CallerOwnedRefused`
     * names those that cannot. What was put aside runs again, oldest first. Answers how many jobs that were (contract C-60).
     */
    readonly enableCallerOwned: (queue: string) => Effect.Effect<number, AdminError | CallerOwnedRefused>
    /**
     * Puts caller-owned jobs of the queue aside as they are claimed, or when they try to complete; ordinary ones go on. For the
     * time in which runtimes of two versions are at work. Answers whether it was enabled before.
     */
    readonly disableCallerOwned: (queue: string) => Effect.Effect<boolean, AdminError>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface AdminOptions {
  /** How long jobs that are locked are asked for again; 5 seconds unless said otherwise. */
  readonly patience?: Duration.DurationInput | undefined
  /** How long a runtime may be without a heartbeat before it counts as gone; 60 seconds, as the fleet's staleness. */
  readonly staleness?: Duration.DurationInput | undefined
}

/** The statement answered something that this version of the library does not know. */
const undecodable =
  (operation: string) =>
  (reason: string): DatabaseError =>
    new DatabaseError({ operation, sqlState: undefined, retryable: false, reason })

const partSize = 200

const toRejected = (error: DatabaseError): AdminError => {
  if (error.sqlState !== "22023" && error.sqlState !== "WA005") return error
  const [field, rule] = error.reason.split(/: (.*)/s)
  return rule === undefined
    ? new AdminRejected({ field: "settings", rule: error.reason })
    : new AdminRejected({ field: field ?? "", rule })
}

/** A name as a statement may carry it: what cannot be stored would fail there, or come as the name of another queue. */
const checkName = (field: string, name: string): Effect.Effect<void, AdminRejected> =>
  Effect.suspend(() => {
    const rule = nameFault(name)
    return rule === undefined ? Effect.void : new AdminRejected({ field, rule })
  })

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: AdminOptions): Effect.Effect<Admin["Type"], never, RuntimePool> =>
  Effect.map(RuntimePool, (pool) => {
    const patienceMillis = Duration.toMillis(options?.patience ?? "5 seconds")

    const readAnswers = <A extends string>(operation: string, answers: Schema.Schema<A>) => {
      const decode = decodeAs(
        Schema.Array(Schema.Struct({ jobId: JobId.JobId, answer: answers })),
        undecodable(operation)
      )
      return (rows: ReadonlyArray<Column.Row>) => decode(rows.map((row) => ({ jobId: row[0], answer: row[1] })))
    }

    /** A verb over a list: in parts, and again for what is busy, until the patience is over. */
    const verb = <A extends string>(
      name: string,
      parameters: string,
      values: ReadonlyArray<unknown>,
      answers: Schema.Schema<A | "busy">
    ) => {
      const read = readAnswers(name, answers)
      const text = `select job_id, answer from ${pool.quotedSchema}.${name}($1::bigint[]${parameters})`
      const ask = (ids: ReadonlyArray<JobId.JobId>) =>
        Effect.flatMap(
          pool.call({
            name,
            text,
            values: [idsLiteral(ids), ...values],
            timeoutMillis: 30_000,
            lockTimeoutMillis: 250
          }),
          read
        )
      return Effect.fnUntraced(function* (jobIds: ReadonlyArray<JobId.JobId>) {
        const found = new Map<JobId.JobId, A | "busy">()
        const startedAt = performance.now()
        let rest: ReadonlyArray<JobId.JobId> = [...new Set(jobIds)]
        for (let tries = 0; rest.length > 0; tries++) {
          for (let from = 0; from < rest.length; from += partSize) {
            for (const { answer, jobId } of yield* ask(rest.slice(from, from + partSize))) found.set(jobId, answer)
          }
          rest = rest.filter((id) => found.get(id) === "busy")
          if (rest.length === 0 || performance.now() - startedAt >= patienceMillis) break
          yield* Effect.sleep(yield* backoffMillis(Math.min(tries, 3), 5))
        }
        return [...found].map(([jobId, answer]) => ({ jobId, answer }))
      })
    }

    const flag = (name: string, queue: string) =>
      Effect.map(pool.call({ name, text: `select ${pool.quotedSchema}.${name}($1)`, values: [queue] }), ([row]) =>
        Column.boolean(row?.[0])
      )
    const namedFlag = (name: string, queue: string): Effect.Effect<boolean, AdminError> =>
      Effect.zipRight(checkName("queue", queue), Effect.mapError(flag(name, queue), toRejected))

    const reprioritize = (priority: number) =>
      verb("reprioritize_jobs", ", $2::integer", [priority], ReprioritizeAnswer)

    const redrive = verb("redrive_jobs", "", [], RedriveAnswer)
    const readRedriven = readAnswers("redrive_where", RedriveAnswer)
    const whereText =
      `select job_id, answer from ${pool.quotedSchema}.redrive_where($1, $2, $3, $4::timestamptz, $5::bigint, $6) ` +
      "order by job_id"

    const redriveWhere = Effect.fnUntraced(function* (filter: RedriveFilter) {
      const { after, before, kind, limit = 1000, queue, source } = filter
      if (!(Number.isInteger(limit) && limit >= 1)) {
        return yield* new AdminRejected({ field: "limit", rule: "expected a positive integer" })
      }
      if (queue !== undefined) yield* checkName("queue", queue)
      if (kind !== undefined) yield* checkName("kind", kind)
      if (before !== undefined && !isStorableTime(before)) {
        return yield* new AdminRejected({ field: "before", rule: "expected a time from the year 1 to 9999" })
      }
      const all: Array<JobAnswer<RedriveAnswer>> = []
      let behind = after
      while (all.length < limit) {
        const size = Math.min(partSize, limit - all.length)
        const part = yield* pool
          .call({
            name: "redrive_where",
            text: whereText,
            values: [
              source,
              queue ?? null,
              kind ?? null,
              before === undefined ? null : DateTime.formatIso(DateTime.toUtc(before)),
              behind === undefined ? null : String(behind),
              size
            ],
            timeoutMillis: 30_000,
            lockTimeoutMillis: 250
          })
          .pipe(Effect.mapError(toRejected), Effect.flatMap(readRedriven))
        const busy = part.filter(({ answer }) => answer === "busy").map(({ jobId }) => jobId)
        const again = new Map((yield* redrive(busy)).map(({ answer, jobId }) => [jobId, answer]))
        all.push(...part.map(({ answer, jobId }) => ({ jobId, answer: again.get(jobId) ?? answer })))
        behind = part.at(-1)?.jobId
        if (part.length < size) break
      }
      return all
    })

    const pauseQueue = (queue: string) => namedFlag("pause_queue", queue)

    const drainQueue = Effect.fnUntraced(function* (queue: string, timeout: Duration.DurationInput) {
      const startedAt = performance.now()
      const endsAt = startedAt + Duration.toMillis(timeout)
      yield* pauseQueue(queue)
      for (let tries = 0; ; tries++) {
        const askedAt = performance.now()
        if (!(yield* flag("queue_running", queue))) return
        const now = performance.now()
        if (now >= endsAt) return yield* new DrainTimedOut({ queue })
        // the question walks what was claimed lately: it must not become the database's main work
        const pause = Math.max(Math.min(1_000, 25 * Math.pow(2, Math.min(tries, 6))), 5 * (now - askedAt))
        yield* Effect.sleep(Math.min(pause, endsAt - now))
      }
    })

    const staleness = `${Duration.toMillis(options?.staleness ?? "60 seconds")} milliseconds`
    const enable = makeEnableCallerOwned(pool, staleness, toRejected)

    const decodeQueue = decodeAs(StoredQueue, undecodable("set_queue"))
    const setText = `select ${queueColumns} from ${pool.quotedSchema}.set_queue($1, $2::text::jsonb)`

    return {
      cancel: verb("cancel_jobs", "", [], CancelAnswer),
      delete: verb("delete_jobs", "", [], DeleteAnswer),
      reprioritize: (jobIds, priority) =>
        jobIds.length === 0
          ? Effect.succeed([])
          : Effect.catchAll(reprioritize(priority)(jobIds), (error) => Effect.fail(toRejected(error))),
      redrive,
      redriveWhere,
      pauseQueue,
      resumeQueue: (queue) => namedFlag("resume_queue", queue),
      drainQueue,
      enableCallerOwned: (queue) => Effect.zipRight(checkName("queue", queue), enable(queue)),
      disableCallerOwned: (queue) => namedFlag("disable_caller_owned", queue),
      setQueue: (queue, settings) =>
        Effect.flatMap(Effect.zipRight(checkName("queue", queue), settingsText(settings)), (text) =>
          pool.call({ name: "set_queue", text: setText, values: [queue, text] }).pipe(
            Effect.mapError(toRejected),
            Effect.flatMap(([row]) => decodeQueue(readQueue(row ?? [])))
          )
        )
    }
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: AdminOptions): Layer.Layer<Admin, never, RuntimePool> =>
  Layer.effect(Admin, make(options))
