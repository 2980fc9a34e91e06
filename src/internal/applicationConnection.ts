import type { Connection } from "@effect/sql/SqlConnection"
import { SqlError } from "@effect/sql/SqlError"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Stream from "effect/Stream"

const ended = new SqlError({
  message: "The transaction has ended",
  cause: new Error("a statement was sent after the end of its transaction, by a fiber that outlived it")
})

/**
 * The connection of a transaction, usable until the transaction ends. A fiber that was forked in the body and outlives it
 * would otherwise go on writing on a connection that belongs to somebody else by then.
 *
 * @internal
 */
export const guarded = (connection: Connection, isOpen: () => boolean): Connection => {
  const check = <A>(effect: () => Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
    Effect.suspend(() => (isOpen() ? effect() : Effect.fail(ended)))
  return {
    execute: (sql, params, transform) => check(() => connection.execute(sql, params, transform)),
    executeRaw: (sql, params) => check(() => connection.executeRaw(sql, params)),
    executeStream: (sql, params, transform) =>
      Stream.suspend(() => (isOpen() ? connection.executeStream(sql, params, transform) : Stream.fail(ended))),
    executeValues: (sql, params) => check(() => connection.executeValues(sql, params)),
    executeUnprepared: (sql, params, transform) => check(() => connection.executeUnprepared(sql, params, transform))
  }
}

/**
 * Ends the connection itself, so that the pool does not hand it out again. `@effect/sql-pg` keeps the driver's client on its
 * connection; ending it is how the pool is told.
 *
 * @internal
 */
export const discard = (connection: Connection): Effect.Effect<void> =>
  Effect.sync(() => {
    if (!Predicate.hasProperty(connection, "pg")) return
    const client = connection.pg
    if (!Predicate.hasProperty(client, "end") || typeof client.end !== "function") return
    const goodbye: unknown = Reflect.apply(client.end, client, [])
    if (Predicate.isPromise(goodbye)) goodbye.catch(() => undefined)
  })

/**
 * The exit of an effect, or none when it has not ended in time. The effect is not interrupted: interrupting a statement of
 * this driver cancels whatever its backend is doing by then.
 *
 * @internal
 */
export const within = <A, E>(
  effect: Effect.Effect<A, E>,
  millis: number
): Effect.Effect<Option.Option<Exit.Exit<A, E>>> =>
  Effect.flatMap(Effect.forkDaemon(effect), (fiber) =>
    Effect.async<Option.Option<Exit.Exit<A, E>>>((resume) => {
      const timer = setTimeout(() => resume(Effect.succeed(Option.none())), millis)
      fiber.addObserver((exit) => {
        clearTimeout(timer)
        resume(Effect.succeed(Option.some(exit)))
      })
    })
  )

/** @internal The command tag of the last statement that the server answered. */
export const lastCommand = (result: unknown): string => {
  const results: unknown = Array.isArray(result) ? result.at(-1) : result
  return Predicate.hasProperty(results, "command") && typeof results.command === "string" ? results.command : ""
}
