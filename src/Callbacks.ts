/**
 * Answering the callbacks that attempts wait for, from anywhere in the application.
 *
 * @since 0.1.0
 */
import type { SqlClient as Client } from "@effect/sql/SqlClient"
import { SqlClient } from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import { InstalledSchema } from "./InstalledSchema.js"
import { quoteIdentifier } from "./internal/renderSql.js"
import { sqlMessageOf, sqlStateOf } from "./internal/sqlState.js"
import { sanitize, storageFault } from "./internal/storable.js"
import { CallbackBusy, CallbackUnknown, PayloadRejected } from "./JobError.js"

/** Compact JSON; the server's own check allows for the spaces that it stores. */
const maxResultBytes = 65_536

/** The server keeps 2000 characters of an error. */
const maxErrorBytes = 8_192

const encodeResult = (value: unknown): Effect.Effect<string, PayloadRejected> =>
  Effect.suspend(() => {
    const fault = storageFault(value, "result")
    if (fault !== undefined) return new PayloadRejected(fault)
    const json = JSON.stringify(value)
    return Buffer.byteLength(json, "utf8") > maxResultBytes
      ? new PayloadRejected({ path: "result", rule: "at most 64 KiB of JSON" })
      : Effect.succeed(json)
  })

/** A finalization of the attempt is in flight, and is over within an application transaction's life, mostly much sooner. */
const busyRetries = Schedule.exponential("20 millis").pipe(Schedule.intersect(Schedule.recurs(6)))

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

const call = <Answer extends string>(
  id: string,
  verb: string,
  answers: ReadonlyArray<Answer>,
  argument?: { readonly type: string; readonly value: string }
): Effect.Effect<Answer | "already", CallbackUnknown | CallbackBusy | PayloadRejected | SqlError, Client> =>
  Effect.gen(function* () {
    if (!uuid.test(id)) return yield* new CallbackUnknown({ callbackId: id })
    const client = yield* SqlClient
    const schema = quoteIdentifier(yield* InstalledSchema)
    const rows = yield* client
      .unsafe(
        `select ${schema}.${verb}($1::text::uuid${argument === undefined ? "" : `, ${argument.type}`})`,
        argument === undefined ? [id] : [id, argument.value]
      )
      .values.pipe(
        Effect.mapError((error) =>
          Option.getOrUndefined(sqlStateOf(error)) === "22023"
            ? new PayloadRejected({ path: "result", rule: sqlMessageOf(error) })
            : error
        )
      )
    const answer: unknown = rows[0]?.[0]
    if (answer === "unknown") return yield* new CallbackUnknown({ callbackId: id })
    if (answer === "busy") return yield* new CallbackBusy({ callbackId: id })
    if (answer === "already") return answer
    const expected = answers.find((known) => known === answer)
    return expected ?? (yield* new SqlError({ message: `${verb} gave no answer`, cause: answer }))
  }).pipe(Effect.retry({ schedule: busyRetries, while: (error) => error._tag === "CallbackBusy" }))

/**
 * Answers a callback: the attempt goes on with this result, a JSON value of at most 64 KiB. A handler that waits gets it; a
 * parked job runs again with it, as `attempt.callbackResult`; an answer that comes before the wait is kept.
 *
 * `already` says that the callback was answered before, so a webhook may be delivered twice. Inside a transaction of the
 * ambient `SqlClient` the answer commits with it; otherwise it commits by itself. Fails with `CallbackUnknown` when there is
 * no such callback (any more), with `CallbackBusy` when the attempt's completion stayed in flight, and with
 * `PayloadRejected` on a result that cannot be stored. Contract C-02.
 *
 * @example
 * ```ts
 * import { Callbacks } from "effect-awa"
 *
 * export const onWebhook = (body: { readonly callback: string; readonly amount: number }) =>
 *   Callbacks.resume(body.callback, { amount: body.amount })
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const resume = (
  callbackId: string,
  result: unknown
): Effect.Effect<"resumed" | "already", CallbackUnknown | CallbackBusy | PayloadRejected | SqlError, Client> =>
  Effect.flatMap(encodeResult(result), (value) =>
    call(callbackId, "resume_callback", ["resumed"], { type: "$2::text::jsonb", value })
  )

/**
 * Answers a callback and completes its job with it, whether or not a handler is still at work: whatever that does afterwards
 * is stale. Otherwise as `resume`.
 *
 * @example
 * ```ts
 * import { Callbacks } from "effect-awa"
 *
 * export const onShipped = (callbackId: string) => Callbacks.complete(callbackId, { shipped: true })
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const complete = (
  callbackId: string,
  result: unknown
): Effect.Effect<"completed" | "already", CallbackUnknown | CallbackBusy | PayloadRejected | SqlError, Client> =>
  Effect.flatMap(encodeResult(result), (value) =>
    call(callbackId, "complete_callback", ["completed"], { type: "$2::text::jsonb", value })
  )

/**
 * Answers a callback with a failure, of whose text 2000 characters are kept. A handler that waits fails with `CallbackFailed`
 * and decides what that means; a parked attempt has failed by it, and is retried as its attempts allow. Otherwise as `resume`.
 *
 * @example
 * ```ts
 * import { Callbacks } from "effect-awa"
 *
 * export const onDeclined = (callbackId: string) => Callbacks.fail(callbackId, "the card was declined")
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const fail = (
  callbackId: string,
  error: string
): Effect.Effect<"failed" | "already", CallbackUnknown | CallbackBusy | PayloadRejected | SqlError, Client> =>
  call(callbackId, "fail_callback", ["failed"], { type: "$2::text", value: sanitize(error, maxErrorBytes) })

/**
 * Says that the answer will come: the callback's timeout begins anew. Otherwise as `resume`.
 *
 * @example
 * ```ts
 * import { Callbacks } from "effect-awa"
 *
 * export const onStillWorking = (callbackId: string) => Callbacks.heartbeat(callbackId)
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const heartbeat = (
  callbackId: string
): Effect.Effect<"extended" | "already", CallbackUnknown | CallbackBusy | PayloadRejected | SqlError, Client> =>
  call(callbackId, "heartbeat_callback", ["extended"])
