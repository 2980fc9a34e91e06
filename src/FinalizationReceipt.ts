/**
 * What a finalization returns (contract C-11).
 *
 * @since 0.1.0
 */
import * as internal from "./internal/makeReceipt.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: typeof internal.ReceiptTypeId = internal.ReceiptTypeId

/**
 * Proof that `complete_job` ran for an attempt of this kind. It is made before the transaction commits, so it claims
 * nothing by itself: the runtime compares it with the durable evidence of the same token (contract C-19).
 *
 * @since 0.1.0
 * @category models
 */
export interface FinalizationReceipt<Kind extends string> extends internal.Receipt<Kind> {}

/**
 * Whether the value is a receipt that a finalization of this process made. A look-alike is not.
 *
 * @since 0.1.0
 * @category guards
 */
export const isFinalizationReceipt = (value: unknown): value is FinalizationReceipt<string> => internal.isReceipt(value)
