/** MikroORM's adapter, in MikroORM's own transactions, against a real worker. */
import * as MikroORM from "effect-awa/drivers/MikroORM"
import { Missing, open } from "./drivers/mikroOrm.js"
import { failsOnLostConnection, failsUnawaited, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

conformance("MikroORM", open, [
  failsUnawaited(),
  failsOnLostConnection(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ em }, job) =>
    MikroORM.completeInTx(em, job, { expect: false })
  ),
  refusedBeforeSql(
    "an expectation in a nested transaction",
    "a completion is expected before any savepoint or nested transaction",
    ({ em }, job) => em.transactional((tx) => tx.transactional((inner) => MikroORM.expectCompletion(inner, job)))
  ),
  {
    // after the completion it would be a failure of COMMIT
    name: "what the body leaves to the unit of work is written before the completion",
    contract: "C-12",
    handler: (driver, job) =>
      driver.finalize(job, async (tx) => {
        await driver.write(tx, job.payload.tag)
        tx.persist(tx.create(Missing, { tag: "there is no such table" }))
      }),
    state: "failed",
    rows: 0,
    error: "BodyFailed"
  }
])
