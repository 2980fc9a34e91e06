/**
 * What the operators' verbs answer for each job.
 *
 * @since 0.1.0
 */
import type * as DateTime from "effect/DateTime"
import * as Schema from "effect/Schema"
import type * as JobId from "./JobId.js"

/**
 * - `cancelled`: it is cancelled now; a running handler is being interrupted, and what it reports is stale
 * - `finished`: it is over, or dead-lettered or quarantined, and does not run by itself
 * - `busy`: a lock on it was held all the time (an open transaction that completed it, for one); nothing was changed
 * - `unknown`: nothing is known of it
 *
 * @since 0.1.0
 * @category models
 */
export const CancelAnswer = Schema.Literal("cancelled", "finished", "busy", "unknown")
/**
 * @since 0.1.0
 * @category models
 */
export type CancelAnswer = typeof CancelAnswer.Type

/**
 * - `deleted`: it is gone, and so is its hold on a unique key
 * - `running`: nothing was changed; cancel it first
 * - `finished`: it completed, and its history goes with its segment; or it had been deleted
 * - `busy`, `unknown`: as with cancelling
 *
 * @since 0.1.0
 * @category models
 */
export const DeleteAnswer = Schema.Literal("deleted", "running", "finished", "busy", "unknown")
/**
 * @since 0.1.0
 * @category models
 */
export type DeleteAnswer = typeof DeleteAnswer.Type

/**
 * - `reprioritized`: it has the new priority; `unchanged`: it had it already
 * - `running`, `finished`: too late, nothing was changed
 * - `busy`, `unknown`: as with cancelling
 *
 * @since 0.1.0
 * @category models
 */
export const ReprioritizeAnswer = Schema.Literal("reprioritized", "unchanged", "running", "finished", "busy", "unknown")
/**
 * @since 0.1.0
 * @category models
 */
export type ReprioritizeAnswer = typeof ReprioritizeAnswer.Type

/**
 * - `redriven`: it is runnable, with all its attempts before it; its errors and its progress were kept
 * - `duplicate`: another job holds its unique key now; it stays where it is
 * - `live`: it is not over; `finished`: it completed
 * - `refused`: it could not be stored, and stays where it is
 * - `busy`, `unknown`: as with cancelling
 *
 * @since 0.1.0
 * @category models
 */
export const RedriveAnswer = Schema.Literal("redriven", "duplicate", "live", "finished", "refused", "busy", "unknown")
/**
 * @since 0.1.0
 * @category models
 */
export type RedriveAnswer = typeof RedriveAnswer.Type

/**
 * What became of one of the jobs that a verb was called with.
 *
 * @since 0.1.0
 * @category models
 */
export interface JobAnswer<A extends string> {
  readonly jobId: JobId.JobId
  readonly answer: A
}

/**
 * Which jobs `redriveWhere` runs again. What is not given selects all.
 *
 * @since 0.1.0
 * @category models
 */
export interface RedriveFilter {
  /** `dlq`: dead letters; `terminal`: failed, cancelled and discarded jobs; `quarantined`: what could not be stored. */
  readonly source: "dlq" | "terminal" | "quarantined"
  readonly queue?: string | undefined
  readonly kind?: string | undefined
  /** Only jobs that ended before this time. */
  readonly before?: DateTime.DateTime | undefined
  /** Only jobs with a higher id: the last one of an earlier answer goes on behind it. */
  readonly after?: JobId.JobId | undefined
  /** How many jobs at most; 1000 unless said otherwise. */
  readonly limit?: number | undefined
}
