import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import type { ApplicationPool } from "../ApplicationPool.js"
import type { Progress } from "../Attempt.js"
import type { CompleteInTx } from "../CompleteInTx.js"
import type { AttemptHandle } from "../Handlers.js"
import type { Entry } from "../InFlight.js"
import { CallbackFailed, CallerOwnedDisabled, PayloadRejected, RolledBack } from "../JobError.js"
import * as JobOutcome from "../JobOutcome.js"
import type { CallbackWaits } from "./callbackWaits.js"
import { storageFault } from "./storable.js"
import { noClosing } from "./transactionEnd.js"

/** What the worker needs to let a handler finalize. */
export interface Finalizing {
  readonly pool: ApplicationPool["Type"]
  readonly completeInTx: CompleteInTx["Type"]
  /** Never changes with the data, not even when a copy is adopted. */
  readonly origin: string
  readonly callbacks: CallbackWaits
  /** Notes that an attempt waits for a connection, or does so no more. */
  readonly waits: (entry: Entry, waiting: boolean) => void
}

const maxProgressBytes = 65_536

const progressOf = (entry: Entry): Progress => ({
  get: Effect.sync(() =>
    entry.progress !== undefined
      ? Option.some<unknown>(JSON.parse(entry.progress.json))
      : Option.fromNullable(entry.attempt.progress)
  ),
  set: (value) =>
    Effect.suspend(() => {
      const fault = storageFault(value, "progress")
      if (fault !== undefined) return new PayloadRejected(fault)
      const json = JSON.stringify(value)
      if (Buffer.byteLength(json, "utf8") > maxProgressBytes) {
        return new PayloadRejected({ path: "progress", rule: "at most 64 KiB of JSON" })
      }
      entry.progress = { json, flushed: false } // text: the handler may go on changing its value
      return Effect.void
    })
})

/** @internal */
export const attemptHandle = (entry: Entry, finalizing: Finalizing): AttemptHandle => {
  const { attempt } = entry
  const waits = (waiting: boolean): void => finalizing.waits(entry, waiting)
  const noteGated = <A, E, R>(finalization: Effect.Effect<A, E, R>) =>
    Effect.tapError(finalization, (error) =>
      Effect.sync(() => {
        if (error instanceof CallerOwnedDisabled) entry.gated = true // the handler may call it something else
      })
    )
  const completeInTx: AttemptHandle["completeInTx"] = (kind) =>
    Effect.suspend(() => finalizing.completeInTx.complete(kind, attempt.token, entry.progress?.json)).pipe(noteGated)
  return {
    args: attempt.args,
    queue: attempt.queue,
    jobId: attempt.token.jobId,
    runLease: attempt.token.runLease,
    attempt: attempt.attempt,
    maxAttempts: attempt.maxAttempts,
    deadline: Option.map(Option.fromNullable(attempt.deadlineMicros), (micros) =>
      DateTime.unsafeMake(Number(micros / 1000n))
    ),
    idempotencyKey: `${finalizing.origin}:${attempt.token.jobId}`,
    progress: progressOf(entry),
    progressText: () => entry.progress?.json,
    waits,
    callbackResult: attempt.callbackResult,
    callback: ({ result, timeout }) => {
      const decode = Schema.decodeUnknown(result)
      return Effect.map(finalizing.callbacks.register(attempt.token, Math.ceil(Duration.toMillis(timeout))), (id) => ({
        id,
        park: JobOutcome.park(id),
        await: Effect.flatMap(finalizing.callbacks.wait(attempt.token, id), (value) =>
          Effect.mapError(
            decode(value),
            (error) =>
              new CallbackFailed({
                callbackId: id,
                reason: `the result: ${ParseResult.TreeFormatter.formatErrorSync(error)}`
              })
          )
        )
      }))
    },
    token: attempt.token,
    transaction: finalizing.pool.transaction,
    completeInTx,
    finalize: (kind, body) => {
      const ending = Effect.flatMap(body, () => {
        const closing = entry.progress === undefined ? finalizing.completeInTx.closing(kind, attempt.token) : undefined
        return closing === undefined
          ? completeInTx(kind).pipe(
              Effect.catchTag("SqlError", (cause) => new RolledBack({ cause })),
              Effect.map((receipt) => noClosing(receipt))
            )
          : Effect.succeed(closing)
      })
      return noteGated(finalizing.pool.transactionClosing(ending, (closing) => closing, waits))
    }
  }
}
