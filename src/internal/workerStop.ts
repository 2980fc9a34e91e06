import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Heartbeat } from "../Heartbeat.js"
import type { Entry, InFlight } from "../InFlight.js"
import { waitAtMost } from "./waitAtMost.js"
import { interrupt } from "./workerLoops.js"

/** @internal What a stop has to do with. */
export interface Stopping {
  readonly inFlight: InFlight
  readonly heartbeat: Heartbeat["Type"]
  /** Ends the claiming; completes when the claim that is under way has brought what it took. */
  readonly stopClaiming: Effect.Effect<void>
  /** How long handlers may go on. */
  readonly grace: Duration.Duration
  /** How long interrupted handlers may take to end and to be settled. */
  readonly interruptGrace: Duration.Duration
}

/** How long the last word of what is left behind may take. */
const lastWordLimit = "2 seconds"

/** As many as a log line can carry. */
const named = (entries: ReadonlyArray<Entry>): string =>
  entries
    .slice(0, 20)
    .map((entry) => `${entry.attempt.kind} ${entry.attempt.token.jobId}`)
    .join(", ") + (entries.length > 20 ? ", \u2026" : "")

/** Says by name what is left to rescue, and why: a handler that does not end, or a database that does not answer. */
const sayLeft = (left: ReadonlyArray<Entry>): Effect.Effect<void> => {
  const deaf = left.filter(({ exited }) => !exited)
  const unsettled = left.filter(({ exited }) => exited)
  const say = (entries: ReadonlyArray<Entry>, why: string) =>
    entries.length === 0
      ? Effect.void
      : Effect.logWarning(`Left behind, to rescue: ${entries.length} attempts ${why}: ${named(entries)}`)
  return Effect.zipRight(
    say(deaf, "whose handlers ignored their interruption"),
    say(unsettled, "whose end the database did not take")
  )
}

/**
 * Stops what a worker has in flight. Claiming ends at once, and what a claim still brings is given back without a run; the
 * others may finish within the grace, then their handlers are interrupted and settled. Only what ignores its interruption, or
 * cannot be settled because the database does not answer, is left behind: its lease to rescue, its progress stored (contract
 * C-05).
 *
 * @internal
 */
export const stopInFlight = ({
  grace,
  heartbeat,
  inFlight,
  interruptGrace,
  stopClaiming
}: Stopping): Effect.Effect<void> =>
  Effect.gen(function* () {
    // the first look starts it; the graces do not wait for a claim that the database does not answer
    const idle = Effect.zipRight(stopClaiming, inFlight.empty)
    if (Option.isSome(yield* waitAtMost(idle, grace))) return
    yield* Effect.forEach(Array.from(inFlight.entries()), (entry) => interrupt(entry, "shutdown"), { discard: true })
    if (Option.isSome(yield* waitAtMost(idle, interruptGrace))) return
    const left = Array.from(inFlight.entries())
    yield* sayLeft(left)
    // whoever goes on with them knows how far they came
    const spoke = left.filter(({ progress }) => progress !== undefined && !progress.flushed)
    yield* waitAtMost(Effect.ignore(heartbeat.beat(spoke)), lastWordLimit)
  })
