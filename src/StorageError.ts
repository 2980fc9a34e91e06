/**
 * What looking at the storage, or rebasing it, can fail with.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { awaCommand } from "./internal/awaCommand.js"

/**
 * An option that no server was asked about: which one, and the rule that it breaks.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidStorageOption extends Schema.TaggedError<InvalidStorageOption>("effect-awa/InvalidStorageOption")(
  "InvalidStorageOption",
  {
    option: Schema.String,
    rule: Schema.String
  }
) {
  override get message(): string {
    return `${this.option}: ${this.rule}`
  }
}

/**
 * No connection could be made: the address, the network, the credentials, or a server that takes none at the moment
 * (then with its SQLSTATE).
 *
 * @since 0.1.0
 * @category errors
 */
export class StorageUnreachable extends Schema.TaggedError<StorageUnreachable>("effect-awa/StorageUnreachable")(
  "StorageUnreachable",
  {
    sqlState: Schema.optional(Schema.String),
    reason: Schema.String
  }
) {
  override get message(): string {
    return `no connection to the database: ${this.reason}${this.sqlState === undefined ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * Nothing that these functions belong to is installed under this schema name; run `awa migrate` (contract C-62).
 *
 * @since 0.1.0
 * @category errors
 */
export class StorageMissing extends Schema.TaggedError<StorageMissing>("effect-awa/StorageMissing")("StorageMissing", {
  schema: Schema.String
}) {
  override get message(): string {
    const advice = `run ${awaCommand("migrate", this.schema)}`
    return `schema ${JSON.stringify(this.schema)} holds no installation of this version; ${advice}`
  }
}

/**
 * A rebase would be wrong now, and nothing was changed: it is not needed, a runtime may be at work, or a subscription
 * still writes into the tables (contract C-34).
 *
 * @since 0.1.0
 * @category errors
 */
export class RebaseRefused extends Schema.TaggedError<RebaseRefused>("effect-awa/RebaseRefused")("RebaseRefused", {
  reason: Schema.String
}) {
  override get message(): string {
    return this.reason
  }
}

/**
 * Somebody held a lock on the tables, or an open transaction had enqueued, for longer than `lockTimeout`. Nothing was
 * changed.
 *
 * @since 0.1.0
 * @category errors
 */
export class RebaseBusy extends Schema.TaggedError<RebaseBusy>("effect-awa/RebaseBusy")("RebaseBusy", {
  /** How long it was waited for each lock, in milliseconds. */
  waitedMillis: Schema.Number
}) {
  override get message(): string {
    return (
      `other sessions use the tables; waited ${this.waitedMillis} ms for a lock. ` +
      "Stop the application, or end the transaction that is open, and try again"
    )
  }
}

/**
 * The server refused a statement, or its answer did not come. Of a rebase nothing was changed, unless it was the answer to
 * COMMIT that was lost; running it again is safe in any case.
 *
 * @since 0.1.0
 * @category errors
 */
export class StorageFailed extends Schema.TaggedError<StorageFailed>("effect-awa/StorageFailed")("StorageFailed", {
  operation: Schema.String,
  sqlState: Schema.optional(Schema.String),
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.operation}: ${this.reason}${this.sqlState === undefined ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * What every use of the storage's commands can fail with.
 *
 * @since 0.1.0
 * @category errors
 */
export type StorageError = InvalidStorageOption | StorageUnreachable | StorageMissing | StorageFailed
