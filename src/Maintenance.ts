/**
 * What one runtime of a fleet does for all: promote, rescue, rotate, drain, prune, sweep.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import {
  makeKept,
  makePromote,
  makeRescue,
  makeRescueLeases,
  makeStep,
  makeSweep,
  makeTurn
} from "./internal/maintenanceSteps.js"
import { evidenceMillis, settingsOf } from "./internal/reconciliationOptions.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"

/**
 * What a tick did. `leader` is false when another runtime was at work.
 *
 * @since 0.1.0
 * @category models
 */
export interface Tick {
  readonly leader: boolean
  readonly promoted: number
  readonly rescued: number
  /** `idle`, `opened`, `advanced`, or `full`: no slot is free, and the current segment grows. */
  readonly rotation: string
  /** Unclaimed entries that were moved out of the oldest segment's way. */
  readonly spilled: number
  readonly drained: number
  /** Attempts that outlived their segment and got a lease. */
  readonly materialized: number
  readonly pruned: boolean
  /** Rows that had lived their time and were removed: terminal jobs, dead letters, ended leases, expired keys. */
  readonly swept: number
  /** How long until a job or a callback is due, or one that another transaction holds is worth another look. */
  readonly nextDue: Duration.Duration | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface MaintenanceOptions {
  /** How long an attempt may be without a heartbeat; 60 seconds, at least two beats and at most a day. It is noticed within a twelfth of that. */
  readonly staleness?: Duration.DurationInput
  /** The age at which a segment is rotated out; 10 minutes. From 1 second to 30 days. */
  readonly segmentAge?: Duration.DurationInput
  /** The number of entries at which a segment is rotated out, from 1 to 1000000000; a million. */
  readonly segmentEntries?: number
  /** How long completed history is kept at least; 1 hour, 365 days at most. */
  readonly completedHistory?: Duration.DurationInput
  /**
   * How long what became of an attempt is kept at least, for those that may still ask: the worker's reconciliation budget,
   * the staleness and the life of its watchers together, 11½ minutes; 3 days at most. The longest wish of the fleet counts.
   */
  readonly evidence?: Duration.DurationInput
  /**
   * How long jobs are kept that failed for good, were discarded or cancelled; 30 days. `Duration.infinity` keeps them for ever. From
   * 1 second: with 0 they would be gone before anybody could look at them.
   */
  readonly terminalRetention?: Duration.DurationInput
  /** How long dead letters are kept, from 1 second to `Duration.infinity`; 30 days. Jobs in quarantine are kept until somebody decides. */
  readonly deadLetterRetention?: Duration.DurationInput
}

/**
 * The settings in force, in milliseconds; `Infinity` is stored as null.
 *
 * @since 0.1.0
 * @category models
 */
export interface MaintenanceSettings {
  readonly stalenessMillis: number
  readonly segmentAgeMillis: number
  readonly segmentEntries: number
  readonly completedHistoryMillis: number
  readonly evidenceMillis: number
  readonly terminalRetentionMillis: number
  readonly deadLetterRetentionMillis: number
}

/**
 * @since 0.1.0
 * @category services
 */
export class Maintenance extends Context.Tag("effect-awa/Maintenance")<
  Maintenance,
  {
    /** Every step, once. Each takes the leader's lock for its own transaction, so any runtime may call it at any time. */
    readonly tick: Effect.Effect<Tick, DatabaseError>
    readonly settings: MaintenanceSettings
  }
>() {}

const earlier = (a: Duration.Duration | undefined, b: Duration.Duration | undefined): Duration.Duration | undefined =>
  a === undefined || b === undefined ? (a ?? b) : Duration.min(a, b)

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: MaintenanceOptions): Effect.Effect<Maintenance["Type"], never, RuntimePool> =>
  Effect.map(RuntimePool, (pool) => {
    const step = makeStep(pool)
    const staleness = options?.staleness ?? "60 seconds"
    const history = options?.completedHistory ?? "1 hour"
    const settings: MaintenanceSettings = {
      stalenessMillis: Duration.toMillis(staleness),
      segmentAgeMillis: Duration.toMillis(options?.segmentAge ?? "10 minutes"),
      segmentEntries: options?.segmentEntries ?? 1_000_000,
      completedHistoryMillis: Duration.toMillis(history),
      evidenceMillis:
        options?.evidence === undefined
          ? evidenceMillis(settingsOf({ staleness }))
          : Duration.toMillis(options.evidence),
      terminalRetentionMillis: Duration.toMillis(options?.terminalRetention ?? "30 days"),
      deadLetterRetentionMillis: Duration.toMillis(options?.deadLetterRetention ?? "30 days")
    }
    const kept = makeKept(pool.quotedSchema)
    const promote = makePromote(step)
    const rescue = makeRescue(step, staleness)
    const rescueLeases = makeRescueLeases(step, staleness)
    const turn = makeTurn(step, {
      segmentAge: settings.segmentAgeMillis,
      segmentEntries: settings.segmentEntries,
      history,
      kept
    })
    const sweep = makeSweep(step, {
      terminal: settings.terminalRetentionMillis,
      deadLetter: settings.deadLetterRetentionMillis,
      history,
      kept
    })
    const tick = Effect.gen(function* () {
      // each step by itself: one that fails must not keep the others from their work
      const promoted = yield* Effect.either(promote)
      if (Either.isRight(promoted) && !promoted.right.leader) {
        return {
          leader: false,
          promoted: promoted.right.promoted,
          rescued: 0,
          rotation: "idle",
          spilled: 0,
          drained: 0,
          materialized: 0,
          pruned: false,
          swept: 0,
          nextDue: undefined
        }
      }
      const rescued = yield* Effect.either(rescue)
      const rescuedLeases = yield* Effect.either(rescueLeases)
      const turned = yield* Effect.either(turn)
      const swept = yield* Effect.either(sweep)
      const { nextDue, promoted: total } = yield* promoted
      const leases = yield* rescuedLeases
      const tick: Tick = {
        leader: true,
        promoted: total,
        rescued: (yield* rescued) + leases.rescued,
        ...(yield* turned),
        swept: yield* swept,
        nextDue: earlier(nextDue, leases.nextDue)
      }
      return tick
    })
    return { tick, settings }
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: MaintenanceOptions): Layer.Layer<Maintenance, never, RuntimePool> =>
  Layer.effect(Maintenance, make(options))
