/** MikroORM: `npm run example -- drivers/mikroOrm`. */
import { EntitySchema } from "@mikro-orm/core"
import { MikroORM } from "@mikro-orm/postgresql"
import { Effect } from "effect"
import * as AwaMikroORM from "effect-awa/drivers/MikroORM"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

interface Invoice {
  id: number
  state: string
}

const Invoice = new EntitySchema<Invoice>({
  name: "Invoice",
  tableName: "invoices",
  properties: { id: { type: "integer", primary: true }, state: { type: "text" } }
})

runExample("MikroORM", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const { em } = yield* Effect.acquireRelease(
      Effect.promise(() => MikroORM.init({ clientUrl: url, entities: [Invoice] })),
      (orm) => Effect.promise(() => orm.close())
    )
    yield* step("a table", () => em.execute("create table invoices (id integer primary key, state text not null)"))

    const issue = (invoice: number, cents: number, mistaken = false) =>
      em.transactional(async (tx) => {
        tx.persist(tx.create(Invoice, { id: invoice, state: "open" }))
        await AwaMikroORM.enqueue(tx, Charge, { invoice, cents })
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
        return AwaMikroORM.finalize(em, job, async (tx) => {
          const found = await tx.findOneOrFail(Invoice, { id: invoice })
          found.state = "paid" // written by the unit of work
          await AwaMikroORM.enqueue(tx, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
