/**
 * The identity of a job.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * The identity of a job: a positive `bigint`, never reused within an installation. It is the same over all attempts.
 *
 * @example
 * ```ts
 * import { JobId } from "effect-awa"
 *
 * const id: JobId.JobId = JobId.make(42n)
 * ```
 *
 * @since 0.1.0
 * @category schemas
 */
export const JobId = Schema.PositiveBigIntFromSelf.pipe(
  Schema.lessThanOrEqualToBigInt(9_223_372_036_854_775_807n), // PostgreSQL's bigint
  Schema.brand("effect-awa/JobId")
)

/**
 * @since 0.1.0
 * @category models
 */
export type JobId = typeof JobId.Type

/**
 * Makes a `JobId`; throws on anything but a positive `bigint` of at most 63 bits.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (id: bigint): JobId => JobId.make(id)
