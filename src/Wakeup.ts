/**
 * Telling claimers that there may be work: LISTEN and polling, merged into hints.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import { backoff } from "./internal/backoff.js"
import { RuntimePool } from "./RuntimePool.js"

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
    readonly mode: Effect.Effect<"listening" | "polling">
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface WakeupOptions {
  readonly queues: ReadonlyArray<string>
  /** The poll interval while LISTEN is down; 1 second. */
  readonly poll?: Duration.DurationInput
  /** The poll interval while LISTEN is up; 30 seconds. */
  readonly pollWhileListening?: Duration.DurationInput
  /** How often the LISTEN connection is probed; 30 seconds. */
  readonly probe?: Duration.DurationInput
}

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
  const hintAll = Effect.sync(() => options.queues.forEach(hint))

  const slow = Duration.decode(options.pollWhileListening ?? "30 seconds")
  const fast = Duration.decode(options.poll ?? "1 second")
  const probe = Duration.decode(options.probe ?? "30 seconds")
  const interval = Effect.suspend(() => {
    const base = Duration.toMillis(listening ? slow : fast)
    return Random.nextRange(0.8 * base, 1.2 * base)
  })

  const session = Effect.scoped(
    Effect.gen(function* () {
      const listener = yield* pool.listen(hint)
      listening = true
      yield* hintAll // what was announced while nobody listened
      const beat = Effect.zipRight(Effect.sleep(probe), listener.probe).pipe(Effect.repeat({ while: (alive) => alive }))
      yield* Effect.raceFirst(listener.ended, beat)
      yield* Effect.logWarning("LISTEN went silent, polling takes over")
    })
  ).pipe(
    Effect.catchAll((error) => Effect.logWarning("LISTEN is not to be had, polling takes over", error)),
    Effect.ensuring(
      Effect.sync(() => {
        listening = false
      })
    ),
    Effect.zipRight(hintAll)
  )
  const keepListening = (tries: number): Effect.Effect<never> =>
    Effect.suspend(() => {
      const startedAt = performance.now()
      return session.pipe(
        Effect.map(() => (performance.now() - startedAt > 60_000 ? 0 : tries)),
        Effect.tap((tries) => backoff(tries + 3)),
        Effect.flatMap((tries) => keepListening(tries + 1))
      )
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
    mode: Effect.sync(() => (listening ? "listening" : "polling"))
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: WakeupOptions): Layer.Layer<Wakeup, never, RuntimePool> =>
  Layer.scoped(Wakeup, make(options))
