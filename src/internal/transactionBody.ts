import type { Connection } from "@effect/sql/SqlConnection"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as FiberRef from "effect/FiberRef"
import * as FiberRefs from "effect/FiberRefs"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import type * as RuntimeFlags from "effect/RuntimeFlags"
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
 * `flags` are the caller's own: a body can be interrupted where its caller can.
 *
 * @internal
 */
export const runBody = <A, E, R, S>(
  body: Effect.Effect<A, E, R>,
  services: Context.Context<S>,
  connection: Connection,
  restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>,
  flags: RuntimeFlags.RuntimeFlags,
  maximumMillis: number
): Effect.Effect<Ended<A, E>, never, Exclude<R, S>> =>
  Effect.withFiberRuntime<Ended<A, E>, never, Exclude<R, S>>((parent) => {
    // the caller's context lacks of R what the services are
    const context = Context.unsafeMake<R>(Context.merge(parent.currentContext, services).unsafeMap)
    // Of nobody: as a child, a body that is left behind would keep the handler's fiber from ending. Every way out of here ends it.
    // What it needs is in its context from its start: to set that there, and to set it back, is work for each transaction.
    const fiber = Runtime.runFork(Runtime.make({ context, runtimeFlags: flags, fiberRefs: parent.getFiberRefs() }))(
      body
    )
    return Effect.flatMap(Effect.exit(restore(observe(fiber, maximumMillis))), (waited) => {
      if (Exit.isFailure(waited) || Option.isNone(waited.value))
        return overdue(fiber, connection, waited, maximumMillis)
      const ended = Effect.succeed({ exit: waited.value.value, clean: true })
      const inherited = toInherit(parent, fiber)
      return inherited === undefined ? ended : Effect.zipRight(Effect.inheritFiberRefs(inherited), ended)
    })
  })

interface Ended<A, E> {
  readonly exit: Exit.Exit<A, E | TransactionTooLong>
  readonly clean: boolean
}

/** What the body has set of its fiber's is its caller's now, as if there were one fiber; but for the transaction's own services. */
const toInherit = <A, E, B, F>(
  parent: Fiber.RuntimeFiber<A, E>,
  fiber: Fiber.RuntimeFiber<B, F>
): FiberRefs.FiberRefs | undefined => {
  const [before, after] = [parent.getFiberRefs(), fiber.getFiberRefs()]
  for (const [ref, [[, value]]] of after.locals) {
    if (ref === FiberRef.currentContext || before.locals.get(ref)?.[0][1] === value) continue
    return FiberRefs.delete(after, FiberRef.currentContext)
  }
  return undefined
}

/** The body was interrupted, or its time is over. */
const overdue = <A, E>(
  fiber: Fiber.RuntimeFiber<A, E>,
  connection: Connection,
  waited: Exit.Exit<unknown>,
  maximumMillis: number
): Effect.Effect<Ended<A, E>> =>
  Effect.gen(function* () {
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
