import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"

/** @internal An item that somebody waits for. The first answer counts. */
export interface Pending<A, B> {
  readonly item: A
  /** Whether somebody still waits for it. */
  readonly wanted: () => boolean
  readonly answer: (answer: B) => void
  readonly die: (cause: Cause.Cause<never>) => void
}

/** @internal Neither needs a fiber, a timer's or a race's: this is done for every attempt. */
export interface Batcher<A, B> {
  readonly ask: (item: A) => Effect.Effect<B>
  /** None when there is no answer within these milliseconds; the question is withdrawn then. */
  readonly askWithin: (item: A, millis: number) => Effect.Effect<Option.Option<B>>
}

const interrupted = Cause.interrupt(FiberId.none)

/**
 * Gathers what many fibers ask for within a few milliseconds and asks the database once; while one batch is under way the
 * next one gathers. `run` answers each item when it can, and may leave a slow one to a fiber of its own; it retries by
 * itself, since an item without an answer is a permit that must not be freed. A defect in it reaches everybody who still
 * waits, and so does the end of the scope, as an interruption: whoever waited ends, and frees nothing.
 *
 * The queue needs no bound of its own: each waiting fiber holds a permit, and `run` leaves out what nobody waits for.
 *
 * @internal
 */
export const makeBatcher = <A, B>(options: {
  readonly maxSize: number
  readonly lingerMillis: number
  readonly run: (batch: ReadonlyArray<Pending<A, B>>) => Effect.Effect<void>
}): Effect.Effect<Batcher<A, B>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const queue = yield* Queue.unbounded<Pending<A, B>>()
    let closed = false
    yield* Effect.addFinalizer(() =>
      Effect.map(Queue.takeAll(queue), (left) => {
        closed = true
        for (const pending of left) pending.die(interrupted)
      })
    )
    const flush = Effect.gen(function* () {
      const batch = Array.from(yield* Queue.takeBetween(queue, 1, options.maxSize))
      const fill = Effect.map(Queue.takeUpTo(queue, options.maxSize - batch.length), (more) => void batch.push(...more))
      const gathered =
        batch.length < options.maxSize && options.lingerMillis > 0
          ? Effect.zipRight(Effect.sleep(options.lingerMillis), fill)
          : Effect.void
      yield* answering(
        batch,
        Effect.zipRight(
          gathered,
          Effect.suspend(() => options.run(batch))
        )
      )
    })
    yield* Effect.forkScoped(Effect.forever(flush))
    const ask = (item: A, millis: number | undefined): Effect.Effect<Option.Option<B>> =>
      Effect.async<Option.Option<B>>((resume) => {
        if (closed) return resume(Effect.failCause(interrupted))
        let wanted = true
        const end = (answer: Effect.Effect<Option.Option<B>>): void => {
          if (!wanted) return
          wanted = false
          clearTimeout(timer)
          resume(answer)
        }
        const timer = millis === undefined ? undefined : setTimeout(() => end(Effect.succeedNone), millis)
        queue.unsafeOffer({
          item,
          wanted: () => wanted,
          answer: (answer) => end(Effect.succeed(Option.some(answer))),
          die: (cause) => end(Effect.failCause(cause))
        })
        return Effect.sync(() => {
          wanted = false
          clearTimeout(timer)
        })
      })
    return {
      ask: (item) => Effect.map(ask(item, undefined), Option.getOrThrow),
      askWithin: ask
    }
  })

/**
 * Runs an effect on behalf of a batch: its defect, or its interruption, is that of all who still wait.
 *
 * @internal
 */
export const answering = <A, B>(
  batch: ReadonlyArray<Pending<A, B>>,
  effect: Effect.Effect<void>
): Effect.Effect<void> =>
  effect.pipe(
    Effect.onError((cause) =>
      Effect.sync(() => {
        for (const pending of batch) pending.die(cause)
      })
    ),
    Effect.catchAllDefect(() => Effect.void)
  )
