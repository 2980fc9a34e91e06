import { Effect, Predicate, Redacted, String as Text } from "effect"
import * as Adapter from "effect-awa/drivers/Knex"
import Knex, { type Knex as KnexTypes } from "knex"
import type { DriverUnderTest } from "../driver.js"

/** As applications do it that write their names in another case. */
const camelCase = (answer: unknown): unknown => {
  const rename = (row: unknown): unknown =>
    Predicate.isReadonlyRecord(row)
      ? Object.fromEntries(Object.entries(row).map(([name, value]) => [Text.snakeToCamel(name), value]))
      : row
  if (Predicate.hasProperty(answer, "rows") && Array.isArray(answer.rows)) return { rows: answer.rows.map(rename) }
  return Array.isArray(answer) ? answer.map(rename) : answer
}

export const open = (url: Redacted.Redacted) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() =>
        Knex.knex({
          client: "pg",
          connection: Redacted.value(url),
          pool: { min: 0, max: 1 },
          postProcessResponse: camelCase,
          wrapIdentifier: (name, wrap) => wrap(Text.camelToSnake(name))
        })
      ),
      (knex) => Effect.promise(() => knex.destroy())
    ),
    (knex): DriverUnderTest<KnexTypes.Transaction> & { readonly knex: typeof knex } => ({
      knex,
      transaction: (isolationLevel, body) => knex.transaction(body, { isolationLevel }),
      nested: (trx, body) => trx.transaction(body),
      write: async (trx, tag) => trx("applicationRows").insert({ tag }),
      query: Adapter.query,
      autocommit: Adapter.query(knex),
      finalize: (job, body, options) => Adapter.finalize(knex, job, body, options)
    })
  )
