import type { SqlClient } from "@effect/sql"
import { Deferred, Effect, Option, Schema } from "effect"
import type { Attempt, FinalizationReceipt } from "effect-awa"
import { CallerOwnedDisabled } from "effect-awa/JobError"
import * as JobOutcome from "effect-awa/JobOutcome"
import { tokenFields } from "../../../src/internal/makeToken.js"
import { Declined } from "../world.js"
import { attemptKey, type Recorder } from "./recorder.js"
import { type Evidence, evidences, type Exit } from "./table.js"

export const Payload = Schema.Struct({ exit: Schema.String, evidence: Schema.String })

export interface CellOf {
  readonly exit: Exit
  readonly evidence: Evidence
}

type Owned<Kind extends string> = Attempt.OwnedAttempt<Kind, typeof Payload.Type>
type Receipt<Kind extends string> = FinalizationReceipt.FinalizationReceipt<Kind>

/** The attempt's token as SQL text: numbers only. */
const coordinates = (job: Owned<string>) => {
  const fields = tokenFields(job.token)
  if (fields === undefined) throw new Error("a token that no claim made")
  const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = fields
  const values = [claim_slot, batch_id, batch_index, job_id, run_lease, receipt_id]
  return {
    values: values.join(", "),
    arrays: values.map((value) => `array[${value}]`).join(", "),
    batch: String(batch_id),
    segment: claim_slot & 255
  }
}

/** The receipt of a transaction that is rolled back. */
const rolledBack = <Kind extends string>(job: Owned<Kind>) =>
  Effect.gen(function* () {
    const receipt = yield* Deferred.make<Receipt<Kind>>()
    yield* job
      .transaction(
        job.completeInTx.pipe(
          Effect.flatMap((made) => Deferred.succeed(receipt, made)),
          Effect.zipRight(new Declined())
        )
      )
      .pipe(Effect.ignore)
    return yield* Deferred.await(receipt)
  })

/** A finalization that stays in flight until its gate opens. Answers its receipt. */
const inFlight = <Kind extends string>(job: Owned<Kind>, recorder: Recorder) =>
  Effect.gen(function* () {
    const receipt = yield* Deferred.make<Receipt<Kind>>()
    const gate = yield* Deferred.make<boolean>()
    recorder.gates.set(attemptKey(job), gate)
    yield* job
      .transaction(
        job.completeInTx.pipe(
          Effect.flatMap((made) => Deferred.succeed(receipt, made)),
          Effect.zipRight(Deferred.await(gate)),
          Effect.flatMap((commits) => (commits ? Effect.void : new Declined()))
        )
      )
      .pipe(Effect.ignore, Effect.interruptible, Effect.forkDaemon)
    return yield* Deferred.await(receipt)
  })

/** Brings the attempt's evidence into the column's state. Answers a receipt of what completed it, or may. */
const arrange = <Kind extends string>(
  job: Owned<Kind>,
  evidence: Evidence,
  callbackId: string | undefined,
  recorder: Recorder,
  direct: SqlClient.SqlClient
) =>
  Effect.gen(function* () {
    const nothing = Option.none<Receipt<Kind>>()
    const { arrays, batch, segment, values } = coordinates(job)
    const cancel = direct.unsafe(`select awa.cancel_jobs(array[${job.jobId}])`)
    switch (evidence) {
      case "completed":
      case "completed lease":
      case "silent, completed":
      case "beyond, completed":
        return Option.some(yield* job.finalize(Effect.void))
      case "commits in flight":
      case "rolls back in flight":
        recorder.opening.set(attemptKey(job), evidence === "commits in flight")
        return Option.some(yield* inFlight(job, recorder))
      case "beyond, commits":
      case "beyond, rolls back":
        return Option.some(yield* inFlight(job, recorder))
      case "cancelled":
      case "beyond, cancelled":
        yield* cancel
        return nothing
      case "superseded":
        yield* direct.unsafe(`select awa.close_attempts(1, ${arrays}, array['released']::awa.outcome[], '{}', true)`)
        // to somebody else: this queue's only permit is the attempt's own
        yield* direct
          .unsafe("select from awa.claim($1, 1, 999) where job_id is not null", [job.queue])
          .pipe(Effect.repeat({ until: (rows) => rows.length === 1 }))
        return nothing
      case "parked":
      case "beyond, parked":
        yield* direct.unsafe(`select awa.park_attempt(${values}, '${callbackId}', null)`)
        return nothing
      case "beyond, answers lost":
        recorder.hurried.add(attemptKey(job))
        return nothing
      case "pruned": // what is left of a segment that was pruned: nothing under the token's batch
        yield* cancel
        yield* direct.unsafe(`delete from awa.lease_closures where job_id = ${job.jobId}`)
        yield* direct.unsafe(
          `with moved as (update awa.closures_${segment} set batch_id = 1000000000 + batch_id where batch_id = ${batch})
           update awa.claim_batches_${segment} set batch_id = 1000000000 + batch_id where batch_id = ${batch}`
        )
        return nothing
      default:
        return nothing
    }
  })

const ended = (outcome: JobOutcome.JobOutcome) => JobOutcome.end(outcome)

/** What a handler without types can do. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters, @typescript-eslint/consistent-type-assertions -- the hole in the types is the test's subject
const untyped = <A>(value: unknown): A => value as A

/** Another attempt's receipt; the first one that was made. */
let foreign: unknown

/** Ends as the row says, in the face of evidence as the column says. */
export const cellHandler =
  (recorder: Recorder, direct: SqlClient.SqlClient) =>
  <Kind extends string>(job: Owned<Kind>) =>
    Effect.gen(function* () {
      if (job.payload.exit === "warm up" || job.runLease > 1n) {
        const receipt = yield* job.finalize(Effect.void)
        foreign ??= receipt
        return receipt
      }
      const { evidence, exit } = untyped<CellOf>(job.payload)
      // nothing cuts into it: a timeout, for one, comes when the handler is where it should be
      const { callbackId, receipt } = yield* Effect.uninterruptible(
        Effect.gen(function* () {
          const needsCallback = exit === "park" || /lease|parked/.test(evidence)
          const callback = needsCallback
            ? yield* job.callback({ timeout: "1 hour", result: Schema.Unknown })
            : undefined
          const ofOwn = ["own receipt", "rolled-back receipt"].includes(exit)
          const undone = ofOwn ? Option.some(yield* rolledBack(job)) : Option.none<Receipt<Kind>>()
          const made = yield* arrange(job, evidence, callback?.id, recorder, direct)
          const owned = exit === "own receipt" && evidences[evidence].end === "completed" ? made : undone
          return { callbackId: callback?.id ?? "", receipt: Option.getOrUndefined(owned) }
        })
      )
      switch (exit) {
        case "own receipt":
        case "rolled-back receipt":
          return receipt ?? untyped<Receipt<Kind>>({})
        case "foreign receipt":
          return untyped<Receipt<Kind>>(foreign)
        case "no receipt":
          return untyped<Receipt<Kind>>({})
        case "failure":
          return yield* new Declined()
        case "retry-after":
          return yield* ended(JobOutcome.retryAfter("1 hour"))
        case "snooze":
          return yield* ended(JobOutcome.snooze("1 hour"))
        case "discard":
          return yield* ended(JobOutcome.discard("no"))
        case "cancel":
          return yield* ended(JobOutcome.cancel("no"))
        case "dead-letter":
          return yield* ended(JobOutcome.deadLetter("no"))
        case "park":
          return yield* ended(JobOutcome.park(callbackId))
        case "gated": // the queue is enabled by the time at which it is settled: it runs again at once
          return yield* new CallerOwnedDisabled({ sqlState: "WA006" })
        case "defect":
          return yield* Effect.dieMessage("a defect")
        case "timeout":
          return yield* Effect.never
        case "shutdown":
        case "lost":
        case "cancelled":
          recorder.waiting.set(attemptKey(job), exit)
          return yield* Effect.never
      }
    })
