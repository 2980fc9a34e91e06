/** Mutants of the adapters for TypeORM, Slonik, MikroORM and Prisma. */
import type { Mutant } from "../mutants.js"

const typeorm = "test/conformance/ts/typeorm.test.ts"
const slonik = "test/conformance/ts/slonik.test.ts"
const mikroOrm = "test/conformance/ts/mikroOrm.test.ts"
const prisma = "test/conformance/ts/prisma.test.ts"

export const ormMutants: ReadonlyArray<Mutant> = [
  {
    name: "take TypeORM's nested transaction for its outer one",
    file: "src/drivers/TypeORM.ts",
    from: "? queryRunner.transactionDepth",
    to: "? 1",
    suite: typeorm,
    test: "TypeORM refused before SQL: an expectation in a nested transaction (C-41)"
  },
  {
    name: "let Slonik run a body again",
    file: "src/drivers/Slonik.ts",
    from: "pool.transaction(body, 0)",
    to: "pool.transaction(body)",
    suite: slonik,
    test: "Slonik a body that fails to be serialized runs once (C-40)"
  },
  {
    name: "take Slonik's pool for a transaction",
    file: "src/drivers/Slonik.ts",
    from: 'hasProperty(connection, "connect") ? 0 : 1',
    to: 'hasProperty(connection, "connect") ? 1 : 1',
    suite: slonik,
    test: "Slonik refused before SQL: outside a transaction (C-41)"
  },
  {
    name: "take MikroORM's nested transaction for its outer one",
    file: "src/drivers/MikroORM.ts",
    from: '"savepointName") ? 2 : 1',
    to: '"savepointName") ? 1 : 1',
    suite: mikroOrm,
    test: "MikroORM refused before SQL: an expectation in a nested transaction (C-41)"
  },
  {
    name: "leave MikroORM's unit of work to its COMMIT",
    file: "src/drivers/MikroORM.ts",
    from: "await tx.flush()",
    to: "",
    suite: mikroOrm,
    test: "MikroORM what the body leaves to the unit of work is written before the completion (C-12)"
  },
  {
    name: "hand MikroORM the server's marks",
    file: "src/drivers/MikroORM.ts",
    from: "em.execute(marked, bindings)",
    to: "em.execute(text, bindings)",
    suite: mikroOrm,
    test: "MikroORM commit (C-12, C-13)"
  },
  {
    name: "read Prisma's own codes only",
    file: "src/drivers/Prisma.ts",
    from: "throw inStatement(error)",
    to: "throw (void inStatement, error)",
    suite: prisma,
    test: "Prisma completion inside a savepoint that nothing was expected before (C-41)"
  },
  {
    name: "take Prisma's client for a transaction",
    file: "src/drivers/Prisma.ts",
    from: 'hasProperty(tx, "$connect") ? 0 : 1',
    to: 'hasProperty(tx, "$connect") ? 1 : 1',
    suite: prisma,
    test: "Prisma refused before SQL: outside a transaction (C-41)"
  },
  {
    name: "leave Prisma its own timeout",
    file: "src/drivers/Prisma.ts",
    from: "timeout: maximumMillis + graceMillis",
    to: "timeout: maximumMillis + 100 * graceMillis",
    suite: prisma,
    test: "Prisma a body that never ends, and one after it on the same connection pool (C-40)"
  },
  {
    name: "answer Prisma with a column that it cannot read",
    file: "src/internal/completionCall.ts",
    from: ".expect_completion(${tokenArguments})::text",
    to: ".expect_completion(${tokenArguments})",
    suite: prisma,
    test: "Prisma commit (C-12, C-13)"
  },
  {
    name: "ask more of a generated client than it has",
    file: "src/drivers/Prisma.ts",
    from: "PromiseLike<number>",
    to: "PromiseLike<string>",
    suite: prisma,
    test: "a generated client is what the adapter asks for"
  }
]
