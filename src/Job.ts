/**
 * Job definitions: a kind, its payload, and the handlers and enqueueing that follow from them.
 *
 * @since 0.1.0
 */
import type { SqlClient } from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Tracer from "effect/Tracer"
import type { Attempt, OwnedAttempt } from "./Attempt.js"
import * as Enqueue from "./Enqueue.js"
import type { FinalizationReceipt } from "./FinalizationReceipt.js"
import { type AttemptHandle, type Handles, handles, type RegisteredHandler, type StoredError } from "./Handlers.js"
import { InstalledSchema } from "./InstalledSchema.js"
import { definitionFault } from "./internal/jobRules.js"
import { bindToken } from "./internal/makeToken.js"
import { durationOf } from "./internal/optionRules.js"
import { storedError } from "./internal/storedError.js"
import {
  AttemptFailed,
  type CallbackError,
  type DuplicateJob,
  type FinalizeError,
  PayloadRejected
} from "./JobError.js"
import { type Defined, TypeId } from "./JobDefinition.js"
import type { JobId } from "./JobId.js"
import type { JobOutcome, OutcomeSelected } from "./JobOutcome.js"
import * as RetryPolicy from "./RetryPolicy.js"
import type { RuntimePool } from "./RuntimePool.js"

/**
 * An enqueued job, or the one that holds its unique key.
 *
 * @since 0.1.0
 * @category models
 */
export interface Enqueued<Kind extends string> {
  readonly kind: Kind
  readonly id: JobId
  /** Whether the job is new; always `inserted` without `unique`. */
  readonly answer: Enqueue.Answer
}

/**
 * `DuplicateJob` where `onConflict` may be `error`, and nothing elsewhere.
 *
 * @since 0.1.0
 * @category models
 */
export type DuplicateOf<Policy extends Enqueue.OnConflict> = "error" extends Policy ? DuplicateJob : never

/** A handler that asks for the runtime's pool does not compile, at the handler. */
type Guard<R> = [Extract<R, RuntimePool>] extends [never]
  ? unknown
  : { readonly "a handler may not use RuntimePool": never }

/**
 * The definition of a job: what is shared by those who enqueue it and those who run it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Job<Kind extends string, Payload, E, out Policy extends Enqueue.OnConflict = never> extends Defined {
  readonly kind: Kind
  /**
   * Enqueues one job. Inside a transaction of the ambient `SqlClient` it joins; otherwise it commits by itself. Fails with
   * `PayloadRejected`, before any SQL, when the payload cannot be stored or an option breaks its rule, and with `DuplicateJob`
   * only where the definition or these options say `unique` with `onConflict: "error"`.
   */
  readonly enqueue: <Own extends Enqueue.OnConflict = never>(
    payload: Payload,
    options?: Enqueue.EnqueueOptions<Own>
  ) => Effect.Effect<Enqueued<Kind>, PayloadRejected | SqlError | DuplicateOf<Policy | Own>, SqlClient>
  /** Enqueues many jobs in one statement. The answer is in the payloads' order; of twins among them the first is inserted. */
  readonly enqueueAll: <Own extends Enqueue.OnConflict = never>(
    payloads: Iterable<Payload>,
    options?: Enqueue.EnqueueOptions<Own>
  ) => Effect.Effect<ReadonlyArray<Enqueued<Kind>>, PayloadRejected | SqlError | DuplicateOf<Policy | Own>, SqlClient>
  /**
   * An ordinary handler: its job is completed by the runtime after it succeeded, in a batch. Fibers that it forked end with it, before
   * that; what must go on is a daemon's.
   */
  readonly toLayer: <R>(
    run: (
      attempt: Attempt<Kind, Payload>
    ) => Effect.Effect<void | JobOutcome, E | OutcomeSelected | CallbackError | PayloadRejected | SqlError, R> &
      Guard<R>
  ) => Layer.Layer<Handles<Kind>, never, R>
  /**
   * A caller-owned handler: its job is completed in the application's own transaction, and the receipt of that completion is
   * its only success (contract C-10). To end otherwise it fails: `JobOutcome.end(JobOutcome.snooze("1 minute"))`.
   */
  readonly toLayerCallerOwned: <R>(
    run: (
      attempt: OwnedAttempt<Kind, Payload>
    ) => Effect.Effect<
      FinalizationReceipt<Kind>,
      E | OutcomeSelected | FinalizeError | CallbackError | PayloadRejected | SqlError,
      R
    > &
      Guard<R>
  ) => Layer.Layer<Handles<Kind>, never, R>
  /** The payload as it is stored. Fails with `PayloadRejected` on what the schema does not accept. */
  readonly encode: (payload: Payload) => Effect.Effect<unknown, PayloadRejected>
  /** The job as it is enqueued, with the definition's own options: for drivers other than `SqlClient` (`effect-awa/Driver`). */
  readonly request: (
    payload: Payload,
    options?: Enqueue.EnqueueOptions
  ) => Effect.Effect<Enqueue.EncodedJob, PayloadRejected>
  /** The kind's handler, for the worker. */
  readonly handler: Effect.Effect<RegisteredHandler, never, Handles<Kind>>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface JobOptions<Payload, PayloadEncoded, E, EEncoded, Policy extends Enqueue.OnConflict = never> {
  readonly payload: Schema.Schema<Payload, PayloadEncoded>
  /** The failures that the handler declares; they are stored with the job, encoded. */
  readonly error?: Schema.Schema<E, EEncoded>
  /** Where the job is enqueued unless the caller says otherwise; `default`. */
  readonly queue?: string
  readonly priority?: 1 | 2 | 3 | 4
  /** How many attempts a job has, from 1 to 32767; 25 unless said otherwise. */
  readonly maxAttempts?: number
  /** Keeps out twins of a job, or of those jobs for whose payload it says so. */
  readonly unique?: Enqueue.Unique<Policy> | ((payload: Payload) => Enqueue.Unique<Policy> | false)
  readonly retry?: RetryPolicy.RetryPolicy
  /** A handler that runs longer is interrupted, and the attempt failed. Above zero. */
  readonly timeout?: Duration.DurationInput
}

/**
 * Defines a job.
 *
 * @example
 * ```ts
 * import { Effect, Schema } from "effect"
 * import { Job } from "effect-awa"
 *
 * export const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })
 * export const GreetLive = Greet.toLayer((job) => Effect.log(`hello ${job.payload.name}`))
 * export const enqueued = Greet.enqueue({ name: "world" })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <
  const Kind extends string,
  Payload,
  PayloadEncoded,
  E = never,
  EEncoded = never,
  Policy extends Enqueue.OnConflict = never
>(
  kind: Kind,
  options: JobOptions<Payload, PayloadEncoded, E, EEncoded, Policy>
): Job<Kind, Payload, E, Policy> => {
  const encodePayload = Schema.encode(options.payload)
  const encode = (payload: Payload) => Effect.mapError(encodePayload(payload), payloadRejected)
  const decode = Schema.decodeUnknown(options.payload)
  const tag = handles(kind)
  const inCommon = (overrides: Enqueue.EnqueueOptions | undefined): Omit<Enqueue.EnqueueOptions, "unique"> => ({
    ...overrides,
    queue: overrides?.queue ?? options.queue,
    priority: overrides?.priority ?? options.priority,
    maxAttempts: overrides?.maxAttempts ?? options.maxAttempts
  })
  const withDefaults = (payload: Payload, overrides: Enqueue.EnqueueOptions | undefined): Enqueue.EnqueueOptions => ({
    ...inCommon(overrides),
    unique: overrides?.unique ?? (typeof options.unique === "function" ? options.unique(payload) : options.unique)
  })
  const encodeAll = (payloads: ReadonlyArray<Payload>): Effect.Effect<ReadonlyArray<unknown>, PayloadRejected> =>
    Effect.suspend(() => {
      const encoded: Array<unknown> = []
      for (const payload of payloads) {
        const now = encodePayload(payload)
        // by a schema that takes its time, or to name what is wrong
        if (!Either.isEither(now) || Either.isLeft(now)) return Effect.forEach(payloads, encode)
        encoded.push(now.right)
      }
      return Effect.succeed(encoded)
    })

  const request = (
    payload: Payload,
    overrides?: Enqueue.EnqueueOptions
  ): Effect.Effect<Enqueue.EncodedJob, PayloadRejected> =>
    Effect.map(encode(payload), (args) => ({ kind, args, options: withDefaults(payload, overrides) }))

  // An overload, since the compiler does not see that DuplicateJob comes only from the options that say so.
  function enqueueAll<Own extends Enqueue.OnConflict>(
    payloads: Iterable<Payload>,
    overrides?: Enqueue.EnqueueOptions<Own>
  ): Effect.Effect<ReadonlyArray<Enqueued<Kind>>, PayloadRejected | SqlError | DuplicateOf<Policy | Own>, SqlClient>
  function enqueueAll(
    payloads: Iterable<Payload>,
    overrides?: Enqueue.EnqueueOptions
  ): Effect.Effect<ReadonlyArray<Enqueued<Kind>>, PayloadRejected | SqlError | DuplicateJob, SqlClient> {
    const all = Array.from(payloads)
    if ((overrides?.unique ?? options.unique ?? false) === false) {
      return Effect.flatMap(encodeAll(all), (args) => Enqueue.insertBatch(kind, args, inCommon(overrides))).pipe(
        Effect.map((ids) => ids.map((id) => ({ kind, id, answer: "inserted" })))
      )
    }
    return Effect.forEach(all, (payload) => request(payload, overrides)).pipe(
      Effect.flatMap(Enqueue.insertJobs),
      Effect.map((answers) => answers.map(({ answer, id }) => ({ kind, id, answer })))
    )
  }

  const register = <R>(
    mode: RegisteredHandler["mode"],
    run: (attempt: AttemptHandle, payload: Payload) => Effect.Effect<unknown, unknown, R>
  ): Layer.Layer<Handles<Kind>, never, R> =>
    Layer.effect(
      tag,
      Effect.map(Effect.context<R>(), (own): RegisteredHandler => ({
        kind,
        mode,
        retry: options.retry ?? RetryPolicy.standard,
        timeout: durationOf(options.timeout),
        fault: definitionFault(options),
        describe: describeWith(options.error),
        contextIn: handlerContext(own),
        run: (attempt) =>
          inContext<R>(
            Effect.suspend(() =>
              Effect.matchEffect(decode(attempt.args), {
                onFailure: (error) =>
                  new AttemptFailed({ reason: "payload", detail: ParseResult.TreeFormatter.formatErrorSync(error) }),
                onSuccess: (payload) => run(attempt, payload)
              })
            )
          )
      }))
    )

  const { maxAttempts, priority, queue } = options
  return {
    [TypeId]: { kind, payload: options.payload.ast, queue, priority, maxAttempts },
    kind,
    enqueue: (payload, overrides) =>
      Effect.flatMap(enqueueAll([payload], overrides), ([job]) =>
        job === undefined ? Effect.dieMessage("insert_jobs answered no id") : Effect.succeed(job)
      ),
    enqueueAll,
    encode,
    request,
    toLayer: (run) => register("ordinary", (handle, payload) => run(attemptOf(kind, handle, payload))),
    toLayerCallerOwned: (run) =>
      register("caller-owned", (handle, payload) =>
        Effect.flatMap(InstalledSchema, (schema) => {
          bindToken(handle.token, { schema, progress: handle.progressText, waits: handle.waits })
          return run({
            ...attemptOf(kind, handle, payload),
            token: handle.token,
            transaction: handle.transaction,
            finalize: (body) => handle.finalize(kind, body),
            completeInTx: handle.completeInTx(kind)
          })
        })
      ),
    handler: tag
  }
}

/** What the handler's layer was given, and of the worker's own context only the schema's name and the span. */
const handlerContext =
  <R>(own: Context.Context<R>) =>
  (ambient: Context.Context<never>): Context.Context<R> => {
    const context = Context.add(own, InstalledSchema, Context.get(ambient, InstalledSchema))
    return Option.match(Context.getOption(ambient, Tracer.ParentSpan), {
      onNone: () => context,
      onSome: (span) => Context.add(context, Tracer.ParentSpan, span)
    })
  }

/** The fiber of an attempt has the handler's context from its start: to set it there, and to set it back, is work for each job. */
const inContext = <R>(effect: Effect.Effect<unknown, unknown, R>): Effect.Effect<unknown, unknown> =>
  // eslint-disable-next-line @typescript-eslint/consistent-type-assertions -- its requirements are what `contextIn` answers
  effect as Effect.Effect<unknown, unknown>

const payloadRejected = (error: ParseResult.ParseError): PayloadRejected => {
  const [issue] = ParseResult.ArrayFormatter.formatErrorSync(error)
  const path = ["payload", ...(issue?.path ?? []).map(String)].join(".")
  return new PayloadRejected({ path, rule: issue?.message ?? "not a value of the payload's schema" })
}

const attemptOf = <Kind extends string, Payload>(
  kind: Kind,
  handle: AttemptHandle,
  payload: Payload
): Attempt<Kind, Payload> => ({
  kind,
  payload,
  queue: handle.queue,
  jobId: handle.jobId,
  runLease: handle.runLease,
  attempt: handle.attempt,
  maxAttempts: handle.maxAttempts,
  deadline: handle.deadline,
  idempotencyKey: handle.idempotencyKey,
  progress: handle.progress,
  callbackResult: handle.callbackResult,
  callback: handle.callback
})

const describeWith = <E, EEncoded>(
  schema: Schema.Schema<E, EEncoded> | undefined
): ((error: unknown) => StoredError) => {
  if (schema === undefined) return (error) => storedError(error)
  const isDeclared = Schema.is(schema)
  const encode = Schema.encodeOption(schema)
  return (error) =>
    storedError(error, (error) => (isDeclared(error) ? Option.getOrUndefined(encode(error)) : undefined))
}
