/** Kysely's adapter, in Kysely's own transactions, against a real worker. */
import * as Kysely from "effect-awa/drivers/Kysely"
import { CompiledQuery } from "kysely"
import { open, type Tx } from "./drivers/kysely.js"
import { leaves, leavesAtOnce } from "./leftBehind.js"
import { failsOnLostConnection, noticesRollback, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

conformance("Kysely", open, [
  noticesRollback(),
  failsOnLostConnection(),
  ...leavesAtOnce<Tx>(),
  // no plugin sees it when it is sent
  ...leaves("a compiled query", async (_, tx: Tx, tag, later) => {
    const compiled = CompiledQuery.raw("insert into application_rows (tag) values ($1)", [tag])
    await later
    await tx.executeQuery(compiled)
  }),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ db }, job) =>
    // @ts-expect-error it is no transaction
    Kysely.completeInTx(db, job, { expect: false })
  )
])
