/**
 * What opening or using a pool can fail with.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * A runtime statement failed. `retryable` tells whether the same statement can succeed later: the database was out of
 * reach, restarting, busy, or a lock was not to be had. Whether the statement took effect is unknown when no SQLSTATE came.
 *
 * @since 0.1.0
 * @category errors
 */
export class DatabaseError extends Schema.TaggedError<DatabaseError>("effect-awa/DatabaseError")("DatabaseError", {
  operation: Schema.String,
  sqlState: Schema.optional(Schema.String),
  retryable: Schema.Boolean,
  reason: Schema.String,
  /** What a refusal of the schema's own functions (`55000`) says beside its reason, as JSON. */
  detail: Schema.optional(Schema.String)
}) {
  override get message(): string {
    return `${this.operation}: ${this.reason}${this.sqlState === undefined ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * The runtime refuses to start on this database, and has written nothing (contract C-34, C-62).
 *
 * - `schema-missing`: nothing of effect-awa is installed under this schema name; run `awa migrate`
 * - `schema-outdated`: the installed schema is older than this library needs; run `awa migrate`
 * - `contract-unsupported`: the installed schema no longer serves this library's contract version
 * - `database-replaced`: the data were restored or copied into a database that cannot go on from them: stored transaction
 *   ids lie ahead of the server's own, or sequences stayed behind; run `awa storage rebase`
 * - `not-strict`: the start was asked to be strict, and the installation is not what `awa doctor --strict` asks for (contract
 *   C-53); `codes` are those of its findings
 *
 * @since 0.1.0
 * @category errors
 */
export class StartRefused extends Schema.TaggedError<StartRefused>("effect-awa/StartRefused")("StartRefused", {
  reason: Schema.Literal(
    "schema-missing",
    "schema-outdated",
    "contract-unsupported",
    "database-replaced",
    "not-strict"
  ),
  detail: Schema.String,
  codes: Schema.optional(Schema.Array(Schema.String))
}) {
  override get message(): string {
    return `${this.reason}: ${this.detail}`
  }
}

/**
 * An option of a pool breaks its rule. No connection was opened. A url is never repeated here: it holds the password.
 *
 * @since 0.1.0
 * @category errors
 */
export class PoolMisconfigured extends Schema.TaggedError<PoolMisconfigured>("effect-awa/PoolMisconfigured")(
  "PoolMisconfigured",
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
 * The pools of all declared processes together may ask for more connections than the server gives, and the start was asked
 * to be strict about it (contract C-33). `detail` is the sum.
 *
 * @since 0.1.0
 * @category errors
 */
export class ConnectionBudgetExceeded extends Schema.TaggedError<ConnectionBudgetExceeded>(
  "effect-awa/ConnectionBudgetExceeded"
)("ConnectionBudgetExceeded", {
  needed: Schema.Int,
  available: Schema.Int,
  detail: Schema.String
}) {
  override get message(): string {
    return this.detail
  }
}
