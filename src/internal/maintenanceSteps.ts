import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Column from "./column.js"
import type { DatabaseError, RuntimePool } from "../RuntimePool.js"

/** @internal One call of a maintenance function in a transaction of its own; the columns of its one row. */
export type Step = (
  name: string,
  call: string,
  values: ReadonlyArray<unknown>,
  options?: { readonly columns?: string; readonly lockTimeoutMillis?: number; readonly timeoutMillis?: number }
) => Effect.Effect<Column.Row, DatabaseError>

/** @internal */
export const makeStep =
  (pool: RuntimePool["Type"]): Step =>
  (name, call, values, options) =>
    Effect.map(
      pool.call({
        name,
        text: `select ${options?.columns ?? "*"} from ${pool.quotedSchema}.${call}`,
        values,
        timeoutMillis: options?.timeoutMillis ?? 30_000,
        lockTimeoutMillis: options?.lockTimeoutMillis ?? 1_000
      }),
      ([row]) => row ?? []
    )

/** A thousand years: for ever, and within what a timestamp can go back. */
const maxMillis = 31_557_600_000_000

/** @internal A duration as the database takes it. */
export const interval = (duration: Duration.DurationInput): string =>
  `${Math.min(Duration.toMillis(duration), maxMillis)} milliseconds`

/** @internal The parameter of this number, an interval, as SQL that no one who may still ask for evidence is let down by. */
export type Kept = (parameter: number) => string

/** @internal The history's minimum, or what the fleet's reconciliation needs, if that is longer. */
export const makeKept =
  (quotedSchema: string): Kept =>
  (parameter) =>
    `greatest($${parameter}::interval, ${quotedSchema}.evidence_keep())`

/** What looks at every attempt of a segment, which grows without a bound while no other is free, must end all the same. */
const wholeSegmentMillis = 120_000

const promoteLimit = 2_000
/** However much is due, the other steps have their turn after so many calls. */
const promoteRounds = 100
const rescueLimit = 500
const sweepLimit = 1_000
const sweepMillis = 60_000
const freshMarkMillis = 600_000

/** @internal What promotion did in a tick; `leader` is false when another runtime was at work. */
export interface Promotion {
  readonly leader: boolean
  readonly promoted: number
  readonly nextDue: Duration.Duration | undefined
}

/**
 * Promotes everything that is due. The mark (how far this runtime came, so that it does not walk again over what it promoted)
 * lives here and nowhere else. When nothing is due it is forgotten every ten minutes, which costs one walk: a row that somebody
 * wrote by hand, or that came back from a backup, is then found all the same.
 *
 * @internal
 */
export const makePromote = (step: Step): Effect.Effect<Promotion, DatabaseError> => {
  let mark: string | undefined
  let markedAt = performance.now()
  return Effect.gen(function* () {
    let promoted = 0
    let nextDue: bigint | undefined
    let round = 0
    do {
      const [count, due, next] = yield* step("promote-due", "promote_due($1, $2::text::jsonb)", [promoteLimit, mark], {
        columns: "promoted, next_due_ms, mark::text" // as text: a number in it may be larger than JavaScript can hold
      })
      const moved = Column.nullable(Column.number)(count)
      if (moved === undefined) return { leader: false, promoted, nextDue: undefined }
      promoted += moved
      mark = Column.nullable(Column.string)(next) // committed: a call that fails leaves the mark as it was
      nextDue = Column.nullable(Column.bigint)(due)
    } while (nextDue === 0n && ++round < promoteRounds) // the lock is let go in between
    if (promoted === 0 && performance.now() - markedAt > freshMarkMillis) {
      mark = undefined
      markedAt = performance.now()
    }
    return { leader: true, promoted, nextDue: nextDue === undefined ? undefined : Duration.millis(Number(nextDue)) }
  })
}

/**
 * Rescues abandoned attempts. Those that were beaten for once, and the deadlines of all, are looked at every twelfth of the staleness,
 * at least a second apart and fifteen at most, since that reads the whole of attempt_state and every claim that is not stale; those
 * that nobody ever beat for, at every tick.
 *
 * @internal
 */
export const makeRescue = (step: Step, staleness: Duration.DurationInput): Effect.Effect<number, DatabaseError> => {
  const everyMillis = Math.min(15_000, Math.max(1_000, Duration.toMillis(staleness) / 12))
  let lookedAt = Number.NEGATIVE_INFINITY
  return Effect.suspend(() => {
    const startedAt = performance.now()
    const beaten = startedAt - lookedAt >= everyMillis
    return step("rescue-stale", "rescue_stale($1::interval, $2, $3)", [interval(staleness), rescueLimit, beaten], {
      timeoutMillis: wholeSegmentMillis
    }).pipe(
      Effect.map(([count]) => {
        const rescued = Column.nullable(Column.number)(count)
        // at its limit it may not have come to the others
        if (beaten && rescued !== undefined && rescued < rescueLimit) lookedAt = startedAt
        return rescued ?? 0
      })
    )
  })
}

/** @internal */
export interface Retention {
  readonly terminal: Duration.DurationInput
  readonly deadLetter: Duration.DurationInput
  readonly history: Duration.DurationInput
  readonly kept: Kept
}

/**
 * Removes what has lived its time, a share at a time: every minute, and at every tick while a share was full.
 *
 * @internal
 */
export const makeSweep = (step: Step, retention: Retention): Effect.Effect<number, DatabaseError> => {
  const values = [
    "1 day",
    interval(retention.terminal),
    interval(retention.deadLetter),
    interval(retention.history),
    sweepLimit
  ]
  let sweptAt = performance.now()
  return Effect.suspend(() => {
    if (performance.now() - sweptAt < sweepMillis) return Effect.succeed(0)
    return step("sweep", `sweep($1::interval, $2::interval, $3::interval, ${retention.kept(4)}, $5)`, values).pipe(
      Effect.map(([count]) => {
        const swept = Column.nullable(Column.number)(count) ?? 0
        if (swept < sweepLimit) sweptAt = performance.now()
        return swept
      }),
      Effect.tapError(() => Effect.sync(() => (sweptAt = performance.now())))
    )
  })
}

const leaseRescueLimit = 500
const spillLimit = 5_000
/** However much blocks the oldest segment, the other steps have their turn after so many calls. */
const spillRounds = 20
const materializeLimit = 500

/** @internal What was done for leases; `nextDue` is when a parked attempt's callback times out. */
export interface LeaseRescue {
  readonly rescued: number
  readonly nextDue: Duration.Duration | undefined
}

/** @internal Ends leases that nobody is at work on: stale, past their deadline, or past their callback's. */
export const makeRescueLeases = (
  step: Step,
  staleness: Duration.DurationInput
): Effect.Effect<LeaseRescue, DatabaseError> =>
  Effect.gen(function* () {
    const [rescued] = yield* step("rescue-leases", "rescue_leases($1::interval, $2)", [
      interval(staleness),
      leaseRescueLimit
    ])
    const [due] = yield* step("next-callback-due", "next_callback_due()", [])
    const count = Column.nullable(Column.number)(rescued) ?? 0
    const nextDue = Column.nullable(Column.bigint)(due)
    return {
      rescued: count,
      // due and yet not rescued: somebody holds its lock, and need not tell when it lets go
      nextDue:
        nextDue === undefined
          ? undefined
          : Duration.millis(nextDue === 0n && count < leaseRescueLimit ? 1_000 : Number(nextDue))
    }
  })

/** A step that may cost much is at rest for nineteen times as long as it took, so that it takes no more than a share of the time. */
const paced = <A>(work: Effect.Effect<A, DatabaseError>, atRest: A): Effect.Effect<A, DatabaseError> => {
  let restsUntil = Number.NEGATIVE_INFINITY
  return Effect.suspend(() => {
    const startedAt = performance.now()
    if (startedAt < restsUntil) return Effect.succeed(atRest)
    return Effect.ensuring(
      work,
      Effect.sync(() => {
        const now = performance.now()
        restsUntil = now + 19 * (now - startedAt)
      })
    )
  })
}

/** @internal */
export interface Ring {
  readonly segmentAge: Duration.DurationInput
  readonly segmentEntries: number
  readonly history: Duration.DurationInput
  readonly kept: Kept
}

/** @internal What the ring's turning did in a tick. */
export interface Turn {
  readonly rotation: string
  readonly spilled: number
  readonly drained: number
  readonly materialized: number
  readonly pruned: boolean
}

/**
 * Turns the ring: a new segment when the current one is old or full, and the oldest one out of it. What blocks the oldest
 * moves out of its way: unclaimed entries to their lane's head, attempts that outlive it to their leases.
 *
 * @internal
 */
export const makeTurn = (step: Step, ring: Ring): Effect.Effect<Turn, DatabaseError> => {
  const keep = interval(ring.history)
  const count = (name: string, call: string, values: ReadonlyArray<unknown>) =>
    Effect.map(step(name, call, values), ([value]) => Column.nullable(Column.number)(value) ?? 0)
  const rotate = Effect.map(
    step("rotate", `rotate($1::interval, $2::bigint, ${ring.kept(3)})`, [
      interval(ring.segmentAge),
      String(ring.segmentEntries),
      keep
    ]),
    ([did]) => Column.nullable(Column.string)(did) ?? "idle"
  )
  const spill = Effect.gen(function* () {
    let spilled = 0
    for (let round = 0; round < spillRounds; round++) {
      const moved = yield* count("spill-oldest", "spill_oldest($1)", [spillLimit])
      spilled += moved
      if (moved < spillLimit) break // the leader's lock is let go in between
    }
    return spilled
  })
  const materialize = paced(
    Effect.map(
      step("materialize-long", `materialize_long(${ring.kept(1)}, $2)`, [keep, materializeLimit], {
        timeoutMillis: wholeSegmentMillis
      }),
      ([count]) => Column.nullable(Column.number)(count) ?? 0
    ),
    0
  )
  // Pruning gives up quietly when something holds a lock on the segment: a later tick tries again.
  const prune = paced(
    step("prune-segment", `prune_segment(${ring.kept(1)})`, [keep], {
      lockTimeoutMillis: 100,
      timeoutMillis: wholeSegmentMillis
    }).pipe(
      Effect.map(([slot]) => slot !== null && slot !== undefined),
      Effect.catchIf(
        (error) => error.sqlState === "55P03",
        () => Effect.succeed(false)
      )
    ),
    false
  )
  return Effect.gen(function* () {
    // each step by itself: one that fails must not keep the others from their work
    const rotation = yield* Effect.either(rotate)
    const spilled = yield* Effect.either(spill)
    const drained = yield* Effect.either(count("drain-segments", "drain_segments()", []))
    const materialized = yield* Effect.either(materialize)
    const pruned = yield* Effect.either(prune)
    return {
      rotation: yield* rotation,
      spilled: yield* spilled,
      drained: yield* drained,
      materialized: yield* materialized,
      pruned: yield* pruned
    }
  })
}
