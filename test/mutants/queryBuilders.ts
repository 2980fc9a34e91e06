/** Mutants of the adapters for Kysely, Drizzle and Knex. */
import type { Mutant } from "../mutants.js"

const kysely = "test/conformance/ts/kysely.test.ts"
const drizzle = "test/conformance/ts/drizzle.test.ts"
const knex = "test/conformance/ts/knex.test.ts"

export const queryBuilderMutants: ReadonlyArray<Mutant> = [
  {
    name: "take Kysely's notice of a COMMIT that rolled back for an unknown end",
    file: "src/drivers/Kysely.ts",
    from: 'error.name === "AbortedTransactionError"',
    to: 'error.name === ""',
    suite: kysely,
    test: "Kysely a statement that fails unawaited after the completion: the driver notices (C-42)"
  },
  {
    name: "complete by a driver that is in no transaction",
    file: "src/DriverAdapter.ts",
    from: "within(depth(tx), Infinity)",
    to: "",
    suite: kysely,
    test: "Kysely refused before SQL: outside a transaction (C-41)"
  },
  {
    name: "number Drizzle's parameters by their places",
    file: "src/drivers/Drizzle.ts",
    from: "values[Number(part) - 1]",
    to: "values[(index - 1) / 2]",
    suite: drizzle,
    test: "Drizzle over node-postgres the server's own limits (C-40)"
  },
  {
    name: "take Drizzle's nested transaction for an outer one",
    file: "src/drivers/Drizzle.ts",
    from: "? 1 + tx.nestedIndex : 1",
    to: "? 1 : 1",
    suite: drizzle,
    test: "Drizzle over node-postgres refused before SQL: an expectation in a nested transaction (C-41)"
  },
  {
    name: "listen to no error of Drizzle's client",
    file: "src/drivers/Drizzle.ts",
    from: 'client.on("error", onError)',
    to: "void onError",
    suite: drizzle,
    test: "Drizzle over node-postgres a connection that the server ends under a waiting body (C-17)"
  },
  {
    name: "let a failed ROLLBACK hide why the transaction failed",
    file: "src/DriverAdapter.ts",
    from: "throw failure === undefined ? error : failure.error",
    to: "throw error",
    suite: kysely,
    test: "Kysely a body that fails on a connection that has ended (C-14)"
  },
  {
    name: "take Knex's rolled back transaction for a completion",
    file: "src/drivers/Knex.ts",
    from: 'if (only === undefined) throw new Error("the transaction ended without its body")',
    to: "",
    suite: knex,
    test: "Knex a body that rolls back by itself (C-10)"
  },
  {
    name: "complete by a transaction of Knex that has ended",
    file: "src/drivers/Knex.ts",
    from: " || trx.isCompleted()",
    to: "",
    suite: knex,
    test: "Knex refused before SQL: after the transaction (C-41)"
  }
]
