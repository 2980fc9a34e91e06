import * as Effect from "effect/Effect"
import type { RuntimePool } from "../RuntimePool.js"
import * as Column from "./column.js"
import { type Ending, endingDetail, refusesContent } from "./ending.js"
import type { Token } from "./makeToken.js"
import { makePark, type ParkAnswer } from "./parking.js"
import { tokenColumns, tokenParameters } from "./tokenColumns.js"

/** @internal `none`: no answer, so whether it took effect is the next question's. `refused`: the details could not be stored. */
export type SettleAnswer = "closed" | "repeated" | "none" | "refused" | ParkAnswer

/**
 * Ends one open attempt, or leaves it to its callback. Guarded, and never waits: an attempt whose lock is held is answered busy.
 *
 * @internal
 */
export const makeSettleAttempt = (pool: RuntimePool["Type"]) => {
  const text =
    `select ${pool.quotedSchema}.settle_attempt($1::bigint, s, b, i, j, l, r, $8::${pool.quotedSchema}.outcome, $9::text::jsonb) ` +
    `from unnest(${tokenParameters(2)}) as t(s, b, i, j, l, r)`
  const park = makePark(pool)
  const settle = (flushId: string, token: Token, ending: Ending) =>
    Effect.map(
      pool.call({
        name: "settle-attempt",
        text,
        values: [flushId, ...tokenColumns([token]), ending.outcome, endingDetail(ending) ?? "{}"],
        lockTimeoutMillis: 250
      }),
      ([row]): SettleAnswer => {
        const answer = Column.string(row?.[0])
        if (answer === "closed" || answer === "repeated" || answer === "stale" || answer === "busy") return answer
        throw new Error(`settle_attempt answered ${answer}`)
      }
    )
  return (flushId: string, token: Token, ending: Ending): Effect.Effect<SettleAnswer> =>
    (ending.callbackId === undefined
      ? settle(flushId, token, ending)
      : park(token, ending.callbackId, ending.progress)
    ).pipe(
      Effect.catchAll((error) =>
        Effect.as(
          Effect.logDebug("An attempt could not be settled yet", error),
          refusesContent(error.sqlState) ? ("refused" as const) : ("none" as const)
        )
      )
    )
}
