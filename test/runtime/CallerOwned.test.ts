import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, FiberRef, Ref } from "effect"
import * as JobOutcome from "effect-awa/JobOutcome"
import { FaultProxy, Testing } from "effect-awa/testing"
import { countRows, eventually, insertRow, protocolEvents, rescueNow } from "./support.js"
import {
  Charge,
  closing,
  Declined,
  Direct,
  errorNames,
  type OwnedHandler,
  Proxies,
  type Receipt,
  run
} from "./world.js"

const enqueueAndDrain = (options?: { readonly maxAttempts?: number }) =>
  Effect.gen(function* () {
    const testing = yield* Testing.Testing
    const { id } = yield* Charge.enqueue({ tag: "a" }, options)
    yield* testing.drain({ scheduled: true })
    return id
  })

const expectState = (id: bigint, state: string) =>
  Effect.flatMap(Testing.Testing, (testing) => testing.expectState(id, state))

/** What a handler without types can do. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-return, @typescript-eslint/no-unsafe-assignment -- the hole in the types is the test's subject
const untyped: Effect.Effect<Receipt> = Effect.sync(() => JSON.parse("{}"))

/** No beat finds an attempt lost before its own transaction does. */
const noBeat = { beat: "1 minute" } as const

const finalizing: OwnedHandler = (job) => job.finalize(insertRow(job.payload.tag))

describe("a caller-owned attempt", () => {
  it.live("commits its rows and its completion together [matrix]", () =>
    // C-13
    run({ owned: finalizing }, (lines) =>
      Effect.gen(function* () {
        const id = yield* enqueueAndDrain()
        yield* expectState(id, "completed")
        assert.strictEqual(yield* countRows("a"), 1)
        assert.deepStrictEqual(protocolEvents(lines), [])
      })
    )
  )

  it.live("rolls both back when the body fails, and the declared failure is kept with the job", () =>
    // C-13, C-17.2
    run({ owned: (job) => job.finalize(Effect.zipRight(insertRow(job.payload.tag), new Declined())) }, () =>
      Effect.gen(function* () {
        const id = yield* enqueueAndDrain()
        const row = yield* expectState(id, "failed")
        assert.deepStrictEqual(errorNames(row), ["Declined", "Declined", "Declined"])
        assert.strictEqual(row.runLease, 3n)
        assert.strictEqual(yield* countRows("a"), 0)
      })
    )
  )

  it.live("leaves no row when it went stale while its transaction was open [matrix]", () =>
    // C-14, C-17.3, F-2
    Effect.gen(function* () {
      const opened = yield* Deferred.make<void>()
      const rescued = yield* Deferred.make<void>()
      const owned: OwnedHandler = (job) =>
        job.finalize(
          Effect.zipRight(
            insertRow(job.payload.tag, `attempt ${job.attempt}`),
            job.attempt > 1
              ? Effect.void
              : Effect.zipRight(Deferred.succeed(opened, undefined), Deferred.await(rescued))
          )
        )
      yield* run({ owned, worker: noBeat }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const sql = yield* Direct
          const { id } = yield* Charge.enqueue({ tag: "a" })
          yield* Deferred.await(opened)
          assert.strictEqual(yield* rescueNow(sql), 1)
          yield* eventually(
            "the second attempt",
            Effect.map(testing.jobs, (jobs) => jobs.some(({ state }) => state === "completed"))
          )
          yield* Deferred.succeed(rescued, undefined)
          yield* testing.drain()
          assert.strictEqual((yield* expectState(id, "completed")).runLease, 2n)
          assert.deepStrictEqual(yield* sql`select value from application_rows`, [{ value: "attempt 2" }])
        })
      )
    })
  )

  const written = FiberRef.unsafeMake("nothing")
  it.live("goes on outside its transaction when that has ended, and can open another", () =>
    // C-10
    run(
      {
        owned: (job) =>
          Effect.gen(function* () {
            yield* job.transaction(Effect.zipRight(FiberRef.set(written, "first"), insertRow("first")))
            yield* insertRow("between")
            // as of a fiber that joins its own: there seems to be but one
            yield* insertRow(yield* FiberRef.get(written))
            const receipt = yield* job.finalize(insertRow("second"))
            yield* insertRow("after")
            return receipt
          })
      },
      () =>
        Effect.gen(function* () {
          const id = yield* enqueueAndDrain({ maxAttempts: 1 })
          yield* expectState(id, "completed")
          for (const tag of ["between", "second", "after"]) assert.strictEqual(yield* countRows(tag), 1)
          assert.strictEqual(yield* countRows("first"), 2)
        })
    )
  )

  it.live("cannot be completed twice in one transaction", () =>
    // C-14
    run({ owned: (job) => job.finalize(Effect.zipRight(insertRow(job.payload.tag), job.completeInTx)) }, () =>
      Effect.gen(function* () {
        const id = yield* enqueueAndDrain({ maxAttempts: 1 })
        assert.deepStrictEqual(errorNames(yield* expectState(id, "failed")), ["StaleAttempt"])
        assert.strictEqual(yield* countRows("a"), 0)
      })
    )
  )

  for (const [exit, end] of [
    ["failure", new Declined()],
    ["defect", Effect.die(new Error("after the commit"))]
  ] as const) {
    it.live(`is accepted from durable evidence when its handler ends with a ${exit} after the commit`, () =>
      // C-17.1
      run({ owned: (job) => Effect.zipLeft(finalizing(job), end) }, (lines) =>
        Effect.gen(function* () {
          const id = yield* enqueueAndDrain()
          assert.strictEqual((yield* expectState(id, "completed")).runLease, 1n)
          assert.strictEqual(yield* countRows("a"), 1)
          const [event] = protocolEvents(lines)
          assert.deepInclude(event?.annotations, { jobId: String(id), runLease: "1", exit })
        })
      )
    )
  }

  it.live("is accepted when the server committed and the answer was lost [matrix]", () =>
    // C-17.1, F-7
    run({ owned: finalizing }, (lines) =>
      Effect.gen(function* () {
        const { application } = yield* Proxies
        const rule = yield* application.rule({
          match: closing,
          action: FaultProxy.cutAfter(),
          expect: FaultProxy.committed
        })
        const id = yield* enqueueAndDrain()
        assert.strictEqual((yield* rule.counts).tookEffect, 1)
        assert.strictEqual((yield* expectState(id, "completed")).runLease, 1n)
        assert.strictEqual(yield* countRows("a"), 1)
        assert.deepInclude(protocolEvents(lines)[0]?.annotations, { exit: "failure" })
      })
    )
  )

  it.live("runs again when its COMMIT never reached the server [matrix]", () =>
    // C-17.2
    run({ owned: finalizing }, () =>
      Effect.gen(function* () {
        const { application } = yield* Proxies
        yield* application.rule({ match: closing, action: FaultProxy.cutBefore(), limit: 1 })
        const id = yield* enqueueAndDrain()
        const row = yield* expectState(id, "completed")
        assert.strictEqual(row.runLease, 2n)
        assert.deepStrictEqual(errorNames(row), ["CommitUnknown"])
        assert.strictEqual(yield* countRows("a"), 1)
      })
    )
  )

  it.live("is not retried while its finalization is in flight", () =>
    // C-17.2, "busy means classified again"
    run({ owned: finalizing }, () =>
      Effect.gen(function* () {
        const { application } = yield* Proxies
        const gate = yield* Deferred.make<void>()
        const testing = yield* Testing.Testing
        const sql = yield* Direct
        // the client is cut off while the server still holds the open transaction: COMMIT has not arrived there yet
        yield* application.rule({
          match: closing,
          action: FaultProxy.holdStatement(Deferred.await(gate)),
          limit: 1
        })
        const { id } = yield* Charge.enqueue({ tag: "a" })
        yield* eventually(
          "the handler's give-up",
          Effect.map(
            sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
            where application_name = 'application' and backend_xid is not null and datname = current_database()`,
            ([row]) => (row?.n ?? 0) > 0
          )
        )
        yield* Effect.sleep("500 millis")
        assert.strictEqual((yield* testing.expectState(id, "running")).runLease, 1n)
        yield* Deferred.succeed(gate, undefined)
        yield* testing.drain({ scheduled: true })
        assert.strictEqual((yield* testing.expectState(id, "completed")).runLease, 1n)
        assert.strictEqual(yield* countRows("a"), 1)
      })
    )
  )

  it.live("cannot commit after its stale failure was swallowed [matrix]", () =>
    // C-41, F-2
    Effect.gen(function* () {
      const seen = yield* Ref.make<ReadonlyArray<string>>([])
      const direct = yield* Deferred.make<SqlClient.SqlClient>()
      const owned: OwnedHandler = (job) =>
        job.attempt > 1
          ? finalizing(job)
          : Effect.gen(function* () {
              const sql = yield* SqlClient.SqlClient
              yield* rescueNow(yield* Deferred.await(direct))
              yield* job
                .transaction(
                  Effect.gen(function* () {
                    yield* insertRow(job.payload.tag, "swallowed")
                    yield* Effect.ignore(sql.withTransaction(job.completeInTx))
                  })
                )
                .pipe(Effect.tapError((error) => Ref.update(seen, (all) => [...all, error._tag])))
              return yield* Effect.die(new Error("its attempt is over"))
            })
      yield* run({ owned, worker: noBeat }, () =>
        Effect.gen(function* () {
          yield* Deferred.succeed(direct, yield* Direct)
          const id = yield* enqueueAndDrain()
          assert.strictEqual((yield* expectState(id, "completed")).runLease, 2n)
          assert.deepStrictEqual(yield* Ref.get(seen), ["CompletionMissing"])
          assert.deepStrictEqual(yield* (yield* Direct)`select value from application_rows`, [{ value: "" }])
        })
      )
    })
  )

  it.live("is not completed by a finalization whose body has ended the transaction by itself", () =>
    // C-41: COMMIT would commit the completion alone, without the rows that belong to it
    run(
      {
        owned: (job) =>
          job.finalize(
            Effect.flatMap(SqlClient.SqlClient, (sql) =>
              Effect.zipRight(insertRow(job.payload.tag), sql.unsafe("rollback"))
            )
          )
      },
      () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { id } = yield* Charge.enqueue({ tag: "a" }, { maxAttempts: 1 })
          yield* testing.drain()
          const row = yield* testing.expectState(id, "failed")
          assert.deepStrictEqual(errorNames(row), ["CompletionMissing"])
          assert.strictEqual(yield* countRows("a"), 0)
        })
    )
  )

  it.live("cannot commit without a completion that was rolled back with its savepoint", () =>
    // C-41
    run(
      {
        owned: (job) =>
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            return yield* job.transaction(
              Effect.gen(function* () {
                yield* insertRow(job.payload.tag)
                const receipt = yield* Deferred.make<Receipt>()
                yield* Effect.ignore(
                  sql.withTransaction(
                    Effect.zipRight(
                      Effect.flatMap(job.completeInTx, (made) => Deferred.succeed(receipt, made)),
                      Effect.fail("undo")
                    )
                  )
                )
                return yield* Deferred.await(receipt)
              })
            )
          })
      },
      () =>
        Effect.gen(function* () {
          const id = yield* enqueueAndDrain({ maxAttempts: 1 })
          assert.deepStrictEqual(errorNames(yield* expectState(id, "failed")), ["CompletionMissing"])
          assert.strictEqual(yield* countRows("a"), 0)
        })
    )
  )

  it.live("notices a COMMIT that is answered by ROLLBACK [matrix]", () =>
    // C-42, F-9
    run(
      {
        owned: (job) =>
          Effect.zipRight(
            job.transaction(
              Effect.gen(function* () {
                const sql = yield* SqlClient.SqlClient
                yield* insertRow(job.payload.tag)
                yield* Effect.ignore(sql`select 1 / 0`)
              })
            ),
            finalizing(job)
          )
      },
      () =>
        Effect.gen(function* () {
          const id = yield* enqueueAndDrain({ maxAttempts: 1 })
          assert.deepStrictEqual(errorNames(yield* expectState(id, "failed")), ["RolledBack"])
          assert.strictEqual(yield* countRows("a"), 0)
        })
    )
  )

  it.live("cannot be completed by the receipt of another attempt", () =>
    // C-19
    Effect.gen(function* () {
      const kept = yield* Deferred.make<Receipt>()
      const owned: OwnedHandler = (job) => {
        switch (job.attempt) {
          case 1: // the receipt is made, its transaction is not committed
            return job.finalize(
              Effect.zipRight(
                job.completeInTx.pipe(Effect.flatMap((receipt) => Deferred.succeed(kept, receipt))),
                new Declined()
              )
            )
          case 2:
            return Deferred.await(kept)
          default:
            return finalizing(job)
        }
      }
      yield* run({ owned }, (lines) =>
        Effect.gen(function* () {
          const id = yield* enqueueAndDrain()
          const row = yield* expectState(id, "completed")
          assert.strictEqual(row.runLease, 3n)
          assert.deepStrictEqual(errorNames(row), ["Declined", "AttemptFailed"])
          assert.include(protocolEvents(lines)[0]?.message, "the receipt of another attempt")
          assert.strictEqual(yield* countRows("a"), 1)
        })
      )
    })
  )

  it.live("fails for good at once when untyped code succeeds without a receipt", () =>
    // C-10
    run({ owned: () => untyped }, () =>
      Effect.gen(function* () {
        const id = yield* enqueueAndDrain()
        const row = yield* expectState(id, "failed")
        assert.strictEqual(row.runLease, 1n)
        assert.deepStrictEqual(errorNames(row), ["AttemptFailed"])
      })
    )
  )

  it.live("can end otherwise without a receipt [matrix]", () =>
    // C-17.2
    run(
      {
        owned: (job) =>
          job.runLease === 1n ? JobOutcome.end(JobOutcome.snooze("1 hour")) : JobOutcome.end(JobOutcome.discard("no"))
      },
      () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { id } = yield* Charge.enqueue({ tag: "a" })
          yield* testing.drain()
          const snoozed = yield* testing.expectState(id, "snoozed")
          assert.strictEqual(snoozed.attempt, 0)
          assert.strictEqual(snoozed.runLease, 1n)
          yield* testing.drain({ scheduled: true })
          assert.strictEqual((yield* testing.expectState(id, "discarded")).runLease, 2n)
        })
    )
  )
})
