import { PrismaPg } from "@prisma/adapter-pg"
import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/Prisma"
import type { DriverUnderTest } from "../driver.js"
import { type Client, makeClient, type Transaction } from "./prisma/client.js"

const levels = {
  "read committed": "ReadCommitted",
  "repeatable read": "RepeatableRead",
  serializable: "Serializable"
} as const

const connect = async (url: string) => {
  const prisma = await makeClient(new PrismaPg({ connectionString: url, max: 1 }))
  // its first statement loads a compiler, which can take longer than a case waits for its connection
  await prisma.$queryRawUnsafe("select 1")
  return prisma
}

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => connect(Redacted.value(url))),
      (prisma) => Effect.promise(() => prisma.$disconnect())
    ),
    (prisma): DriverUnderTest<Transaction> & { readonly prisma: Client } => ({
      prisma,
      transaction: (isolation, body) => prisma.$transaction(body, { isolationLevel: levels[isolation] }),
      nested: (tx, body) => tx.$transaction(body),
      write: (tx, tag) => tx.row.create({ data: { tag } }),
      query: Adapter.query,
      autocommit: Adapter.query(prisma),
      finalize: (job, body, options) => Adapter.finalize(prisma, job, body, options)
    })
  )
