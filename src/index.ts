// Generated from the modules of this folder by `npm run barrel`. Do not edit.

/**
 * The application's own connections (contract C-30, C-40, C-41).
 *
 * @since 0.1.0
 */
export * as ApplicationPool from "./ApplicationPool.js"

/**
 * An open application transaction, as a capability.
 *
 * @since 0.1.0
 */
export * as ApplicationTransaction from "./ApplicationTransaction.js"

/**
 * What a running handler knows and can do.
 *
 * @since 0.1.0
 */
export * as Attempt from "./Attempt.js"

/**
 * Taking jobs to run.
 *
 * @since 0.1.0
 */
export * as Claim from "./Claim.js"

/**
 * Completing an attempt inside the caller's transaction (contract C-12).
 *
 * @since 0.1.0
 */
export * as CompleteInTx from "./CompleteInTx.js"

/**
 * Ending ordinary attempts, many in one statement (contract C-04).
 *
 * @since 0.1.0
 */
export * as Completion from "./Completion.js"

/**
 * Enqueueing jobs in the caller's transaction.
 *
 * @since 0.1.0
 */
export * as Enqueue from "./Enqueue.js"

/**
 * What a finalization returns (contract C-11).
 *
 * @since 0.1.0
 */
export * as FinalizationReceipt from "./FinalizationReceipt.js"

/**
 * An attempt's route to its evidence (contract C-11).
 *
 * @since 0.1.0
 */
export * as FinalizationToken from "./FinalizationToken.js"

/**
 * The handlers of a program, by kind.
 *
 * @since 0.1.0
 */
export * as Handlers from "./Handlers.js"

/**
 * Keeping attempts, and the runtime itself, known to be alive.
 *
 * @since 0.1.0
 */
export * as Heartbeat from "./Heartbeat.js"

/**
 * The attempts that this runtime holds, by attempt (contract C-03).
 *
 * @since 0.1.0
 */
export * as InFlight from "./InFlight.js"

/**
 * Where effect-awa is installed.
 *
 * @since 0.1.0
 */
export * as InstalledSchema from "./InstalledSchema.js"

/**
 * Job definitions: a kind, its payload, and the handlers and enqueueing that follow from them.
 *
 * @since 0.1.0
 */
export * as Job from "./Job.js"

/**
 * The errors that a program can act on. Their tags are stable, and so are the SQLSTATEs of class `WA` (contract C-14).
 *
 * @since 0.1.0
 */
export * as JobError from "./JobError.js"

/**
 * The identity of a job.
 *
 * @since 0.1.0
 */
export * as JobId from "./JobId.js"

/**
 * What a handler may say besides succeeding or failing.
 *
 * @since 0.1.0
 */
export * as JobOutcome from "./JobOutcome.js"

/**
 * What one runtime of a fleet does for all: promote, rescue, rotate, drain, prune, sweep.
 *
 * @since 0.1.0
 */
export * as Maintenance from "./Maintenance.js"

/**
 * What installing or upgrading the schema can fail with. Whatever the error, nothing was written: a migration is one
 * transaction.
 *
 * @since 0.1.0
 */
export * as MigrationError from "./MigrationError.js"

/**
 * Installs the schema, and brings it up to date.
 *
 * @since 0.1.0
 */
export * as Migrations from "./Migrations.js"

/**
 * The bounded right to run attempts.
 *
 * @since 0.1.0
 */
export * as Permits from "./Permits.js"

/**
 * The names of queues and kinds: one rule, the same here and in SQL (`name_fault`).
 *
 * @since 0.1.0
 */
export * as QueueName from "./QueueName.js"

/**
 * What became of a caller-owned attempt after its handler ended (contract C-17).
 *
 * @since 0.1.0
 */
export * as Reconciliation from "./Reconciliation.js"

/**
 * When a failed job runs again.
 *
 * @since 0.1.0
 */
export * as RetryPolicy from "./RetryPolicy.js"

/**
 * The number of an attempt (contract C-01).
 *
 * @since 0.1.0
 */
export * as RunLease from "./RunLease.js"

/**
 * The runtime's own connections (contract C-30).
 *
 * @since 0.1.0
 */
export * as RuntimePool from "./RuntimePool.js"

/**
 * The proof that frees a permit (contract C-17).
 *
 * @since 0.1.0
 */
export * as Settled from "./Settled.js"

/**
 * Telling claimers that there may be work: LISTEN and polling, merged into hints.
 *
 * @since 0.1.0
 */
export * as Wakeup from "./Wakeup.js"

/**
 * A job's life, top to bottom.
 *
 * @since 0.1.0
 */
export * as Worker from "./Worker.js"
