import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import type { DatabaseError } from "../RuntimePool.js"
import { backoff } from "./backoff.js"
import { classify, type ExitSummary, protocolEvent } from "./classification.js"
import { type AskEvidence, type Evidence, maxAsked } from "./evidence.js"
import type { Token } from "./makeToken.js"
import * as metrics from "./metrics.js"
import { monotonicMillis } from "./monotonic.js"
import { type LaterVerdict, observe, type ProtocolEvent, tellEvent } from "./protocolEvents.js"

/** @internal All that is kept of an attempt whose permit was released without evidence: no payload, no value, no cause. */
export interface Watched extends ExitSummary {
  readonly token: Token
  readonly kind: string
  /** What the worker's own call may have ended it as, when that call's answer was lost. */
  readonly tried: string | undefined
  readonly sinceMillis: number
  /** The last evidence; `none` when there was no answer. */
  seen: string
}

/** @internal */
export interface Watcher {
  /** False when as many are watched as may be, or when nobody watches any more: the permit must be kept. */
  readonly watch: (attempt: Watched) => Effect.Effect<boolean>
  readonly size: () => number
}

/** @internal What is known by now of a watched attempt; undefined when it must be asked for again. */
export const laterVerdict = (attempt: Watched, evidence: Evidence): LaterVerdict | undefined => {
  switch (classify(evidence)) {
    case "accepted":
      return "accepted-later"
    case "parked":
      return "parked-later"
    case "stale":
      if (evidence.outcome !== undefined && evidence.outcome === attempt.tried) return "settled-later"
      // a newer run lease is there: whoever took the attempt back was rescue
      return evidence.outcome === "rescued" || evidence.status === "superseded" ? "rescue-won" : "closed-otherwise"
    case "open": // rescue's to end: to close it now would be a guess at what the handler still meant to do
    case "unknown":
      return undefined
  }
}

/** What the evidence says against the handler comes first; that it came late is the least of it. */
const eventOf = (attempt: Watched, verdict: LaterVerdict, evidence: Evidence): ProtocolEvent =>
  verdict === "accepted-later" ? (protocolEvent(attempt, evidence) ?? verdict) : verdict

/**
 * Remembers attempts whose permits were released without evidence, at most so many and for so long, in one fiber for all.
 * It only asks and tells: it completes nothing, retries nothing and beats for nothing (contract C-17.4).
 *
 * @internal
 */
export const makeWatcher = Effect.fnUntraced(function* (
  ask: AskEvidence,
  options: { readonly watchers: number; readonly watcherLifeMillis: number }
): Effect.fn.Return<Watcher, never, Scope.Scope> {
  const watched = new Set<Watched>()
  const some = yield* Effect.makeLatch(false)
  let closed = false
  let full = false

  const forget = (attempt: Watched) =>
    Effect.zipRight(
      Effect.sync(() => {
        watched.delete(attempt)
        full = false
        if (watched.size === 0) some.unsafeClose()
      }),
      Metric.modify(metrics.unresolved, -1)
    )
  const conclude = (attempt: Watched, verdict: LaterVerdict, event: ProtocolEvent, evidence: string) =>
    Effect.zipRight(forget(attempt), observe(attempt, verdict, event, { evidence, verdict }))

  const expire = Effect.suspend(() => {
    const before = monotonicMillis() - options.watcherLifeMillis
    return Effect.forEach(
      Array.from(watched).filter(({ sinceMillis }) => sinceMillis < before),
      (attempt) => conclude(attempt, "watch-expired", "watch-expired", attempt.seen),
      { discard: true }
    )
  })
  const look = (attempt: Watched, evidence: Evidence) => {
    attempt.seen = evidence.outcome ?? evidence.status
    const verdict = laterVerdict(attempt, evidence)
    return verdict === undefined
      ? Effect.void
      : conclude(attempt, verdict, eventOf(attempt, verdict, evidence), attempt.seen)
  }
  /** Asks for all of them once. Answers whether any was concluded. */
  const round: Effect.Effect<boolean, DatabaseError> = Effect.gen(function* () {
    yield* expire
    const all = Array.from(watched)
    for (let from = 0; from < all.length; from += maxAsked) {
      const some = all.slice(from, from + maxAsked)
      const evidence = yield* ask(some.map(({ token }) => token))
      yield* Effect.forEach(some, (attempt, i) => (evidence[i] ? look(attempt, evidence[i]) : Effect.void), {
        discard: true
      })
    }
    return all.some((attempt) => !watched.has(attempt))
  })
  const keepWatching = (tries: number): Effect.Effect<never> =>
    some.await.pipe(
      Effect.zipRight(backoff(tries)), // it has just not answered
      Effect.zipRight(round),
      Effect.catchAllCause((cause) =>
        Effect.as(
          (Cause.isDie(cause) ? Effect.logError : Effect.logDebug)("Watched attempts are asked for again", cause),
          false
        )
      ),
      Effect.flatMap((moved) => keepWatching(moved || watched.size === 0 ? 0 : tries + 1))
    )
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      closed = true
      const left = watched.size
      watched.clear()
      return left === 0
        ? Effect.void
        : Effect.zipRight(
            Metric.modify(metrics.unresolved, -left),
            Effect.logWarning(`${left} attempts were still watched; what became of them is not told any more`)
          )
    })
  )
  yield* Effect.forkScoped(Effect.interruptible(keepWatching(0)))

  return {
    size: () => watched.size,
    watch: (attempt) =>
      Effect.suspend(() => {
        if (closed) return Effect.succeed(false)
        if (watched.size >= options.watchers) {
          const first = !full
          full = true
          return Effect.as(first ? tellEvent(attempt, "watchers-full") : Effect.void, false)
        }
        watched.add(attempt)
        some.unsafeOpen()
        return Effect.as(Metric.modify(metrics.unresolved, 1), true)
      })
  }
})
