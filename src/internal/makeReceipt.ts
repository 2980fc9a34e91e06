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

/** The private field is the proof, as a token's is: an object that has none was not made here. */
class MadeReceipt<Kind extends string> implements Receipt<Kind> {
  readonly [ReceiptTypeId]: Kind
  readonly #fields: ReceiptFields

  constructor(kind: Kind, fields: ReceiptFields) {
    this[ReceiptTypeId] = kind
    this.#fields = Object.freeze({ ...fields })
    Object.freeze(this)
  }

  static fields(value: object): ReceiptFields | undefined {
    return #fields in value ? value.#fields : undefined
  }
}

/** @internal Only from what `complete_job` answered (`completionCall`). */
export const makeReceipt = <Kind extends string>(kind: Kind, fields: ReceiptFields): Receipt<Kind> =>
  new MadeReceipt(kind, fields)

/** @internal */
export const isReceipt = (value: unknown): value is Receipt<string> =>
  typeof value === "object" && value !== null && MadeReceipt.fields(value) !== undefined

/** @internal The fields behind a receipt; undefined for a forged one. */
export const receiptFields = (receipt: object): ReceiptFields | undefined => MadeReceipt.fields(receipt)
