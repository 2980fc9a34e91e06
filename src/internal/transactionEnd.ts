import type { Connection } from "@effect/sql/SqlConnection"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { Finalizations } from "../ApplicationTransaction.js"
import { CommitUnknown, CompletionMissing, RolledBack } from "../JobError.js"
import { discard, firstRow, isIdle, lastCommand, within } from "./applicationConnection.js"
import { guardedCommit } from "./commitGuard.js"
import { isAmbiguous, isFatal, sqlStateOf } from "./sqlState.js"

/** A rollback that takes longer than this is not waited for: the connection is ended instead, and the server rolls back. */
const rollbackMillis = 2_000

/** How much later than the client the server ends a transaction, when the client has vanished. */
const serverSlackMillis = 1_000

/**
 * BEGIN, with the server's own limits, whatever the role or the database says (contract C-40). From 17 on one limit is for the
 * transaction as a whole: it is switched off first, since a timer that a default has started keeps the default's time. A server
 * that cannot get rid of an answer, because its client does not read, sees none of these: the limit of its socket ends that.
 *
 * @internal
 */
export const beginText = (version: number, maximumMillis: number): string => {
  const limit = maximumMillis + serverSlackMillis
  return (
    `begin; set local statement_timeout = ${limit}; set local idle_in_transaction_session_timeout = ${limit}; ` +
    `set local tcp_user_timeout = ${limit}` +
    (version >= 170000 ? `; set local transaction_timeout = 0; set local transaction_timeout = ${limit}` : "")
  )
}

/** @internal */
export const rollback = (connection: Connection): Effect.Effect<void> =>
  Effect.flatMap(within(connection, connection.executeRaw("rollback", []), rollbackMillis), (exit) =>
    Option.isSome(exit) && Exit.isSuccess(exit.value) ? Effect.void : discard(connection)
  )

/**
 * A statement that a transaction ends with, in the same round trip as its COMMIT.
 *
 * @internal
 */
export interface Closing<A, E> {
  /** With its values in it and a semicolon behind: a text of several statements takes no parameters. */
  readonly text: string
  /** What its row, as an object, answers; undefined when it is none that can be read. */
  readonly read: (row: unknown) => { readonly value: A } | undefined
  /** What an error means that is the statement's own, if it is: then COMMIT was not reached. */
  readonly refusal: (error: unknown) => E | undefined
}

/** @internal Nothing but COMMIT. */
export const noClosing = <A>(value: A): Closing<A, never> => ({
  text: "",
  read: () => ({ value }),
  refusal: () => undefined
})

/**
 * COMMIT, told by the server's own command tag: committed, rolled back, or unknown (contract C-41, C-42).
 *
 * @internal
 */
export const commit = <A, E>(
  connection: Connection,
  finalizations: Finalizations,
  closing: Closing<A, E>,
  maximumMillis: number
): Effect.Effect<A, E | CommitUnknown | CompletionMissing | RolledBack> =>
  Effect.suspend(() =>
    closing.text !== "" && isIdle(connection)
      ? Effect.fail(new CompletionMissing({ sqlState: "WA007", reason: "its body had ended it" }))
      : closeWith(connection, finalizations, closing, maximumMillis)
  )

const closeWith = <A, E>(
  connection: Connection,
  finalizations: Finalizations,
  closing: Closing<A, E>,
  maximumMillis: number
): Effect.Effect<A, E | CommitUnknown | CompletionMissing | RolledBack> =>
  Effect.flatMap(
    within(
      connection,
      connection.executeRaw(closing.text + guardedCommit(finalizations), []),
      maximumMillis + 2 * serverSlackMillis
    ),
    (answer): Effect.Effect<A, E | CommitUnknown | CompletionMissing | RolledBack> => {
      if (Option.isNone(answer)) {
        return Effect.zipRight(
          discard(connection),
          Effect.fail(new CommitUnknown({ cause: new Error("COMMIT was not answered in time") }))
        )
      }
      const exit = answer.value
      if (Exit.isSuccess(exit)) {
        const tag = lastCommand(exit.value)
        if (tag !== "COMMIT") return Effect.fail(new RolledBack({ cause: new Error(`COMMIT answered ${tag}`) }))
        const read = closing.read(firstRow(exit.value))
        return read === undefined
          ? Effect.fail(new CommitUnknown({ cause: new Error("the last statement gave no row that can be read") }))
          : Effect.succeed(read.value)
      }
      const cause = Cause.squash(exit.cause)
      const refusal = closing.refusal(cause)
      if (refusal !== undefined) return Effect.zipRight(rollback(connection), Effect.fail(refusal))
      const state = Option.getOrUndefined(sqlStateOf(cause))
      if (state === undefined || isAmbiguous(state) || isFatal(cause)) {
        return Effect.zipRight(discard(connection), Effect.fail(new CommitUnknown({ cause })))
      }
      return Effect.zipRight(
        rollback(connection),
        Effect.fail(
          state === "WA007"
            ? new CompletionMissing({
                sqlState: "WA007",
                reason: "a completion in it was rolled back with its savepoint"
              })
            : new RolledBack({ cause })
        )
      )
    }
  )
