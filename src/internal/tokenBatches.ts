import { type TokenFields, tokenFields, type Token } from "./makeToken.js"

/** What the attempts of one claim batch have in common, and each of them. */
interface Batch {
  readonly slot: number
  readonly id: bigint
  readonly receiptBase: bigint
  readonly items: Array<TokenFields>
}

/**
 * Tokens by the claim batch they come from, as PostgreSQL array literals: what the batches have in common, where the items of each
 * end, and the items. The receipt of an attempt is its batch's base and its index, so the base stands for all of them.
 *
 * @internal
 */
export const tokenBatches = (tokens: ReadonlyArray<Token>): ReadonlyArray<string> => {
  const batches: Array<Batch> = []
  let last: Batch | undefined
  for (const token of tokens) {
    const fields = tokenFields(token)
    if (fields === undefined) throw new TypeError("a token that no claim made")
    const receiptBase = fields.receipt_id - BigInt(fields.batch_index)
    const isOf = (batch: Batch): boolean =>
      batch.id === fields.batch_id && batch.receiptBase === receiptBase && batch.slot === fields.claim_slot
    if (last === undefined || !isOf(last)) {
      last = batches.find(isOf)
      if (last === undefined) {
        last = { slot: fields.claim_slot, id: fields.batch_id, receiptBase, items: [] }
        batches.push(last)
      }
    }
    last.items.push(fields)
  }
  let end = 0
  const items = batches.flatMap((batch) => batch.items)
  return [
    batches.map((batch) => batch.slot),
    batches.map((batch) => batch.id),
    batches.map((batch) => batch.receiptBase),
    batches.map((batch) => (end += batch.items.length)),
    items.map((item) => item.batch_index),
    items.map((item) => item.job_id),
    items.map((item) => item.run_lease)
  ].map((column) => `{${column.join(",")}}`)
}

/** The parameters that take `tokenBatches`, beginning with `$first`. */
export const tokenBatchParameters = (first: number): string =>
  ["integer", "bigint", "bigint", "integer", "integer", "bigint", "bigint"]
    .map((type, i) => `$${first + i}::${type}[]`)
    .join(", ")
