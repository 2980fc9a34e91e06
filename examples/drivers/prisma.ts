/** Prisma: `npm run example -- drivers/prisma`. */
import { PrismaPg } from "@prisma/adapter-pg"
import { Effect } from "effect"
import * as Prisma from "effect-awa/drivers/Prisma"
import { prismaClient } from "./prisma/client.js"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

runExample("Prisma", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const prisma = yield* Effect.acquireRelease(
      Effect.promise(() => prismaClient(new PrismaPg({ connectionString: url }))),
      (prisma) => Effect.promise(() => prisma.$disconnect())
    )
    yield* step("a table", () =>
      prisma.$executeRawUnsafe("create table invoices (id integer primary key, state text not null)")
    )

    const issue = (invoice: number, cents: number, mistaken = false) =>
      prisma.$transaction(async (tx) => {
        await tx.invoice.create({ data: { id: invoice, state: "open" } })
        await Prisma.enqueue(tx, Charge, { invoice, cents })
        if (mistaken) throw new Error("a mistake")
      })
    yield* step("invoice 1 is issued", () => issue(1, 4_200))
    yield* step("invoice 2 is issued, over an amount that nobody has approved", () => issue(2, 990_000))
    yield* rollsBack("invoice 3 is a mistake", () => issue(3, 100, true))
    yield* check(1, { state: "open", charge: "available", receipts: 0 })
    yield* check(3, { state: undefined, charge: undefined, receipts: 0 })

    yield* work(
      Charge.toLayerCallerOwned((job) => {
        const { cents, invoice } = job.payload
        return Prisma.finalize(prisma, job, async (tx) => {
          await tx.invoice.update({ where: { id: invoice }, data: { state: "paid" } })
          await Prisma.enqueue(tx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
