import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/PostgresJs"
import postgres from "postgres"
import type { DriverUnderTest } from "../driver.js"

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() =>
        postgres(Redacted.value(url), { max: 1, prepare: false, transform: postgres.camel, onnotice: () => undefined })
      ),
      (sql) => Effect.promise(() => sql.end({ timeout: 1 }))
    ),
    (sql): DriverUnderTest<postgres.TransactionSql> => ({
      transaction: async <A>(isolation: string, body: (tx: postgres.TransactionSql) => Promise<A>): Promise<A> => {
        const value: Array<A> = []
        await sql.begin(`isolation level ${isolation}`, async (tx) => void value.push(await body(tx)))
        const [only] = value
        // eslint-disable-next-line @typescript-eslint/consistent-type-assertions -- a body that answers nothing answers undefined
        return only as A
      },
      nested: async (tx, body) => {
        await tx.savepoint((inner) => body(inner))
      },
      write: (tx, tag) => tx`insert into application_rows (tag) values (${tag})`,
      query: Adapter.query,
      autocommit: Adapter.query(sql),
      finalize: (job, body, options) => Adapter.finalize(sql, job, body, options)
    })
  )
