/**
 * An open application transaction, as a capability.
 *
 * @since 0.1.0
 */
import type { SqlClient } from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import * as Context from "effect/Context"

/**
 * What was tried to be completed in a transaction, for its commit guard (contract C-41).
 *
 * @since 0.1.0
 * @category models
 */
export interface Finalizations {
  /** The receipts whose closure must be in place at COMMIT, as `complete_job` notes them. */
  readonly noted: ReadonlyArray<string>
  readonly note: (mark: string) => void
  readonly fail: () => void
  readonly failed: () => boolean
}

/**
 * Capability: an application transaction is open on this fiber. `ApplicationPool.transaction` and `finalize` provide it and
 * no layer does, so a program that completes an attempt outside a transaction does not launch.
 *
 * @since 0.1.0
 * @category services
 */
export class ApplicationTransaction extends Context.Tag("effect-awa/ApplicationTransaction")<
  ApplicationTransaction,
  {
    readonly client: SqlClient
    readonly connection: Connection
    readonly finalizations: Finalizations
  }
>() {}
