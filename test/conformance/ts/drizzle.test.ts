/** Drizzle's adapter, in Drizzle's own transactions over both drivers, against a real worker. */
import * as Drizzle from "effect-awa/drivers/Drizzle"
import { openPg, openPostgresJs, type PgTx, type PostgresJsTx } from "./drivers/drizzle.js"
import { leaves, leavesAtOnce } from "./leftBehind.js"
import { endsUnderBody, failsOnLostConnection, failsUnawaited, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

/** Made with the transaction, and not when it is asked for. */
const byRelation = <Tx extends PgTx | PostgresJsTx>() =>
  leaves("a query by relation", async (_: object, tx: Tx, _tag, later) => {
    await later
    await tx.query.applicationRows.findMany()
  })

conformance("Drizzle over node-postgres", openPg, [
  // Drizzle listens to no error of its client: this would end the process
  endsUnderBody(),
  failsUnawaited(),
  ...byRelation<PgTx>(),
  ...leavesAtOnce<PgTx>(),
  failsOnLostConnection(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ db }, job) =>
    // @ts-expect-error it is no transaction
    Drizzle.completeInTx(db, job, { expect: false })
  ),
  refusedBeforeSql(
    "an expectation in a nested transaction",
    "a completion is expected before any savepoint or nested transaction",
    ({ db }, job) => db.transaction((tx) => tx.transaction((inner) => Drizzle.expectCompletion(inner, job)))
  )
])

conformance("Drizzle over postgres.js", openPostgresJs, [
  failsUnawaited(),
  ...byRelation<PostgresJsTx>(),
  ...leavesAtOnce<PostgresJsTx>(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ db }, job) =>
    // @ts-expect-error it is no transaction
    Drizzle.completeInTx(db, job, { expect: false })
  )
])
