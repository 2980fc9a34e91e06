// Generated from the modules of this folder by `npm run barrel`. Do not edit.

/**
 * What operators do to jobs and queues.
 *
 * @since 0.1.0
 */
export * as Admin from "./Admin.js"

/**
 * What the operators' verbs answer for each job.
 *
 * @since 0.1.0
 */
export * as AdminAnswer from "./AdminAnswer.js"

/**
 * What the operators' verbs can fail with.
 *
 * @since 0.1.0
 */
export * as AdminError from "./AdminError.js"

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
 * Answering the callbacks that attempts wait for, from anywhere in the application.
 *
 * @since 0.1.0
 */
export * as Callbacks from "./Callbacks.js"

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
 * Whether an installation is what it claims to be, and whether its surroundings let it work (contract C-53, C-22).
 *
 * @since 0.1.0
 */
export * as Doctor from "./Doctor.js"

/**
 * Enqueueing, and completing an attempt, inside another driver's transaction (contract C-12, C-41).
 *
 * What is needed of a driver is one function that runs a statement in the transaction that is open. The modules under
 * `effect-awa/drivers/` make it for the drivers they are named after; for any other one it is a line of your own.
 *
 * @since 0.1.0
 */
export * as Driver from "./Driver.js"

/**
 * What the adapters of `effect-awa/drivers/` are made of, for a driver that has none there.
 *
 * @example
 * ```ts
 * import type { Driver } from "effect-awa"
 * import * as DriverAdapter from "effect-awa/DriverAdapter"
 *
 * interface MyTransaction {
 *   readonly run: (sql: string, parameters: ReadonlyArray<string | null>) => Promise<Array<Record<string, unknown>>>
 * }
 * const query = (tx: MyTransaction): Driver.Query => (text, values) => tx.run(text, values)
 * export const { completeInTx, enqueue, expectCompletion } = DriverAdapter.make(query)
 * ```
 *
 * @since 0.1.0
 */
export * as DriverAdapter from "./DriverAdapter.js"

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
 * What operators read: jobs, their attempts, queues and the storage.
 *
 * @since 0.1.0
 */
export * as Inspect from "./Inspect.js"

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
 * What a job definition says of itself to those who know only that it is one.
 *
 * @since 0.1.0
 */
export * as JobDefinition from "./JobDefinition.js"

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
 * Kinds for other languages: the payloads of job definitions as JSON Schema, in files, in the database, and as stubs of
 * producers and workers.
 *
 * @since 0.1.0
 */
export * as Kinds from "./Kinds.js"

/**
 * What sharing kinds with other languages can fail with.
 *
 * @since 0.1.0
 */
export * as KindsError from "./KindsError.js"

/**
 * What one runtime of a fleet does for all: promote, rescue, rotate, drain, prune, sweep.
 *
 * @since 0.1.0
 */
export * as Maintenance from "./Maintenance.js"

/**
 * What a worker counts, as metrics of Effect. They are the process's: several workers in one process add up.
 *
 * @since 0.1.0
 */
export * as Metrics from "./Metrics.js"

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
 * What opening or using a pool can fail with.
 *
 * @since 0.1.0
 */
export * as PoolError from "./PoolError.js"

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
 * Who may do what: roles, ownership and grants from the manifest (contract C-50 to C-52).
 *
 * In the *compatible* profile one role owns everything, and other roles can be bound to capabilities. In the *strict* profile
 * tables belong to a role that nobody can log in as, routines to another one that has only what they need, the migrator can become
 * both and inherits neither, and no application role has a privilege on a table.
 *
 * @since 0.1.0
 */
export * as Roles from "./Roles.js"

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
 * One bound of connections for a program and its runtime (contract C-32).
 *
 * @since 0.1.0
 */
export * as SharedPool from "./SharedPool.js"

/**
 * The storage as an operator sees it: the ring and its history, and what mends a database that was restored or copied.
 *
 * @since 0.1.0
 */
export * as Storage from "./Storage.js"

/**
 * What looking at the storage, or rebasing it, can fail with.
 *
 * @since 0.1.0
 */
export * as StorageError from "./StorageError.js"

/**
 * What an operator is shown of the storage.
 *
 * @since 0.1.0
 */
export * as StorageStatus from "./StorageStatus.js"

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
