import { Deferred, Effect, Exit, HashMap, Layer, Logger } from "effect"
import type { Entry } from "effect-awa/InFlight"
import * as Heartbeat from "effect-awa/Heartbeat"
import * as Reconciliation from "effect-awa/Reconciliation"
import * as RuntimePool from "effect-awa/RuntimePool"
import { exitClassOf } from "../../../src/internal/storedError.js"

/** What happened in the worker, in the order in which it did. */
export interface Recorded {
  /** A handler ended · the database answered · the proof was made · the queue's next claim was asked for, with a permit. */
  readonly what: "exit" | "evidence" | "settle" | "settled" | "claim"
  /** `<job>/<run lease>`, or the queue of a claim. */
  readonly of: string
  /** Of an answer: what it was, `none` when none came. Of an exit its class, of a proof how it was settled. */
  readonly detail: string
  readonly at: number
  /** Of a proof: for how long the database had had no sign of life of the attempt, in milliseconds. */
  readonly silentMillis?: number
}

/** A line that the worker logged with the name of an event. */
export interface Told {
  readonly of: string
  readonly event: string
  readonly exit: string
  /** What the watcher found. */
  readonly verdict: string | undefined
}

export type Interrupted = "shutdown" | "lost" | "cancelled"

/** Everything that a world tells, and what the handlers of its cells wait for. */
export interface Recorder {
  readonly recorded: Array<Recorded>
  readonly told: Array<Told>
  readonly entries: Map<string, Entry>
  /** Attempts whose deadline comes as soon as a settling call of theirs went unanswered. */
  readonly hurried: Set<string>
  /** Attempts whose handlers wait for their interruption. */
  readonly waiting: Map<string, Interrupted>
  /** Finalizations in flight: true commits. */
  readonly gates: Map<string, Deferred.Deferred<boolean>>
  /** Gates that open, this way, once a settling call has met them. */
  readonly opening: Map<string, boolean>
}

export const makeRecorder = (): Recorder => ({
  recorded: [],
  told: [],
  entries: new Map(),
  hurried: new Set(),
  waiting: new Map(),
  gates: new Map(),
  opening: new Map()
})

export const attemptKey = ({ jobId, runLease }: { readonly jobId: bigint; readonly runLease: bigint }): string =>
  `${jobId}/${runLease}`

/** At which parameter a statement's job ids are; the run leases follow. */
const jobIdsAt: Readonly<Record<string, number>> = { "attempt-evidence": 3, "settle-attempt": 4, "park-attempt": 3 }

const numbers = (literal: unknown): ReadonlyArray<string> =>
  typeof literal === "string" ? literal.slice(1, -1).split(",") : []

const answered = (recorder: Recorder, name: string, of: string, row: ReadonlyArray<unknown> | undefined): void => {
  const evidence = name === "attempt-evidence"
  const answer = evidence ? (row?.[2] ?? row?.[1]) : row?.[0]
  const detail = typeof answer === "string" ? answer : "none"
  recorder.recorded.push({ what: evidence ? "evidence" : "settle", of, detail, at: performance.now() })
  const entry = recorder.entries.get(of)
  if (!evidence && detail === "none" && entry !== undefined && recorder.hurried.has(of)) {
    Object.assign(entry, { deadlineAtMillis: performance.now() })
  }
  const gate = recorder.gates.get(of)
  const opens = recorder.opening.get(of)
  if (detail === "busy" && gate !== undefined && opens !== undefined) Deferred.unsafeDone(gate, Effect.succeed(opens))
}

/** The real pool, through the proxy, with an ear on its statements. */
export const listeningPool = (recorder: Recorder) =>
  Layer.effect(
    RuntimePool.RuntimePool,
    Effect.map(RuntimePool.RuntimePool, (pool) => ({
      ...pool,
      call: (statement: Parameters<typeof pool.call>[0]) => {
        const { name, values } = statement
        const at = jobIdsAt[name]
        if (name === "claim") {
          recorder.recorded.push({ what: "claim", of: String(values[0]), detail: "", at: performance.now() })
        }
        if (at === undefined) return pool.call(statement)
        const leases = numbers(values[at + 1])
        const keys = numbers(values[at]).map((job, i) => `${job}/${leases[i]}`)
        return pool.call(statement).pipe(
          Effect.tap((rows) => {
            const byOrd = new Map(rows.map((row) => [row[0], row]))
            const one = name === "attempt-evidence" ? undefined : rows[0]
            keys.forEach((key, i) => answered(recorder, name, key, one ?? byOrd.get(i + 1)))
          }),
          Effect.tapError(() => Effect.sync(() => keys.forEach((key) => answered(recorder, name, key, undefined))))
        )
      }
    }))
  )

export const listeningReconciliation = (recorder: Recorder, options: Reconciliation.ReconciliationOptions) =>
  Layer.scoped(
    Reconciliation.Reconciliation,
    Effect.map(Reconciliation.make(options), (real): Reconciliation.Reconciliation["Type"] => ({
      ...real,
      unsafeSettle: (entry, handler, exit, settled, unsettled) => {
        const of = attemptKey(entry.attempt.token)
        const note = (what: "exit" | "settled", detail: string): void => {
          const at = performance.now()
          recorder.recorded.push({ what, of, detail, at, silentMillis: at - entry.aliveAtMillis })
        }
        recorder.entries.set(of, entry)
        note("exit", Exit.isSuccess(exit) ? "success" : exitClassOf(exit.cause))
        real.unsafeSettle(
          entry,
          handler,
          exit,
          (proof) => {
            if (Exit.isSuccess(proof)) note("settled", proof.value.how)
            settled(proof)
          },
          (rest) => unsettled(Effect.tap(rest, ({ how }) => Effect.sync(() => note("settled", how))))
        )
      }
    }))
  )

/**
 * A heartbeat that renews no attempt, and interrupts those that wait for it: as a stopping worker does, or by the answer that
 * the lease was lost. The evidence is the cell's business.
 */
export const interrupting = (recorder: Recorder) =>
  Layer.effect(
    Heartbeat.Heartbeat,
    Effect.map(Heartbeat.make, (real) => ({
      ...real,
      beat: (entries: ReadonlyArray<Entry>) =>
        Effect.sync(() =>
          entries.flatMap((entry): ReadonlyArray<Heartbeat.Lost> => {
            const why = recorder.waiting.get(attemptKey(entry.attempt.token))
            if (why === undefined || entry.interruption !== undefined) return []
            if (why !== "shutdown") return [{ entry, outcome: why === "lost" ? undefined : "cancelled" }]
            entry.interruption = "shutdown"
            entry.fiber?.unsafeInterruptAsFork(entry.fiber.id())
            return []
          })
        )
    }))
  )

const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined)

/** Keeps the events that are logged, at any level. */
export const listeningLogger = (recorder: Recorder) =>
  Logger.replace(
    Logger.defaultLogger,
    Logger.make(({ annotations }) => {
      const said = Object.fromEntries(HashMap.toEntries(annotations))
      const event = text(said["event"])
      if (event === undefined) return
      const of = `${text(said["jobId"])}/${text(said["runLease"])}`
      recorder.told.push({ of, event, exit: text(said["exit"]) ?? "", verdict: text(said["verdict"]) })
    })
  )
