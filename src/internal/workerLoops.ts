import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import type { Heartbeat } from "../Heartbeat.js"
import type { Entry, InFlight, Interruption } from "../InFlight.js"
import type { Maintenance } from "../Maintenance.js"
import type { Wakeup } from "../Wakeup.js"
import { backoff } from "./backoff.js"

/** Interrupts the attempt's handler; what follows the handler cannot be interrupted. */
const interrupt = (entry: Entry, why: Interruption): Effect.Effect<void> =>
  Effect.sync(() => {
    entry.interruption ??= why
    entry.fiber?.unsafeInterruptAsFork(FiberId.none)
  })

/**
 * One beat for all attempts that are older than a beat, and for those whose progress is new. An attempt that the database no
 * longer holds for this runtime is interrupted, unless what ended it is its own completion.
 *
 * @internal
 */
export const keepBeating = (
  heartbeat: Heartbeat["Type"],
  inFlight: InFlight,
  runtimeId: bigint,
  name: string,
  beat: Duration.Duration
): Effect.Effect<never> => {
  const due = (entry: Entry, now: number): boolean =>
    now - entry.claimedAtMillis >= Duration.toMillis(beat) || (entry.progress !== undefined && !entry.progress.flushed)
  const attempts = Effect.gen(function* () {
    const now = performance.now()
    const entries = Array.from(inFlight.entries()).filter((entry) => due(entry, now))
    const lost = yield* heartbeat.beat(entries)
    for (const { entry, outcome } of lost) {
      // its own completion, an end that is under way, or told before
      if (outcome === "completed" || entry.interruption !== undefined || entry.exited) continue
      yield* Effect.logWarning("An attempt was lost to another outcome; its handler is interrupted").pipe(
        Effect.annotateLogs({
          jobId: String(entry.attempt.token.jobId),
          runLease: String(entry.attempt.token.runLease),
          outcome: outcome ?? "superseded"
        })
      )
      yield* interrupt(entry, "lost")
    }
  })
  const tell = (error: unknown) => Effect.logWarning("A heartbeat failed; the next one follows", error)
  // the attempts first: they must not wait for the runtime's own row, nor fail with it
  const once = Effect.zipRight(Effect.catchAll(attempts, tell), Effect.catchAll(heartbeat.renew(runtimeId, name), tell))
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
    const { drained, leader, nextDue, promoted, pruned, rescued, rotation } = tick.value
    if (rescued > 0) yield* Effect.logInfo(`Rescued ${rescued} abandoned attempts`)
    const active =
      inFlight.size() > 0 ||
      promoted + rescued + drained > 0 ||
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

/**
 * Lets the attempts in flight finish within the grace, then interrupts their handlers and waits until they are settled. Only
 * a handler that ignores its interruption is left behind, its lease to rescue (contract C-05).
 *
 * @internal
 */
export const stopInFlight = (
  inFlight: InFlight,
  grace: Duration.Duration,
  interruptGrace: Duration.Duration
): Effect.Effect<void> =>
  Effect.gen(function* () {
    // a finalizer is uninterruptible, and a timeout cannot cut what is
    const emptyWithin = (limit: Duration.Duration) => Effect.timeoutOption(Effect.interruptible(inFlight.empty), limit)
    if (Option.isSome(yield* emptyWithin(grace))) return
    yield* Effect.forEach(Array.from(inFlight.entries()), (entry) => interrupt(entry, "shutdown"), { discard: true })
    if (Option.isSome(yield* emptyWithin(interruptGrace))) return
    const left = Array.from(inFlight.entries(), (entry) => `${entry.attempt.kind} ${entry.attempt.token.jobId}`)
    yield* Effect.logWarning(
      `Left behind, their leases to rescue: ${left.slice(0, 20).join(", ")} (${left.length} in all)`
    )
  })
