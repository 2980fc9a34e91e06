import * as Option from "effect/Option"
import { AttemptParked, CallerOwnedDisabled, type CompleteError, StaleAttempt, TokenRejected } from "../JobError.js"
import { makeReceipt, type Receipt } from "./makeReceipt.js"
import { type Token, tokenFields, type TokenFields } from "./makeToken.js"
import { quoteIdentifier } from "./renderSql.js"
import { sqlDetailOf, sqlMessageOf, sqlStateOf } from "./sqlState.js"

const tokenArguments =
  "job_id => $1::bigint, run_lease => $2::bigint, claim_slot => $3::integer, receipt_id => $4::bigint, " +
  "batch_id => $5::bigint, batch_index => $6::integer"

const answered =
  "select finalized_xid::text as xid, (extract(epoch from finalized_at) * 1000000)::bigint::text as at from "

/** @internal Answers one row, `xid` and `at` in microseconds. One-word names, which no driver's naming convention changes. */
export const completionText = (schema: string): string =>
  `${answered}${quoteIdentifier(schema)}.complete_job(${tokenArguments}, progress => $7::text::jsonb)`

/**
 * The same for a text of several statements, which takes no parameters. Of numbers only: what an application says of its progress
 * belongs in no statement's text, which a server logs when it fails.
 *
 * @internal
 */
export const completionClosing =
  (schema: string) =>
  ({ batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease }: TokenFields): string =>
    `${answered}${quoteIdentifier(schema)}.complete_job(` +
    `${job_id}::bigint, ${run_lease}::bigint, ${claim_slot}::integer, ${receipt_id}::bigint, ${batch_id}::bigint, ` +
    `${batch_index}::integer); `

/** @internal The expectation of a completion, in a text of several statements; its row has `xid`, too. */
export const expectationOf =
  (schema: string) =>
  ({ batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease }: TokenFields): string =>
    `select ${quoteIdentifier(schema)}.expect_completion(` +
    `${job_id}::bigint, ${run_lease}::bigint, ${claim_slot}::integer, ${receipt_id}::bigint, ${batch_id}::bigint, ` +
    `${batch_index}::integer)::text, pg_catalog.pg_current_xact_id()::text as xid`

/**
 * Answers one row, `xid`. With `$7`, in milliseconds, the server ends the transaction in which a statement, a pause, or from 17 on
 * all of it takes longer; that last limit is switched off first, since a timer that a default has started keeps its time. No column
 * is `void`: Prisma reads no such type.
 *
 * @internal
 */
export const expectationText = (schema: string): string => {
  const limit = (name: string) =>
    `case when $7::text is not null then pg_catalog.set_config('${name}', $7::text, true) end`
  return (
    `select ${quoteIdentifier(schema)}.expect_completion(${tokenArguments})::text, pg_catalog.pg_current_xact_id()::text as xid, ` +
    `${limit("statement_timeout")}, ${limit("idle_in_transaction_session_timeout")}, ` +
    "case when $7::text is not null and pg_catalog.current_setting('server_version_num')::integer >= 170000 " +
    "then pg_catalog.set_config('transaction_timeout', '0', true) " +
    "|| pg_catalog.set_config('transaction_timeout', $7::text, true) end"
  )
}

/** @internal */
export const tokenValues = (fields: TokenFields): ReadonlyArray<string> => [
  String(fields.job_id),
  String(fields.run_lease),
  String(fields.claim_slot),
  String(fields.receipt_id),
  String(fields.batch_id),
  String(fields.batch_index)
]

/** @internal The token's fields, or the refusal of a token that no claim made. */
export const knownFields = (token: Token): TokenFields | TokenRejected =>
  tokenFields(token) ?? new TokenRejected({ sqlState: "WA003", reason: "no claim made this token" })

/** @internal The receipt that `complete_job` answered; undefined when the row is none. */
export const readReceipt = <Kind extends string>(
  kind: Kind,
  token: Token,
  xid: unknown,
  at: unknown
): Receipt<Kind> | undefined =>
  typeof xid === "string" && typeof at === "string"
    ? makeReceipt(kind, { token, finalizedXid: BigInt(xid), finalizedAtMicros: BigInt(at) })
    : undefined

/** @internal What the database's refusal to complete means; anything else as it came. */
export const completeError = <E>(token: Token, error: E): CompleteError | E => completeRefusal(token, error) ?? error

/** @internal What the database's refusal to complete means; undefined when the error is none. */
export const completeRefusal = (token: Token, error: unknown): CompleteError | undefined =>
  Option.match(sqlStateOf(error), {
    onNone: () => undefined,
    onSome: (state): CompleteError | undefined => {
      switch (state) {
        case "WA001":
          return new StaleAttempt({
            sqlState: state,
            jobId: token.jobId,
            runLease: token.runLease,
            detail: sqlDetailOf(error)
          })
        case "WA002":
          return new AttemptParked({ sqlState: state })
        case "WA003":
        case "WA004":
          return new TokenRejected({ sqlState: state, reason: sqlMessageOf(error) })
        case "WA006":
          return new CallerOwnedDisabled({ sqlState: state })
        default:
          return undefined
      }
    }
  })
