/**
 * What installing or upgrading the schema can fail with. Whatever the error, nothing was written: a migration is one
 * transaction.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/** Names appear in messages as JSON strings: a legal schema name may hold quotes and newlines. */
const show = (name: string): string => JSON.stringify(name)

/**
 * An option that no server was asked about: which one, and the rule that it breaks.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidMigrationOption extends Schema.TaggedError<InvalidMigrationOption>(
  "effect-awa/InvalidMigrationOption"
)("InvalidMigrationOption", {
  option: Schema.Literal("url", "schema", "ring", "from", "lockTimeout"),
  rule: Schema.String
}) {
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
export class MigrationConnectionFailed extends Schema.TaggedError<MigrationConnectionFailed>(
  "effect-awa/MigrationConnectionFailed"
)("MigrationConnectionFailed", {
  sqlState: Schema.optional(Schema.String),
  reason: Schema.String
}) {
  override get message(): string {
    return `no connection to the database: ${this.reason}${this.sqlState === undefined ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * Somebody else was migrating this schema for longer than `lockTimeout` (contract C-62).
 *
 * @since 0.1.0
 * @category errors
 */
export class MigrationBusy extends Schema.TaggedError<MigrationBusy>("effect-awa/MigrationBusy")("MigrationBusy", {
  schema: Schema.String,
  /** How long it was waited for, in milliseconds. */
  waitedMillis: Schema.Number
}) {
  override get message(): string {
    return `schema ${show(this.schema)} is being migrated by another session; waited ${this.waitedMillis} ms`
  }
}

/**
 * The schema exists and belongs to something else. It was not touched (contract C-62).
 *
 * @since 0.1.0
 * @category errors
 */
export class ForeignSchema extends Schema.TaggedError<ForeignSchema>("effect-awa/ForeignSchema")("ForeignSchema", {
  schema: Schema.String,
  /** What tells that it is foreign. */
  found: Schema.String
}) {
  override get message(): string {
    return `schema ${show(this.schema)} is not effect-awa's: ${this.found}; choose another schema, or empty this one`
  }
}

/**
 * The installed schema is newer, and no longer serves the contract that this library speaks: use a newer effect-awa
 * (contract C-62).
 *
 * @since 0.1.0
 * @category errors
 */
export class SchemaTooNew extends Schema.TaggedError<SchemaTooNew>("effect-awa/SchemaTooNew")("SchemaTooNew", {
  schema: Schema.String,
  /** The installed schema version. */
  installedVersion: Schema.Number,
  /** The oldest contract version that the installed schema serves. */
  minimumContract: Schema.Number,
  /** The contract version that this library speaks. */
  contract: Schema.Number
}) {
  override get message(): string {
    return (
      `schema ${show(this.schema)} is at version ${this.installedVersion} and serves contract versions from ` +
      `${this.minimumContract}; this effect-awa speaks ${this.contract}: upgrade it`
    )
  }
}

/**
 * The schema was installed with another ring size, which migrating does not change.
 *
 * @since 0.1.0
 * @category errors
 */
export class RingSizeFixed extends Schema.TaggedError<RingSizeFixed>("effect-awa/RingSizeFixed")("RingSizeFixed", {
  schema: Schema.String,
  /** In segments. */
  installed: Schema.Number,
  /** In segments. */
  requested: Schema.Number
}) {
  override get message(): string {
    return (
      `schema ${show(this.schema)} was installed with a ring of ${this.installed} segments, which cannot become ` +
      `${this.requested}: leave the option out`
    )
  }
}

/**
 * The server refused a step, or its answer did not come. The transaction is rolled back; only after a lost answer to
 * COMMIT may the migration have happened, and running it again is safe in any case.
 *
 * @since 0.1.0
 * @category errors
 */
export class MigrationFailed extends Schema.TaggedError<MigrationFailed>("effect-awa/MigrationFailed")(
  "MigrationFailed",
  {
    /** What was being done: a file of `schema/`, or the name of a step. */
    step: Schema.String,
    sqlState: Schema.optional(Schema.String),
    reason: Schema.String
  }
) {
  override get message(): string {
    return `${this.step}: ${this.reason}${this.sqlState === undefined ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * Everything that `Migrations.migrate` can fail with.
 *
 * @since 0.1.0
 * @category errors
 */
export type MigrationError =
  | InvalidMigrationOption
  | MigrationConnectionFailed
  | MigrationBusy
  | ForeignSchema
  | SchemaTooNew
  | RingSizeFixed
  | MigrationFailed
