import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Entry } from "../InFlight.js"
import type { DatabaseError, RuntimePool } from "../RuntimePool.js"
import { backoff } from "./backoff.js"
import { type Batcher, makeBatcher, type Pending } from "./batcher.js"
import * as Column from "./column.js"
import { hasPlenty } from "./hasPlenty.js"
import type { Token } from "./makeToken.js"
import { monotonicMillis } from "./monotonic.js"
import { tokenColumns, tokenParameters } from "./tokenColumns.js"

/** @internal What the database knows of an attempt. */
export interface Evidence {
  readonly status: string
  readonly outcome: string | undefined
  readonly closedXid: bigint | undefined
  /** The attempt's last sign of life that the database has, on the monotonic clock; not later than that. */
  readonly aliveAtMillis: number | undefined
}

/** @internal The most attempts that are asked for in one statement. */
export const maxAsked = 500

/** @internal One statement, once: the evidence of these attempts, in their order. */
export type AskEvidence = (tokens: ReadonlyArray<Token>) => Effect.Effect<ReadonlyArray<Evidence>, DatabaseError>

const readEvidence = (row: Column.Row, askedAtMillis: number): Evidence => {
  const age = Column.nullable(Column.bigint)(row[4])
  return {
    status: Column.string(row[1]),
    outcome: Column.nullable(Column.string)(row[2]),
    closedXid: Column.nullable(Column.bigint)(row[3]),
    aliveAtMillis: age === undefined ? undefined : askedAtMillis - Number(age)
  }
}

/** @internal */
export const makeAskEvidence = (pool: RuntimePool["Type"]): AskEvidence => {
  const text =
    "select ord, status, outcome, closed_xid::text::bigint, age_ms " +
    `from ${pool.quotedSchema}.attempt_evidence(${tokenParameters(1)})`
  return (tokens) =>
    Effect.suspend(() => {
      const askedAtMillis = monotonicMillis() // before it is sent: an age that is told later is then no younger than it was
      return Effect.map(
        pool.call({ name: "attempt-evidence", prepare: true, text, values: tokenColumns(tokens) }),
        (rows) => {
          const answers = new Map(rows.map((row) => [Column.number(row[0]), readEvidence(row, askedAtMillis)]))
          return tokens.map((_, i) => {
            const evidence = answers.get(i + 1)
            if (evidence === undefined) throw new Error("attempt_evidence left an attempt without an answer")
            return evidence
          })
        }
      )
    })
}

/** So long a question waits for company whose attempts' permits nobody misses. */
const longestLingerMillis = 20

/**
 * Evidence for all attempts that have just exited, in one statement; asked again, with backoff, for as long as anybody
 * still waits. Where plenty of an attempt's queue wait for a connection its permit is not missed, and the question waits longer.
 *
 * @internal
 */
export const makeEvidence = (
  ask: AskEvidence,
  lingerMillis: number
): Effect.Effect<Batcher<Entry, Evidence>, never, Scope.Scope> => {
  const answer = (batch: ReadonlyArray<Pending<Entry, Evidence>>, tries: number): Effect.Effect<void> => {
    const wanted = batch.filter((pending) => pending.wanted())
    if (wanted.length === 0) return Effect.void
    return Effect.matchEffect(ask(wanted.map(({ item }) => item.attempt.token)), {
      onSuccess: (evidence) =>
        Effect.sync(() => {
          evidence.forEach((found, i) => wanted[i]?.answer(found))
        }),
      onFailure: (error) =>
        (tries === 0 ? Effect.logWarning : Effect.logDebug)(
          "Reconciliation has no answer yet and asks again",
          error
        ).pipe(Effect.zipRight(backoff(tries)), Effect.zipRight(Effect.suspend(() => answer(wanted, tries + 1))))
    })
  }
  return makeBatcher<Entry, Evidence>({
    maxSize: maxAsked,
    lingerMillis,
    longestLingerMillis,
    isPatient: ({ queueWaiting }) => hasPlenty(queueWaiting),
    run: (batch) => answer(batch, 0)
  })
}
