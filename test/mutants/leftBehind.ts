/** Mutants of what keeps a body from a transaction that is no longer its own. */
import type { Mutant } from "../mutants.js"

const drivers = "test/conformance/ts/conformance.test.ts"
const kysely = "test/conformance/ts/kysely.test.ts"
const drizzle = "test/conformance/ts/drizzle.test.ts"
const slonik = "test/conformance/ts/slonik.test.ts"
const typeorm = "test/conformance/ts/typeorm.test.ts"

const reaches = (driver: string, what: string, settles: "fails" | "succeeds"): string =>
  `${driver} ${what} left behind by a body that ${settles} reaches nobody else's transaction (C-13)`

export const leftBehindMutants: ReadonlyArray<Mutant> = [
  {
    name: "close a transaction only to a body that was given up",
    file: "src/internal/givenUp.ts",
    from: "      .finally(closable.close)\n",
    to: "",
    suite: drivers,
    test: reaches("pg", "a statement", "fails")
  },
  {
    name: "close a transaction only to a body that fails",
    file: "src/internal/givenUp.ts",
    from: "      .finally(closable.close)\n",
    to: "      .catch((error: unknown) => {\n        closable.close()\n        throw error\n      })\n",
    suite: drivers,
    test: reaches("pg", "a statement", "succeeds")
  },
  {
    name: "leave a transaction open to a body that was given up",
    file: "src/internal/givenUp.ts",
    from: "        closable.close()\n",
    to: "",
    suite: kysely,
    test: "Kysely a body that goes on writing after its transaction was given up (C-40, C-41)"
  },
  {
    name: "let a body keep the client of node-postgres",
    file: "src/internal/closableClient.ts",
    from: "gate.isClosed() ? refuse(gate.refusal(), args) : ",
    to: "gate.isClosed() && false ? refuse(gate.refusal(), args) : ",
    suite: drivers,
    test: reaches("pg", "a statement", "fails")
  },
  {
    name: "send a query of postgres.js that was made in time",
    file: "src/internal/closableSql.ts",
    from: "if (gate.isClosed()) Reflect.apply(reject, query",
    to: "if (gate.isClosed() && false) Reflect.apply(reject, query",
    suite: drivers,
    test: reaches("postgres.js", "a query made in time and", "fails")
  },
  {
    name: "let postgres.js end a savepoint in somebody else's transaction",
    file: "src/internal/guardedNested.ts",
    from: "if (!gate.isClosed()) return settle()",
    to: "if (!gate.isClosed() || gate.isClosed()) return settle()",
    suite: drivers,
    test: reaches("postgres.js", "a savepoint that fails,", "fails")
  },
  {
    name: "let postgres.js begin a savepoint in somebody else's transaction",
    file: "src/internal/closableSql.ts",
    from: "if (gate.isClosed()) return Promise.reject(gate.refusal())",
    to: "if (gate.isClosed() && false) return Promise.reject(gate.refusal())",
    suite: drivers,
    test: reaches("postgres.js", "a notification", "fails")
  },
  {
    name: "send a compiled query of Kysely that was left behind",
    file: "src/internal/closableKysely.ts",
    from: "    gate.check()\n    return connection.executeQuery",
    to: "    return connection.executeQuery",
    suite: kysely,
    test: reaches("Kysely", "a series of statements", "succeeds")
  },
  {
    name: "give a body of Drizzle its own client",
    file: "src/internal/drizzleClient.ts",
    from: "if (isPooled(client)) return closableClient(client)",
    to: "if (isPooled(client)) return { tx: client, close: closableClient(client).close }",
    suite: drizzle,
    test: reaches("Drizzle over node-postgres", "a statement", "fails")
  },
  {
    name: "give a body of Drizzle its own transaction of postgres.js",
    file: "src/internal/drizzleClient.ts",
    from: '"savepoint") ? closableSql(client) : undefined',
    to: '"savepoint") ? { tx: client, close: closableSql(client).close } : undefined',
    suite: drizzle,
    test: reaches("Drizzle over postgres.js", "a statement", "fails")
  },
  {
    name: "leave Drizzle's queries by relation their session",
    file: "src/internal/drizzleClient.ts",
    from: "get: (_, name): unknown => Reflect.get(own, name)",
    to: 'get: (_, name): unknown => Reflect.get(name === "query" ? tx : own, name)',
    suite: drizzle,
    test: reaches("Drizzle over node-postgres", "a query by relation", "fails")
  },
  {
    name: "send after ROLLBACK what Slonik holds back",
    file: "src/internal/closableSlonik.ts",
    from: "const answered = last.then(() => {",
    to: "const answered = Promise.resolve().then(() => {",
    suite: slonik,
    test: reaches("Slonik", "a statement that waits for another", "fails")
  },
  {
    name: "give a body of TypeORM its client",
    file: "src/internal/closableManager.ts",
    from: "guardedClient(client, gate) : client",
    to: "(void guardedClient, client) : client",
    suite: typeorm,
    test: reaches("TypeORM", "a series of statements", "succeeds")
  }
]
