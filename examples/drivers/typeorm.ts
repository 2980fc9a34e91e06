/** TypeORM: `npm run example -- drivers/typeorm`. */
import { Effect } from "effect"
import * as TypeORM from "effect-awa/drivers/TypeORM"
import { DataSource, EntitySchema, EntitySchemaOptions } from "typeorm"
import { approve, Charge, runExample, SendReceipt } from "./support.js"

interface Invoice {
  id: number
  state: string
}

const options = new EntitySchemaOptions<Invoice>()
options.name = "invoices"
options.columns = { id: { type: "integer", primary: true }, state: { type: "text" } }
const Invoice = new EntitySchema(options)

runExample("TypeORM", ({ check, rollsBack, step, url, work }) =>
  Effect.gen(function* () {
    const dataSource = yield* Effect.acquireRelease(
      Effect.promise(() => new DataSource({ type: "postgres", url, entities: [Invoice] }).initialize()),
      (dataSource) => Effect.promise(() => dataSource.destroy())
    )
    yield* step("a table", () => dataSource.synchronize())

    const issue = (invoice: number, cents: number, mistaken = false) =>
      dataSource.transaction(async (manager) => {
        await manager.insert(Invoice, { id: invoice, state: "open" })
        await TypeORM.enqueue(manager, Charge, { invoice, cents })
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
        return TypeORM.finalize(dataSource, job, async (manager) => {
          await manager.update(Invoice, { id: invoice }, { state: "paid" })
          await TypeORM.enqueue(manager, SendReceipt, { invoice })
          approve(cents)
        })
      })
    )
    yield* check(1, { state: "paid", charge: "completed", receipts: 1 })
    yield* check(2, { state: "open", charge: "failed", receipts: 0 })
  })
)
