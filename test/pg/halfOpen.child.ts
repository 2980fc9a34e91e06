/**
 * A program that completes an attempt inside an application transaction and hangs: the test freezes it there, and looks at what
 * the server does by itself. It is run with the urls of the runtime and of the application, the call that completes, the way it
 * hangs, and a name for its connection.
 */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { ApplicationPool, RuntimePool } from "effect-awa"
import { Console, Effect, Exit, Layer, Redacted } from "effect"

const [runtime = "", application = "", call = "", hang = "", name = ""] = process.argv.slice(2)

const hangs: Readonly<Record<string, (sql: SqlClient.SqlClient) => Effect.Effect<unknown, unknown>>> = {
  "between two statements": () => Effect.never,
  "in the middle of a statement": (sql) => sql`select pg_sleep(600)`,
  "before an answer that it does not read": (sql) => sql`select repeat('x', 1000000) from generate_series(1, 400)`
}

const program = Effect.gen(function* () {
  const pool = yield* ApplicationPool.ApplicationPool
  const exit = yield* Effect.exit(
    pool.transaction(
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`insert into public.ledger (name) values (${name})`
        yield* sql.unsafe(call)
        yield* hangs[hang]?.(sql) ?? Effect.dieMessage(`no way to hang is called ${hang}`)
      })
    )
  )
  yield* Console.log(Exit.isSuccess(exit) ? "committed" : `failed ${exit.cause.toString()}`)
})

const clients = ApplicationPool.layer({ maximumDuration: "4 seconds" }).pipe(
  Layer.provide(PgClient.layer({ url: Redacted.make(application), maxConnections: 1, applicationName: name })),
  Layer.provide(RuntimePool.layer({ url: Redacted.make(runtime) }))
)

await Effect.runPromise(Effect.provide(program, clients))
process.exit()
