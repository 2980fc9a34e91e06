import type { Connection } from "@effect/sql/SqlConnection"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { Finalizations } from "../ApplicationTransaction.js"
import { CommitUnknown, CompletionMissing, RolledBack } from "../JobError.js"
import { discard, isIdle, within } from "./applicationConnection.js"
import { serverSlackMillis } from "./beginText.js"
import { guardedCommit } from "./commitGuard.js"
import { sendClosing } from "./pgClient.js"
import { firstRow, lastCommand } from "./pgResult.js"
import { isAmbiguous, isFatal, sqlStateOf } from "./sqlState.js"

/** A rollback that takes longer than this is not waited for: the connection is ended instead, and the server rolls back. */
const rollbackMillis = 2_000

/** @internal */
export const rollback = (connection: Connection): Effect.Effect<void> =>
  Effect.flatMap(
    within(
      connection,
      (client, told) => client.query("rollback", told),
      connection.executeRaw("rollback", []),
      rollbackMillis
    ),
    (exit) => (Option.isSome(exit) && Exit.isSuccess(exit.value) ? Effect.void : discard(connection))
  )

/**
 * A statement that a transaction ends with, in the same round trip as its COMMIT.
 *
 * @internal
 */
export interface Closing<A, E> {
  /** With its values in it and a semicolon behind: a text of several statements takes no parameters. */
  readonly text: string
  /** The same with parameters, for a connection on which it can be prepared. */
  readonly prepared?: { readonly text: string; readonly values: ReadonlyArray<string | null> }
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
      (client, told) =>
        closing.prepared === undefined || finalizations.noted.length > 0
          ? client.query(closing.text + guardedCommit(finalizations), told)
          : sendClosing(client, closing.text, closing.prepared, told),
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
