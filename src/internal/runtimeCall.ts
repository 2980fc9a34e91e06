import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as Pg from "pg"
import type { Row } from "./column.js"
import { destroySocket } from "./destroySocket.js"

/** @internal */
export interface Statement {
  readonly name: string
  readonly text: string
  readonly values: ReadonlyArray<unknown>
  /** The server's limit for the statement, in milliseconds; the client gives up a little later. */
  readonly timeoutMillis?: number
  readonly lockTimeoutMillis?: number
  /**
   * Asked so often that it is worth preparing by its name, where the connection is direct; always of the same text. With the usual
   * limits it goes alone there: BEGIN, its four settings and COMMIT are then the session's, and no message of their own.
   */
  readonly prepare?: boolean
}

/** How much later than the server the client gives up: a cancelled statement still has to answer. */
const clientSlackMillis = 2_000

const usualMillis = 5_000

const sessionLimits =
  `set statement_timeout = ${usualMillis}; set lock_timeout = ${usualMillis}; set standard_conforming_strings = on; ` +
  "set default_transaction_isolation = 'read committed'"

const begin = (statement: Statement, timeoutMillis: number): string =>
  `begin isolation level read committed; set local statement_timeout = ${timeoutMillis}; ` +
  `set local lock_timeout = ${statement.lockTimeoutMillis ?? timeoutMillis}; ` +
  `set local idle_in_transaction_session_timeout = ${timeoutMillis + clientSlackMillis}; ` +
  "set local standard_conforming_strings = on"

/** Which connections are their backend's own, and no pooler's, that may lend another one: what is prepared on them stays. */
const direct = new WeakMap<Pg.PoolClient, boolean>()

/** Those of them whose sessions have the usual limits. */
const limited = new WeakSet<Pg.PoolClient>()

/** Somebody takes prepared statements off our connections: from then on none is relied upon. */
let robbed = false

const looked = (client: Pg.PoolClient, pid: unknown): void => {
  direct.set(client, Predicate.hasProperty(client, "processID") && client.processID === pid)
}

const noop = (): void => {}

/**
 * One runtime statement in a transaction of its own, in one round trip: BEGIN with its limits, the call and COMMIT are sent
 * together, or the call alone, whose transaction is the statement's own. Not a `SqlClient`, so it cannot join a transaction that happens to be in context; never interrupted, since the
 * driver's way to interrupt cancels whatever the backend is doing by then. It ends within its limit and the pool's own.
 *
 * @internal
 */
export const runtimeCall = <E>(
  pool: Pg.Pool,
  statement: Statement,
  onError: (cause: unknown) => E
): Effect.Effect<ReadonlyArray<Row>, E> =>
  Effect.uninterruptible(
    Effect.async<ReadonlyArray<Row>, E>((resume) => {
      const timeoutMillis = statement.timeoutMillis ?? usualMillis
      pool.connect((connectError, client, release) => {
        if (connectError !== undefined || client === undefined) {
          resume(Effect.fail(onError(connectError ?? new Error("the pool gave no connection"))))
          return
        }
        let failure: { readonly cause: unknown } | undefined
        let rows: ReadonlyArray<Row> = []
        let open = true
        const note = (cause: unknown): void => {
          failure ??= { cause }
          if (Predicate.hasProperty(cause, "code") && cause.code === "26000") robbed = true
        }
        const needed = (error: Error | null): void => {
          if (error !== null) note(error)
        }
        const finish = (destroy: boolean): void => {
          if (!open) return
          open = false
          clearTimeout(timer)
          client.off("error", note)
          client.on("error", noop) // a destroyed connection may still report its end
          if (destroy) destroySocket(client)
          release(destroy)
          if (!destroy) client.off("error", noop)
          resume(failure === undefined ? Effect.succeed(rows) : Effect.fail(onError(failure.cause)))
        }
        const timer = setTimeout(() => {
          note(new Error(`no answer within ${timeoutMillis + clientSlackMillis} ms`))
          finish(true)
        }, timeoutMillis + clientSlackMillis)
        client.on("error", note)
        if (!direct.has(client)) {
          client.query(
            { text: "select pg_catalog.pg_backend_pid()", rowMode: "array" },
            (error: Error | null, result: Pg.QueryArrayResult) => {
              needed(error)
              if (error === null) looked(client, result.rows[0]?.[0])
            }
          )
        }
        const prepared = statement.prepare === true && !robbed && direct.get(client) === true
        const alone = prepared && statement.timeoutMillis === undefined && statement.lockTimeoutMillis === undefined
        if (!alone) client.query(begin(statement, timeoutMillis), needed)
        else if (!limited.has(client)) {
          limited.add(client)
          client.query(sessionLimits, needed)
        }
        client.query(
          {
            text: statement.text,
            values: [...statement.values],
            rowMode: "array",
            ...(prepared ? { name: `effect_awa_${statement.name}` } : {})
          },
          (error: Error | null, result: Pg.QueryArrayResult) => {
            needed(error)
            if (error === null) rows = result.rows
            // without COMMIT's answer nothing tells whether the session is still sound
            if (alone) finish(failure !== undefined)
          }
        )
        if (alone) return
        client.query("commit", (error: Error | null, result: Pg.QueryResult) => {
          if (error !== null) {
            note(error)
            finish(true)
          } else {
            // COMMIT of an aborted transaction answers ROLLBACK, without an error
            if (result.command !== "COMMIT") note(new Error(`COMMIT answered ${result.command}`))
            finish(false)
          }
        })
      })
    })
  )
