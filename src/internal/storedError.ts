import * as Cause from "effect/Cause"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type { StoredError } from "../Handlers.js"
import { sqlMessageOf, sqlStateOf } from "./sqlState.js"
import { sanitize, storageFault } from "./storable.js"

const maxMessageBytes = 4_096
const maxDataBytes = 3_072

const nameOf = (error: unknown): string => {
  if (Predicate.hasProperty(error, "_tag") && typeof error._tag === "string") return error._tag
  if (error instanceof Error && typeof error.name === "string") return error.name
  return typeof error
}

/** Of an error of the database's also what the server said: a driver's own message is that a statement failed. */
const messageOf = (error: unknown): string => {
  const message =
    Predicate.hasProperty(error, "message") && typeof error.message === "string" ? error.message : String(error)
  const state = Option.getOrUndefined(sqlStateOf(error))
  if (state === undefined) return message
  const said = sqlMessageOf(error)
  return message.includes(said) ? `${message} (${state})` : `${message}: ${said} (${state})`
}

/** What was thrown is the user's code: its getters and its schema's encoding can throw in their turn. */
const guarded = <A>(describe: () => A, fallback: A): A => {
  try {
    return describe()
  } catch {
    return fallback
  }
}

/**
 * A failure as the database keeps it: storable and small, whatever was thrown. Stacks and causes are told to the log when the handler
 * fails; they grow without bound and can carry secrets.
 *
 * @internal
 */
export const storedError = (error: unknown, encode?: (error: unknown) => unknown): StoredError => {
  const described = guarded(
    () => ({ name: sanitize(nameOf(error), 256), message: sanitize(messageOf(error), maxMessageBytes) }),
    { name: "Unprintable", message: "an error that cannot be shown" }
  )
  return guarded(() => {
    const data = encode?.(error)
    if (data === undefined || storageFault(data, "error") !== undefined) return described
    return Buffer.byteLength(JSON.stringify(data), "utf8") > maxDataBytes ? described : { ...described, data }
  }, described)
}

/** @internal What an exit's class is called in events and metrics. */
export type ExitClass = "success" | "failure" | "defect" | "interrupted"

/** @internal */
export const exitClassOf = (cause: Cause.Cause<unknown>): ExitClass =>
  Cause.isFailure(cause) ? "failure" : Cause.isDie(cause) ? "defect" : "interrupted"
