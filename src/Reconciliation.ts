/**
 * What became of a caller-owned attempt after its handler ended (contract C-17).
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { RegisteredHandler } from "./Handlers.js"
import type { Entry } from "./InFlight.js"
import { backoffMillis } from "./internal/backoff.js"
import { budgetLeft } from "./internal/budget.js"
import { isConfirmed, reportOf } from "./internal/classification.js"
import { type Evidence, makeAskEvidence, makeEvidence } from "./internal/evidence.js"
import { makeSettled } from "./internal/makeSettled.js"
import { unbindToken } from "./internal/makeToken.js"
import * as metrics from "./internal/metrics.js"
import { monotonicMillis } from "./internal/monotonic.js"
import { observe, observeNow } from "./internal/protocolEvents.js"
import { bounded } from "./internal/optionRules.js"
import { lingerBounds, settingsOf } from "./internal/reconciliationOptions.js"
import { makeSettleAttempt } from "./internal/settleAttempt.js"
import { type Conclusion, type Exited, makeStep } from "./internal/settling.js"
import { makeWatcher } from "./internal/watcher.js"
import { RuntimePool } from "./RuntimePool.js"
import type { Settled } from "./Settled.js"

/**
 * Decides, after every exit of a caller-owned handler, what became of its attempt: from the database's evidence for the
 * attempt's token, never from what the handler said. The answer frees the permit, and nothing else does.
 *
 * When no evidence decides within the budget (the database is out of reach, or a finalization stays in flight) the permit
 * is freed all the same, nothing is done to the attempt, and one watcher for all such attempts asks on and tells what became
 * of them. They are not beaten for any more, so rescue takes the open ones. At the watchers' bound permits are kept instead:
 * the worker claims no more.
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
    /**
     * The same without a fiber, for an exit that the first evidence confirms, as nearly every one: `settled` has the proof. For any
     * other `unsettled` has what is left to be run. One of them is called, once, and must not throw.
     */
    readonly unsafeSettle: (
      entry: Entry,
      handler: RegisteredHandler,
      exit: Exit.Exit<unknown, unknown>,
      settled: (proof: Exit.Exit<Settled>) => void,
      unsettled: (rest: Effect.Effect<Settled>) => void
    ) => void
    /** How many attempts are watched. */
    readonly unresolved: Effect.Effect<number>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface ReconciliationOptions {
  /**
   * How long a permit waits for evidence after its handler's exit, at most until the attempt may be rescued; 30 seconds, a
   * day at most.
   */
  readonly budget?: Duration.DurationInput
  /** How long an attempt may be without a heartbeat before rescue takes it: that of the fleet's maintenance; 60 seconds. */
  readonly staleness?: Duration.DurationInput
  /** How many attempts are watched at most, from 0 to 1000000; 10 000. With 0, permits are kept however long an outage is. */
  readonly watchers?: number
  /** How long an attempt is watched; 10 minutes, a day at most. Evidence is kept at least that long. */
  readonly watcherLife?: Duration.DurationInput
  /** How long a question waits for company, in milliseconds, from 0 to 10000; 1 unless said otherwise. */
  readonly lingerMillis?: number
}

/** How long a permit that is kept at the watchers' bound waits for evidence before it asks for a watcher again, at first… */
const keptMillis = 1_000
/** …and at most: longer than the statement and the pool may take. */
const longestMillis = 30_000

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options?: ReconciliationOptions
): Effect.fn.Return<Reconciliation["Type"], never, RuntimePool | Scope.Scope> {
  const pool = yield* RuntimePool
  const settings = settingsOf(options)
  const ask = makeAskEvidence(pool)
  const evidenceOf = yield* makeEvidence(ask, bounded(options?.lingerMillis, lingerBounds, 1))
  const watcher = yield* makeWatcher(ask, settings)
  const step = makeStep(makeSettleAttempt(pool))

  /** The proof, once what is to be said of the attempt is said. */
  const conclude = ({ seen, subject }: Exited, { event, how, outcome }: Conclusion) =>
    Effect.as(observe(subject, how, event, { evidence: seen, outcome }), makeSettled(how, outcome))

  /** Frees the permit without evidence, if somebody is left to watch the attempt. */
  const giveUp = Effect.fnUntraced(function* (exited: Exited): Effect.fn.Return<Conclusion | undefined> {
    const { ending, report, seen, subject } = exited
    const { finalizedXid, receipt } = report
    const attempt = { ...subject, receipt, finalizedXid, tried: ending?.outcome, seen, sinceMillis: monotonicMillis() }
    return (yield* watcher.watch(attempt)) ? { how: "unresolved", outcome: seen, event: "unresolved" } : undefined
  })

  /** `asked` is the first answer, or none within the budget, where the question was put already. */
  const decide = Effect.fnUntraced(function* (
    exited: Exited,
    asked: Option.Option<Evidence> | undefined
  ): Effect.fn.Return<Conclusion> {
    const left = () => budgetLeft(settings, exited.entry, exited.exitedAtMillis, monotonicMillis())
    let known = asked
    for (let tries = 0; ; tries++) {
      const remaining = known === undefined ? left() : 1
      if (remaining <= 0) {
        const unresolved = yield* giveUp(exited)
        if (unresolved !== undefined) return unresolved
        if (!exited.kept) yield* Metric.modify(metrics.permitsKept, 1)
        exited.kept = true
      }
      // only the waiting is cut off: the question is withdrawn, and asked by the watcher from then on
      const evidence =
        known ??
        (yield* evidenceOf.askWithin(
          exited.entry,
          // beyond it ever longer, or a database that is slow to answer would never be heard
          remaining > 0 ? remaining : Math.min(keptMillis * 2 ** tries, longestMillis)
        ))
      known = undefined
      if (Option.isNone(evidence)) continue
      if (exited.kept && evidence.value.status === "unknown") {
        return { how: "unresolved", outcome: "unknown", event: "unresolved" } // an answer: there is nothing to wait for
      }
      const next = yield* step(exited, evidence.value)
      if (typeof next !== "string") return next
      const pause = yield* next === "soon" ? backoffMillis(Math.min(tries, 4), 5) : backoffMillis(tries)
      yield* Effect.sleep(exited.kept ? pause : Math.max(0, Math.min(pause, left())))
    }
  })

  const settle = (exited: Exited, asked?: Option.Option<Evidence>): Effect.Effect<Settled> =>
    decide(exited, asked).pipe(
      Effect.ensuring(Effect.suspend(() => (exited.kept ? Metric.modify(metrics.permitsKept, -1) : Effect.void))),
      Effect.flatMap((conclusion) => conclude(exited, conclusion))
    )

  const exitedOf = (entry: Entry, handler: RegisteredHandler, exit: Exit.Exit<unknown, unknown>): Exited => {
    const { kind, token } = entry.attempt
    const report = reportOf(token, entry.interruption, exit)
    unbindToken(token)
    return {
      entry,
      handler,
      report,
      subject: { token, kind, exitClass: report.exitClass },
      flushId: undefined,
      exitedAtMillis: monotonicMillis(),
      ending: undefined,
      seen: "none",
      kept: false
    }
  }

  return {
    unresolved: Effect.sync(watcher.size),
    settle: (entry, handler, exit) =>
      Effect.uninterruptible(Effect.suspend(() => settle(exitedOf(entry, handler, exit)))),
    unsafeSettle: (entry, handler, exit, settled, unsettled) => {
      const exited = exitedOf(entry, handler, exit)
      const goOn = (asked?: Option.Option<Evidence>): void => unsettled(Effect.uninterruptible(settle(exited, asked)))
      const budget = budgetLeft(settings, entry, exited.exitedAtMillis, exited.exitedAtMillis)
      if (budget <= 0) return goOn()
      evidenceOf.tellWithin(entry, budget, (answer) => {
        if (Exit.isFailure(answer)) return settled(Exit.failCause(answer.cause))
        const evidence = Option.getOrUndefined(answer.value)
        if (evidence === undefined || !isConfirmed(exited.report, evidence)) return goOn(answer.value)
        observeNow(exited.subject, "accepted")
        settled(Exit.succeed(makeSettled("accepted", "completed")))
      })
    }
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: ReconciliationOptions): Layer.Layer<Reconciliation, never, RuntimePool> =>
  Layer.scoped(Reconciliation, make(options))
