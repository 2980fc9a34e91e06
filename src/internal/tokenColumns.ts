import { tokenFields, type Token } from "./makeToken.js"

/** The six parallel arrays in which the set-based functions take tokens, as PostgreSQL array literals. */
export const tokenColumns = (tokens: ReadonlyArray<Token>): ReadonlyArray<string> => {
  const columns: ReadonlyArray<Array<string>> = [[], [], [], [], [], []]
  for (const token of tokens) {
    const fields = tokenFields(token)
    if (fields === undefined) throw new TypeError("a token that no claim made")
    columns[0]?.push(String(fields.claim_slot))
    columns[1]?.push(String(fields.batch_id))
    columns[2]?.push(String(fields.batch_index))
    columns[3]?.push(String(fields.job_id))
    columns[4]?.push(String(fields.run_lease))
    columns[5]?.push(String(fields.receipt_id))
  }
  return columns.map((column) => `{${column.join(",")}}`)
}

/** The parameters that take `tokenColumns`, beginning with `$first`. */
export const tokenParameters = (first: number): string =>
  ["integer", "bigint", "integer", "bigint", "bigint", "bigint"].map((type, i) => `$${first + i}::${type}[]`).join(", ")
