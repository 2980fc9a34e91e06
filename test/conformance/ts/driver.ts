import type { Duration, Effect } from "effect"
import type { Driver, JobError, JobOutcome } from "effect-awa"
import type { Owned, Receipt } from "../../runtime/world.js"

export type Isolation = "read committed" | "repeatable read" | "serializable"

/** What a driver must be able to do to be put through the cases: its own idioms, and its adapter. */
export interface DriverUnderTest<Tx> {
  /** The driver's own transaction: rolled back when the body rejects. */
  readonly transaction: <A>(isolation: Isolation, body: (tx: Tx) => Promise<A>) => Promise<A>
  /** Its nested transaction, or savepoint: rolled back alone when the body rejects. */
  readonly nested: (tx: Tx, body: (tx: Tx) => Promise<void>) => Promise<void>
  /** The application's row. */
  readonly write: (tx: Tx, tag: string) => Promise<unknown>
  readonly query: (tx: Tx) => Driver.Query
  /** A statement by itself, outside any transaction. */
  readonly autocommit: Driver.Query
  readonly finalize: (
    job: Owned,
    body: (tx: Tx, signal: AbortSignal) => Promise<unknown>,
    options?: { readonly maximumDuration?: Duration.DurationInput }
  ) => Effect.Effect<Receipt, JobError.FinalizeError | JobOutcome.OutcomeSelected>
}
