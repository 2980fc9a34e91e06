/** Wraps a worker's services so that they tell what they do. The product knows nothing of it. */
import { Cause, Context, Effect, Exit, HashMap, Layer, Option, Predicate } from "effect"
import { ApplicationPool, CompleteInTx, Completion, Reconciliation, RuntimePool, type Settled } from "effect-awa"
import { noClosing } from "../../../src/internal/transactionEnd.js"
import type { AttemptEvent, AttemptKey, RecordedEvent } from "./events.js"

export class Recorder extends Context.Tag("test/Recorder")<
  Recorder,
  { readonly events: ReadonlyArray<RecordedEvent>; readonly record: (event: RecordedEvent) => void }
>() {}

export const layer = Layer.sync(Recorder, () => {
  const events: Array<RecordedEvent> = []
  return { events, record: (event) => void events.push(event) }
})

type Recording = Context.Tag.Service<Recorder>
type Statement = Parameters<Context.Tag.Service<RuntimePool.RuntimePool>["call"]>[0]
type Row = ReadonlyArray<unknown>

const text = (value: unknown): string => {
  if (typeof value === "string" || typeof value === "bigint" || typeof value === "number") return String(value)
  throw new Error("neither a text nor a number")
}

/** A parameter that is an array of numbers, as PostgreSQL writes it. */
const numbers = (value: unknown): ReadonlyArray<string> => {
  if (typeof value !== "string" || !/^\{[\d,]+\}$/.test(value)) throw new Error(`no array of numbers: ${String(value)}`)
  return value.slice(1, -1).split(",")
}

const keysOf = (jobs: unknown, leases: unknown): ReadonlyArray<AttemptKey> => {
  const lease = numbers(leases)
  return numbers(jobs).map((job, i) => ({ job, lease: Number(lease[i]) }))
}

/** A flush is answered by one row: how many were closed, and what became of the others. */
const closeRows = ([row]: ReadonlyArray<Row>, attempts: number): ReadonlyArray<Row> => {
  const others = new Map<string, unknown>(Object.entries(row?.[1] ?? {}))
  return Array.from({ length: attempts }, (_, i) => [i + 1, others.get(String(i + 1)) ?? "closed"])
}

/** All of them, or a number that names none: then the other statement is asked. */
const completedRows = ([row]: ReadonlyArray<Row>, attempts: number): ReadonlyArray<Row> =>
  row?.[0] === attempts ? Array.from({ length: attempts }, (_, i) => [i + 1, "closed"]) : []

/** The calls that are told: which of their parameters name the attempts, and what a row says of one of them. */
const told: Readonly<
  Record<
    string,
    {
      readonly event: "evidence" | "settle-attempt" | "close-attempts"
      readonly jobs: number
      readonly read: (row: Row) => unknown
      readonly numbered: boolean
      /** An answer in another form, as a row for each attempt. */
      readonly rows?: (rows: ReadonlyArray<Row>, attempts: number) => ReadonlyArray<Row>
    }
  >
> = {
  "attempt-evidence": {
    event: "evidence",
    jobs: 3,
    read: (row) => (row[1] === "closed" ? row[2] : row[1]),
    numbered: true
  },
  "settle-attempt": { event: "settle-attempt", jobs: 4, read: (row) => row[0], numbered: false },
  "close-attempts": { event: "close-attempts", jobs: 4, read: (row) => row[1], numbered: true, rows: closeRows },
  "close-completed": { event: "close-attempts", jobs: 6, read: (row) => row[1], numbered: true, rows: completedRows }
}

const answersTo = (
  recorder: Recording,
  { event, numbered, read, rows: expand }: (typeof told)[string],
  keys: ReadonlyArray<AttemptKey>,
  answer: ReadonlyArray<Row> | undefined
): void => {
  const rows = answer === undefined || expand === undefined ? answer : expand(answer, keys.length)
  keys.forEach((key, i) => {
    const row = numbered ? rows?.find((one) => one[0] === i + 1) : rows?.[0]
    const answer = row === undefined ? "none" : text(read(row))
    recorder.record({ event: `${event}-answer`, ...key, answer })
  })
}

const claim = (recorder: Recording, rows: ReadonlyArray<Row> | undefined): void => {
  if (rows === undefined) recorder.record({ event: "claim-unanswered" })
  for (const [job, lease] of rows ?? []) {
    if (job !== null) recorder.record({ event: "claim", job: text(job), lease: Number(lease) })
  }
}

/** The runtime's pool: what was asked, and what was answered. */
export const runtimePool = Layer.effect(
  RuntimePool.RuntimePool,
  Effect.gen(function* () {
    const pool = yield* RuntimePool.RuntimePool
    const recorder = yield* Recorder
    const around = (statement: Statement, before: () => void, after: (rows: ReadonlyArray<Row> | undefined) => void) =>
      Effect.suspend(() => {
        before()
        return Effect.tapBoth(pool.call(statement), {
          onSuccess: (rows) => Effect.sync(() => after(rows)),
          onFailure: () => Effect.sync(() => after(undefined))
        })
      })
    return {
      ...pool,
      call: (statement) => {
        if (statement.name === "claim") {
          const take = () => recorder.record({ event: "take", free: Number(statement.values[1]) })
          return around(statement, take, (rows) => claim(recorder, rows))
        }
        const call = told[statement.name]
        if (call === undefined) return pool.call(statement)
        const keys = keysOf(statement.values[call.jobs], statement.values[call.jobs + 1])
        const sent = () => keys.forEach((key) => recorder.record({ event: call.event, ...key }))
        return around(statement, sent, (rows) => answersTo(recorder, call, keys, rows))
      }
    }
  })
)

const failureTag = (exit: Exit.Exit<unknown, unknown>): string | undefined =>
  Exit.isFailure(exit)
    ? Option.match(Cause.failureOption(exit.cause), {
        onNone: () => "defect",
        onSome: (error) => (Predicate.hasProperty(error, "_tag") ? String(error._tag) : "failure")
      })
    : undefined

/** The attempt whose handler runs here, by what the worker writes beside its log lines; no test snoozes, so the attempt is its lease. */
const running: Effect.Effect<AttemptKey> = Effect.map(Effect.logAnnotations, (annotations) => ({
  job: String(Option.getOrUndefined(HashMap.get(annotations, "jobId"))),
  lease: Number(Option.getOrUndefined(HashMap.get(annotations, "attempt")))
}))

export const applicationPool = Layer.effect(
  ApplicationPool.ApplicationPool,
  Effect.gen(function* () {
    const pool = yield* ApplicationPool.ApplicationPool
    const recorder = yield* Recorder
    const transactionClosing: typeof pool.transactionClosing = (body, closing) =>
      Effect.flatMap(running, (key) => {
        let sent = false
        const tell = (event: AttemptEvent["event"], answer?: string) =>
          Effect.sync(() => recorder.record({ event, ...key, ...(answer === undefined ? {} : { answer }) }))
        const commit = Effect.suspend(() => {
          sent = true
          return tell("commit")
        })
        return pool.transactionClosing(Effect.zipRight(tell("begin"), Effect.zipLeft(body, commit)), closing).pipe(
          Effect.onExit((exit) => {
            if (!sent) return Effect.void
            const tag = failureTag(exit)
            return tell(
              "commit-answer",
              tag === undefined ? "committed" : tag === "CommitUnknown" ? "unknown" : "failed"
            )
          })
        )
      })
    return {
      ...pool,
      transaction: (body) => transactionClosing(body, noClosing),
      transactionClosing
    }
  })
)

export const completeInTx = Layer.effect(
  CompleteInTx.CompleteInTx,
  Effect.gen(function* () {
    const service = yield* CompleteInTx.CompleteInTx
    const recorder = yield* Recorder
    return {
      closing: () => undefined, // the model has the completion and COMMIT as two steps
      complete: (kind, token, progress) => {
        const key = { job: String(token.jobId), lease: Number(token.runLease) }
        recorder.record({ event: "complete-job", ...key })
        return Effect.onExit(service.complete(kind, token, progress), (exit) =>
          Effect.sync(() => {
            const tag = failureTag(exit)
            const answer = tag === undefined ? "completed" : tag === "StaleAttempt" ? "refused" : "failed"
            recorder.record({ event: "complete-job-answer", ...key, answer })
          })
        )
      }
    }
  })
)

const keyOf = (token: { readonly jobId: bigint; readonly runLease: bigint }): AttemptKey => ({
  job: String(token.jobId),
  lease: Number(token.runLease)
})

export const reconciliation = Layer.effect(
  Reconciliation.Reconciliation,
  Effect.gen(function* () {
    const service = yield* Reconciliation.Reconciliation
    const recorder = yield* Recorder
    return {
      ...service,
      unsafeSettle: (entry, handler, exit, settled, unsettled) => {
        const key = keyOf(entry.attempt.token)
        const record = ({ how }: { readonly how: string }): void =>
          recorder.record({ event: "settled", ...key, answer: how })
        recorder.record({ event: "exit", ...key, answer: Exit.isSuccess(exit) ? "success" : "failure" })
        service.unsafeSettle(
          entry,
          handler,
          exit,
          (proof) => {
            if (Exit.isSuccess(proof)) record(proof.value)
            settled(proof)
          },
          (rest) => unsettled(Effect.tap(rest, (proof) => Effect.sync(() => record(proof))))
        )
      }
    }
  })
)

export const completion = Layer.effect(
  Completion.Completion,
  Effect.gen(function* () {
    const service = yield* Completion.Completion
    const recorder = yield* Recorder
    const exited = (request: Completion.EndRequest): AttemptKey => {
      const key = keyOf(request.token)
      const answer = request.ending.outcome === "completed" ? "success" : "failure"
      recorder.record({ event: "exit", ...key, answer })
      return key
    }
    const settled = (key: AttemptKey, { how }: Settled.Settled): void =>
      recorder.record({ event: "settled", ...key, answer: how })
    return {
      ...service,
      end: (request) =>
        Effect.suspend(() => {
          const key = exited(request)
          return Effect.tap(service.end(request), (proof) => Effect.sync(() => settled(key, proof)))
        }),
      unsafeEnd: (request, told) => {
        const key = exited(request)
        service.unsafeEnd(request, (proof) => {
          if (Exit.isSuccess(proof)) settled(key, proof.value)
          told(proof)
        })
      }
    }
  })
)
