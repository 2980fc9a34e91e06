import * as Duration from "effect/Duration"
import type { ReconciliationOptions } from "../Reconciliation.js"
import {
  atMostADay,
  between,
  type Bounds,
  countFault,
  durationFault,
  type DurationRule,
  firstFault,
  type OptionFault
} from "./optionRules.js"

/** @internal The options in force, in milliseconds. */
export interface ReconciliationSettings {
  readonly budgetMillis: number
  readonly stalenessMillis: number
  readonly watchers: number
  readonly watcherLifeMillis: number
}

/** @internal */
export const settingsOf = (options?: ReconciliationOptions): ReconciliationSettings => ({
  budgetMillis: Duration.toMillis(options?.budget ?? "30 seconds"),
  stalenessMillis: Duration.toMillis(options?.staleness ?? "60 seconds"),
  watchers: options?.watchers ?? 10_000,
  watcherLifeMillis: Duration.toMillis(options?.watcherLife ?? "10 minutes")
})

/**
 * How long after an attempt's end somebody may still ask for it: the budget, then rescue's staleness, then the watcher.
 *
 * @internal
 */
export const evidenceMillis = ({ budgetMillis, stalenessMillis, watcherLifeMillis }: ReconciliationSettings): number =>
  budgetMillis + stalenessMillis + watcherLifeMillis

/** @internal How long an attempt may be without a heartbeat: part of such a wish, and at least two of the shortest beats. */
export const stalenessRule: DurationRule = between("20 millis", "1 day")

/** @internal How long a batch may wait for company: what is in it holds permits meanwhile. */
export const lingerBounds: Bounds = { least: 0, most: 10_000 }

/** @internal The rule that an option breaks. */
export const reconciliationFault = (options: ReconciliationOptions | undefined): OptionFault | undefined =>
  firstFault(
    {
      // evidence is kept for as long as it may be asked for, so no wish to ask may be without an end
      budget: durationFault(options?.budget, atMostADay),
      staleness: durationFault(options?.staleness, stalenessRule),
      watchers: countFault(options?.watchers, { least: 0, most: 1_000_000 }),
      watcherLife: durationFault(options?.watcherLife, atMostADay),
      lingerMillis: countFault(options?.lingerMillis, lingerBounds)
    },
    "reconciliation."
  )
