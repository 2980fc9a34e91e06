import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/Slonik"
import { createPool, type DatabasePool, type DatabaseTransactionConnection, sql } from "slonik"
import type { DriverUnderTest } from "../driver.js"

const levels = {
  "read committed": sql.unsafe`set transaction isolation level read committed`,
  "repeatable read": sql.unsafe`set transaction isolation level repeatable read`,
  serializable: sql.unsafe`set transaction isolation level serializable`
}

export const connect = (url: string) =>
  createPool(url, {
    maximumPoolSize: 1,
    // a pooler would refuse them
    statementTimeout: "DISABLE_TIMEOUT",
    idleInTransactionSessionTimeout: "DISABLE_TIMEOUT"
  })

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => connect(Redacted.value(url))),
      // after a connection that was cut in a statement it rejects
      (pool) => Effect.promise(() => pool.end().catch(() => undefined))
    ),
    (pool): DriverUnderTest<DatabaseTransactionConnection> & { readonly pool: DatabasePool } => ({
      pool,
      transaction: (isolation, body) =>
        pool.transaction(async (tx) => {
          await tx.query(levels[isolation])
          return body(tx)
        }, 0), // by itself it would run it again after 40001
      nested: (tx, body) => tx.transaction(body),
      write: (tx, tag) => tx.query(sql.unsafe`insert into application_rows (tag) values (${tag})`),
      query: Adapter.query,
      autocommit: Adapter.query(pool),
      finalize: (job, body, options) => Adapter.finalize(pool, job, body, options)
    })
  )
