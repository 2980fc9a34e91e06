import * as Predicate from "effect/Predicate"

/** @internal The rows of a driver's answer: a list, or what has it under the name that node-postgres gave it. */
export const rowsOf = (result: unknown): ReadonlyArray<Readonly<Record<string, unknown>>> => {
  const rows: unknown = Predicate.hasProperty(result, "rows") ? result.rows : result
  if (!Array.isArray(rows)) throw new Error("the driver's answer has no rows")
  const list: ReadonlyArray<unknown> = rows
  return list.filter(Predicate.isReadonlyRecord)
}
