/**
 * The number of an attempt (contract C-01).
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * The number of an attempt: it rises by one on every claim of a job and never goes back. Together with the job's id it
 * identifies the attempt (contract C-01); the attempt count does not, since snoozing refunds it.
 *
 * @example
 * ```ts
 * import { RunLease } from "effect-awa"
 *
 * const first: RunLease.RunLease = RunLease.make(1n)
 * ```
 *
 * @since 0.1.0
 * @category schemas
 */
export const RunLease = Schema.PositiveBigIntFromSelf.pipe(Schema.brand("effect-awa/RunLease"))

/**
 * @since 0.1.0
 * @category models
 */
export type RunLease = typeof RunLease.Type

/**
 * Makes a `RunLease`; throws on anything but a positive `bigint`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (lease: bigint): RunLease => RunLease.make(lease)
