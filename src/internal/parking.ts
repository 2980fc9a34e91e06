import * as Effect from "effect/Effect"
import type { DatabaseError, RuntimePool } from "../RuntimePool.js"
import * as Column from "./column.js"
import type { Token } from "./makeToken.js"
import { tokenColumns, tokenParameters } from "./tokenColumns.js"

/**
 * What became of an attempt that was to be parked. `released` and `retried`: its callback was answered before, and the job
 * has gone on. `replaced`: it has no such callback.
 *
 * @internal
 */
export type ParkAnswer = "parked" | "released" | "retried" | "replaced" | "stale" | "busy"

const answers: ReadonlyArray<ParkAnswer> = ["parked", "released", "retried", "replaced", "stale", "busy"]

/** @internal Leaves an attempt to its callback. Guarded, never waits, and can be repeated. */
export const makePark = (pool: RuntimePool["Type"]) => {
  const text =
    `select ${pool.quotedSchema}.park_attempt(s, b, i, j, l, r, $7::text::uuid, $8::text::jsonb) ` +
    `from unnest(${tokenParameters(1)}) as t(s, b, i, j, l, r)`
  return (token: Token, callbackId: string, progress: string | undefined): Effect.Effect<ParkAnswer, DatabaseError> =>
    Effect.map(
      pool.call({
        name: "park-attempt",
        text,
        values: [...tokenColumns([token]), callbackId, progress ?? null],
        lockTimeoutMillis: 250
      }),
      ([row]) => {
        const answer = Column.string(row?.[0])
        const known = answers.find((known) => known === answer)
        if (known === undefined) throw new Error(`park_attempt answered ${answer}`)
        return known
      }
    )
}
