import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Config, Effect, Fiber, Layer, Redacted, Schema } from "effect"
import * as Job from "effect-awa/Job"
import { TestDatabase, Testing } from "effect-awa/testing"
import { connect } from "../pg/database.js"
import { eventually, profile, server } from "./support.js"

const Later = Job.make("later", { payload: Schema.Int })

const settings = { default_transaction_isolation: "repeatable read", TimeZone: "Asia/Kathmandu" }

const Live = Testing.worker({ jobs: [Later] }).pipe(
  Layer.provide(Later.toLayer(() => Effect.void)),
  Layer.provideMerge(Testing.database({ server, profile, settings }))
)

describe("a test's database", () => {
  it.scoped("says why it could not be made, and never repeats the url", () =>
    Effect.gen(function* () {
      const nowhere = Config.succeed(Redacted.make("postgres://me:hunter2@127.0.0.1:1/postgres"))
      const error = yield* Effect.flip(TestDatabase.make({ server: nowhere }))
      assert.strictEqual(error._tag, "TestDatabaseError")
      assert.match(error.message, /^The test database: connect failed: .*ECONNREFUSED/)
      assert.notInclude(error.message, "hunter2")
    })
  )
})

describe("a test's database with settings of its own", () => {
  it.scopedLive(
    "has them in every session, and is drained although a statement of the test meets another transaction",
    () =>
      Effect.gen(function* () {
        const testing = yield* Testing.Testing
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* TestDatabase.TestDatabase
        const found =
          yield* sql`select current_setting('TimeZone') as zone, current_setting('transaction_isolation') as isolation`
        assert.deepStrictEqual(found, [{ zone: "Asia/Kathmandu", isolation: "repeatable read" }])

        const { id } = yield* Later.enqueue(1, { delay: "1 hour" })
        const other = yield* connect(Redacted.value(url))
        yield* other.script("begin")
        yield* other.rows("update awa.deferred_jobs set priority = 1 where job_id = $1", [id])
        const draining = yield* Effect.fork(testing.drain({ scheduled: true }))
        yield* eventually(
          "a drain that waits for the other transaction",
          Effect.map(
            sql`select from pg_stat_activity where application_name = 'effect-awa testing' and wait_event_type = 'Lock'
            and datname = current_database()`,
            ({ length }) => length > 0
          )
        )
        yield* other.script("commit")
        yield* Fiber.join(draining)
        yield* testing.expectState(id, "completed")
      }).pipe(Effect.provide(Live))
  )
})
