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
import * as Column from "./internal/column.js"
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
  readonly rotation: string
  readonly drained: number
  readonly pruned: boolean
  /** How long until a deferred job is due. */
  readonly nextDue: Duration.Duration | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface MaintenanceOptions {
  /** How long an attempt may be without a heartbeat; 60 seconds. */
  readonly staleness?: Duration.DurationInput
  /** The age at which a segment is rotated out; 10 minutes. */
  readonly segmentAge?: Duration.DurationInput
  /** The number of entries at which a segment is rotated out; a million. */
  readonly segmentEntries?: number
  /** How long completed history is kept at least; 1 hour. */
  readonly completedHistory?: Duration.DurationInput
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
  }
>() {}

const promoteLimit = 1_000
const rescueLimit = 500
const sweepMillis = 60_000

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: MaintenanceOptions): Effect.Effect<Maintenance["Type"], never, RuntimePool> =>
  Effect.map(RuntimePool, (pool) => {
    const millis = (duration: Duration.DurationInput) => `${Duration.toMillis(duration)} milliseconds`
    const step = (name: string, call: string, values: ReadonlyArray<unknown>, lockTimeoutMillis?: number) =>
      Effect.map(
        pool.call({
          name,
          text: `select * from ${pool.quotedSchema}.${call}`,
          values,
          timeoutMillis: 30_000,
          lockTimeoutMillis: lockTimeoutMillis ?? 1_000
        }),
        ([row]) => row ?? []
      )
    const staleness = millis(options?.staleness ?? "60 seconds")
    const keep = millis(options?.completedHistory ?? "1 hour")

    const promote = Effect.gen(function* () {
      let total = 0
      for (;;) {
        const [promoted, nextDue] = yield* step("promote-due", "promote_due($1)", [promoteLimit])
        const count = Column.nullable(Column.number)(promoted)
        total += count ?? 0
        // a full batch that is still behind goes on; the lock is let go in between
        if (count === undefined || count < promoteLimit) {
          return { leader: count !== undefined, total, nextDue: Column.nullable(Column.bigint)(nextDue) }
        }
      }
    })
    // Pruning gives up quietly when something holds a lock on the segment: the next tick tries again.
    const prune = step("prune-segment", "prune_segment($1::interval)", [keep], 100).pipe(
      Effect.map(([slot]) => slot !== null && slot !== undefined),
      Effect.catchIf(
        (error) => error.sqlState === "55P03",
        () => Effect.succeed(false)
      )
    )

    let sweptAt = performance.now()
    const sweep = Effect.suspend(() => {
      if (performance.now() - sweptAt < sweepMillis) return Effect.void
      sweptAt = performance.now()
      return step("sweep", "sweep($1::interval)", ["1 day"])
    })

    const tick = Effect.gen(function* () {
      // each step by itself: one that fails must not keep the others from their work
      const promoted = yield* Effect.either(promote)
      if (Either.isRight(promoted) && !promoted.right.leader) {
        return {
          leader: false,
          promoted: 0,
          rescued: 0,
          rotation: "idle",
          drained: 0,
          pruned: false,
          nextDue: undefined
        }
      }
      const rescued = yield* Effect.either(
        step("rescue-stale", "rescue_stale($1::interval, $2)", [staleness, rescueLimit])
      )
      const rotation = yield* Effect.either(
        step("rotate", "rotate($1::interval, $2::bigint)", [
          millis(options?.segmentAge ?? "10 minutes"),
          String(options?.segmentEntries ?? 1_000_000)
        ])
      )
      const drained = yield* Effect.either(step("drain-segments", "drain_segments()", []))
      const pruned = yield* Effect.either(prune)
      yield* sweep
      const { total, nextDue } = yield* promoted
      const tick: Tick = {
        leader: true,
        promoted: total,
        rescued: Column.nullable(Column.number)((yield* rescued)[0]) ?? 0,
        rotation: Column.nullable(Column.string)((yield* rotation)[0]) ?? "idle",
        drained: Column.nullable(Column.number)((yield* drained)[0]) ?? 0,
        pruned: yield* pruned,
        nextDue: nextDue === undefined ? undefined : Duration.millis(Number(nextDue))
      }
      return tick
    })
    return { tick }
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: MaintenanceOptions): Layer.Layer<Maintenance, never, RuntimePool> =>
  Layer.effect(Maintenance, make(options))
