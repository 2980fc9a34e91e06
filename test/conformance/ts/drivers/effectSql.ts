/** `@effect/sql`: `withTransaction`, and again inside it, which is a savepoint. */
import * as SqlClient from "@effect/sql/SqlClient"
import { PgClient } from "@effect/sql-pg"
import { Cause, Context, Effect, Exit, Layer, type Redacted, Runtime } from "effect"
import { Driver } from "effect-awa"
import type { DriverUnderTest } from "../driver.js"

type Tx = Runtime.Runtime<SqlClient.SqlClient>

/** What failed, and not that a fiber did. */
const run = async <A, E>(runtime: Tx, effect: Effect.Effect<A, E, SqlClient.SqlClient>): Promise<A> => {
  const exit = await Runtime.runPromiseExit(runtime)(effect)
  if (Exit.isFailure(exit)) throw Cause.squash(exit.cause)
  return exit.value
}

const inTransaction = <A>(runtime: Tx, isolation: string | undefined, body: (tx: Tx) => Promise<A>) =>
  run(
    runtime,
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      sql.withTransaction(
        Effect.gen(function* () {
          if (isolation !== undefined) yield* sql.unsafe(`set transaction isolation level ${isolation}`)
          const inside = yield* Effect.runtime<SqlClient.SqlClient>()
          return yield* Effect.tryPromise({ try: () => body(inside), catch: (error) => error })
        })
      )
    )
  )

const query =
  (runtime: Tx): Driver.Query =>
  (text, values) =>
    run(
      runtime,
      Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe<Record<string, unknown>>(text, [...values]))
    )

export const open = (url: Redacted.Redacted) =>
  Effect.map(Effect.orDie(Layer.build(PgClient.layer({ url, maxConnections: 1 }))), (context): DriverUnderTest<Tx> => {
    const sql = Context.get(context, SqlClient.SqlClient)
    const outside = Runtime.provideService(Runtime.defaultRuntime, SqlClient.SqlClient, sql)
    return {
      transaction: (isolation, body) => inTransaction(outside, isolation, body),
      nested: (tx, body) => inTransaction(tx, undefined, body),
      write: (tx, tag) =>
        run(
          tx,
          Effect.flatMap(SqlClient.SqlClient, (sql) => sql`insert into application_rows (tag) values (${tag})`)
        ),
      query,
      autocommit: query(outside),
      finalize: (job, body, options) =>
        Driver.finalizeWith<"charge", Tx>(job, {
          transaction: (inner) => inTransaction(outside, undefined, inner),
          query,
          body,
          maximumDuration: options?.maximumDuration
        })
    }
  })
