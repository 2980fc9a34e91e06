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
  /** The same within these milliseconds: told none when they are over, and the question is withdrawn. Withdraws it earlier. */
  readonly tellWithin: (item: A, millis: number, told: (exit: Exit.Exit<Option.Option<B>>) => void) => () => void
  /** None when there is no answer within these milliseconds; the question is withdrawn then. */
  readonly askWithin: (item: A, millis: number) => Effect.Effect<Option.Option<B>>
}

/** How often it is looked whether those who wait are still patient. */
const patienceMillis = 4

const none: Exit.Exit<Option.Option<never>> = Exit.succeed(Option.none())

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
  /** A batch of nothing but patient items waits so long, for as long as they are. */
  readonly longestLingerMillis?: number
  readonly isPatient?: (item: A) => boolean
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
    const { isPatient, lingerMillis, longestLingerMillis = 0, maxSize } = options
    const patiently = (leftMillis: number): Effect.Effect<void> =>
      leftMillis > 0 && queue.length < maxSize && isPatient !== undefined && queue.every(({ item }) => isPatient(item))
        ? Effect.zipRight(
            Effect.sleep(patienceMillis),
            Effect.suspend(() => patiently(leftMillis - patienceMillis))
          )
        : Effect.void
    const linger = Effect.suspend(() =>
      queue.length < maxSize && lingerMillis > 0
        ? Effect.zipRight(
            Effect.sleep(lingerMillis),
            Effect.suspend(() => patiently(longestLingerMillis))
          )
        : Effect.void
    )
    const flush = Effect.zipRight(
      Effect.zipRight(some, linger),
      // nobody of a batch is left without an answer, wherever the end of the scope hits
      Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(take, (batch) => answering(batch, restore(Effect.suspend(() => options.run(batch)))))
      )
    )
    yield* Effect.forkScoped(Effect.forever(flush))
    const tellWithin: Batcher<A, B>["tellWithin"] = (item, millis, told) => {
      let wanted = true
      const withdraw = (): void => {
        wanted = false
        clearTimeout(timer)
      }
      const end = (answer: Exit.Exit<Option.Option<B>>): void => {
        if (!wanted) return
        withdraw()
        told(answer)
      }
      const timer = setTimeout(() => end(none), millis)
      offer({
        item,
        wanted: () => wanted,
        answer: (answer) => end(Exit.succeed(Option.some(answer))),
        die: (cause) => end(Exit.failCause(cause))
      })
      return withdraw
    }
    const tell: Batcher<A, B>["tell"] = (item, told) => offer(new Told(item, told))
    return {
      tell,
      tellWithin,
      ask: (item) =>
        Effect.async((resume) => {
          const told = new Told<A, B>(item, resume)
          offer(told)
          return Effect.sync(() => told.withdraw())
        }),
      askWithin: (item, millis) =>
        Effect.async((resume) => {
          const withdraw = tellWithin(item, millis, resume)
          return Effect.sync(withdraw)
        })
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
  withdraw(): void {
    this.#open = false
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
