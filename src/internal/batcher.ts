import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"

/** @internal An item that somebody waits for. The first answer counts. */
export interface Pending<A, B> {
  readonly item: A
  /** Whether somebody still waits for it. */
  readonly wanted: () => boolean
  readonly answer: (answer: B) => void
  readonly die: (cause: Cause.Cause<never>) => void
}

/** @internal None needs a fiber, a timer's or a race's: this is done for every attempt. */
export interface Batcher<A, B> {
  /** Without anybody who waits: `told` has the answer, once, and must not throw. */
  readonly tell: (item: A, told: (exit: Exit.Exit<B>) => void) => void
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
 * The queue needs no bound of its own: each item that waits holds a permit, and `run` leaves out what nobody waits for.
 *
 * @internal
 */
export const makeBatcher = <A, B>(options: {
  readonly maxSize: number
  readonly lingerMillis: number
  readonly run: (batch: ReadonlyArray<Pending<A, B>>) => Effect.Effect<void>
}): Effect.Effect<Batcher<A, B>, never, Scope.Scope> =>
  Effect.gen(function* () {
    let queue: Array<Pending<A, B>> = []
    let closed = false
    let wake: (() => void) | undefined
    const offer = (pending: Pending<A, B>): void => {
      if (closed) return pending.die(interrupted)
      queue.push(pending)
      wake?.()
    }
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        closed = true
        for (const pending of queue.splice(0)) pending.die(interrupted)
      })
    )
    const some = Effect.async<void>((resume) => {
      if (queue.length > 0) return resume(Effect.void)
      wake = () => {
        wake = undefined
        resume(Effect.void)
      }
      return Effect.sync(() => {
        wake = undefined
      })
    })
    const take = Effect.sync(() => {
      if (queue.length > options.maxSize) return queue.splice(0, options.maxSize)
      const all = queue
      queue = []
      return all
    })
    const linger = Effect.suspend(() =>
      queue.length < options.maxSize && options.lingerMillis > 0 ? Effect.sleep(options.lingerMillis) : Effect.void
    )
    const flush = Effect.zipRight(
      Effect.zipRight(some, linger),
      // nobody of a batch is left without an answer, wherever the end of the scope hits
      Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(take, (batch) => answering(batch, restore(Effect.suspend(() => options.run(batch)))))
      )
    )
    yield* Effect.forkScoped(Effect.forever(flush))
    const ask = (item: A, millis: number | undefined): Effect.Effect<Option.Option<B>> =>
      Effect.async<Option.Option<B>>((resume) => {
        let wanted = true
        const end = (answer: Effect.Effect<Option.Option<B>>): void => {
          if (!wanted) return
          wanted = false
          clearTimeout(timer)
          resume(answer)
        }
        const timer = millis === undefined ? undefined : setTimeout(() => end(Effect.succeedNone), millis)
        offer({
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
      tell: (item, told) => offer(new Told(item, told)),
      ask: (item) => Effect.map(ask(item, undefined), Option.getOrThrow),
      askWithin: ask
    }
  })

/** What is told, and by nobody waited for. Its methods are shared: there is one of these for every ordinary attempt. */
class Told<A, B> implements Pending<A, B> {
  readonly item: A
  readonly #told: (exit: Exit.Exit<B>) => void
  #open = true
  constructor(item: A, told: (exit: Exit.Exit<B>) => void) {
    this.item = item
    this.#told = told
  }
  wanted(): boolean {
    return this.#open
  }
  answer(answer: B): void {
    this.#end(Exit.succeed(answer))
  }
  die(cause: Cause.Cause<never>): void {
    this.#end(Exit.failCause(cause))
  }
  #end(exit: Exit.Exit<B>): void {
    if (!this.#open) return
    this.#open = false
    this.#told(exit)
  }
}

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
