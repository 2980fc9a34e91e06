/** Mutants of the adapters for other drivers. */
import type { Mutant } from "../mutants.js"

const suite = "test/conformance/ts/conformance.test.ts"

export const driverMutants: ReadonlyArray<Mutant> = [
  ...["expect_completion", "complete_job"].map((statement) => ({
    name: `wait for ever where ${statement} is never answered`,
    file: "src/internal/applicationConnection.ts",
    from: "setTimeout(() => cut(client), millis)",
    to: "setTimeout(() => undefined, millis)",
    suite: "test/conformance/ts/effectSql.test.ts",
    test: `whose ${statement} is never answered ends in time, and its attempt runs again`
  })),
  {
    name: "send all parts of a flush that failed at once",
    file: "src/Completion.ts",
    from: "isPart ? parts.withPermits(1)(sent) : sent",
    to: "sent",
    suite: "test/runtime/Flush.test.ts",
    test: "that fails as a whole takes no more than a few of the runtime's connections while it is tried in parts"
  },
  {
    name: "finalize in another driver without expecting the completion",
    file: "src/Driver.ts",
    from: "await expectCompletion(query, attempt, { maximumMillis: step.maximumMillis + 1_000 })",
    to: "void step.maximumMillis",
    suite,
    test: "pg a body that commits by itself (C-41)"
  },
  {
    name: "complete in another driver without expecting it",
    file: "src/Driver.ts",
    from: "if (options?.expect !== false && !(await isExpected(query, token))) await expectCompletion(query, attempt)",
    to: "void isExpected",
    suite,
    test: "postgres.js completion outside a transaction (C-12)"
  },
  {
    name: "take an expectation of an earlier transaction for this one's",
    file: "src/Driver.ts",
    from: 'return row?.["xid"] === String(xid)',
    to: "return row !== undefined",
    suite,
    test: "pg swallowed in the second transaction of a handler: COMMIT fails (C-41)"
  },
  {
    name: "complete after the time of another driver's transaction",
    file: "src/internal/driverFinalize.ts",
    from: "if (tooLong || abandon.signal.aborted) throw tooLongNow()",
    to: "",
    suite,
    test: "pg a body that takes too long (C-40)"
  },
  {
    name: "complete for a handler that was interrupted",
    file: "src/internal/driverFinalize.ts",
    from: 'if (interrupted.aborted) throw new Interrupted("the handler was interrupted")',
    to: "void Interrupted",
    suite,
    test: "pg a body whose handler is interrupted (C-17)"
  },
  {
    name: "wait for a body that never ends with its connection",
    file: "src/drivers/Pg.ts",
    from: "    await orLost(\n      orGivenUp(",
    to: "    await (\n      orGivenUp(",
    suite,
    test: "pg a connection that the server ends under a waiting body (C-17)"
  },
  {
    name: "keep an attempt for whoever keeps its token",
    file: "src/Reconciliation.ts",
    from: "unbindToken(token)\n",
    to: "void unbindToken\n",
    suite,
    test: "pg an attempt whose handler has ended is unknown here, so that a kept token keeps nothing alive (C-17)"
  },
  {
    name: "take a lost COMMIT of another driver for a rollback",
    file: "src/internal/driverFinalize.ts",
    from: "return state === undefined || isAmbiguous(state)",
    to: "return isAmbiguous(String(state))",
    suite,
    test: "postgres.js lost acknowledgement of COMMIT (C-17)"
  },
  {
    name: "complete in a transaction that a body of node-postgres has ended",
    file: "src/drivers/Pg.ts",
    from: "if (isIdleClient(client)) {",
    to: "if (!isIdleClient(client) && false) {",
    suite,
    test: "pg a body that ends its transaction, whose completion was not expected (C-41)"
  }
]
