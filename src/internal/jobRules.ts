import type * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type { RetryPolicy } from "../RetryPolicy.js"
import { nameFault } from "./names.js"
import { aboveZero, durationFault, durationOf, firstFault, type OptionFault } from "./optionRules.js"

/** What a job's definition and the one who enqueues it may both say. */
interface Defaults {
  readonly queue?: unknown
  readonly priority?: number | undefined
  readonly maxAttempts?: number | undefined
}

interface Definition extends Defaults {
  readonly timeout?: Duration.DurationInput | undefined
  readonly retry?: RetryPolicy | undefined
}

/** @internal The rule that one of them breaks. */
export const defaultsFault = ({ maxAttempts, priority, queue }: Defaults): OptionFault | undefined => {
  const queueRule = typeof queue === "string" ? nameFault(queue) : "expected a non-empty text"
  // a program that is not type-checked is told the same
  if (queue !== undefined && queueRule !== undefined) return { option: "queue", rule: queueRule }
  if (priority !== undefined && ![1, 2, 3, 4].includes(priority)) {
    return { option: "priority", rule: "expected an integer from 1 to 4" }
  }
  if (maxAttempts !== undefined && !(Number.isInteger(maxAttempts) && maxAttempts >= 1 && maxAttempts <= 32767)) {
    return { option: "maxAttempts", rule: "expected an integer from 1 to 32767" }
  }
  return undefined
}

const retryFault = ({ base, factor, maximum }: RetryPolicy): OptionFault | undefined =>
  firstFault(
    {
      base: Option.isSome(durationOf(base)) ? undefined : "a duration",
      factor: Number.isFinite(factor) ? undefined : "a finite number",
      maximum: Option.isSome(durationOf(maximum)) ? undefined : "a duration"
    },
    "retry."
  )

/** @internal The rule that a job's definition breaks, be it in what its enqueues say or in how its attempts run. */
export const definitionFault = (definition: Definition): OptionFault | undefined =>
  defaultsFault(definition) ??
  firstFault({ timeout: durationFault(definition.timeout, aboveZero) }) ??
  (definition.retry === undefined ? undefined : retryFault(definition.retry))
