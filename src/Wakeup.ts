/**
 * Telling claimers that there may be work: LISTEN and polling, merged into hints.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import { backoff } from "./internal/backoff.js"
import { wakeupPauses } from "./internal/serviceOptions.js"
import { RuntimePool } from "./RuntimePool.js"

/**
 * How this runtime learns of work: `listening` once a notification that it sent itself from another session was heard, and as
 * long as that is so; `polling` otherwise.
 *
 * @since 0.1.0
 * @category models
 */
export type WakeupMode = "listening" | "polling"

/**
 * Hints that a queue may have work. A notification is only a hint: every wait ends by itself after the poll interval, which
 * is long while the LISTEN connection answers its probes and short while it does not.
 *
 * @since 0.1.0
 * @category services
 */
export class Wakeup extends Context.Tag("effect-awa/Wakeup")<
  Wakeup,
  {
    /** Waits for the queue's next hint, or for the poll interval. A hint given since the last wait counts. */
    readonly wait: (queue: string) => Effect.Effect<void>
    /** Waits for a hint of any queue, at most so long. */
    readonly waitAny: (atMost: Duration.Duration) => Effect.Effect<void>
    readonly hint: (queue: string) => Effect.Effect<void>
    /**
     * Calls `run` for every control message of this kind, with its subject, while the scope lasts; without a subject when
     * messages may have been missed. A control message is a hint as well: ask the database what is true.
     */
    readonly onControl: (
      kind: Control,
      run: (subject: string | undefined) => void
    ) => Effect.Effect<void, never, Scope.Scope>
    /** Polling is slower by up to a poll interval, and loses nothing. */
    readonly mode: Effect.Effect<WakeupMode>
  }
>() {}

/**
 * What runtimes are told besides that a queue may have work: `callback`, a callback's id, was answered; `cancel`, a job's id
 * and run lease with a slash between them, was ended from outside.
 *
 * @since 0.1.0
 * @category models
 */
export type Control = "callback" | "cancel"

/**
 * Each of the intervals is from 10 milliseconds to a day.
 *
 * @since 0.1.0
 * @category models
 */
export interface WakeupOptions {
  readonly queues: ReadonlyArray<string>
  /** The poll interval while LISTEN is down; 1 second. */
  readonly poll?: Duration.DurationInput
  /** The poll interval while LISTEN is up; 30 seconds. */
  readonly pollWhileListening?: Duration.DurationInput
  /** How often the LISTEN connection is probed, and how long it is left alone after nothing was heard on it; 30 seconds. */
  readonly probe?: Duration.DurationInput
}

/**
 * 1 while this runtime listens, 0 while it polls; tagged with the installation's `schema`.
 *
 * @example
 * ```ts
 * import { Metric } from "effect"
 * import { Wakeup } from "effect-awa"
 *
 * export const listening = Metric.value(Metric.tagged(Wakeup.listeningGauge, "schema", "awa"))
 * ```
 *
 * @since 0.1.0
 * @category metrics
 */
export const listeningGauge: Metric.Metric.Gauge<number> = Metric.gauge("effect_awa_wakeup_listening", {
  description: "1 while the runtime hears notifications, 0 while it polls"
})

/** In milliseconds; a fleet does not act in step. */
const jittered = (duration: Duration.Duration): Effect.Effect<number> => {
  const base = Duration.toMillis(duration)
  return Random.nextRange(0.8 * base, 1.2 * base)
}

/** No queue's name begins so: a name carries no control character. */
const controlPrefix = "\u0001"

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: WakeupOptions
): Effect.fn.Return<Wakeup["Type"], never, RuntimePool | Scope.Scope> {
  const pool = yield* RuntimePool
  const hints = new Map<string, Queue.Queue<void>>()
  for (const queue of options.queues) hints.set(queue, yield* Queue.sliding<void>(1))
  const any = yield* Queue.sliding<void>(1)
  let listening = false

  const hint = (queue: string): void => {
    hints.get(queue)?.unsafeOffer(undefined)
    any.unsafeOffer(undefined)
  }
  const controls: Readonly<Record<Control, Set<(subject: string | undefined) => void>>> = {
    callback: new Set(),
    cancel: new Set()
  }
  const notified = (payload: string): void => {
    if (!payload.startsWith(controlPrefix)) return hint(payload)
    const [kind, ...subject] = payload.slice(controlPrefix.length).split("/")
    if (kind === "callback" || kind === "cancel") controls[kind].forEach((run) => run(subject.join("/")))
  }
  const hintAll = (): void => {
    options.queues.forEach(hint)
    for (const runs of Object.values(controls)) runs.forEach((run) => run(undefined))
  }

  const { fast, probe, slow } = wakeupPauses(options)
  const interval = Effect.suspend(() => jittered(listening ? slow : fast))

  const gauge = Metric.tagged(listeningGauge, "schema", pool.schema)
  let told = false // that polling took over; said once, however often it is tried again
  const becomes = (mode: WakeupMode): Effect.Effect<void> =>
    Effect.zipRight(
      Effect.sync(() => {
        listening = mode === "listening"
        hintAll() // what was announced while nobody listened, and so that every wait is of the new length
      }),
      Metric.set(gauge, mode === "listening" ? 1 : 0)
    )
  const heard = Effect.suspend(() => {
    const back = told ? Effect.logInfo("LISTEN is heard again, polling stops") : Effect.void
    told = false
    return Effect.zipRight(becomes("listening"), back)
  })
  const polls = (why: string, error?: unknown): Effect.Effect<void> =>
    Effect.suspend(() => {
      const log = told ? Effect.logDebug : Effect.logWarning
      told = true
      const text = `${why}; polling every ${Duration.format(fast)} takes over`
      return error === undefined ? log(text) : log(text, error)
    })

  /** One LISTEN connection, from its first probe to its end: nothing is believed of it before a notification was heard on it. */
  const session = Effect.scoped(
    Effect.gen(function* () {
      const listener = yield* pool.listen(notified)
      if (!(yield* listener.probe)) {
        yield* polls(
          "LISTEN was answered, but a notification did not come through, as behind a pooler in transaction mode"
        )
        return "unheard" as const
      }
      yield* heard
      const beat = Effect.zipRight(Effect.sleep(probe), listener.probe).pipe(Effect.repeat({ while: (alive) => alive }))
      yield* Effect.raceFirst(listener.ended, beat)
      yield* polls("LISTEN went silent")
      return "lost" as const
    })
  ).pipe(
    Effect.catchAll((error) => Effect.as(polls("LISTEN is not to be had", error), "lost" as const)),
    Effect.ensuring(becomes("polling"))
  )
  const keepListening = (tries: number): Effect.Effect<never> =>
    Effect.suspend(() => {
      const startedAt = performance.now()
      return Effect.flatMap(session, (end) => {
        const again = performance.now() - startedAt > 60_000 ? 0 : tries
        // Behind such a pooler every LISTEN stays with a server connection, which the pooler ends at its next notification:
        // not to be tried over and over.
        const rest = end === "unheard" ? Effect.flatMap(jittered(probe), Effect.sleep) : backoff(again + 3)
        return Effect.zipRight(
          rest,
          Effect.suspend(() => keepListening(again + 1))
        )
      })
    })
  yield* Effect.forkScoped(keepListening(0))

  return {
    wait: (queue) => {
      const hinted = hints.get(queue)
      const sleep = Effect.flatMap(interval, Effect.sleep)
      return hinted === undefined ? sleep : Effect.raceFirst(Queue.take(hinted), sleep)
    },
    waitAny: (atMost) => Effect.raceFirst(Queue.take(any), Effect.sleep(atMost)),
    hint: (queue) => Effect.sync(() => hint(queue)),
    onControl: (kind, run) =>
      Effect.acquireRelease(
        Effect.sync(() => void controls[kind].add(run)),
        () => Effect.sync(() => void controls[kind].delete(run))
      ),
    mode: Effect.sync(() => (listening ? "listening" : "polling"))
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: WakeupOptions): Layer.Layer<Wakeup, never, RuntimePool> =>
  Layer.scoped(Wakeup, make(options))
