/**
 * Completing an attempt inside the caller's transaction (contract C-12).
 *
 * @since 0.1.0
 */
import { SqlError } from "@effect/sql/SqlError"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import { ApplicationTransaction } from "./ApplicationTransaction.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import { finalizationMark } from "./internal/commitGuard.js"
import {
  completeError,
  completeRefusal,
  completionClosing,
  completionText,
  knownFields,
  readReceipt,
  tokenValues
} from "./internal/completionCall.js"
import type { Closing } from "./internal/transactionEnd.js"
import { type CompleteError, TokenRejected } from "./JobError.js"
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
    /** The same, without progress, as the statement that a transaction ends with; undefined for a token that no claim made. */
    readonly closing: <Kind extends string>(
      kind: Kind,
      token: FinalizationToken
    ) => Closing<FinalizationReceipt<Kind>, CompleteError> | undefined
  }
>() {}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (schema: string): CompleteInTx["Type"] => {
  const text = completionText(schema)
  const closingText = completionClosing(schema)
  return {
    closing: <Kind extends string>(kind: Kind, token: FinalizationToken) => {
      const fields = knownFields(token)
      if (fields instanceof TokenRejected) return undefined
      return {
        text: closingText(fields),
        prepared: { text, values: [...tokenValues(fields), null] },
        read: (row) => {
          if (!Predicate.hasProperty(row, "xid") || !Predicate.hasProperty(row, "at")) return undefined
          const value = readReceipt(kind, token, row.xid, row.at)
          return value === undefined ? undefined : { value }
        },
        refusal: (error) => completeRefusal(token, error)
      }
    },
    complete: <Kind extends string>(kind: Kind, token: FinalizationToken, progress: string | undefined) =>
      Effect.flatMap(ApplicationTransaction, ({ connection, finalizations }) => {
        const fields = knownFields(token)
        if (fields instanceof TokenRejected) {
          finalizations.fail()
          return fields
        }
        return connection.executeValues(text, [...tokenValues(fields), progress ?? null]).pipe(
          Effect.flatMap(([row]) => {
            const receipt = readReceipt(kind, token, row?.[0], row?.[1])
            if (receipt === undefined) return new SqlError({ message: "complete_job gave no receipt", cause: row })
            finalizations.note(finalizationMark(schema, fields.receipt_id))
            return Effect.succeed(receipt)
          }),
          Effect.tapError(() => Effect.sync(finalizations.fail)),
          Effect.mapError((error) => completeError(token, error)),
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
