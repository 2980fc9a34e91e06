import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Ref } from "effect"
import { ApplicationPool, RuntimePool } from "effect-awa"
import { FaultProxy, TestDatabase, Testing } from "effect-awa/testing"
import { database, eventually, insertRow, server } from "./support.js"
import { Charge, Direct, Notify, Proxies, run } from "./world.js"

/** What was called on a connection: the library's functions by name, anything else by its first word. */
const callOf = (sql: string): string => /"awa"\.(\w+)/.exec(sql)?.[1] ?? sql.trim().split(/\s/, 1)[0] ?? ""

describe("the two pools", () => {
  it.live("no runtime statement runs on an application connection, whatever a handler does with its transaction", () =>
    // C-30
    Effect.gen(function* () {
      const calls = yield* Ref.make<ReadonlySet<string>>(new Set())
      const over = yield* Deferred.make<void>()
      yield* run(
        {
          owned: (job) =>
            Effect.gen(function* () {
              const sql = yield* SqlClient.SqlClient
              // forks, nests and leaks: fibers that keep the transaction's connection in their context
              yield* Effect.forkDaemon(Effect.zipRight(Deferred.await(over), Effect.ignore(insertRow("leaked"))))
              return yield* job.finalize(
                Effect.gen(function* () {
                  yield* Effect.forkDaemon(
                    Effect.zipRight(Deferred.await(over), Effect.ignore(insertRow("leaked inside")))
                  )
                  yield* sql.withTransaction(insertRow("nested"))
                  yield* Notify.enqueue({ tag: job.payload.tag }).pipe(Effect.catchTag("PayloadRejected", Effect.die))
                  yield* Effect.sleep("150 millis") // heartbeats, ticks and flushes happen meanwhile
                })
              )
            }),
          worker: { beat: "20 millis" }
        },
        () =>
          Effect.gen(function* () {
            const testing = yield* Testing.Testing
            const { application } = yield* Proxies
            yield* application.rule({
              match: (statement) => {
                Effect.runSync(Ref.update(calls, (all) => new Set([...all, callOf(statement.sql)])))
                return false
              },
              action: FaultProxy.cutBefore()
            })
            yield* Charge.enqueueAll([{ tag: "1" }, { tag: "2" }, { tag: "3" }])
            yield* testing.drain()
            yield* Deferred.succeed(over, undefined)
            const sql = yield* Direct
            yield* eventually(
              "the leaked rows",
              Effect.map(sql`select from application_rows where tag = 'leaked'`, (rows) => rows.length === 3)
            )
            assert.sameMembers(
              [...(yield* Ref.get(calls))],
              ["begin;", "SAVEPOINT", "insert", "insert_batch", "complete_job", "commit"]
            )
            // the fiber that outlived its transaction did not write on a connection that is somebody else's by now
            assert.deepStrictEqual(
              yield* sql`select tag, count(*)::int as n from application_rows group by tag order by tag`,
              [
                { tag: "leaked", n: 3 },
                { tag: "nested", n: 3 }
              ]
            )
          })
      )
    })
  )

  it.live("the runtime goes on when every application connection is taken", () =>
    // C-31
    Effect.gen(function* () {
      yield* run({ ordinary: () => Effect.void, worker: { beat: "50 millis" } }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const sql = yield* SqlClient.SqlClient
          const direct = yield* Direct
          const hogs = yield* Effect.fork(
            Effect.all(
              Array.from({ length: 10 }, () => sql.withTransaction(Effect.zipRight(sql`select 1`, Effect.never))),
              { concurrency: "unbounded" }
            )
          )
          yield* eventually(
            "ten transactions",
            Effect.map(
              direct<{ n: number }>`select count(*)::int as n from pg_stat_activity
              where application_name = 'application' and state = 'idle in transaction' and datname = current_database()`,
              ([row]) => row?.n === 10
            )
          )
          const beats = direct<{ at: string }>`select beat_at::text as at from awa.runtimes`
          const [first] = yield* beats
          yield* direct`select awa.insert_job('notify', '{"tag": "a"}')`
          yield* testing.drain()
          yield* eventually(
            "a beat",
            Effect.map(beats, ([row]) => row?.at !== first?.at)
          )
          yield* Fiber.interrupt(hogs)
        })
      )
    })
  )

  it.live("must reach the same database", () =>
    // C-34
    Effect.gen(function* () {
      const other = yield* TestDatabase.make({ server })
      const refused = yield* Layer.build(
        ApplicationPool.layer().pipe(Layer.provide(RuntimePool.layer({ url: other.url })), Layer.provide(database()))
      ).pipe(Effect.scoped, Effect.flip)
      assert.strictEqual(refused._tag, "PoolMismatch")
      assert.match(refused.message, /Give your PgClient and the runtime's `database` .* the same primary database$/)
    }).pipe(Effect.scoped)
  )

  it.live("a runtime without a schema, or behind its contract, is refused and writes nothing", () =>
    // C-62
    Effect.gen(function* () {
      const own = yield* TestDatabase.make({ server })
      const start = (schema: string, url = own.url) =>
        Layer.build(RuntimePool.layer({ url, schema })).pipe(Effect.scoped, Effect.exit)
      const reason = (exit: Exit.Exit<unknown, unknown>) => (Exit.isFailure(exit) ? String(exit.cause) : "started")
      const missing = reason(yield* start("nowhere"))
      assert.include(missing, "schema-missing")
      assert.include(missing, `of the database "${own.name}"; run \`awa migrate --schema nowhere\``)
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* TestDatabase.TestDatabase
        yield* sql`update awa.meta set schema_version = 99, minimum_contract = 1`
        assert.strictEqual(reason(yield* start("awa", url)), "started")
        yield* sql`update awa.meta set minimum_contract = 2`
        assert.include(reason(yield* start("awa", url)), "contract-unsupported")
      }).pipe(Effect.provide(database()))
    }).pipe(Effect.scoped)
  )
})
