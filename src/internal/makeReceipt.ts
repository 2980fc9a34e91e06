import type { Token } from "./makeToken.js"

/** @internal */
export const ReceiptTypeId: unique symbol = Symbol.for("effect-awa/FinalizationReceipt")

/** @internal */
export interface Receipt<Kind extends string> {
  readonly [ReceiptTypeId]: Kind
}

/** @internal */
export interface ReceiptFields {
  readonly token: Token
  /** The top-level transaction that made the closure. */
  readonly finalizedXid: bigint
  readonly finalizedAtMicros: bigint
}

const made = new WeakMap<object, ReceiptFields>()

/** @internal Only from what `complete_job` answered (`completionCall`). */
export const makeReceipt = <Kind extends string>(kind: Kind, fields: ReceiptFields): Receipt<Kind> => {
  const receipt: Receipt<Kind> = { [ReceiptTypeId]: kind }
  made.set(Object.freeze(receipt), Object.freeze({ ...fields }))
  return receipt
}

/** @internal */
export const isReceipt = (value: unknown): value is Receipt<string> =>
  typeof value === "object" && value !== null && made.has(value)

/** @internal The fields behind a receipt; undefined for a forged one. */
export const receiptFields = (receipt: object): ReceiptFields | undefined => made.get(receipt)
