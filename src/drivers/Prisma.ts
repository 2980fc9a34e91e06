/**
 * Jobs in the interactive transactions of [Prisma](https://www.prisma.io) 7 (`@prisma/client` with `@prisma/adapter-pg`).
 *
 * Its nested transaction is `tx.$transaction(…)`, a savepoint. A rejection that is caught around it, and not passed on to
 * `prisma.$transaction(…)`, would keep the application's rows without their completion; COMMIT fails with `WA007` instead. Await
 * every statement of the body: one that fails unawaited after the completion turns COMMIT into a rollback that Prisma does not
 * report; the runtime finds out. What you write by `prisma` inside a transaction is on another connection, and outside it.
 *
 * Prisma puts a kind of its own in the place of some errors. What the server said beside the SQLSTATE is lost with it: a twin that
 * a job's `onConflict: "error"` refuses is a unique violation here, and no `DuplicateJob`.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Driver from "../Driver.js"
import * as DriverAdapter from "../DriverAdapter.js"
import type { FinalizationReceipt } from "../FinalizationReceipt.js"
import { rowsOf } from "../internal/rowsOf.js"
import type { FinalizeError } from "../JobError.js"
import type { OutcomeSelected } from "../JobOutcome.js"

/**
 * What runs statements: a generated `PrismaClient`, whatever its models are.
 *
 * @since 0.1.0
 * @category models
 */
export interface Executor {
  readonly $queryRawUnsafe: (query: string, ...values: Array<string | null>) => PromiseLike<unknown>
}

/**
 * An open transaction: the client that `prisma.$transaction(…)` gives its body.
 *
 * @since 0.1.0
 * @category models
 */
export interface OpenTransaction extends Executor {
  readonly $executeRawUnsafe: (query: string, ...values: Array<string | number | null>) => PromiseLike<number>
}

/**
 * What opens transactions: a generated `PrismaClient`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Database<Tx> {
  readonly $transaction: <A>(
    body: (tx: Tx) => Promise<A>,
    options?: { readonly maxWait?: number; readonly timeout?: number }
  ) => Promise<A>
}

const textOf = (value: object, name: string): string | undefined => {
  const text: unknown = Predicate.hasProperty(value, name) ? value[name] : undefined
  return typeof text === "string" ? text : undefined
}

/** The error of the driver's adapter as node-postgres tells it: by its SQLSTATE, which Prisma keeps beside a code of its own. */
const ownError = (error: unknown, adapterError: unknown): unknown => {
  const cause: unknown = Predicate.hasProperty(adapterError, "cause") ? adapterError.cause : undefined
  if (!Predicate.isObject(cause)) return error
  const code = textOf(cause, "originalCode")
  if (code === undefined) return error
  return Object.assign(new Error(textOf(cause, "originalMessage"), { cause: error }), {
    code,
    severity: textOf(cause, "severity") ?? "ERROR",
    detail: textOf(cause, "detail")
  })
}

const inStatement = (error: unknown): unknown =>
  Predicate.hasProperty(error, "meta") && Predicate.hasProperty(error.meta, "driverAdapterError")
    ? ownError(error, error.meta.driverAdapterError)
    : error

/**
 * One statement in the open transaction, never prepared unless the adapter's `statementNameGenerator` says so: it works behind a
 * pooler in transaction mode.
 *
 * @since 0.1.0
 * @category constructors
 */
export const query =
  (prisma: Executor): Driver.Query =>
  async (text, values) => {
    try {
      return rowsOf(await prisma.$queryRawUnsafe(text, ...values))
    } catch (error) {
      throw inStatement(error)
    }
  }

/** A client that connects is no transaction. Of its nested transactions Prisma tells nothing. */
const depth = (tx: Executor): number => (Predicate.hasProperty(tx, "$connect") ? 0 : 1)

type Adapter = DriverAdapter.Adapter<OpenTransaction, Executor>
const adapter: Adapter = /* @__PURE__ */ DriverAdapter.make(query, depth)

/**
 * Enqueues a job in the open transaction; with the `PrismaClient` itself it commits by itself. See `Driver.enqueue`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaPrisma from "effect-awa/drivers/Prisma"
 *
 * const SendReceipt = Job.make("send-receipt", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const pay = <Tx extends AwaPrisma.OpenTransaction>(prisma: AwaPrisma.Database<Tx>, invoice: number) =>
 *   prisma.$transaction(async (tx) => {
 *     await tx.$executeRawUnsafe("update invoices set state = 'paid' where id = $1", invoice)
 *     await AwaPrisma.enqueue(tx, SendReceipt, { invoice })
 *   })
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const enqueue: Adapter["enqueue"] = adapter.enqueue

/**
 * Enqueues many jobs in one statement. See `Driver.enqueueAll`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const enqueueAll: Adapter["enqueueAll"] = adapter.enqueueAll

/**
 * Makes COMMIT fail unless the open transaction completes this attempt. First in the transaction. See
 * `Driver.expectCompletion`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const expectCompletion: Adapter["expectCompletion"] = adapter.expectCompletion

/**
 * Completes the attempt in the open transaction. See `Driver.completeInTx`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const completeInTx: Adapter["completeInTx"] = adapter.completeInTx

/** By when Prisma rolls back what still runs after its signal, and refuses its statements; the server would a little later. */
const graceMillis = 500

const transaction =
  <Tx extends OpenTransaction>(prisma: Database<Tx>, maximumMillis: number) =>
  async <A>(body: (tx: Tx) => Promise<A>): Promise<A> => {
    try {
      return await prisma.$transaction(body, { maxWait: maximumMillis, timeout: maximumMillis + graceMillis })
    } catch (error) {
      throw ownError(error, error) // what COMMIT was refused with comes as it is
    }
  }

/**
 * BEGIN · body · `complete_job` · COMMIT on a connection of the pool: the body of a caller-owned handler whose application uses
 * Prisma. What the body writes with `tx` commits with the job's completion, or not at all. Prisma's own `maxWait` and `timeout`
 * follow from `maximumDuration`.
 *
 * @example
 * ```ts
 * import { Schema } from "effect"
 * import { Job } from "effect-awa"
 * import * as AwaPrisma from "effect-awa/drivers/Prisma"
 *
 * const Charge = Job.make("charge", { payload: Schema.Struct({ invoice: Schema.Int }) })
 * export const ChargeLive = <Tx extends AwaPrisma.OpenTransaction>(prisma: AwaPrisma.Database<Tx>) =>
 *   Charge.toLayerCallerOwned((job) =>
 *     AwaPrisma.finalize(prisma, job, (tx) =>
 *       tx.$executeRawUnsafe("update invoices set state = 'paid' where id = $1", job.payload.invoice)
 *     )
 *   )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const finalize = <Tx extends OpenTransaction, Kind extends string>(
  prisma: Database<Tx>,
  attempt: Driver.Finalizable<Kind>,
  body: (tx: Tx, signal: AbortSignal) => PromiseLike<unknown>,
  options?: { readonly maximumDuration?: Duration.DurationInput }
): Effect.Effect<FinalizationReceipt<Kind>, FinalizeError | OutcomeSelected> =>
  Driver.finalizeWith(attempt, {
    transaction: transaction(prisma, Duration.toMillis(options?.maximumDuration ?? "5 seconds")),
    query,
    body,
    maximumDuration: options?.maximumDuration
  })
