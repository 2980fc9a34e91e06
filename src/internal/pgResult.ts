import * as Predicate from "effect/Predicate"

/** @internal The command tag of the last statement that the server answered. */
export const lastCommand = (result: unknown): string => {
  const results: unknown = Array.isArray(result) ? result.at(-1) : result
  return Predicate.hasProperty(results, "command") && typeof results.command === "string" ? results.command : ""
}

/** @internal The first row of the first statement that the server answered. */
export const firstRow = (result: unknown): unknown => {
  const first: unknown = Array.isArray(result) ? result.at(0) : result
  return Predicate.hasProperty(first, "rows") && Array.isArray(first.rows) ? first.rows.at(0) : undefined
}

/** @internal The first row of the statement among several whose rows have such a column. */
export const rowWith = (column: string, results: unknown): unknown =>
  (Array.isArray(results) ? results : [results]).map(firstRow).find((row) => Predicate.hasProperty(row, column))
