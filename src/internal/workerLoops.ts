import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import type { Heartbeat, RuntimeSelf } from "../Heartbeat.js"
import type { Entry, InFlight, Interruption } from "../InFlight.js"
import type { Maintenance } from "../Maintenance.js"
import type { Wakeup } from "../Wakeup.js"
import { backoff } from "./backoff.js"
import { monotonicMillis } from "./monotonic.js"

/** @internal Interrupts the attempt's handler; what follows the handler cannot be interrupted. */
export const interrupt = (entry: Entry, why: Interruption): Effect.Effect<void> =>
  Effect.sync(() => {
    entry.interruption ??= why
    entry.fiber?.unsafeInterruptAsFork(FiberId.none)
  })

/**
 * One beat for these attempts. One that the database no longer holds for this runtime is interrupted, unless what ended it is
 * its own completion.
 */
const beatFor = Effect.fnUntraced(function* (heartbeat: Heartbeat["Type"], entries: ReadonlyArray<Entry>) {
  const lost = yield* heartbeat.beat(entries)
  for (const { entry, outcome } of lost) {
    // its own completion, an end that is under way, or told before
    if (outcome === "completed" || entry.interruption !== undefined || entry.exited) continue
    // a cancellation is somebody's wish
    yield* Effect.logWithLevel(
      outcome === "cancelled" ? LogLevel.Info : LogLevel.Warning,
      "An attempt was lost to another outcome; its handler is interrupted"
    ).pipe(
      Effect.annotateLogs({
        jobId: String(entry.attempt.token.jobId),
        runLease: String(entry.attempt.token.runLease),
        outcome: outcome ?? "superseded"
      })
    )
    yield* interrupt(entry, "lost")
  }
})

/**
 * Looks at once at the attempts that are said to be cancelled. Only a hint, as every notification: the beat's answer decides,
 * and the permit is freed by nothing that anybody could have sent.
 *
 * @internal
 */
export const keepCancelling = (
  heartbeat: Heartbeat["Type"],
  wakeup: Wakeup["Type"],
  inFlight: InFlight
): Effect.Effect<Effect.Effect<never>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const named = yield* Queue.sliding<string>(1_000) // one that is pushed out is found by the next beat
    yield* wakeup.onControl("cancel", (subject) => {
      if (subject !== undefined) named.unsafeOffer(subject)
    })
    const once = Effect.gen(function* () {
      const subjects = new Set(yield* Queue.takeBetween(named, 1, 1_000))
      const entries = Array.from(inFlight.entries()).filter(({ attempt: { token } }) =>
        subjects.has(`${token.jobId}/${token.runLease}`)
      )
      yield* Effect.catchAll(beatFor(heartbeat, entries), (error) =>
        Effect.logWarning("Cancelled attempts could not be looked at; the next beat does it", error)
      )
    })
    return Effect.forever(once)
  })

/**
 * One beat for all attempts that are older than a beat, and for those whose progress is new.
 *
 * @internal
 */
export const keepBeating = (
  heartbeat: Heartbeat["Type"],
  inFlight: InFlight,
  runtimeId: bigint,
  self: RuntimeSelf,
  beat: Duration.Duration
): Effect.Effect<never> => {
  const due = (entry: Entry, now: number): boolean =>
    now - entry.claimedAtMillis >= Duration.toMillis(beat) || (entry.progress !== undefined && !entry.progress.flushed)
  const attempts = Effect.gen(function* () {
    const now = monotonicMillis()
    yield* beatFor(
      heartbeat,
      Array.from(inFlight.entries()).filter((entry) => due(entry, now))
    )
  })
  const tell = (error: unknown) => Effect.logWarning("A heartbeat failed; the next one follows", error)
  // the attempts first: they must not wait for the runtime's own row, nor fail with it
  const once = Effect.zipRight(Effect.catchAll(attempts, tell), Effect.catchAll(heartbeat.renew(runtimeId, self), tell))
  return Effect.forever(Effect.zipRight(Effect.sleep(beat), once))
}

/**
 * Ticks while work is open or due, and rests until the next due time otherwise; a hint wakes it, at most once per busy tick.
 *
 * @internal
 */
export const keepMaintaining = (
  maintenance: Maintenance["Type"],
  wakeup: Wakeup["Type"],
  inFlight: InFlight,
  options: { readonly busyTick: Duration.Duration; readonly idleTick: Duration.Duration }
): Effect.Effect<never> => {
  const busyMillis = Duration.toMillis(options.busyTick)
  const idleMillis = Duration.toMillis(options.idleTick)
  let failures = 0
  const once = Effect.gen(function* () {
    const tick = yield* Effect.option(
      Effect.tapError(maintenance.tick, (error) =>
        (failures === 0 ? Effect.logWarning : Effect.logDebug)("Maintenance failed; the next tick follows", error)
      )
    )
    if (Option.isNone(tick)) return yield* backoff(5 + failures++)
    failures = 0
    const { drained, leader, materialized, nextDue, promoted, pruned, rescued, rotation, spilled, swept } = tick.value
    if (rescued > 0) yield* Effect.logInfo(`Rescued ${rescued} abandoned attempts`)
    const active =
      inFlight.size() > 0 ||
      promoted + rescued + spilled + drained + materialized + swept > 0 ||
      pruned ||
      rotation === "opened" ||
      rotation === "advanced"
    const dueMillis = nextDue === undefined ? idleMillis : Math.max(20, Duration.toMillis(nextDue))
    const floorMillis = rotation === "opened" ? 0 : Math.min(busyMillis, leader ? dueMillis : busyMillis)
    const restMillis = active ? floorMillis : Math.min(idleMillis, dueMillis)
    yield* Effect.sleep(floorMillis)
    if (restMillis > floorMillis) yield* wakeup.waitAny(Duration.millis(restMillis - floorMillis))
  })
  return Effect.forever(once)
}
