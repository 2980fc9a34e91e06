import * as DateTime from "effect/DateTime"
import { isStorable } from "./names.js"

/** @internal */
export interface StorageFault {
  readonly path: string
  readonly rule: string
}

const maxDepth = 256

const child = (path: string, key: string): string =>
  /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`

const isPlain = (value: object): value is Record<string, unknown> => {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/**
 * The first place in a value that `jsonb` cannot hold or JSON would silently change, or undefined.
 *
 * @internal
 */
export const storageFault = (value: unknown, path: string, depth = 0): StorageFault | undefined => {
  switch (typeof value) {
    case "string":
      return isStorable(value) ? undefined : { path, rule: "no NUL character and no lone surrogate" }
    case "number":
      return Number.isFinite(value) ? undefined : { path, rule: "a finite number" }
    case "boolean":
      return undefined
    case "object": {
      if (value === null) return undefined
      if (depth >= maxDepth) return { path, rule: `at most ${maxDepth} levels deep` }
      if (Array.isArray(value)) {
        const items: ReadonlyArray<unknown> = value
        for (let i = 0; i < items.length; i++) {
          const fault = storageFault(items[i], `${path}[${i}]`, depth + 1)
          if (fault !== undefined) return fault
        }
        return undefined
      }
      if (!isPlain(value)) return { path, rule: "a plain JSON value" }
      for (const key of Object.keys(value)) {
        if (!isStorable(key)) return { path, rule: "no NUL character and no lone surrogate in a key" }
        const member = value[key]
        if (member === undefined) continue // JSON leaves it out, as the schema's encoding meant it
        const fault = storageFault(member, child(path, key), depth + 1)
        if (fault !== undefined) return fault
      }
      return undefined
    }
    default:
      return { path, rule: "a JSON value" }
  }
}

/** @internal Text that PostgreSQL can store, whatever it was, at most `limit` bytes. */
export const sanitize = (text: string, limit: number): string => {
  const clean = text.slice(0, limit).replaceAll("\u0000", "\uFFFD").toWellFormed()
  if (Buffer.byteLength(clean, "utf8") <= limit) return clean
  return Buffer.from(clean, "utf8")
    .subarray(0, limit)
    .toString("utf8")
    .replace(/\uFFFD+$/, "")
}

/** Whether PostgreSQL reads the ISO form of a time: four digits of a year, and none before the first. @internal */
export const isStorableTime = (time: DateTime.DateTime): boolean => {
  const year = DateTime.getPartUtc(time, "year")
  return year >= 1 && year <= 9999
}
