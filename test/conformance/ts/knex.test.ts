/** Knex's adapter, in Knex's own transactions, against a real worker. */
import * as Knex from "effect-awa/drivers/Knex"
import { open } from "./drivers/knex.js"
import { failsOnLostConnection, failsUnawaited, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

conformance("Knex", open, [
  failsUnawaited(),
  failsOnLostConnection(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ knex }, job) =>
    // @ts-expect-error it is no transaction
    Knex.completeInTx(knex, job, { expect: false })
  ),
  refusedBeforeSql("after the transaction", "no transaction is open", async ({ knex }, job) => {
    const trx = await knex.transaction()
    await trx.commit()
    await Knex.completeInTx(trx, job, { expect: false })
  }),
  refusedBeforeSql(
    "an expectation in a nested transaction",
    "a completion is expected before any savepoint or nested transaction",
    ({ knex }, job) => knex.transaction((trx) => trx.transaction((inner) => Knex.expectCompletion(inner, job)))
  ),
  {
    name: "a body that rolls back by itself",
    contract: "C-10",
    handler: (driver, job) =>
      driver.finalize(job, async (trx) => {
        await driver.write(trx, job.payload.tag)
        await trx.rollback()
      }),
    state: "failed",
    rows: 0,
    error: "BodyFailed"
  }
])
