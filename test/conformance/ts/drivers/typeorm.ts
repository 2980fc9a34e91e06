import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/TypeORM"
import { DataSource, type EntityManager, EntitySchema, EntitySchemaOptions } from "typeorm"
import type { DriverUnderTest } from "../driver.js"

const options = new EntitySchemaOptions<{ tag: string }>()
options.name = "Row"
options.tableName = "application_rows"
options.columns = { tag: { type: "text", primary: true } }
const Row = new EntitySchema(options)

const levels = {
  "read committed": "READ COMMITTED",
  "repeatable read": "REPEATABLE READ",
  serializable: "SERIALIZABLE"
} as const

export const connect = (url: string) =>
  new DataSource({
    type: "postgres",
    url,
    entities: [Row],
    // the privileges of an application are not an administrator's
    installExtensions: false,
    extra: { max: 1 }
  }).initialize()

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => connect(Redacted.value(url))),
      (dataSource) => Effect.promise(() => dataSource.destroy())
    ),
    (dataSource): DriverUnderTest<EntityManager> & { readonly dataSource: DataSource } => ({
      dataSource,
      transaction: (isolation, body) => dataSource.transaction(levels[isolation], body),
      nested: (manager, body) => manager.transaction(body),
      write: (manager, tag) => manager.insert(Row, { tag }),
      query: Adapter.query,
      autocommit: Adapter.query(dataSource.manager),
      finalize: (job, body, options) => Adapter.finalize(dataSource, job, body, options)
    })
  )
