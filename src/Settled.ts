/**
 * The proof that frees a permit (contract C-17).
 *
 * @since 0.1.0
 */
import * as internal from "./internal/makeSettled.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: typeof internal.SettledTypeId = internal.SettledTypeId

/**
 * Proof that the database has answered for an attempt, or that its budget for an answer is spent. `Permits.release` takes nothing else, and takes each proof once.
 *
 * - `closed`: this runtime ended the attempt
 * - `accepted`: the application's own transaction had completed it
 * - `stale`: somebody else ended it; the winner was not touched
 * - `parked`: only its callback can end it now; no worker holds it
 * - `unresolved`: no evidence within the budget; nothing was changed, and the attempt is watched
 *
 * @since 0.1.0
 * @category models
 */
export interface Settled extends internal.SettledProof {}
