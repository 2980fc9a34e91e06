import type { Connection } from "@effect/sql/SqlConnection"
import { SqlError } from "@effect/sql/SqlError"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { destroySocket } from "./destroySocket.js"
import { isIdleClient, isPgClient, type PgClient, type Told } from "./pgClient.js"

const ended = new SqlError({
  message: "The transaction has ended",
  cause: new Error("a statement was sent after the end of its transaction, by a fiber that outlived it")
})

/** @internal A connection for one transaction: open until its end, tainted when a statement on it was interrupted. */
export interface Guarded {
  readonly connection: Connection
  readonly close: () => void
  /** The driver cancels an interrupted statement by its backend's pid, perhaps only later: nobody else may have it then. */
  readonly tainted: () => boolean
}

/**
 * The connection of a transaction, usable until the transaction ends. A fiber that was forked in the body and outlives it
 * would otherwise go on writing on a connection that belongs to somebody else by then.
 *
 * @internal
 */
export const guard = (connection: Connection): Guarded => {
  let open = true
  let tainted = false
  const taint = () =>
    Effect.sync(() => {
      tainted = true
    })
  const check = <A>(effect: () => Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
    Effect.suspend(() => (open ? Effect.onInterrupt(effect(), taint) : Effect.fail(ended)))
  return {
    connection: {
      execute: (sql, params, transform) => check(() => connection.execute(sql, params, transform)),
      executeRaw: (sql, params) => check(() => connection.executeRaw(sql, params)),
      executeStream: (sql, params, transform) =>
        Stream.suspend(() => (open ? connection.executeStream(sql, params, transform) : Stream.fail(ended))),
      executeValues: (sql, params) => check(() => connection.executeValues(sql, params)),
      executeUnprepared: (sql, params, transform) => check(() => connection.executeUnprepared(sql, params, transform))
    },
    close: () => {
      open = false
    },
    tainted: () => tainted
  }
}

/**
 * Takes a connection for as long as `release` was not called. Only the wait is bounded and can be interrupted: the driver
 * cannot take back a request, so a connection that comes too late is returned by whoever still waits for it here.
 *
 * @internal
 */
export const acquire = (
  reserve: Effect.Effect<Connection, SqlError, Scope.Scope>,
  restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>,
  millis: number
): Effect.Effect<Option.Option<{ readonly connection: Connection; readonly release: Effect.Effect<void> }>, SqlError> =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const release = Scope.close(scope, Exit.void)
    const fiber = yield* Effect.forkDaemon(Scope.extend(reserve, scope))
    const late = Effect.sync(() => fiber.addObserver(() => Effect.runFork(release)))
    const exit = yield* restore(observe(fiber, millis)).pipe(Effect.onInterrupt(() => late))
    if (Option.isNone(exit)) {
      yield* late
      return Option.none()
    }
    if (Exit.isFailure(exit.value)) yield* release
    return Option.some({ connection: yield* exit.value, release })
  })

/**
 * The exit of a fiber, or none when it has not ended in time.
 *
 * @internal
 */
export const observe = <A, E>(
  fiber: Fiber.RuntimeFiber<A, E>,
  millis: number
): Effect.Effect<Option.Option<Exit.Exit<A, E>>> =>
  Effect.async<Option.Option<Exit.Exit<A, E>>>((resume) => {
    const timer = setTimeout(() => finish(Option.none()), millis)
    const observer = (exit: Exit.Exit<A, E>) => finish(Option.some(exit))
    const finish = (answer: Option.Option<Exit.Exit<A, E>>) => {
      clearTimeout(timer)
      fiber.removeObserver(observer)
      resume(Effect.succeed(answer))
    }
    fiber.addObserver(observer)
    return Effect.sync(() => {
      clearTimeout(timer)
      fiber.removeObserver(observer)
    })
  })

/** `@effect/sql-pg` keeps the driver's client on its connection. */
const clientOf = (connection: Connection): unknown =>
  Predicate.hasProperty(connection, "pg") && Predicate.hasProperty(connection.pg, "connection")
    ? connection.pg
    : undefined

const endClient = (client: unknown): void => {
  if (!Predicate.hasProperty(client, "end") || typeof client.end !== "function") return
  const goodbye: unknown = Reflect.apply(client.end, client, [])
  if (Predicate.isPromise(goodbye)) goodbye.catch(() => undefined)
}

/** At once: to end may be to wait for what is under way. */
const cut = (client: unknown): void => {
  endClient(client)
  destroySocket(client)
}

/**
 * Ends the connection itself, so that the pool does not hand it out again: ending it is how the pool is told.
 *
 * @internal
 */
export const discard = (connection: Connection): Effect.Effect<void> =>
  Effect.sync(() => endClient(clientOf(connection)))

/**
 * The same effect on a connection that is ended under it when it takes longer: one that says nothing would hold up, for as long as the
 * operating system waits, whoever must not be interrupted.
 *
 * @internal
 */
export const endedAfter =
  (connection: Connection, millis: number) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      const client = clientOf(connection)
      const timer = setTimeout(() => cut(client), millis)
      return Effect.ensuring(
        effect,
        Effect.sync(() => clearTimeout(timer))
      )
    })

/** @internal Whether the driver knows that no transaction is open on it. */
export const isIdle = (connection: Connection): boolean => isIdleClient(clientOf(connection))

/**
 * The exit of a statement, or none when it has not ended in time: then its connection has been ended under it. It must not be
 * interrupted: interrupting a statement of this driver cancels whatever its backend is doing by then. No more than one step, since this
 * is done for every transaction; but for a connection that cannot be ended here, whose `statement` is left to itself.
 *
 * @internal
 */
export const within = (
  connection: Connection,
  send: (client: PgClient, told: Told) => unknown,
  statement: Effect.Effect<unknown, SqlError>,
  millis: number
): Effect.Effect<Option.Option<Exit.Exit<unknown, unknown>>> => {
  const client = clientOf(connection)
  if (!isPgClient(client)) return Effect.flatMap(Effect.forkDaemon(statement), (fiber) => observe(fiber, millis))
  return Effect.async((resume) => {
    let late = false
    const timer = setTimeout(() => {
      late = true
      cut(client)
    }, millis)
    send(client, (error, result) => {
      clearTimeout(timer)
      const failed = error !== undefined && error !== null
      resume(Effect.succeed(late ? Option.none() : Option.some(failed ? Exit.fail(error) : Exit.succeed(result))))
    })
  })
}
