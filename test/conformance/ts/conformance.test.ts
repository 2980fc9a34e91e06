/** Every driver's adapter, in that driver's own transactions, against a real worker. */
import type { PoolClient } from "pg"
import type { TransactionSql } from "postgres"
import * as pg from "./drivers/pg.js"
import * as postgresJs from "./drivers/postgresJs.js"
import { leaves, leavesAtOnce } from "./leftBehind.js"
import { endsUnderBody, failsUnawaited, seesItsEnd } from "./particulars.js"
import { conformance } from "./suite.js"

conformance("pg", pg.open, [
  ...seesItsEnd(),
  endsUnderBody(),
  ...leavesAtOnce<PoolClient>(),
  ...leaves("a statement with a callback", async (_, client: PoolClient, tag, later) => {
    await later
    await new Promise<void>((resolve, reject) => {
      client.query("insert into application_rows (tag) values ($1)", [tag], (error) => {
        // pg says null of a statement that did not fail
        if (error instanceof Error) reject(error)
        else resolve()
      })
    })
  })
])
conformance("postgres.js", postgresJs.open, [
  failsUnawaited(),
  ...leavesAtOnce<TransactionSql>(),
  // it is sent when it is awaited
  ...leaves("a query made in time and", async (_, tx: TransactionSql, tag, later) => {
    const query = tx`insert into application_rows (tag) values (${tag})`
    await later
    await query
  }),
  ...leaves("a notification", async (_, tx: TransactionSql, tag, later) => {
    await later
    await tx.notify("left_behind", tag)
  }),
  // its end is a statement by itself
  ...leaves("a savepoint that fails,", (_, tx: TransactionSql, _tag, later) =>
    tx.savepoint(async () => {
      await later
      throw new Error("only this much")
    })
  )
])
