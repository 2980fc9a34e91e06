/**
 * Completing an attempt inside the caller's transaction (contract C-12).
 *
 * @since 0.1.0
 */
import { SqlError } from "@effect/sql/SqlError"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ApplicationTransaction } from "./ApplicationTransaction.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import type { FinalizationToken } from "./FinalizationToken.js"
import { finalizationMark } from "./internal/commitGuard.js"
import { completeError, completionText, knownFields, readReceipt, tokenValues } from "./internal/completionCall.js"
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
  }
>() {}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (schema: string): CompleteInTx["Type"] => {
  const text = completionText(schema)
  return {
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
