/** What pools refuse to start with, by name: options, what is installed, and the connections that the server gives. */
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Layer, Option, Redacted } from "effect"
import { ApplicationPool, RuntimePool } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import { collectLogs, database, type LogLine, server } from "./support.js"

const start = (options: RuntimePool.RuntimePoolOptions) => Effect.exit(Effect.scoped(RuntimePool.make(options)))

/** The typed failure; a defect is none. */
const failureOf = <A, E>(exit: Exit.Exit<A, E>): E | undefined =>
  Exit.isFailure(exit) ? Option.getOrUndefined(Cause.failureOption(exit.cause)) : undefined

describe("a runtime pool", () => {
  it.live("answers an option that breaks its rule by name, and never repeats a url", () =>
    Effect.gen(function* () {
      const url = Redacted.make("postgres://localhost:1/nothing")
      const secret = "postgres://u:hunter2@"
      for (const [option, options] of [
        ["url", { url: Redacted.make("not a url") }],
        ["url", { url: Redacted.make(`${secret}host:notaport/db`) }],
        ["url", { url: Redacted.make(`${secret}[::1/db`) }],
        ["url", { url: Redacted.make("") }],
        ["listenUrl", { url, listenUrl: Redacted.make(`${secret}host:notaport/db`) }],
        ["schema", { url, schema: "" }],
        ["schema", { url, schema: "ä".repeat(32) }],
        ["schema", { url, schema: "pg_mine" }],
        ["maxConnections", { url, maxConnections: 0 }],
        ["maxConnections", { url, maxConnections: 1.5 }]
      ] as const) {
        const failure = failureOf(yield* start(options))
        assert.deepInclude(failure, { _tag: "PoolMisconfigured", option })
        assert.notInclude(String(failure), "hunter2")
      }
      // 63 bytes are a name: the server is asked, and is not there
      assert.strictEqual(failureOf(yield* start({ url, schema: `${"ä".repeat(31)}x` }))?._tag, "DatabaseError")
    })
  )

  it.live("takes another product's meta for what it is, whatever its form", () =>
    // C-62
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const sql = yield* SqlClient.SqlClient
      for (const [schema, meta] of [
        ["other", "create table other.meta (key text, value text)"],
        [
          "renamed",
          "create table renamed.meta (product text, schema_version text, minimum_contract text, origin_id text)"
        ],
        ["numbered", "create sequence numbered.meta"],
        ["indexed", "create table indexed.t (a int); create index meta on indexed.t (a)"],
        ["viewed", "create view viewed.meta as select 'effect-awa' as product, 'x' as schema_version"]
      ] as const) {
        yield* sql.unsafe(`create schema ${schema}; ${meta}`)
        if (schema === "renamed") yield* sql`insert into renamed.meta values ('effect-awa', 'two', 'one', 'here')`
        const failure = failureOf(yield* start({ url, schema }))
        assert.deepInclude(failure, { _tag: "StartRefused", reason: "schema-missing" })
        assert.include(String(failure), "is not an installation of effect-awa")
      }
    }).pipe(Effect.provide(database()))
  )
})

describe("the connection budget of a start", () => {
  const started = (budget: ApplicationPool.BudgetOptions | undefined, maxConnections = 4) =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const lines: Array<LogLine> = []
      const exit = yield* Layer.build(
        ApplicationPool.layer({ budget }).pipe(
          Layer.provide(RuntimePool.layer({ url, maxConnections: 2 })),
          Layer.provide(PgClient.layer({ url, maxConnections }))
        )
      ).pipe(Effect.scoped, Effect.provide(collectLogs(lines)), Effect.exit)
      return { failure: failureOf(exit), lines: lines.map(({ message }) => message) }
    })

  it.live("is compared with the server's limits: a warning, or a refusal where it was asked to be strict", () =>
    // C-33
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const [limit] = yield* sql<{ n: number }>`select current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0) as n`
      const available = limit?.n ?? 0
      const most = Math.floor(available / 7) // 4 + 2 + 1 a process
      assert.deepStrictEqual(yield* started({ processes: most, strict: true }), { failure: undefined, lines: [] })
      const warned = yield* started({ processes: most + 1 })
      assert.strictEqual(warned.failure, undefined)
      assert.include(
        warned.lines.join(),
        `${most + 1} processes × (4 application + 3 runtime) = ${(most + 1) * 7} of ${available}`
      )
      const refused = yield* started({ processes: most + 1, strict: true })
      assert.deepInclude(refused.failure, {
        _tag: "ConnectionBudgetExceeded",
        needed: (most + 1) * 7,
        available
      })
      // a client that was made from a pool does not say how large it is
      assert.strictEqual(
        (yield* started({ processes: most, strict: true, applicationConnections: 5 })).failure?._tag,
        most * 8 > available ? "ConnectionBudgetExceeded" : undefined
      )
      assert.deepInclude((yield* started({ processes: 0 })).failure, {
        _tag: "PoolMisconfigured",
        option: "budget.processes"
      })
    }).pipe(Effect.provide(database("awa", server)))
  )
})
