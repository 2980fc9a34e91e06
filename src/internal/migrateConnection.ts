import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Pg from "pg"
import { InvalidMigrationOption, MigrationConnectionFailed, MigrationFailed } from "../MigrationError.js"
import { urlFault } from "./connectionUrl.js"
import { pgTypes } from "./pgTypes.js"
import { reasonOf, sqlStateOf } from "./sqlState.js"

/** @internal */
export interface Connection {
  /** Sends one message of any number of statements. Answers the command tag of the last one. */
  readonly execute: (step: string, sql: string, millis: number) => Effect.Effect<string, MigrationFailed>
  /** Sends one statement. Answers its rows, undecoded. */
  readonly query: (
    step: string,
    sql: string,
    values: ReadonlyArray<string>,
    millis: number
  ) => Effect.Effect<ReadonlyArray<unknown>, MigrationFailed>
}

const connectMillis = 10_000

const configOf = (url: Redacted.Redacted | Pg.ClientConfig): Effect.Effect<Pg.ClientConfig, InvalidMigrationOption> => {
  if (!Redacted.isRedacted(url)) return Effect.succeed(url)
  const rule = urlFault(url)
  return rule === undefined
    ? Effect.succeed({ connectionString: Redacted.value(url) })
    : Effect.fail(new InvalidMigrationOption({ option: "url", rule }))
}

/** A message of several statements is answered by a list, which the driver's types do not say. */
const commandOf = (answer: Pg.QueryResult | Array<Pg.QueryResult>): string =>
  (Array.isArray(answer) ? answer.at(-1) : answer)?.command ?? ""

const makeClient = (
  config: Pg.ClientConfig,
  applicationName: string
): Effect.Effect<Pg.Client, InvalidMigrationOption> =>
  Effect.try({
    try: () => {
      const client = new Pg.Client({
        application_name: applicationName,
        connectionTimeoutMillis: connectMillis,
        keepAlive: true,
        ...config,
        types: pgTypes // not the application's
      })
      client.on("error", () => {}) // the statement in flight, or the next one, fails with it
      return client
    },
    catch: () =>
      new InvalidMigrationOption({ option: "url", rule: "not a connection that the PostgreSQL driver understands" })
  })

/**
 * One connection, no pool (F-41). It is closed with the scope, which rolls back whatever is open.
 *
 * @internal
 */
export const connect = Effect.fnUntraced(function* (
  url: Redacted.Redacted | Pg.ClientConfig,
  applicationName: string = "effect-awa migrate"
): Effect.fn.Return<Connection, InvalidMigrationOption | MigrationConnectionFailed, Scope.Scope> {
  const config = yield* configOf(url)
  const client = yield* Effect.acquireRelease(makeClient(config, applicationName), (client) =>
    Effect.promise(() => client.end()).pipe(Effect.interruptible, Effect.timeoutOption("5 seconds"))
  )
  yield* Effect.tryPromise({
    try: () => client.connect(),
    catch: (cause) =>
      new MigrationConnectionFailed({ sqlState: Option.getOrUndefined(sqlStateOf(cause)), reason: reasonOf(cause) })
  })
  const ask = <A>(step: string, millis: number, send: () => Promise<A>): Effect.Effect<A, MigrationFailed> =>
    Effect.tryPromise({
      try: send,
      catch: (cause) =>
        new MigrationFailed({ step, sqlState: Option.getOrUndefined(sqlStateOf(cause)), reason: reasonOf(cause) })
    }).pipe(
      Effect.timeoutFail({
        duration: millis,
        onTimeout: () => new MigrationFailed({ step, reason: `no answer from the server within ${millis} ms` })
      })
    )
  return {
    execute: (step, sql, millis) => ask(step, millis, async () => commandOf(await client.query(sql))),
    query: (step, sql, values, millis) =>
      ask(step, millis, async () => (await client.query<Record<string, unknown>>(sql, [...values])).rows)
  }
})
