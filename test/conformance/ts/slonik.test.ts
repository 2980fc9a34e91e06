/** Slonik's adapter, in Slonik's own transactions, against a real worker. */
import { Effect } from "effect"
import * as Slonik from "effect-awa/drivers/Slonik"
import { type DatabaseTransactionConnection, sql } from "slonik"
import { Ended } from "./cases.js"
import { open } from "./drivers/slonik.js"
import { leaves, leavesAtOnce, leavesNested } from "./leftBehind.js"
import { failsOnLostConnection, failsUnawaited, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

conformance("Slonik", open, [
  {
    // it counts one statement at a time, and takes the answer of COMMIT for nobody's
    ...failsUnawaited(),
    name: "a statement that fails unawaited after the completion: the driver has an error of its own",
    error: "Error",
    events: []
  },
  failsOnLostConnection(),
  ...leavesAtOnce<DatabaseTransactionConnection>(),
  // Slonik itself would send it after ROLLBACK
  ...leaves(
    "a statement that waits for another",
    (driver, tx: DatabaseTransactionConnection, tag, later) =>
      Promise.all([tx.query(sql.unsafe`select pg_sleep(0.3)`), driver.write(tx, tag), later]),
    ["fails"]
  ),
  ...leavesNested<DatabaseTransactionConnection>(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ pool }, job) =>
    Slonik.completeInTx(pool, job, { expect: false })
  ),
  {
    // the second body would have the first one's effects outside the database twice
    name: "a body that fails to be serialized runs once",
    contract: "C-40",
    handler: ({ pool }, job) =>
      Effect.suspend(() => {
        let runs = 0
        return Slonik.finalize(pool, job, (tx) => {
          runs++
          return tx.query(sql.unsafe`do $do$ begin raise exception using errcode = '40001'; end $do$`)
        }).pipe(Effect.catchTag("BodyFailed", () => new Ended({ with: `${runs} run` })))
      }),
    state: "failed",
    rows: 0,
    error: "Ended",
    message: '{ "with": "1 run" }'
  }
])
