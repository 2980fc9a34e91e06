/**
 * What a worker counts, as metrics of Effect. They are the process's: several workers in one process add up.
 *
 * @since 0.1.0
 */
import * as internal from "./internal/metrics.js"

/**
 * `effect_awa_reconciliations_total`, tagged `verdict` and `exit` (contract C-17). The verdict is a `Settled.how`, and for an
 * attempt that was `unresolved` one more when it is known: `accepted-later`, `settled-later`, `parked-later`, `rescue-won`,
 * `closed-otherwise` or `watch-expired`. The exit is `success`, `failure`, `defect` or `interrupted`.
 *
 * @example
 * ```ts
 * import { Effect, Metric } from "effect"
 * import { Metrics } from "effect-awa"
 *
 * // how many handlers failed after their completion had committed
 * export const rescuedByEvidence = Metrics.reconciliations.pipe(
 *   Metric.tagged("verdict", "accepted"),
 *   Metric.tagged("exit", "failure"),
 *   Metric.value,
 *   Effect.map(({ count }) => count)
 * )
 * ```
 *
 * @since 0.1.0
 * @category metrics
 */
export const reconciliations: typeof internal.reconciliations = internal.reconciliations

/**
 * `effect_awa_protocol_events_total`, tagged `event`: the same stable name that annotates the event's log line.
 *
 * @since 0.1.0
 * @category metrics
 */
export const protocolEvents: typeof internal.protocolEvents = internal.protocolEvents

/**
 * `effect_awa_unresolved`: attempts whose permits were released without evidence, and which are watched (contract C-17.4).
 *
 * @since 0.1.0
 * @category metrics
 */
export const unresolved: typeof internal.unresolved = internal.unresolved

/**
 * `effect_awa_permits_kept`: attempts past their reconciliation budget that keep their permits because as many are watched
 * as may be. When it comes near the worker's concurrency, the worker claims no more.
 *
 * @since 0.1.0
 * @category metrics
 */
export const permitsKept: typeof internal.permitsKept = internal.permitsKept
