/** TypeORM's adapter, in TypeORM's own transactions, against a real worker. */
import * as TypeORM from "effect-awa/drivers/TypeORM"
import type { EntityManager } from "typeorm"
import { open } from "./drivers/typeorm.js"
import { leavesAtOnce, leavesNested } from "./leftBehind.js"
import { failsOnLostConnection, failsUnawaited, refusedBeforeSql } from "./particulars.js"
import { conformance } from "./suite.js"

conformance("TypeORM", open, [
  failsUnawaited(),
  failsOnLostConnection(),
  ...leavesAtOnce<EntityManager>(),
  ...leavesNested<EntityManager>(),
  refusedBeforeSql("outside a transaction", "no transaction is open", ({ dataSource }, job) =>
    TypeORM.completeInTx(dataSource.manager, job, { expect: false })
  ),
  refusedBeforeSql("after the transaction", "no transaction is open", async ({ dataSource }, job) => {
    const runner = dataSource.createQueryRunner()
    await runner.startTransaction()
    await runner.commitTransaction()
    await TypeORM.completeInTx(runner.manager, job, { expect: false }).finally(() => runner.release())
  }),
  refusedBeforeSql(
    "an expectation in a nested transaction",
    "a completion is expected before any savepoint or nested transaction",
    ({ dataSource }, job) =>
      dataSource.transaction((manager) => manager.transaction((inner) => TypeORM.expectCompletion(inner, job)))
  )
])
