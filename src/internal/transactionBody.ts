import type { Connection } from "@effect/sql/SqlConnection"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as FiberRef from "effect/FiberRef"
import * as Option from "effect/Option"
import { TransactionTooLong } from "../JobError.js"
import { discard, observe } from "./applicationConnection.js"

/** How long an interrupted body may take to end by itself, before its connection is ended under it. */
const bodyGraceMillis = 250

/** How long a body may take to end after that. What it still does, it does outside the transaction: its connection is closed. */
const abandonMillis = 1_000

/**
 * The body's exit. It runs in a fiber of its own, which is interrupted when the time is over or the caller is; a statement in
 * it that cannot be interrupted, and whose answer never comes, ends with the connection. A body that does not end even then is not
 * waited for: its attempt would be held, and beaten for, by code that can no longer commit anything.
 *
 * @internal
 */
export const runBody = <A, E, R, S>(
  body: Effect.Effect<A, E, R>,
  services: Context.Context<S>,
  connection: Connection,
  restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>,
  maximumMillis: number
): Effect.Effect<
  { readonly exit: Exit.Exit<A, E | TransactionTooLong>; readonly clean: boolean },
  never,
  Exclude<R, S>
> =>
  Effect.gen(function* () {
    // a daemon: as a child, a body that is left behind would keep the handler's fiber from ending. Every way out of here ends it
    const fiber = yield* Effect.forkDaemon(provided(restore(body), services))
    const waited = yield* Effect.exit(restore(observe(fiber, maximumMillis)))
    if (Exit.isSuccess(waited) && Option.isSome(waited.value)) {
      yield* Fiber.inheritAll(fiber)
      return { exit: waited.value.value, clean: true }
    }
    fiber.unsafeInterruptAsFork(FiberId.none)
    const ended = yield* observe(fiber, bodyGraceMillis)
    if (Option.isNone(ended)) {
      yield* discard(connection)
      if (Option.isNone(yield* observe(fiber, abandonMillis))) {
        yield* Effect.logWarning(
          "The body of a transaction ignores its interruption: it is left behind, without a connection"
        )
      }
    }
    return {
      exit: Exit.isFailure(waited)
        ? Exit.failCause(waited.cause)
        : Exit.fail(new TransactionTooLong({ millis: maximumMillis })),
      clean: Option.isSome(ended)
    }
  })

/**
 * The effect with these services besides its fiber's. Nothing can come between, in a fiber that is not interruptible itself, so the
 * fiber's context is put back without a finalizer: `Effect.provide` is a fourteenth of a caller-owned job's steps.
 */
const provided = <A, E, R, S>(
  effect: Effect.Effect<A, E, R>,
  services: Context.Context<S>
): Effect.Effect<A, E, Exclude<R, S>> =>
  Effect.flatMap(FiberRef.get(FiberRef.currentContext), (before) =>
    FiberRef.set(FiberRef.currentContext, Context.merge(before, services)).pipe(
      // eslint-disable-next-line @typescript-eslint/consistent-type-assertions -- these services are what its fiber's context holds by then
      Effect.zipRight(Effect.exit(effect as Effect.Effect<A, E, Exclude<R, S>>)),
      Effect.zipLeft(FiberRef.set(FiberRef.currentContext, before)),
      Effect.flatten
    )
  )
