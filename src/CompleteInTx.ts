/**
 * Completing an attempt inside the caller's transaction (contract C-12).
 *
 * @since 0.1.0
 */
import { SqlError } from "@effect/sql/SqlError"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { ApplicationTransaction } from "./ApplicationTransaction.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import { finalizationMark } from "./internal/commitGuard.js"
import { makeReceipt } from "./internal/makeReceipt.js"
import { tokenFields } from "./internal/makeToken.js"
import { quoteIdentifier } from "./internal/renderSql.js"
import { sqlDetailOf, sqlMessageOf, sqlStateOf } from "./internal/sqlState.js"
import { AttemptParked, CallerOwnedDisabled, type CompleteError, StaleAttempt, TokenRejected } from "./JobError.js"
import { RuntimePool } from "./RuntimePool.js"

/**
 * Completes the exact attempt of a token in the transaction that is open, by the SQL function `complete_job`: it needs
 * EXECUTE on that function and no privilege on any table. When it fails, the transaction cannot be committed any more.
 *
 * @since 0.1.0
 * @category services
 */
export class CompleteInTx extends Context.Tag("effect-awa/CompleteInTx")<
  CompleteInTx,
  {
    /** `progress` is stored with the completion, as JSON text; undefined keeps what was flushed last. */
    readonly complete: <Kind extends string>(
      kind: Kind,
      token: FinalizationToken,
      progress: string | undefined
    ) => Effect.Effect<FinalizationReceipt<Kind>, CompleteError | SqlError, ApplicationTransaction>
  }
>() {}

const typedError = (token: FinalizationToken, error: SqlError): CompleteError | SqlError =>
  Option.match(sqlStateOf(error), {
    onNone: () => error,
    onSome: (state): CompleteError | SqlError => {
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
          return error
      }
    }
  })

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (schema: string): CompleteInTx["Type"] => {
  const text =
    "select finalized_xid::text, (extract(epoch from finalized_at) * 1000000)::bigint::text " +
    `from ${quoteIdentifier(schema)}.complete_job(job_id => $1::bigint, run_lease => $2::bigint, claim_slot => $3::integer, ` +
    "receipt_id => $4::bigint, batch_id => $5::bigint, batch_index => $6::integer, progress => $7::text::jsonb)"
  return {
    complete: <Kind extends string>(kind: Kind, token: FinalizationToken, progress: string | undefined) =>
      Effect.flatMap(ApplicationTransaction, ({ connection, finalizations }) => {
        const fields = tokenFields(token)
        if (fields === undefined) {
          finalizations.fail()
          return new TokenRejected({ sqlState: "WA003", reason: "no claim made this token" })
        }
        const values = [
          String(fields.job_id),
          String(fields.run_lease),
          fields.claim_slot,
          String(fields.receipt_id),
          String(fields.batch_id),
          fields.batch_index,
          progress ?? null
        ]
        return connection.executeValues(text, values).pipe(
          Effect.flatMap(([row]) => {
            const [xid, at] = row ?? []
            if (typeof xid !== "string" || typeof at !== "string") {
              return new SqlError({ message: "complete_job gave no receipt", cause: row })
            }
            finalizations.note(finalizationMark(schema, fields.receipt_id))
            return Effect.succeed(
              makeReceipt(kind, { token, finalizedXid: BigInt(xid), finalizedAtMicros: BigInt(at) })
            )
          }),
          Effect.tapError(() => Effect.sync(finalizations.fail)),
          Effect.mapError((error) => typedError(token, error)),
          // bounded by the transaction's own limits; an interruption would cancel a backend that may be somebody else's by then
          Effect.uninterruptible
        )
      })
  }
}

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<CompleteInTx, never, RuntimePool> = Layer.effect(
  CompleteInTx,
  Effect.map(RuntimePool, (pool) => make(pool.schema))
)
