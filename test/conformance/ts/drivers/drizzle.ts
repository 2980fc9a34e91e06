import { drizzle as drizzlePg, type NodePgDatabase } from "drizzle-orm/node-postgres"
import { pgTable, text } from "drizzle-orm/pg-core"
import { drizzle as drizzlePostgresJs, type PostgresJsDatabase } from "drizzle-orm/postgres-js"
import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/Drizzle"
import postgres from "postgres"
import type { DriverUnderTest } from "../driver.js"
import { listeningPool } from "./listening.js"

export const applicationRows = pgTable("application_rows", { tag: text().notNull() })

const schema = { applicationRows }

export type PgTx = Parameters<Parameters<NodePgDatabase<typeof schema>["transaction"]>[0]>[0]
export type PostgresJsTx = Parameters<Parameters<PostgresJsDatabase<typeof schema>["transaction"]>[0]>[0]

export const openPg = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => drizzlePg({ client: listeningPool(Redacted.value(url)), schema })),
      (db) => Effect.promise(() => db.$client.end())
    ),
    (db): DriverUnderTest<PgTx> & { readonly db: typeof db } => ({
      db,
      transaction: (isolationLevel, body) => db.transaction(body, { isolationLevel }),
      nested: (tx, body) => tx.transaction(body),
      write: async (tx, tag) => tx.insert(applicationRows).values({ tag }),
      query: Adapter.query,
      autocommit: Adapter.query(db),
      finalize: (job, body, options) => Adapter.finalize(db, job, body, options)
    })
  )

export const openPostgresJs = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() =>
        drizzlePostgresJs({
          client: postgres(Redacted.value(url), { max: 1, prepare: false, onnotice: () => undefined }),
          schema
        })
      ),
      (db) => Effect.promise(() => db.$client.end({ timeout: 1 }))
    ),
    (db): DriverUnderTest<PostgresJsTx> & { readonly db: typeof db } => ({
      db,
      transaction: (isolationLevel, body) => db.transaction(body, { isolationLevel }),
      nested: (tx, body) => tx.transaction(body),
      write: async (tx, tag) => tx.insert(applicationRows).values({ tag }),
      query: Adapter.query,
      autocommit: Adapter.query(db),
      finalize: (job, body, options) => Adapter.finalize(db, job, body, options)
    })
  )
