import * as Effect from "effect/Effect"
import type { EndRequest } from "../Completion.js"
import type { DatabaseError, RuntimePool } from "../RuntimePool.js"
import type { Settled } from "../Settled.js"
import * as Column from "./column.js"
import { endingDetail } from "./ending.js"
import { makeSettled } from "./makeSettled.js"
import { tokenBatches, tokenBatchParameters } from "./tokenBatches.js"
import { tokenColumns, tokenParameters } from "./tokenColumns.js"

/** A lock that is not had within this time is an application transaction's, which may be open for long. */
const lockTimeoutMillis = 250

const details = (requests: ReadonlyArray<EndRequest>): string => {
  const found: Array<string> = []
  requests.forEach((request, i) => {
    const detail = endingDetail(request.ending)
    if (detail !== undefined) found.push(`"${i + 1}":${detail}`)
  })
  return `{${found.join(",")}}`
}

/** The row says how many were closed, and of each other one, by its ordinal, what became of it. */
const settledOf = (requests: ReadonlyArray<EndRequest>, row: Column.Row | undefined): ReadonlyArray<Settled> => {
  const named = new Map<string, unknown>(Object.entries(row?.[1] ?? {}))
  const others = requests.map((_, i) => (named.size === 0 ? undefined : named.get(String(i + 1))))
  const unnamed = others.filter((other) => other === undefined).length
  // whoever is not named must be one of the closed: a proof is made of what was answered, not of what was not
  if (Column.number(row?.[0]) !== unnamed || named.size !== requests.length - unnamed) {
    throw new Error(`close_attempts did not answer for each of ${requests.length} attempts`)
  }
  return requests.map(({ ending, token }, i) => {
    const other = others[i]
    if (other === undefined || other === "repeated") return makeSettled("closed", ending.outcome)
    if (other === "stale") return makeSettled("stale", ending.outcome)
    throw new Error(`close_attempts gave no answer for attempt ${token.jobId}/${token.runLease}`)
  })
}

/** @internal Whether it completed and nothing else is to be said of it, nor to be looked for: what nearly every attempt does. */
export const isPlain = ({ ending, hasState }: EndRequest): boolean =>
  ending.outcome === "completed" && !hasState && endingDetail(ending) === undefined

/**
 * One flush. `flushId` is the same for all tries of it and of its halves: "closed by this very flush earlier" is told by it.
 *
 * @internal
 */
export const makeClose = (pool: RuntimePool["Type"]) => {
  const completed = `select ${pool.quotedSchema}.close_completed($1::bigint, ${tokenBatchParameters(2)})`
  // one row: nearly all are closed, and a row for each would be the most of what is sent and read
  const any =
    "select (count(distinct ord) filter (where answer = 'closed'))::integer, " +
    "jsonb_object_agg(ord, answer) filter (where answer <> 'closed') " +
    `from ${pool.quotedSchema}.close_attempts($1::bigint, ${tokenParameters(2)}, ` +
    `$8::${pool.quotedSchema}.outcome[], $9::text::jsonb, $10::boolean)`

  const closeAny = (
    flushId: string,
    requests: ReadonlyArray<EndRequest>
  ): Effect.Effect<ReadonlyArray<Settled>, DatabaseError> =>
    Effect.map(
      pool.call({
        name: "close-attempts",
        text: any,
        values: [
          flushId,
          ...tokenColumns(requests.map((request) => request.token)),
          `{${requests.map((request) => request.ending.outcome).join(",")}}`,
          details(requests),
          requests.some((request) => request.hasState)
        ],
        lockTimeoutMillis
      }),
      ([row]) => settledOf(requests, row)
    )

  const closeCompleted = (
    flushId: string,
    requests: ReadonlyArray<EndRequest>
  ): Effect.Effect<ReadonlyArray<Settled>, DatabaseError> =>
    Effect.flatMap(
      pool.call({
        name: "close-completed",
        prepare: true,
        text: completed,
        values: [flushId, ...tokenBatches(requests.map((request) => request.token))],
        lockTimeoutMillis
      }),
      ([row]) =>
        // The exact number or none at all: which ones were not closed, and by what, is told by the other statement, to which those
        // that have just been closed are its own.
        Column.number(row?.[0]) === requests.length
          ? Effect.succeed(requests.map(({ ending }) => makeSettled("closed", ending.outcome)))
          : closeAny(flushId, requests)
    )

  return (flushId: string, requests: ReadonlyArray<EndRequest>) =>
    Effect.suspend(() => (requests.every(isPlain) ? closeCompleted : closeAny)(flushId, requests))
}
