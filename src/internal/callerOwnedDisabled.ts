import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import { CallerOwnedDisabled } from "../JobError.js"
import { sqlStateOf } from "./sqlState.js"

/**
 * Whether an error is the refusal of a completion in a queue for which it is disabled (`WA006`), or was caused by one: a handler
 * may have wrapped it, and a foreign driver gives it as the server sent it.
 *
 * @internal
 */
export const isDisabled = (error: unknown): boolean => {
  if (Option.contains(sqlStateOf(error), "WA006")) return true
  let next = error
  for (let depth = 0; depth < 8; depth++) {
    if (next instanceof CallerOwnedDisabled) return true
    if (!Predicate.hasProperty(next, "cause")) return false
    next = next.cause
  }
  return false
}
