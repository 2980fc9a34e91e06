import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/Pg"
import type * as Pg from "pg"
import type { DriverUnderTest } from "../driver.js"
import type { Owned } from "../../../runtime/world.js"
import { listeningPool } from "./listening.js"

export interface PgUnderTest extends DriverUnderTest<Pg.PoolClient> {
  /** `finalize` without the expectation that COMMIT is made to fail by. */
  readonly unexpected: (
    job: Owned,
    body: (client: Pg.PoolClient) => Promise<unknown>
  ) => ReturnType<typeof Adapter.finalize<"charge">>
}

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => listeningPool(Redacted.value(url))),
      (pool) => Effect.promise(() => pool.end())
    ),
    (pool): PgUnderTest => ({
      unexpected: (job, body) => Adapter.finalize(pool, job, body, { expect: false }),
      transaction: async (isolation, body) => {
        const client = await pool.connect()
        let broken = false
        try {
          await client.query(`begin isolation level ${isolation}`)
          const value = await body(client)
          await client.query("commit")
          return value
        } catch (error) {
          await client.query("rollback").catch(() => {
            broken = true
          })
          throw error
        } finally {
          client.release(broken)
        }
      },
      nested: async (client, body) => {
        await client.query("savepoint nested")
        try {
          await body(client)
          await client.query("release savepoint nested")
        } catch (error) {
          await client.query("rollback to savepoint nested")
          throw error
        }
      },
      write: (client, tag) => client.query("insert into application_rows (tag) values ($1)", [tag]),
      query: Adapter.query,
      autocommit: async (text, values) => (await pool.query<Record<string, unknown>>(text, [...values])).rows,
      finalize: (job, body, options) => Adapter.finalize(pool, job, body, options)
    })
  )
