import { Effect, Redacted } from "effect"
import type { Driver } from "effect-awa"
import * as Adapter from "effect-awa/drivers/Kysely"
import { CamelCasePlugin, type ControlledTransaction, Kysely, PostgresDialect, type Transaction } from "kysely"
import type { DriverUnderTest } from "../driver.js"
import { listeningPool, pastAdapter } from "./listening.js"

interface Tables {
  applicationRows: { tag: string }
}

export type Tx = Transaction<Tables>

/** Its savepoints are made on controlled transactions, which the type of a transaction does not say. */
const controlled = new WeakMap<Transaction<Tables>, ControlledTransaction<Tables>>()

export const connect = (url: string, pool = listeningPool(url)) => {
  const dialect = new PostgresDialect({ pool })
  return new Kysely<Tables>({ dialect, plugins: [new CamelCasePlugin()] })
}

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const pool = listeningPool(Redacted.value(url))
        return { db: connect(Redacted.value(url), pool), pool }
      }),
      ({ db }) => Effect.promise(() => db.destroy())
    ),
    ({ db, pool }): DriverUnderTest<Tx> & { readonly db: typeof db; readonly pastAdapter: Driver.Query } => ({
      db,
      pastAdapter: pastAdapter(pool),
      transaction: async (isolation, body) => {
        const trx = await db.startTransaction().setIsolationLevel(isolation).execute()
        controlled.set(trx, trx)
        try {
          const value = await body(trx)
          await trx.commit().execute()
          return value
        } catch (error) {
          await trx.rollback().execute()
          throw error
        }
      },
      nested: async (tx, body) => {
        const trx = controlled.get(tx)
        if (trx === undefined) throw new Error("not a controlled transaction")
        const inner = await trx.savepoint("nested").execute()
        try {
          await body(inner)
          await inner.releaseSavepoint("nested").execute()
        } catch (error) {
          await inner.rollbackToSavepoint("nested").execute()
          throw error
        }
      },
      write: (tx, tag) => tx.insertInto("applicationRows").values({ tag }).execute(),
      query: Adapter.query,
      autocommit: Adapter.query(db),
      finalize: (job, body, options) => Adapter.finalize(db, job, body, options)
    })
  )
