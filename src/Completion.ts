/**
 * Ending ordinary attempts, many in one statement (contract C-04).
 *
 * @since 0.1.0
 */
import * as Arr from "effect/Array"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import type { FinalizationToken } from "./FinalizationToken.js"
import { backoff } from "./internal/backoff.js"
import { answering, makeBatcher, type Pending } from "./internal/batcher.js"
import { isPlain, makeClose } from "./internal/closeCall.js"
import { type Ending, noCallback, plainEnding, refusesContent } from "./internal/ending.js"
import { newFlushId } from "./internal/flushId.js"
import { completionSettings } from "./internal/serviceOptions.js"
import { makeSettled } from "./internal/makeSettled.js"
import { makePark } from "./internal/parking.js"
import { type DatabaseError, RuntimePool } from "./RuntimePool.js"
import type { Settled } from "./Settled.js"

/**
 * Ends ordinary attempts. The answer comes after the flush that carried the attempt was answered by the database, and is
 * what frees its permit; a flush that failed frees nothing and is sent again.
 *
 * @since 0.1.0
 * @category services
 */
export class Completion extends Context.Tag("effect-awa/Completion")<
  Completion,
  {
    readonly end: (request: EndRequest) => Effect.Effect<Settled>
    /** The same without a fiber that waits: `told` has the answer, once, and must not throw. For any ending but `parked`. */
    readonly unsafeEnd: (request: EndRequest, told: (exit: Exit.Exit<Settled>) => void) => void
    /** The attempt is known, from the database, to be somebody else's by now: nothing is sent. */
    readonly lost: (outcome: string) => Settled
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface EndRequest {
  readonly token: FinalizationToken
  readonly ending: Ending
  /** Whether the database holds a row of mutable state for the attempt. */
  readonly hasState: boolean
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CompletionOptions {
  /** How long a flush waits for company, in milliseconds, from 0 to 10000; 2 unless said otherwise. */
  readonly lingerMillis?: number
  /** The most outcomes in one flush, from 1 to 10000; 500 unless said otherwise. */
  readonly maxBatch?: number
}

/** What one item, or one neighbour's lock, can cause: the halves of the batch are sent apart. */
const divides = ({ sqlState }: DatabaseError): boolean =>
  sqlState === "55P03" || sqlState === "57014" || sqlState?.startsWith("40") === true || refusesContent(sqlState)

/** How many parts of divided batches are sent at a time: the beats are on the same connections. */
const partsAtOnce = 2

const makeFlush = (pool: RuntimePool["Type"], scope: Scope.Scope) => {
  const send = makeClose(pool)
  const parts = Effect.unsafeMakeSemaphore(partsAtOnce)
  // One id for all tries of a flush and of its halves: "closed by this very flush earlier" is told by it.
  const flush = (flushId: string, batch: Batch, tries: number, isPart: boolean): Effect.Effect<void> => {
    const sent = Effect.suspend(() =>
      send(
        flushId,
        batch.map((pending) => pending.item)
      )
    )
    return Effect.matchEffect(isPart ? parts.withPermits(1)(sent) : sent, {
      onSuccess: (settled) => Effect.sync(() => batch.forEach((pending, i) => answerWith(pending, settled[i]))),
      onFailure: (error) => {
        if (!divides(error)) {
          return Effect.zipRight(
            Effect.zipRight(noteRetry(error, tries), backoff(tries)),
            flush(flushId, batch, tries + 1, isPart)
          )
        }
        // Each half goes on by itself, so that one item that cannot be closed now holds up neither its neighbours nor the next flush.
        const middle = batch.length >> 1
        const divided =
          batch.length > 1 ? [batch.slice(0, middle), batch.slice(middle)] : [plainer(batch, error, tries)]
        const wait = batch.length > 1 ? Effect.void : Effect.zipRight(noteRetry(error, tries), backoff(tries))
        return Effect.forEach(
          divided,
          (part) => Effect.forkIn(answering(part, Effect.zipRight(wait, flush(flushId, part, tries + 1, true))), scope),
          { discard: true }
        )
      }
    })
  }
  const begin = (batch: Batch): Effect.Effect<void> => flush(newFlushId(), batch, 0, false)
  return (batch: Batch) =>
    Effect.suspend(() => {
      const [others, plain] = Arr.partition(batch, ({ item }) => isPlain(item))
      if (others.length === 0 || plain.length === 0) return begin(batch)
      // apart: what is quickly closed is not the slower for what stands beside it
      return Effect.all([answering(plain, begin(plain)), answering(others, begin(others))], {
        concurrency: "unbounded",
        discard: true
      })
    })
}

type Batch = ReadonlyArray<Pending<EndRequest, Settled>>

/** The first failure of a flush is told; the repetitions of an outage are for those who look closely. */
const noteRetry = (error: DatabaseError, tries: number) =>
  (tries === 0 ? Effect.logWarning : Effect.logDebug)("A flush of outcomes failed and is sent again", error)

const answerWith = (pending: Pending<EndRequest, Settled>, settled: Settled | undefined): void => {
  if (settled !== undefined) pending.answer(settled)
}

/** After a few tries the details that the database refuses are left out. */
const plainer = (batch: Batch, error: DatabaseError, tries: number): Batch =>
  tries < 2 || !refusesContent(error.sqlState)
    ? batch
    : batch.map((pending) => ({
        item: { ...pending.item, ending: plainEnding(pending.item.ending) },
        wanted: () => pending.wanted(),
        answer: (settled) => pending.answer(settled),
        die: (cause) => pending.die(cause)
      }))

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options?: CompletionOptions
): Effect.fn.Return<Completion["Type"], never, RuntimePool | Scope.Scope> {
  const pool = yield* RuntimePool
  const flush = makeFlush(pool, yield* Effect.scope)
  const { ask: enqueue, tell } = yield* makeBatcher<EndRequest, Settled>({
    ...completionSettings(options),
    run: flush
  })
  const park = makePark(pool)
  let closed = false
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      closed = true
    })
  )
  /** Asked again as long as there is a worker: afterwards it frees nothing, and rescue has it. */
  const orEnd = (again: Effect.Effect<Settled>): Effect.Effect<Settled> =>
    Effect.suspend(() => (closed ? Effect.failCause(Cause.interrupt(FiberId.none)) : again))

  /** By itself, outside any batch, and until the database has answered: that, and nothing earlier, frees the permit. */
  const parkUntilAnswered = (request: EndRequest, callbackId: string, tries: number): Effect.Effect<Settled> =>
    Effect.matchEffect(park(request.token, callbackId, request.ending.progress), {
      onFailure: (error) =>
        refusesContent(error.sqlState) // the id is not one
          ? enqueue({ ...request, ending: noCallback(request.ending) })
          : Effect.zipRight(
              Effect.zipRight(noteRetry(error, tries), backoff(tries)),
              orEnd(Effect.suspend(() => parkUntilAnswered(request, callbackId, tries + 1)))
            ),
      onSuccess: (answer): Effect.Effect<Settled> => {
        switch (answer) {
          case "parked":
            return Effect.succeed(makeSettled("parked", "parked"))
          case "released":
          case "retried":
            return Effect.succeed(makeSettled("closed", answer))
          case "stale":
            return Effect.succeed(makeSettled("stale", "parked"))
          case "replaced":
            return enqueue({ ...request, ending: noCallback(request.ending) })
          case "busy":
            return Effect.zipRight(
              backoff(tries),
              orEnd(Effect.suspend(() => parkUntilAnswered(request, callbackId, tries + 1)))
            )
        }
      }
    })

  return {
    end: (request) =>
      request.ending.callbackId === undefined
        ? enqueue(request)
        : parkUntilAnswered(request, request.ending.callbackId, 0),
    unsafeEnd: tell,
    lost: (outcome) => makeSettled("stale", outcome)
  }
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: CompletionOptions): Layer.Layer<Completion, never, RuntimePool> =>
  Layer.scoped(Completion, make(options))
