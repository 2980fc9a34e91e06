/** The engine's calls as tests say them: typed rows in, typed rows out, and no transaction that the caller did not open. */
import { Effect, Schema } from "effect"
import type { Row, Session } from "./database.js"

/** One claimed run of a job, as `claim` returns it. */
export const Attempt = Schema.Struct({
  job_id: Schema.BigIntFromSelf,
  run_lease: Schema.BigIntFromSelf,
  claim_slot: Schema.Number,
  receipt_id: Schema.BigIntFromSelf,
  batch_id: Schema.BigIntFromSelf,
  batch_index: Schema.Number,
  attempt: Schema.Number,
  max_attempts: Schema.Number,
  priority: Schema.Number,
  kind: Schema.String,
  args: Schema.Unknown,
  progress: Schema.Unknown,
  deadline_at: Schema.NullOr(Schema.String)
})
export type Attempt = typeof Attempt.Type

const decodeAttempts = Schema.decodeUnknownSync(Schema.Array(Attempt))

/** The attempts of a claim's rows, without the one that is none: a lane was busy, a rate was reached, the queue is gated. */
export const attemptsOf = (rows: ReadonlyArray<Row>): ReadonlyArray<Attempt> =>
  decodeAttempts(rows.filter((row) => row["job_id"] !== null))

export const column = (rows: ReadonlyArray<Row>, name: string): ReadonlyArray<unknown> => rows.map((row) => row[name])

export const isBigint = (value: unknown): value is bigint => typeof value === "bigint"

export const bigints = (values: ReadonlyArray<unknown>): ReadonlyArray<bigint> => {
  if (!values.every(isBigint)) throw new Error("expected bigints")
  return values
}

/** The one element of a list. */
export const only = <A>(items: ReadonlyArray<A>): A => {
  const [first] = items
  if (first === undefined || items.length !== 1) throw new Error(`expected one item, not ${items.length}`)
  return first
}

export interface EnqueueOptions {
  readonly queue?: string
  readonly args?: unknown
  readonly opts?: Readonly<Record<string, unknown>>
}

/** Some equal jobs in one call; their ids, in order. */
export const enqueue = (session: Session, count = 1, { args = {}, opts = {}, queue = "q" }: EnqueueOptions = {}) =>
  session
    .rows(`select job_id as id from ${session.schema}.insert_jobs($1::text::jsonb)`, [
      JSON.stringify(Array.from({ length: count }, () => ({ kind: "k", queue, args, opts })))
    ])
    .pipe(Effect.map((rows) => bigints(column(rows, "id"))))

export interface ClaimOptions {
  readonly queue?: string
  readonly limit?: number
}

/** The rows of `claim`: attempts, and perhaps one that says that a lane was busy. */
export const claimRows = (session: Session, { limit = 100, queue = "q" }: ClaimOptions = {}) =>
  session.rows(`select * from ${session.schema}.claim($1, $2, 1)`, [queue, limit])

export const claim = (session: Session, options?: ClaimOptions) => Effect.map(claimRows(session, options), attemptsOf)

/** The ids of what a claim takes. */
export const claimIds = (session: Session, options?: ClaimOptions) =>
  Effect.map(claim(session, options), (attempts) => attempts.map((attempt) => attempt.job_id))

const tokens = (attempts: ReadonlyArray<Attempt>) => [
  attempts.map((a) => a.claim_slot),
  attempts.map((a) => a.batch_id),
  attempts.map((a) => a.batch_index),
  attempts.map((a) => a.job_id),
  attempts.map((a) => a.run_lease),
  attempts.map((a) => a.receipt_id)
]

export interface CloseOptions {
  /** One outcome for all, or one for each. */
  readonly outcome?: string | ReadonlyArray<string>
  /** The flush's own id, the same over its retries. */
  readonly closer?: number
  /** What goes with every item: error, progress, delay_ms. */
  readonly detail?: Readonly<Record<string, unknown>>
  readonly hasState?: boolean
}

/** How many a flush of plain completions closed. */
export const closeCompleted = (session: Session, attempts: ReadonlyArray<Attempt>, closer = 1) =>
  session.value(
    `select ${session.schema}.close_completed($1, $2::int[], $3::bigint[], $4::bigint[], $5::int[], $6::int[], $7::bigint[], $8::bigint[])`,
    [
      closer,
      attempts.map((a) => a.claim_slot),
      attempts.map((a) => a.batch_id),
      attempts.map((a) => a.receipt_id - BigInt(a.batch_index)),
      attempts.map((_, i) => i + 1),
      attempts.map((a) => a.batch_index),
      attempts.map((a) => a.job_id),
      attempts.map((a) => a.run_lease)
    ]
  )

/** The answers of one flush, in the order of its attempts. */
export const close = (session: Session, attempts: ReadonlyArray<Attempt>, options: CloseOptions = {}) => {
  const { closer = 1, detail, hasState = false, outcome = "completed" } = options
  const details = Object.fromEntries(detail === undefined ? [] : attempts.map((_, i) => [String(i + 1), detail]))
  return session
    .rows(
      `select ord, answer from ${session.schema}.close_attempts($7, $1::int[], $2::bigint[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[],
         $8::text[]::${session.schema}.outcome[], $9::text::jsonb, $10) order by ord`,
      [
        ...tokens(attempts),
        closer,
        typeof outcome === "string" ? attempts.map(() => outcome) : outcome,
        JSON.stringify(details),
        hasState
      ]
    )
    .pipe(
      Effect.map((rows) => {
        if (rows.length !== attempts.length || rows.some((row, i) => row["ord"] !== i + 1)) {
          throw new Error(`one answer for each attempt: ${JSON.stringify(rows)}`)
        }
        return column(rows, "answer")
      })
    )
}

/** Ends one attempt under its lock. */
export const settle = (session: Session, attempt: Attempt, outcome: string, detail: unknown = {}, closer = 1) =>
  session.value(
    `select ${session.schema}.settle_attempt($7, $1, $2, $3, $4, $5, $6, $8::text::${session.schema}.outcome, $9::text::jsonb)`,
    [...tokens([attempt]).flat(), closer, outcome, JSON.stringify(detail)]
  )

/** Beats; the lost ones, by their ordinal and how they ended. */
export const beat = (
  session: Session,
  attempts: ReadonlyArray<Attempt>,
  progress: Readonly<Record<string, unknown>> = {}
) =>
  session
    .rows(`select * from ${session.schema}.heartbeat($1, $2, $3, $4, $5, $6, $7::text::jsonb) order by ord`, [
      ...tokens(attempts),
      JSON.stringify(progress)
    ])
    .pipe(Effect.map((rows) => rows.map((row) => [row["ord"], row["outcome"]])))

export const evidence = (session: Session, attempts: ReadonlyArray<Attempt>) =>
  session
    .rows(`select * from ${session.schema}.attempt_evidence($1, $2, $3, $4, $5, $6) order by ord`, tokens(attempts))
    .pipe(Effect.map((rows) => rows.map((row) => [row["status"], row["outcome"]])))

export interface CompleteOptions {
  readonly progress?: unknown
  readonly token?: Readonly<Record<string, unknown>>
}

/** Completes in whatever transaction the session is in. */
export const complete = (session: Session, attempt: Attempt, { progress = null, token = {} }: CompleteOptions = {}) => {
  const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = attempt
  const fields = { job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, ...token }
  return session
    .rows(
      `select * from ${session.schema}.complete_job(job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, batch_id => $5,
         batch_index => $6, progress => $7::text::jsonb)`,
      [
        fields.job_id,
        fields.run_lease,
        fields.claim_slot,
        fields.receipt_id,
        fields.batch_id,
        fields.batch_index,
        progress === null ? null : JSON.stringify(progress)
      ]
    )
    .pipe(Effect.map(only))
}

/** All of them in the caller's transaction, or none. */
export const completeMany = (session: Session, attempts: ReadonlyArray<Attempt>) =>
  session.rows(
    `select * from ${session.schema}.complete_jobs($4::bigint[], $5::bigint[], $1::int[], $6::bigint[], $2::bigint[], $3::int[])`,
    tokens(attempts)
  )

/** The promise that this transaction completes the attempt. */
export const expectCompletion = (session: Session, attempt: Attempt, token: CompleteOptions["token"] = {}) => {
  const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = attempt
  const fields = { job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index, ...token }
  return Effect.asVoid(
    session.rows(
      `select ${session.schema}.expect_completion(job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, batch_id => $5,
         batch_index => $6)`,
      [fields.job_id, fields.run_lease, fields.claim_slot, fields.receipt_id, fields.batch_id, fields.batch_index]
    )
  )
}

export const begin = (session: Session, isolation = "read committed") =>
  session.script(`begin isolation level ${isolation}`)
