/**
 * What became of a caller-owned attempt after its handler ended (contract C-17).
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import type { RegisteredHandler } from "./Handlers.js"
import type { Entry } from "./InFlight.js"
import { backoff, backoffMillis } from "./internal/backoff.js"
import { makeBatcher } from "./internal/batcher.js"
import {
  classify,
  endingOf,
  type Evidence,
  type ExitReport,
  protocolEvent,
  reportOf
} from "./internal/classification.js"
import * as Column from "./internal/column.js"
import { type Ending, endingDetail, plainEnding, refusesContent } from "./internal/ending.js"
import { newFlushId } from "./internal/flushId.js"
import { makeSettled } from "./internal/makeSettled.js"
import type { Token } from "./internal/makeToken.js"
import { tokenColumns, tokenParameters } from "./internal/tokenColumns.js"
import { RuntimePool } from "./RuntimePool.js"
import type { Settled } from "./Settled.js"

/**
 * Decides, after every exit of a caller-owned handler, what became of its attempt: from the database's evidence for the
 * attempt's token, never from what the handler said. The answer frees the permit, and nothing else does.
 *
 * @since 0.1.0
 * @category services
 */
export class Reconciliation extends Context.Tag("effect-awa/Reconciliation")<
  Reconciliation,
  {
    readonly settle: (
      entry: Entry,
      handler: RegisteredHandler,
      exit: Exit.Exit<unknown, unknown>
    ) => Effect.Effect<Settled>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface ReconciliationOptions {
  /** How long evidence that is gone is asked for again, before the attempt is given up unchanged; 30 seconds. */
  readonly budget?: Duration.DurationInput
  /** How long a question waits for company, in milliseconds; 1 unless said otherwise. */
  readonly lingerMillis?: number
}

const readEvidence = (row: Column.Row): Evidence => ({
  status: Column.string(row[1]),
  outcome: Column.nullable(Column.string)(row[2]),
  closedXid: Column.nullable(Column.bigint)(row[3])
})

/** Evidence for all attempts that have just exited, in one statement; asked again until the database answers. */
const makeEvidence = (pool: RuntimePool["Type"], lingerMillis: number) => {
  const text =
    "select ord, status, outcome, closed_xid::text::bigint " +
    `from ${pool.quotedSchema}.attempt_evidence(${tokenParameters(1)})`
  const ask = (tokens: ReadonlyArray<Token>, tries: number): Effect.Effect<ReadonlyMap<number, Evidence>> =>
    Effect.matchEffect(pool.call({ name: "attempt-evidence", text, values: tokenColumns(tokens) }), {
      onSuccess: (rows) => Effect.succeed(new Map(rows.map((row) => [Column.number(row[0]), readEvidence(row)]))),
      onFailure: (error) =>
        (tries === 0 ? Effect.logWarning : Effect.logDebug)(
          "Reconciliation has no answer yet and asks again",
          error
        ).pipe(Effect.zipRight(backoff(tries)), Effect.zipRight(Effect.suspend(() => ask(tokens, tries + 1))))
    })
  return makeBatcher<Token, Evidence>({
    maxSize: 500,
    lingerMillis,
    run: (batch) =>
      Effect.map(
        ask(
          batch.map((pending) => pending.item),
          0
        ),
        (answers) =>
          batch.forEach((pending, i) => {
            const evidence = answers.get(i + 1)
            if (evidence === undefined) throw new Error("attempt_evidence left an attempt without an answer")
            pending.answer(evidence)
          })
      )
  })
}

type Answer = "closed" | "repeated" | "stale" | "busy" | "none" | "refused"

/** Ends one open attempt. Guarded, and never waits: an attempt whose lock is held is answered busy. */
const makeClose = (pool: RuntimePool["Type"]) => {
  const text =
    `select ${pool.quotedSchema}.settle_attempt($1::bigint, s, b, i, j, l, r, $8::${pool.quotedSchema}.outcome, $9::text::jsonb) ` +
    `from unnest(${tokenParameters(2)}) as t(s, b, i, j, l, r)`
  return (flushId: string, token: Token, ending: Ending): Effect.Effect<Answer> =>
    pool
      .call({
        name: "settle-attempt",
        text,
        values: [flushId, ...tokenColumns([token]), ending.outcome, endingDetail(ending) ?? "{}"],
        lockTimeoutMillis: 250
      })
      .pipe(
        Effect.map(([row]): Answer => {
          const answer = Column.string(row?.[0])
          if (answer === "closed" || answer === "repeated" || answer === "stale" || answer === "busy") return answer
          throw new Error(`settle_attempt answered ${answer}`)
        }),
        // whether it took effect is the next round's question
        Effect.catchAll((error) =>
          Effect.as(
            Effect.logDebug("An attempt could not be settled yet", error),
            refusesContent(error.sqlState) ? ("refused" as const) : ("none" as const)
          )
        )
      )
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options?: ReconciliationOptions
): Effect.fn.Return<Reconciliation["Type"], never, RuntimePool | Scope.Scope> {
  const pool = yield* RuntimePool
  const evidenceOf = yield* makeEvidence(pool, options?.lingerMillis ?? 1)
  const close = makeClose(pool)
  const budgetMillis = Duration.toMillis(options?.budget ?? "30 seconds")

  const settle = Effect.fnUntraced(function* (
    entry: Entry,
    handler: RegisteredHandler,
    exit: Exit.Exit<unknown, unknown>
  ) {
    const { attempt } = entry
    const report: ExitReport = reportOf(attempt.token, entry.interruption, exit)
    const flushId = newFlushId()
    const startedAt = performance.now()
    let ending: Ending | undefined
    for (let tries = 0; ; tries++) {
      const evidence = yield* evidenceOf(attempt.token)
      const verdict = classify(evidence)
      const event = protocolEvent(report, evidence)
      switch (verdict) {
        case "accepted": {
          if (event !== undefined) yield* warn(entry, report, event)
          return makeSettled("accepted", "completed")
        }
        case "stale": {
          // perhaps it was this very settle, whose answer was lost: the flush's id tells
          if (ending !== undefined && (yield* close(flushId, attempt.token, ending)) === "repeated") {
            return makeSettled("closed", ending.outcome)
          }
          if (event !== undefined) yield* warn(entry, report, event)
          return makeSettled("stale", evidence.outcome ?? "superseded")
        }
        case "unknown": {
          if (performance.now() - startedAt > budgetMillis) {
            yield* warn(entry, report, "the evidence of the attempt is gone; nothing was changed")
            return makeSettled("unresolved", "unknown")
          }
          yield* backoff(tries)
          break
        }
        case "open": {
          if (ending === undefined) {
            if (event !== undefined) yield* warn(entry, report, event)
            ending = yield* endingOf(report, handler, entry)
          }
          const answer = yield* close(flushId, attempt.token, ending)
          if (answer === "closed" || answer === "repeated") return makeSettled("closed", ending.outcome)
          if (answer === "refused") ending = plainEnding(ending)
          // busy: a finalization is in flight; stale: it has just won. Either way its end is in the evidence soon.
          yield* answer === "none" || answer === "refused"
            ? backoff(tries)
            : Effect.flatMap(backoffMillis(Math.min(tries, 4), 5), Effect.sleep)
        }
      }
    }
  })

  return { settle: (entry, handler, exit) => Effect.uninterruptible(settle(entry, handler, exit)) }
})

const warn = (entry: Entry, report: ExitReport, event: string) =>
  Effect.logWarning(`Protocol event: ${event}`).pipe(
    Effect.annotateLogs({
      jobId: String(entry.attempt.token.jobId),
      runLease: String(entry.attempt.token.runLease),
      kind: entry.attempt.kind,
      exit: report.exitClass
    })
  )

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: ReconciliationOptions): Layer.Layer<Reconciliation, never, RuntimePool> =>
  Layer.scoped(Reconciliation, make(options))
