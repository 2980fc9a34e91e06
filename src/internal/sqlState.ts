import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"

const pattern = /^[0-9A-Z]{5}$/

/** PostgreSQL's own errors carry a severity beside the code; Node's (`EPIPE` looks like an SQLSTATE) do not. */
const ownState = (error: unknown): Option.Option<string> =>
  Predicate.hasProperty(error, "code") &&
  Predicate.hasProperty(error, "severity") &&
  typeof error.code === "string" &&
  pattern.test(error.code)
    ? Option.some(error.code)
    : Option.none()

/** The error and what caused it, nearest first; bounded, since causes can form a loop. */
const chain = (error: unknown): ReadonlyArray<unknown> => {
  const found: Array<unknown> = []
  let next: unknown = error
  while (next !== undefined && next !== null && found.length < 8) {
    found.push(next)
    next = Predicate.hasProperty(next, "cause") ? next.cause : undefined
  }
  return found
}

/** @internal The SQLSTATE of an error or of what caused it, if a server sent one. */
export const sqlStateOf = (error: unknown): Option.Option<string> => Option.firstSomeOf(chain(error).map(ownState))

/** @internal The DETAIL that the server sent with the error. */
export const sqlDetailOf = (error: unknown): string | undefined => {
  for (const link of chain(error)) {
    if (Option.isSome(ownState(link)) && Predicate.hasProperty(link, "detail") && typeof link.detail === "string") {
      return link.detail
    }
  }
  return undefined
}

/** @internal The server's own words, or the error's. */
export const sqlMessageOf = (error: unknown): string => {
  const links = chain(error)
  const link = links.find((link) => Option.isSome(ownState(link))) ?? links.at(-1)
  return Predicate.hasProperty(link, "message") && typeof link.message === "string" ? link.message : String(link)
}

/** @internal The same of a connection, too: Node wraps the refusals of several addresses in one error without a message. */
export const reasonOf = (cause: unknown): string => {
  const message = sqlMessageOf(cause)
  if (message !== "") return message
  return Predicate.hasProperty(cause, "code") ? String(cause.code) : String(cause)
}

/** @internal Whether the server answered that it ends the session: what it was doing may have taken effect. */
export const isFatal = (error: unknown): boolean =>
  chain(error).some(
    (link) => Predicate.hasProperty(link, "severity") && (link.severity === "FATAL" || link.severity === "PANIC")
  )

/**
 * States after which it is open whether COMMIT took effect: the backend was ended, or the answer came from elsewhere. Those that end
 * a session for its pauses are here by their numbers, since the word FATAL is in the server's language.
 *
 * @internal
 */
export const isAmbiguous = (state: string): boolean => /^(08|57P|58|XX|25P03$|25P04$)/.test(state)

/** @internal States that the same statement, sent again, can be free of. */
export const canHeal = (state: string): boolean =>
  state.startsWith("08") ||
  state.startsWith("40") ||
  state.startsWith("53") ||
  ["55P03", "57014", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006"].includes(state)
