import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { QueueSettings } from "../Admin.js"
import { AdminRejected } from "../AdminError.js"
import { durationOf } from "./optionRules.js"

/** What `set_queue` takes: 12 digits of milliseconds, 9 of a limit. */
const maxMillis = 999_999_999_999
const maxLimit = 999_999_999

const millisOf = (field: string, input: Duration.DurationInput, least: 0 | 1): Effect.Effect<number, AdminRejected> => {
  const millis = Option.map(durationOf(input), (duration) => Math.ceil(Duration.toMillis(duration)))
  return Option.isSome(millis) && millis.value >= least && millis.value <= maxMillis
    ? Effect.succeed(millis.value)
    : new AdminRejected({
        field,
        rule: `expected a duration ${least === 0 ? "that is not negative" : "longer than none"}, of at most ${maxMillis} milliseconds`
      })
}

const limitOf = (limit: number): Effect.Effect<number, AdminRejected> =>
  Number.isInteger(limit) && limit >= 1 && limit <= maxLimit
    ? Effect.succeed(limit)
    : new AdminRejected({ field: "rate.limit", rule: `expected an integer from 1 to ${maxLimit}` })

/** @internal The settings as `set_queue` takes them: a key for each that is given. */
export const settingsText = Effect.fnUntraced(function* (settings: QueueSettings) {
  const { aging, attemptDeadline, deadLetter, rate } = settings
  const json: Record<string, unknown> = {}
  if (aging !== undefined) json["aging_ms"] = aging === null ? null : yield* millisOf("aging", aging, 0)
  if (deadLetter !== undefined) json["dead_letter"] = deadLetter
  if (attemptDeadline !== undefined) {
    json["attempt_deadline_ms"] =
      attemptDeadline === null ? null : yield* millisOf("attemptDeadline", attemptDeadline, 1)
  }
  if (rate !== undefined) {
    json["rate_limit"] = rate === null ? null : yield* limitOf(rate.limit)
    json["rate_interval_ms"] = rate === null ? null : yield* millisOf("rate.interval", rate.interval, 1)
  }
  return JSON.stringify(json)
})
