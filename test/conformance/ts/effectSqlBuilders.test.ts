/** Repositories that are written with sql-drizzle or sql-kysely: made once, outside, they join the transaction that is open. */
import { SqlClient } from "@effect/sql"
import type { SqlError } from "@effect/sql/SqlError"
import * as PgDrizzle from "@effect/sql-drizzle/Pg"
import * as PgKysely from "@effect/sql-kysely/Pg"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import * as EffectSql from "effect-awa/drivers/EffectSql"
import { Testing } from "effect-awa/testing"
import { is } from "drizzle-orm"
import { PgTable, pgTable, text } from "drizzle-orm/pg-core"
import type { PgTable as CommonJsTable } from "drizzle-orm/pg-core" with { "resolution-mode": "require" }
import { countRows, protocolEvents, rescueNow } from "../../runtime/support.js"
import { Charge, Declined, Direct, errorNames, type Owned, type OwnedHandler, run } from "../../runtime/world.js"

interface Repository {
  readonly insert: (tag: string) => Effect.Effect<unknown, SqlError>
  readonly count: (tag: string) => Effect.Effect<number, SqlError>
}

/** sql-drizzle's types name drizzle-orm's CommonJS ones; at run time there is one Drizzle. */
const isTable = (value: unknown): value is CommonJsTable => is(value, PgTable)
const applicationRows: unknown = pgTable("application_rows", { tag: text().notNull() })

const repositories: Readonly<Record<string, Effect.Effect<Repository, never, SqlClient.SqlClient>>> = {
  "sql-drizzle": Effect.map(PgDrizzle.make(), (db) => {
    if (!isTable(applicationRows)) throw new Error("no table")
    const table = applicationRows
    return {
      insert: (tag) => db.insert(table).values({ tag }),
      count: () => Effect.map(db.select().from(table), (rows) => rows.length)
    }
  }),
  "sql-kysely": Effect.map(PgKysely.make<{ application_rows: { tag: string } }>(), (db) => ({
    insert: (tag) => db.insertInto("application_rows").values({ tag }),
    count: () => Effect.map(db.selectFrom("application_rows").selectAll(), (rows) => rows.length)
  }))
}

/** The two ways to a transaction: the application's own, and the library's. */
const transactions = {
  "EffectSql.inTransaction": (job: Owned, body) =>
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      sql.withTransaction(EffectSql.inTransaction(job, Effect.zipRight(body, job.completeInTx)))
    ),
  "job.finalize": (job: Owned, body) => job.finalize(body)
} satisfies Record<string, (job: Owned, body: Effect.Effect<unknown, SqlError | Declined>) => ReturnType<OwnedHandler>>

const enqueueAndDrain = Effect.gen(function* () {
  const testing = yield* Testing.Testing
  const { id } = yield* Charge.enqueue({ tag: "a" }, { maxAttempts: 1 })
  yield* testing.drain()
  return yield* Effect.flatMap(testing.jobs, (jobs) =>
    Effect.fromNullable(jobs.find((job) => job.id === id)).pipe(Effect.orDie)
  )
})

for (const [name, repository] of Object.entries(repositories)) {
  describe(`a repository by ${name}`, () => {
    for (const [way, transaction] of Object.entries(transactions)) {
      const handler =
        (body: (rows: Repository) => Effect.Effect<unknown, SqlError | Declined, SqlClient.SqlClient>): OwnedHandler =>
        (job) =>
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            const rows = yield* repository
            return yield* transaction(job, Effect.provideService(body(rows), SqlClient.SqlClient, sql))
          })

      it.live(`commits with the completion, by ${way}`, () =>
        // C-12, C-13
        run({ owned: handler((rows) => rows.insert("a")) }, (lines) =>
          Effect.gen(function* () {
            assert.strictEqual((yield* enqueueAndDrain).state, "completed")
            assert.strictEqual(yield* countRows("a"), 1)
            assert.deepStrictEqual(protocolEvents(lines), [])
          })
        )
      )

      it.live(`reads what it wrote there, and is rolled back, by ${way}`, () =>
        // C-13
        run(
          {
            owned: handler((rows) =>
              Effect.gen(function* () {
                yield* rows.insert("a")
                if ((yield* rows.count("a")) !== 1) return yield* Effect.dieMessage("it is elsewhere")
                return yield* new Declined()
              })
            )
          },
          () =>
            Effect.gen(function* () {
              const job = yield* enqueueAndDrain
              assert.deepStrictEqual([job.state, ...errorNames(job)], ["failed", "Declined"])
              assert.strictEqual(yield* countRows("a"), 0)
            })
        )
      )

      it.live(`leaves no row of a stale attempt, by ${way}`, () =>
        // C-14; the rescue is on a connection of its own
        Effect.gen(function* () {
          const direct = yield* Deferred.make<SqlClient.SqlClient>()
          const owned: OwnedHandler = (job) =>
            Effect.gen(function* () {
              const rows = yield* repository
              yield* Effect.orDie(rescueNow(yield* Deferred.await(direct)))
              return yield* transaction(job, rows.insert("a"))
            })
          yield* run({ owned }, () =>
            Effect.gen(function* () {
              yield* Deferred.succeed(direct, yield* Direct)
              assert.strictEqual((yield* enqueueAndDrain).state, "failed")
              assert.strictEqual(yield* countRows("a"), 0)
            })
          )
        })
      )
    }
  })
}
