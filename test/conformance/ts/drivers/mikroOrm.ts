import { EntitySchema, IsolationLevel } from "@mikro-orm/core"
import { type EntityManager, MikroORM } from "@mikro-orm/postgresql"
import { Effect, Redacted } from "effect"
import * as Adapter from "effect-awa/drivers/MikroORM"
import type { DriverUnderTest } from "../driver.js"

export interface Row {
  tag: string
}

export const Row = new EntitySchema<Row>({
  name: "Row",
  tableName: "application_rows",
  properties: { tag: { type: "text", primary: true } }
})

/** An entity whose table is not there. */
export const Missing = new EntitySchema<Row>({
  name: "Missing",
  tableName: "missing_rows",
  properties: { tag: { type: "text", primary: true } }
})

const levels = {
  "read committed": IsolationLevel.READ_COMMITTED,
  "repeatable read": IsolationLevel.REPEATABLE_READ,
  serializable: IsolationLevel.SERIALIZABLE
}

const connect = (url: string) =>
  MikroORM.init({
    clientUrl: url,
    entities: [Row, Missing],
    pool: { min: 0, max: 1 },
    discovery: { warnWhenNoEntities: false },
    // a log of its own about connections that end
    logger: () => undefined
  })

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => connect(Redacted.value(url))),
      (orm) => Effect.promise(() => orm.close(true))
    ),
    ({ em }): DriverUnderTest<EntityManager> & { readonly em: EntityManager } => ({
      em,
      transaction: (isolation, body) => em.transactional(body, { isolationLevel: levels[isolation] }),
      nested: (tx, body) => tx.transactional(body),
      write: (tx, tag) => tx.insert(Row, { tag }),
      query: Adapter.query,
      autocommit: Adapter.query(em),
      finalize: (job, body, options) => Adapter.finalize(em, job, body, options)
    })
  )
