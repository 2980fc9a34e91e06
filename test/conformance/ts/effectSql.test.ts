/** Transactions of the application's own `@effect/sql` client, with what is joined to them. */
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import * as EffectSql from "effect-awa/drivers/EffectSql"
import { FaultProxy, Testing } from "effect-awa/testing"
import { countRows, insertRow, protocolEvents, rescueNow } from "../../runtime/support.js"
import { Charge, Direct, errorNames, Notify, type OwnedHandler, Proxies, run } from "../../runtime/world.js"

const enqueueAndDrain = Effect.gen(function* () {
  const testing = yield* Testing.Testing
  const { id } = yield* Charge.enqueue({ tag: "a" }, { maxAttempts: 1 })
  yield* testing.drain()
  return yield* Effect.flatMap(testing.jobs, (jobs) =>
    Effect.fromNullable(jobs.find((job) => job.id === id)).pipe(Effect.orDie)
  )
})

const inOwnTransaction =
  (body: OwnedHandler): OwnedHandler =>
  (job) =>
    Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(body(job)))

const work = insertRow("a")

describe("a transaction of the application's own client", () => {
  it.live("commits its rows, what joined it and the completion together", () =>
    // C-12, C-13
    run(
      {
        owned: inOwnTransaction((job) =>
          EffectSql.inTransaction(
            job,
            Effect.gen(function* () {
              const sql = yield* SqlClient.SqlClient
              yield* sql.withTransaction(work)
              yield* Notify.enqueue({ tag: "follows" })
              return yield* job.completeInTx
            })
          )
        )
      },
      (lines) =>
        Effect.gen(function* () {
          assert.strictEqual((yield* enqueueAndDrain).state, "completed")
          assert.strictEqual(yield* countRows("a"), 1)
          assert.strictEqual((yield* (yield* Testing.Testing).jobs).length, 2)
          assert.deepStrictEqual(protocolEvents(lines), [])
        })
    )
  )

  for (const statement of ["expect_completion", "complete_job"]) {
    it.live(`whose ${statement} is never answered ends in time, and its attempt runs again`, () =>
      // C-40, F-74: neither may be interrupted
      Effect.gen(function* () {
        const owned = inOwnTransaction((job) =>
          EffectSql.inTransaction(job, Effect.zipRight(work, job.completeInTx), { maximumDuration: "500 millis" })
        )
        yield* run({ owned }, () =>
          Effect.gen(function* () {
            const testing = yield* Testing.Testing
            const { application } = yield* Proxies
            const silent = yield* application.rule({
              match: new RegExp(statement),
              action: FaultProxy.blackHole("to-client"),
              limit: 1
            })
            const { id } = yield* Charge.enqueue({ tag: "a" })
            yield* testing.drain({ scheduled: true })
            const row = yield* testing.expectState(id, "completed")
            assert.strictEqual((yield* silent.counts).injected, 1)
            assert.strictEqual(row.runLease, 2n)
            assert.strictEqual(yield* countRows("a"), 1)
          })
        )
      })
    )
  }

  it.live("rolls back what a swallowed stale completion would have left", () =>
    // C-41
    Effect.gen(function* () {
      const direct = yield* Deferred.make<SqlClient.SqlClient>()
      const owned: OwnedHandler = (job) =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          yield* Effect.orDie(rescueNow(yield* Deferred.await(direct)))
          yield* sql.withTransaction(
            EffectSql.inTransaction(job, Effect.zipRight(work, Effect.ignore(sql.withTransaction(job.completeInTx))))
          )
          return yield* Effect.dieMessage("it committed")
        })
      yield* run({ owned }, () =>
        Effect.gen(function* () {
          yield* Deferred.succeed(direct, yield* Direct)
          const job = yield* enqueueAndDrain
          assert.strictEqual(job.state, "failed")
          assert.strictEqual(yield* countRows("a"), 0)
        })
      )
    })
  )

  it.live("is refused where none is open, and in a nested one", () =>
    // C-41
    Effect.gen(function* () {
      const nested: OwnedHandler = (job) =>
        Effect.flatMap(SqlClient.SqlClient, (sql) =>
          sql.withTransaction(
            Effect.zipRight(work, sql.withTransaction(EffectSql.inTransaction(job, job.completeInTx)))
          )
        )
      const none: OwnedHandler = (job) => Effect.zipRight(work, EffectSql.inTransaction(job, job.completeInTx))
      for (const [owned, rows] of [
        [nested, 0],
        [none, 1]
      ] as const) {
        yield* run({ owned }, () =>
          Effect.gen(function* () {
            const job = yield* enqueueAndDrain
            assert.strictEqual(job.state, "failed")
            assert.deepStrictEqual(errorNames(job), ["TransactionUnavailable"])
            assert.strictEqual(yield* countRows("a"), rows)
          })
        )
      }
    })
  )

  it.live("that another client opened has the server's own word about savepoints", () =>
    // C-41: the depth that this fiber knows of is not all there is
    Effect.gen(function* () {
      const owned: OwnedHandler = inOwnTransaction((job) =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          yield* sql`savepoint by_hand`
          yield* work
          return yield* EffectSql.inTransaction(job, job.completeInTx)
        })
      )
      yield* run({ owned }, () =>
        Effect.gen(function* () {
          assert.deepStrictEqual(errorNames(yield* enqueueAndDrain), ["TransactionUnavailable"])
          const direct = yield* Direct
          assert.deepStrictEqual(yield* direct`select tag from application_rows`, [])
        })
      )
    })
  )
})
