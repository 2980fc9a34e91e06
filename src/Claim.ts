/**
 * Taking jobs to run.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type { FinalizationToken } from "./FinalizationToken.js"
import * as Column from "./internal/column.js"
import { makeToken } from "./internal/makeToken.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"

/**
 * A claimed attempt, as the database handed it out.
 *
 * @since 0.1.0
 * @category models
 */
export interface ClaimedAttempt {
  readonly token: FinalizationToken
  readonly queue: string
  readonly kind: string
  /** The payload as JSON, not yet decoded. */
  readonly args: unknown
  /** Which attempt this is, counted from 1. Not an identity: snoozing refunds it. */
  readonly attempt: number
  readonly maxAttempts: number
  readonly priority: number
  /** What an earlier attempt left behind. */
  readonly progress: unknown
  /** What the callback was answered with that the job was parked on. */
  readonly callbackResult: Option.Option<unknown>
  /** When the database will take the attempt back, in microseconds since the epoch. */
  readonly deadlineMicros: bigint | undefined
  /** How long that is from the claim on, by the database's clock, in milliseconds. */
  readonly deadlineInMillis: number | undefined
}

/**
 * What a claim took. `busy`: another claimer held one of the lanes at that moment, so few or none is not "nothing there".
 *
 * @since 0.1.0
 * @category models
 */
export interface Claimed {
  readonly attempts: ReadonlyArray<ClaimedAttempt>
  /** A lane was another claimer's at this moment: it may have more. */
  readonly busy: boolean
  /** The queue is at its fleet-wide rate: nothing more may be claimed for so long. */
  readonly retryAfter: Duration.Duration | undefined
  /** Caller-owned completion is disabled for the queue: attempts of such kinds are to be put aside (contract C-60). */
  readonly gated: boolean
}

/**
 * Takes jobs of a queue to run. Each becomes an attempt with the next run lease and an unguessable receipt id (contract
 * C-01); the attempt is counted here, so that a crash counts.
 *
 * @since 0.1.0
 * @category services
 */
export class Claim extends Context.Tag("effect-awa/Claim")<
  Claim,
  {
    /** At most `slots` jobs of the queue, in one statement. */
    readonly take: (queue: string, slots: number, runtimeId: bigint) => Effect.Effect<Claimed, DatabaseError>
  }
>() {}

/** What the attempts of one claim batch have in common: told with the first of them, and null with the others. */
interface Batch {
  readonly id: bigint
  readonly slot: number
  readonly receiptBase: bigint
  readonly priority: number
  readonly deadlineMicros: bigint | undefined
  readonly deadlineInMillis: number | undefined
}

const nullableBigint = Column.nullable(Column.bigint)

const readBatch = (row: Column.Row): Batch => {
  const left = nullableBigint(row[16])
  return {
    id: Column.bigint(row[4]),
    slot: Column.number(row[2]),
    receiptBase: Column.bigint(row[3]) - 1n,
    priority: Column.number(row[8]),
    deadlineMicros: nullableBigint(row[12]),
    deadlineInMillis: left === undefined ? undefined : Number(left)
  }
}

const readAttempt = (queue: string, batch: Batch, row: Column.Row): ClaimedAttempt => {
  const index = Column.number(row[5])
  return {
    token: makeToken({
      job_id: Column.bigint(row[0]),
      run_lease: Column.bigint(row[1]),
      claim_slot: batch.slot,
      receipt_id: batch.receiptBase + BigInt(index),
      batch_id: batch.id,
      batch_index: index
    }),
    queue,
    attempt: Column.number(row[6]),
    maxAttempts: Column.number(row[7]),
    priority: batch.priority,
    kind: Column.string(row[9]),
    args: row[10],
    progress: row[11],
    deadlineMicros: batch.deadlineMicros,
    deadlineInMillis: batch.deadlineInMillis,
    callbackResult: Array.isArray(row[14]) ? Option.some<unknown>(row[14][0]) : Option.none()
  }
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Claim["Type"], never, RuntimePool> = Effect.map(RuntimePool, (pool) => {
  const once = (value: string): string => `case when batch_index = 1 then ${value} end`
  const text =
    `select job_id, run_lease, ${once("claim_slot")}, ${once("receipt_id")}, ${once("batch_id")}, batch_index, attempt, ` +
    `max_attempts, ${once("priority")}, kind, args, progress, ` +
    `${once("(extract(epoch from deadline_at) * 1000000)::bigint")}, nullif(lane_busy, false), ` +
    // in an array, since the result may be JSON's null
    "case when callback_result is not null then jsonb_build_array(callback_result) end, retry_ms, " +
    `${once("(extract(epoch from deadline_at - clock_timestamp()) * 1000)::bigint")} ` +
    `from ${pool.quotedSchema}.claim($1, $2, $3)`
  return {
    take: (queue, slots, runtimeId) =>
      Effect.map(
        pool.call({ name: "claim", prepare: true, text, values: [queue, slots, String(runtimeId)] }),
        (rows) => {
          const attempts: Array<ClaimedAttempt> = []
          let busy = false
          let retryAfter: Duration.Duration | undefined
          let gated = false
          let batch: Batch | undefined
          for (const row of rows) {
            if (row[0] !== null) {
              if (row[5] === 1) batch = readBatch(row)
              if (batch === undefined) throw new TypeError("a claim that does not begin with its batch's first attempt")
              attempts.push(readAttempt(queue, batch, row))
              continue
            }
            if (row[13] === true) busy = true
            if (Predicate.hasProperty(row[10], "gated")) gated = true
            const retryMillis = Column.nullable(Column.number)(row[15])
            if (retryMillis !== undefined) retryAfter = Duration.millis(retryMillis)
          }
          return { attempts, busy, retryAfter, gated }
        }
      )
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Claim, never, RuntimePool> = Layer.effect(Claim, make)
