import * as Cause from "effect/Cause"
import * as Predicate from "effect/Predicate"
import type { StoredError } from "../Handlers.js"
import { sanitize, storageFault } from "./storable.js"

const maxMessageBytes = 4_096
const maxDataBytes = 3_072

const nameOf = (error: unknown): string => {
  if (Predicate.hasProperty(error, "_tag") && typeof error._tag === "string") return error._tag
  if (error instanceof Error && typeof error.name === "string") return error.name
  return typeof error
}

const messageOf = (error: unknown): string => {
  if (Predicate.hasProperty(error, "message") && typeof error.message === "string") return error.message
  return String(error)
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
 * A failure as the database keeps it: storable and small, whatever was thrown. Stacks and causes stay in the logs; they
 * grow without bound and can carry secrets.
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
