/**
 * Enqueueing, and completing an attempt, inside another driver's transaction (contract C-12, C-41).
 *
 * What is needed of a driver is one function that runs a statement in the transaction that is open. The modules under
 * `effect-awa/drivers/` make it for the drivers they are named after; for any other one it is a line of your own.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Duration from "effect/Duration"
import * as Exit from "effect/Exit"
import * as Cause from "effect/Cause"
import * as Option from "effect/Option"
import type { Answer, EncodedJob, EnqueueOptions } from "./Enqueue.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import {
  completeError,
  completionText,
  expectationText,
  knownFields,
  readReceipt,
  tokenValues
} from "./internal/completionCall.js"
import { driverFinalize } from "./internal/driverFinalize.js"
import { noteExpected, whereExpected } from "./internal/expectations.js"
import { encodeJob, insertText, jobsText, readAnswers, refusedJobs } from "./internal/enqueueCall.js"
import { runningOf, type TokenFields } from "./internal/makeToken.js"
import { sqlStateOf } from "./internal/sqlState.js"
import { type FinalizeError, type PayloadRejected, TokenRejected, TransactionUnavailable } from "./JobError.js"
import type { JobId } from "./JobId.js"
import type { OutcomeSelected } from "./JobOutcome.js"

/**
 * One statement in the open transaction. The text has the parameters `$1`, `$2`, …, each of which is cast where it stands, so
 * that they can be sent as text; the answer is the rows, as objects.
 *
 * @example
 * ```ts
 * import type { Driver } from "effect-awa"
 *
 * interface MyTransaction {
 *   readonly run: (sql: string, parameters: ReadonlyArray<string | null>) => Promise<Array<Record<string, unknown>>>
 * }
 * export const adapted = (tx: MyTransaction): Driver.Query => (text, values) => tx.run(text, values)
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export type Query = (
  text: string,
  values: ReadonlyArray<string | null>
) => Promise<ReadonlyArray<Readonly<Record<string, unknown>>>>

/**
 * What is completed: an attempt as its caller-owned handler has it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Finalizable<Kind extends string> {
  readonly kind: Kind
  readonly token: FinalizationToken
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CompleteOptions {
  /**
   * Whether COMMIT is made to fail when the completion is not there any more; true unless said otherwise. Without it, a nested
   * transaction that swallows the failure of a stale completion lets the application's rows commit (C-41).
   */
  readonly expect?: boolean
}

const fieldsOf = (token: FinalizationToken): TokenFields => {
  const fields = knownFields(token)
  if (fields instanceof TokenRejected) throw fields
  return fields
}

const schemaOf = (token: FinalizationToken): string => {
  const attempt = runningOf(token)
  if (attempt === undefined) {
    throw new TokenRejected({ sqlState: "WA003", reason: "no caller-owned handler runs this attempt here" })
  }
  return attempt.schema
}

const outside = (reason: string, cause: unknown): TransactionUnavailable =>
  new TransactionUnavailable({ reason, cause })

/**
 * Makes COMMIT of the open transaction fail with `WA007` unless it completes this attempt. Call it first in the transaction: it
 * is refused inside a savepoint, and outside a transaction, with `TransactionUnavailable`. With `maximumMillis` the server ends
 * the transaction when one statement, or a pause between two, takes longer (C-40).
 *
 * @since 0.1.0
 * @category combinators
 */
export const expectCompletion = async (
  query: Query,
  attempt: Finalizable<string>,
  options?: { readonly maximumMillis?: number }
): Promise<void> => {
  const values = [
    ...tokenValues(fieldsOf(attempt.token)),
    options?.maximumMillis === undefined ? null : String(Math.ceil(options.maximumMillis))
  ]
  try {
    const [row] = await query(expectationText(schemaOf(attempt.token)), values)
    if (typeof row?.["xid"] === "string") noteExpected(attempt.token, BigInt(row["xid"]))
  } catch (error) {
    switch (Option.getOrUndefined(sqlStateOf(error))) {
      case "3B001":
        throw outside("a completion is expected before any savepoint or nested transaction", error)
      case "WA007":
        throw outside("no transaction is open, or its constraints are immediate", error)
      default:
        throw completeError(attempt.token, error)
    }
  }
}

/** Whether it was this transaction that was told, and not an earlier one of the same handler. */
const isExpected = async (query: Query, token: FinalizationToken): Promise<boolean> => {
  const xid = whereExpected(token)
  if (xid === undefined) return false
  const [row] = await query("select pg_catalog.pg_current_xact_id_if_assigned()::text as xid", [])
  return row?.["xid"] === String(xid)
}

/**
 * Completes the attempt in the open transaction, by the SQL function `complete_job`. Rejects with the errors of the same names
 * as `job.completeInTx`, and with the driver's own; the transaction cannot be committed then. Expects its completion first,
 * unless `expectCompletion` did so in the same transaction or the options say not to.
 *
 * @since 0.1.0
 * @category combinators
 */
export const completeInTx = async <Kind extends string>(
  query: Query,
  attempt: Finalizable<Kind>,
  options?: CompleteOptions
): Promise<FinalizationReceipt<Kind>> => {
  const { kind, token } = attempt
  const values = tokenValues(fieldsOf(token))
  const schema = schemaOf(token)
  if (options?.expect !== false && !(await isExpected(query, token))) await expectCompletion(query, attempt)
  const answered = await query(completionText(schema), [...values, runningOf(token)?.progress() ?? null]).catch(
    (error: unknown) => {
      throw completeError(token, error)
    }
  )
  const receipt = readReceipt(kind, token, answered[0]?.["xid"], answered[0]?.["at"])
  if (receipt === undefined) throw new Error("complete_job gave no receipt: the driver changed the answer's columns")
  return receipt
}

/**
 * A job definition, as far as it is needed to enqueue it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Enqueueable<Kind extends string, Payload> {
  readonly kind: Kind
  readonly request: (payload: Payload, options?: EnqueueOptions) => Effect.Effect<EncodedJob, PayloadRejected>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface DriverEnqueueOptions extends EnqueueOptions {
  /** Where effect-awa is installed; `awa` unless said otherwise. */
  readonly schema?: string
}

/**
 * What became of an enqueued job, and the job it duplicates.
 *
 * @since 0.1.0
 * @category models
 */
export interface DriverEnqueued<Kind extends string> {
  readonly kind: Kind
  readonly id: JobId
  readonly answer: Answer
}

const runSync = <A, E>(effect: Effect.Effect<A, E>): Promise<A> =>
  Effect.runPromiseExit(effect).then(
    Exit.match({
      onSuccess: (value) => value,
      onFailure: (cause) => {
        throw Cause.squash(cause)
      }
    })
  )

/**
 * Enqueues jobs in one statement of the open transaction. Rejects with `PayloadRejected`, before anything is sent, on a job
 * that cannot be stored; with `DuplicateJob` on a twin where the job says `onConflict: "error"`; and with the driver's own errors.
 *
 * @since 0.1.0
 * @category combinators
 */
export const enqueueAll = async <Kind extends string, Payload>(
  query: Query,
  job: Enqueueable<Kind, Payload>,
  payloads: Iterable<Payload>,
  options?: DriverEnqueueOptions
): Promise<ReadonlyArray<DriverEnqueued<Kind>>> => {
  const { schema = "awa", ...own } = options ?? {}
  const encoded = await runSync(
    Effect.forEach(payloads, (payload) => Effect.flatMap(job.request(payload, own), encodeJob))
  )
  if (encoded.length === 0) return []
  const rows = await query(insertText(schema), [jobsText(encoded)]).catch((error: unknown) => {
    throw refusedJobs(error)
  })
  const answers = readAnswers(
    rows.map((row) => [row["id"], row["answer"]] as const),
    encoded.length
  )
  if (answers === undefined)
    throw new Error("insert_jobs gave another number of answers: the driver changed its columns")
  return answers.map(({ answer, id }) => ({ kind: job.kind, id, answer }))
}

/**
 * Enqueues one job in the open transaction: `enqueueAll` of one.
 *
 * @since 0.1.0
 * @category combinators
 */
export const enqueue = async <Kind extends string, Payload>(
  query: Query,
  job: Enqueueable<Kind, Payload>,
  payload: Payload,
  options?: DriverEnqueueOptions
): Promise<DriverEnqueued<Kind>> => {
  const [enqueued] = await enqueueAll(query, job, [payload], options)
  if (enqueued === undefined) throw new Error("insert_jobs gave no answer")
  return enqueued
}

/**
 * A driver's own transaction, and the application's part of it.
 *
 * @since 0.1.0
 * @category models
 */
export interface FinalizeOptions<Tx> {
  /**
   * BEGIN, the body, and COMMIT; ROLLBACK when the body rejects. When `abandoned` is aborted nobody waits any more: what can be
   * done then is to end the connection.
   */
  readonly transaction: <A>(body: (tx: Tx) => Promise<A>, abandoned: AbortSignal) => Promise<A>
  readonly query: (tx: Tx) => Query
  /** The signal is aborted when the handler is interrupted, or the time is over. */
  readonly body: (tx: Tx, signal: AbortSignal) => PromiseLike<unknown>
  /** How long the transaction may be open; 5 seconds unless said otherwise. The server enforces it too (C-40). */
  readonly maximumDuration?: Duration.DurationInput | undefined
}

/**
 * BEGIN · `expect_completion` · body · `complete_job` · COMMIT in another driver's transaction. Everything that the body does
 * on `tx` commits with the completion or not at all.
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalizeWith = <Kind extends string, Tx>(
  attempt: Finalizable<Kind>,
  options: FinalizeOptions<Tx>
): Effect.Effect<FinalizationReceipt<Kind>, FinalizeError | OutcomeSelected> =>
  driverFinalize(attempt.token, options.maximumDuration, (step, abandoned) =>
    options.transaction(async (tx) => {
      step.begun()
      const query = options.query(tx)
      await expectCompletion(query, attempt, { maximumMillis: step.maximumMillis + 1_000 })
      await options.body(tx, step.signal)
      step.beforeCompletion()
      const receipt = await completeInTx(query, attempt, { expect: false })
      step.completed()
      return receipt
    }, abandoned)
  )
