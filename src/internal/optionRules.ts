import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import { isStorable } from "./names.js"

/** @internal An option that breaks its rule, by the name that its user wrote. */
export interface OptionFault {
  readonly option: string
  readonly rule: string
}

/** @internal The first of these options whose rule is broken. */
export const firstFault = (
  rules: Readonly<Record<string, string | undefined>>,
  prefix = ""
): OptionFault | undefined => {
  for (const [option, rule] of Object.entries(rules)) {
    if (rule !== undefined) return { option: `${prefix}${option}`, rule }
  }
  return undefined
}

/** @internal The least and the most that an option may be. */
export interface Bounds {
  readonly least: number
  readonly most: number
}

const endless = Number.POSITIVE_INFINITY

/** @internal The rule that a number breaks. */
export const requiredCountFault = (value: unknown, { least, most }: Bounds): string | undefined =>
  typeof value === "number" && Number.isInteger(value) && value >= least && value <= most
    ? undefined
    : `an integer from ${least}${most === endless ? "" : ` to ${most}`}`

/** @internal The same of a number that need not be given. */
export const countFault = (value: unknown, bounds: Bounds): string | undefined =>
  value === undefined ? undefined : requiredCountFault(value, bounds)

/** @internal The number within its bounds, for those who were not asked: what is no number is as if it had not been given. */
export const bounded = (value: number | undefined, { least, most }: Bounds, otherwise: number): number =>
  value === undefined || Number.isNaN(value) ? otherwise : Math.min(most, Math.max(least, Math.trunc(value)))

/**
 * A duration as programs and their configurations write it. Effect's own reading throws at what is none, and takes NaN and what is
 * negative for zero.
 *
 * @internal
 */
export const durationOf = (input: unknown): Option.Option<Duration.Duration> =>
  isNegative(input) ? Option.none() : Duration.decodeUnknown(input)

const isNegative = (input: unknown): boolean => {
  if (typeof input === "string") return input.trimStart().startsWith("-")
  if (typeof input === "number" || typeof input === "bigint") return !(input >= 0)
  return Array.isArray(input) && input.some(isNegative) // seconds and nanoseconds
}

/** @internal In milliseconds, and in words. */
export interface DurationRule extends Bounds {
  readonly rule: string
}

type Written = Extract<Duration.DurationInput, string>

/** @internal Both ends are allowed. */
export const between = (least: Written, most: Written): DurationRule => ({
  least: Duration.toMillis(least),
  most: Duration.toMillis(most),
  rule: `a duration from ${least} to ${most}`
})

/** @internal */
export const atMost = (most: Written): DurationRule => ({
  least: 0,
  most: Duration.toMillis(most),
  rule: `a duration of at most ${most}`
})

/** @internal Any that is not over at once, for ever too. */
export const aboveZero: DurationRule = { least: Number.MIN_VALUE, most: endless, rule: "a duration above zero" }

/** @internal One that is longer is a mistake, and a timer cannot wait much longer. */
export const atMostADay: DurationRule = {
  least: Number.MIN_VALUE,
  most: 86_400_000,
  rule: "a duration above zero, at most a day"
}

/** @internal The rule that a duration breaks. */
export const requiredDurationFault = (input: unknown, { least, most, rule }: DurationRule): string | undefined =>
  Option.exists(durationOf(input), (duration) => {
    const millis = Duration.toMillis(duration)
    return millis >= least && millis <= most
  })
    ? undefined
    : rule

/** @internal The same of a duration that need not be given. */
export const durationFault = (input: unknown, rule: DurationRule): string | undefined =>
  input === undefined ? undefined : requiredDurationFault(input, rule)

/** @internal The duration within its bounds, for those who were not asked; see `bounded`. */
export const boundedDuration = (
  input: unknown,
  { least, most }: DurationRule,
  otherwise: Duration.DurationInput
): Duration.Duration =>
  Duration.clamp(
    Option.getOrElse(durationOf(input), () => Duration.decode(otherwise)),
    { minimum: least, maximum: most }
  )

/** @internal */
export const textFault = (value: unknown): string | undefined =>
  value === undefined || (typeof value === "string" && isStorable(value))
    ? undefined
    : "a text with no NUL character and no lone surrogate"
