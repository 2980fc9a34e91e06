import * as Duration from "effect/Duration"
import type { ReconciliationOptions } from "../Reconciliation.js"

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

/** Evidence is kept for as long as it may be asked for, so no wish to ask may be without an end. */
const maxMillis = 86_400_000

/** @internal The rule that an option breaks. */
export const settingsFault = (
  settings: ReconciliationSettings
): { readonly option: string; readonly rule: string } | undefined => {
  for (const [option, millis] of [
    ["budget", settings.budgetMillis],
    ["watcherLife", settings.watcherLifeMillis]
  ] as const) {
    if (!(millis > 0 && millis <= maxMillis)) {
      return { option: `reconciliation.${option}`, rule: "a duration above zero, at most a day" }
    }
  }
  return Number.isInteger(settings.watchers) && settings.watchers >= 0 && settings.watchers <= 1_000_000
    ? undefined
    : { option: "reconciliation.watchers", rule: "an integer from 0 to 1000000" }
}
