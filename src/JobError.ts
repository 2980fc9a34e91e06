/**
 * The errors that a program can act on. Their tags are stable, and so are the SQLSTATEs of class `WA` (contract C-14).
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { JobId } from "./JobId.js"

/**
 * The attempt is over: it was rescued, closed by another outcome, or superseded by a newer run lease (`WA001`). The
 * transaction in which it was to be completed is aborted. A handler need not catch it: the runtime reconciles.
 *
 * @since 0.1.0
 * @category errors
 */
export class StaleAttempt extends Schema.TaggedError<StaleAttempt>("effect-awa/StaleAttempt")("StaleAttempt", {
  sqlState: Schema.Literal("WA001"),
  jobId: Schema.BigIntFromSelf,
  runLease: Schema.BigIntFromSelf,
  /** The winner's outcome and time, as JSON, when the database still knows them. */
  detail: Schema.optional(Schema.String)
}) {
  override get message(): string {
    return `Job ${this.jobId}, run lease ${this.runLease}: the attempt is stale (${this.detail ?? "its evidence is gone"})`
  }
}

/**
 * The attempt is parked on a callback and cannot be completed now (`WA002`).
 *
 * @since 0.1.0
 * @category errors
 */
export class AttemptParked extends Schema.TaggedError<AttemptParked>("effect-awa/AttemptParked")("AttemptParked", {
  sqlState: Schema.Literal("WA002")
}) {
  override get message(): string {
    return "The attempt is parked on a callback"
  }
}

/**
 * The token is malformed, of another installation (`WA003`), or of a contract version that is not served (`WA004`).
 *
 * @since 0.1.0
 * @category errors
 */
export class TokenRejected extends Schema.TaggedError<TokenRejected>("effect-awa/TokenRejected")("TokenRejected", {
  sqlState: Schema.Literal("WA003", "WA004"),
  reason: Schema.String
}) {
  override get message(): string {
    return `The finalization token was rejected: ${this.reason}`
  }
}

/**
 * Caller-owned completion is disabled for the job's queue (`WA006`).
 *
 * @since 0.1.0
 * @category errors
 */
export class CallerOwnedDisabled extends Schema.TaggedError<CallerOwnedDisabled>("effect-awa/CallerOwnedDisabled")(
  "CallerOwnedDisabled",
  {
    sqlState: Schema.Literal("WA006")
  }
) {
  override get message(): string {
    return "Caller-owned completion is disabled for this queue"
  }
}

/**
 * The transaction would have committed without its completion, and was rolled back instead (`WA007`, contract C-41): a
 * finalization in it failed and the failure was swallowed, or it was rolled back with a savepoint.
 *
 * @since 0.1.0
 * @category errors
 */
export class CompletionMissing extends Schema.TaggedError<CompletionMissing>("effect-awa/CompletionMissing")(
  "CompletionMissing",
  {
    sqlState: Schema.Literal("WA007"),
    reason: Schema.String
  }
) {
  override get message(): string {
    return `The transaction was rolled back: ${this.reason}`
  }
}

/**
 * COMMIT was sent and its answer never came. The transaction may have committed: only the database knows, and only its
 * evidence decides. Never retry the transaction on this error; let the handler end, the runtime reconciles.
 *
 * @since 0.1.0
 * @category errors
 */
export class CommitUnknown extends Schema.TaggedError<CommitUnknown>("effect-awa/CommitUnknown")("CommitUnknown", {
  cause: Schema.Defect
}) {
  override get message(): string {
    return "COMMIT was sent and its answer was lost"
  }
}

/**
 * The transaction was rolled back by the server: COMMIT failed, or answered ROLLBACK because a statement in it had failed
 * (contract C-42). Nothing of it is visible.
 *
 * @since 0.1.0
 * @category errors
 */
export class RolledBack extends Schema.TaggedError<RolledBack>("effect-awa/RolledBack")("RolledBack", {
  cause: Schema.Defect
}) {
  override get message(): string {
    return "The transaction was rolled back by the server"
  }
}

/**
 * The transaction was open longer than it may be, and was rolled back (contract C-40). Do the slow work before it.
 *
 * @since 0.1.0
 * @category errors
 */
export class TransactionTooLong extends Schema.TaggedError<TransactionTooLong>("effect-awa/TransactionTooLong")(
  "TransactionTooLong",
  {
    millis: Schema.Number
  }
) {
  override get message(): string {
    return `The transaction was open for more than ${this.millis} ms`
  }
}

/**
 * The body of a transaction in another driver rejected, and the transaction was rolled back. Nothing of it is visible.
 *
 * @since 0.1.0
 * @category errors
 */
export class BodyFailed extends Schema.TaggedError<BodyFailed>("effect-awa/BodyFailed")("BodyFailed", {
  cause: Schema.Defect
}) {
  override get message(): string {
    return `The transaction was rolled back: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/**
 * The transaction could not be begun: the application pool gave no connection, a transaction is open already on this
 * fiber, or BEGIN failed. Nothing was written.
 *
 * @since 0.1.0
 * @category errors
 */
export class TransactionUnavailable extends Schema.TaggedError<TransactionUnavailable>(
  "effect-awa/TransactionUnavailable"
)("TransactionUnavailable", {
  reason: Schema.String,
  cause: Schema.optional(Schema.Defect)
}) {
  override get message(): string {
    return `No transaction could be begun: ${this.reason}`
  }
}

/**
 * A job that cannot be enqueued: which part of it, and the rule that it breaks. Nothing was sent to the database, or the
 * database refused it (`22023`, `WA005`).
 *
 * @since 0.1.0
 * @category errors
 */
export class PayloadRejected extends Schema.TaggedError<PayloadRejected>("effect-awa/PayloadRejected")(
  "PayloadRejected",
  {
    path: Schema.String,
    rule: Schema.String
  }
) {
  override get message(): string {
    return `${this.path}: ${this.rule}`
  }
}

/**
 * Another job holds the unique key of a job that was enqueued with `onConflict: "error"` (`23505`). Nothing of the call was
 * enqueued, and a transaction that it was part of is aborted.
 *
 * @since 0.1.0
 * @category errors
 */
export class DuplicateJob extends Schema.TaggedError<DuplicateJob>("effect-awa/DuplicateJob")("DuplicateJob", {
  /** Which job of the call has a twin, counted from 0. */
  index: Schema.Int,
  /** The job that holds the key; undefined when it was another one of the same call. */
  jobId: Schema.UndefinedOr(JobId)
}) {
  override get message(): string {
    return this.jobId === undefined
      ? `Job ${this.index} of the call has a twin in the same call`
      : `Job ${this.index} of the call has a twin: job ${this.jobId} holds its unique key`
  }
}

/**
 * Why an attempt failed although its handler did not: no handler for its kind, a payload that its schema does not
 * accept, a handler that ran past its timeout or that parked its attempt on a callback that is not its own.
 *
 * @since 0.1.0
 * @category errors
 */
export class AttemptFailed extends Schema.TaggedError<AttemptFailed>("effect-awa/AttemptFailed")("AttemptFailed", {
  reason: Schema.Literal("unknown-kind", "payload", "timeout", "not-finalized", "not-a-receipt", "no-callback"),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.reason}: ${this.detail}`
  }
}

/**
 * The callback that a handler waited for was answered with a failure, or is no longer its attempt's.
 *
 * @since 0.1.0
 * @category errors
 */
export class CallbackFailed extends Schema.TaggedError<CallbackFailed>("effect-awa/CallbackFailed")("CallbackFailed", {
  callbackId: Schema.String,
  reason: Schema.String
}) {
  override get message(): string {
    return `The callback failed: ${this.reason}`
  }
}

/**
 * The callback that a handler waited for was not answered in time. An answer that comes now is refused.
 *
 * @since 0.1.0
 * @category errors
 */
export class CallbackTimedOut extends Schema.TaggedError<CallbackTimedOut>("effect-awa/CallbackTimedOut")(
  "CallbackTimedOut",
  {
    callbackId: Schema.String
  }
) {
  override get message(): string {
    return "The callback was not answered in time"
  }
}

/**
 * The database refused what a callback needs, and would refuse it again: a privilege is missing, a timeout is not one. What
 * can heal is tried again instead.
 *
 * @since 0.1.0
 * @category errors
 */
export class CallbackUnavailable extends Schema.TaggedError<CallbackUnavailable>("effect-awa/CallbackUnavailable")(
  "CallbackUnavailable",
  {
    reason: Schema.String
  }
) {
  override get message(): string {
    return `No callback is to be had: ${this.reason}`
  }
}

/**
 * There is no such callback: it timed out, it was replaced by a later one, its attempt ended without it, or it never was.
 *
 * @since 0.1.0
 * @category errors
 */
export class CallbackUnknown extends Schema.TaggedError<CallbackUnknown>("effect-awa/CallbackUnknown")(
  "CallbackUnknown",
  {
    callbackId: Schema.String
  }
) {
  override get message(): string {
    return `There is no callback ${this.callbackId}`
  }
}

/**
 * The callback's attempt is in the middle of a finalization. Answer again later: its end decides whether the callback counts.
 *
 * @since 0.1.0
 * @category errors
 */
export class CallbackBusy extends Schema.TaggedError<CallbackBusy>("effect-awa/CallbackBusy")("CallbackBusy", {
  callbackId: Schema.String
}) {
  override get message(): string {
    return `The attempt of callback ${this.callbackId} is in the middle of a finalization`
  }
}

/**
 * What registering a callback, and waiting for it, can fail with. Handlers need not catch these.
 *
 * @since 0.1.0
 * @category errors
 */
export type CallbackError = StaleAttempt | CallbackFailed | CallbackTimedOut | CallbackUnavailable

/**
 * What completing an attempt inside a transaction can fail with. Handlers need not catch these.
 *
 * @since 0.1.0
 * @category errors
 */
export type CompleteError = StaleAttempt | AttemptParked | TokenRejected | CallerOwnedDisabled

/**
 * What an application transaction can fail with, besides its body's own failures.
 *
 * @since 0.1.0
 * @category errors
 */
export type TransactionError =
  TransactionUnavailable | CompletionMissing | CommitUnknown | RolledBack | TransactionTooLong

/**
 * What `finalize` can fail with, besides its body's own failures; `BodyFailed` in other drivers only, whose bodies are promises.
 *
 * @since 0.1.0
 * @category errors
 */
export type FinalizeError = CompleteError | TransactionError | BodyFailed
