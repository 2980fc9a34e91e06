import * as Duration from "effect/Duration"
import type { CompletionOptions } from "../Completion.js"
import type { MaintenanceOptions } from "../Maintenance.js"
import type { ReconciliationOptions } from "../Reconciliation.js"
import type { WakeupOptions } from "../Wakeup.js"
import {
  atMost,
  between,
  bounded,
  boundedDuration,
  type Bounds,
  countFault,
  durationFault,
  type DurationRule,
  firstFault,
  type OptionFault
} from "./optionRules.js"
import { lingerBounds, reconciliationFault, stalenessRule } from "./reconciliationOptions.js"

/**
 * The pauses of what goes on for ever. A shorter one would be none, and a timer of JavaScript's that waits for more than 24 days
 * waits for ever, or not at all.
 *
 * @internal
 */
export const pauseRule: DurationRule = between("10 millis", "1 day")

const batchBounds: Bounds = { least: 1, most: 10_000 }

const completionFault = (options: CompletionOptions | undefined): OptionFault | undefined =>
  firstFault(
    {
      lingerMillis: countFault(options?.lingerMillis, lingerBounds),
      maxBatch: countFault(options?.maxBatch, batchBounds)
    },
    "completion."
  )

/** @internal What is in force of those that nobody has checked. */
export const completionSettings = (
  options: CompletionOptions | undefined
): { readonly lingerMillis: number; readonly maxSize: number } => ({
  lingerMillis: bounded(options?.lingerMillis, lingerBounds, 2),
  maxSize: bounded(options?.maxBatch, batchBounds, 500)
})

type Pauses = Omit<WakeupOptions, "queues">

const wakeupFault = (options: Pauses | undefined): OptionFault | undefined =>
  firstFault(
    {
      poll: durationFault(options?.poll, pauseRule),
      pollWhileListening: durationFault(options?.pollWhileListening, pauseRule),
      probe: durationFault(options?.probe, pauseRule)
    },
    "wakeup."
  )

/** @internal What is in force of those that nobody has checked. */
export const wakeupPauses = ({
  poll,
  pollWhileListening,
  probe
}: Pauses): {
  readonly fast: Duration.Duration
  readonly slow: Duration.Duration
  readonly probe: Duration.Duration
} => ({
  fast: boundedDuration(poll, pauseRule, "1 second"),
  slow: boundedDuration(pollWhileListening, pauseRule, "30 seconds"),
  probe: boundedDuration(probe, pauseRule, "30 seconds")
})

const entriesBounds: Bounds = { least: 1, most: 1_000_000_000 }
const segmentAgeRule = between("1 second", "30 days")
/** As long as the ring holds its segments back nothing is pruned, and the newest of them grows. */
const historyRule = atMost("365 days")
/** The server's own bound: the longest budget, staleness and watch together. */
const evidenceRule = atMost("3 days")
/**
 * For ever is allowed, and at once is not: whoever writes 0 is as likely to mean for ever, and what is swept is gone before anybody
 * could look at it.
 */
const retentionRule: DurationRule = {
  least: 1_000,
  most: Number.POSITIVE_INFINITY,
  rule: "a duration from 1 second, or Duration.infinity"
}

const maintenanceFault = (options: MaintenanceOptions | undefined): OptionFault | undefined =>
  firstFault(
    {
      staleness: durationFault(options?.staleness, stalenessRule),
      segmentAge: durationFault(options?.segmentAge, segmentAgeRule),
      segmentEntries: countFault(options?.segmentEntries, entriesBounds),
      completedHistory: durationFault(options?.completedHistory, historyRule),
      evidence: durationFault(options?.evidence, evidenceRule),
      terminalRetention: durationFault(options?.terminalRetention, retentionRule),
      deadLetterRetention: durationFault(options?.deadLetterRetention, retentionRule)
    },
    "maintenance."
  )

interface Services {
  readonly beat?: Duration.DurationInput
  readonly completion?: CompletionOptions
  readonly wakeup?: Pauses
  readonly maintenance?: MaintenanceOptions
  readonly reconciliation?: ReconciliationOptions
}

const beatsFault = ({ beat, maintenance }: Services): OptionFault | undefined =>
  Duration.toMillis(maintenance?.staleness ?? "60 seconds") < 2 * Duration.toMillis(beat ?? "15 seconds")
    ? {
        option: "maintenance.staleness",
        rule: "at least two beats, or attempts that are alive are taken for abandoned"
      }
    : undefined

/** @internal The rule that an option of a worker's services breaks; the beat's own is the worker's to check, and before. */
export const servicesFault = (options: Services): OptionFault | undefined =>
  completionFault(options.completion) ??
  wakeupFault(options.wakeup) ??
  maintenanceFault(options.maintenance) ??
  reconciliationFault(options.reconciliation) ??
  beatsFault(options)
