import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { ApplicationPool, RuntimePool } from "effect-awa"
import { FaultProxy, TestDatabase, Testing } from "effect-awa/testing"
import { countRows, eventually, insertRow, server } from "./support.js"
import { Charge, Direct, errorNames, Notify, type OwnedHandler, Proxies, run, world } from "./world.js"

describe("an application transaction", () => {
  it.live("that waited in vain for a connection leaves the pool whole", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.make({ server })
      const pool = ApplicationPool.layer({ maximumDuration: "200 millis" }).pipe(
        Layer.provideMerge(PgClient.layer({ url, maxConnections: 1 })),
        Layer.provideMerge(RuntimePool.layer({ url }))
      )
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { transaction } = yield* ApplicationPool.ApplicationPool
        const hog = yield* Effect.fork(sql.withTransaction(Effect.sleep("600 millis")))
        yield* Effect.sleep("50 millis")
        const refused = yield* Effect.flip(transaction(Effect.void))
        assert.strictEqual(refused._tag, "TransactionUnavailable")
        const interrupted = yield* Effect.fork(transaction(Effect.void))
        yield* Effect.sleep("50 millis")
        yield* Fiber.interrupt(interrupted)
        yield* Fiber.join(hog)
        yield* transaction(sql`select 1`)
      }).pipe(Effect.provide(pool))
    }).pipe(Effect.scoped)
  )

  it.live("whose complete_job is never answered ends in time, and its attempt runs again", () =>
    // C-40, F-74
    Effect.gen(function* () {
      const owned: OwnedHandler = (job) =>
        job.transaction(Effect.zipRight(insertRow(job.payload.tag), Effect.orDie(job.completeInTx)))
      yield* run({ owned, applicationTransaction: "2 seconds" }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { application } = yield* Proxies
          yield* application.rule({ match: /complete_job/, action: FaultProxy.blackHole("to-client"), limit: 1 })
          const { id } = yield* Charge.enqueue({ tag: "a" })
          yield* testing.drain({ scheduled: true })
          const row = yield* testing.expectState(id, "completed")
          assert.strictEqual(row.runLease, 2n)
          assert.deepStrictEqual(errorNames(row), ["TransactionTooLong"])
          assert.strictEqual(yield* countRows("a"), 1)
        })
      )
    })
  )

  it.live("whose complete_job is sent with COMMIT and never answered ends in time, and committed both", () =>
    // C-17, C-40, C-42
    Effect.gen(function* () {
      const ended = yield* Deferred.make<unknown>()
      const owned: OwnedHandler = (job) =>
        Effect.onExit(job.finalize(insertRow(job.payload.tag)), (exit) => Deferred.succeed(ended, exit))
      yield* run({ owned, applicationTransaction: "2 seconds" }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { application } = yield* Proxies
          yield* application.rule({ match: /complete_job/, action: FaultProxy.blackHole("to-client"), limit: 1 })
          const { id } = yield* Charge.enqueue({ tag: "a" })
          yield* testing.drain({ scheduled: true })
          const row = yield* testing.expectState(id, "completed")
          assert.strictEqual(row.runLease, 1n)
          assert.include(String(yield* Deferred.await(ended)), "CommitUnknown")
          assert.strictEqual(yield* countRows("a"), 1)
        })
      )
    })
  )
})

describe("a handler", () => {
  it.live("that goes on changing the progress it set harms nobody", () =>
    // F-20
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      yield* run(
        {
          ordinary: (job) =>
            Effect.gen(function* () {
              if (job.payload.tag === "innocent") return yield* Deferred.await(gate)
              const done: Array<string> = ["fine"]
              yield* job.progress.set(done)
              done.push("\u0000")
              yield* Effect.ignore(job.progress.set(done))
              yield* Deferred.await(gate)
            }),
          staleness: "1 second"
        },
        () =>
          Effect.gen(function* () {
            const testing = yield* Testing.Testing
            const jobs = yield* Notify.enqueueAll([{ tag: "innocent" }, { tag: "guilty" }])
            yield* Effect.sleep("2500 millis")
            yield* Deferred.succeed(gate, undefined)
            yield* testing.drain()
            for (const { id } of jobs) assert.strictEqual((yield* testing.expectState(id, "completed")).runLease, 1n)
            const [, guilty] = yield* testing.jobs
            assert.deepStrictEqual(guilty?.progress, ["fine"])
          })
      )
    })
  )

  it.live("that throws what cannot even be read fails its own attempt", () =>
    // F-20, F-52
    Effect.gen(function* () {
      class Unreadable extends Error {
        override get message(): string {
          throw new Error("no message for you")
        }
      }
      const symbol = Symbol("thrown")
      const thrown = [new Unreadable(), null, undefined, symbol, { toString: null }, Object.create(null)]
      yield* run({ ordinary: (job) => Effect.die(thrown[Number(job.payload.tag)]) }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const jobs = yield* Notify.enqueueAll(
            thrown.map((_, i) => ({ tag: String(i) })),
            { maxAttempts: 1 }
          )
          yield* testing.drain()
          for (const { id } of jobs) yield* testing.expectState(id, "failed")
        })
      )
    })
  )

  it.live("whose own finalizer fails while the worker stops is given back all the same", () =>
    // C-05
    Effect.gen(function* () {
      const reached = yield* Deferred.make<void>()
      const setting = world({
        ordinary: () =>
          Effect.onInterrupt(Effect.zipRight(Deferred.succeed(reached, undefined), Effect.never), () =>
            Effect.die("socket already closed")
          ),
        worker: { shutdownGrace: "50 millis", interruptGrace: "1 second" }
      })
      yield* Effect.gen(function* () {
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(setting.worker, scope)
        yield* Notify.enqueue({ tag: "a" }, { maxAttempts: 1 })
        yield* Deferred.await(reached)
        yield* Scope.close(scope, Exit.void)
        const sql = yield* Direct
        assert.deepStrictEqual(yield* sql`select state, attempt from awa.jobs`, [{ state: "available", attempt: 0 }])
      }).pipe(Effect.provide(setting.clients))
    })
  )
})

describe("a worker that stops while the database is away", () => {
  it.live("ends all the same, and leaves its attempts to rescue", () =>
    // F-94, F-96
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const setting = world({
        ordinary: () => Deferred.await(gate),
        owned: (job) => Effect.zipRight(Deferred.await(gate), job.finalize(Effect.void)),
        worker: { shutdownGrace: "200 millis", interruptGrace: "200 millis" }
      })
      yield* Effect.gen(function* () {
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(setting.worker, scope)
        const sql = yield* Direct
        yield* Notify.enqueue({ tag: "a" })
        yield* Charge.enqueue({ tag: "a" })
        const running = sql`select from awa.jobs where state = 'running'`
        yield* eventually(
          "two attempts",
          Effect.map(running, (rows) => rows.length === 2)
        )
        const { application, runtime } = yield* Proxies
        yield* runtime.outage
        yield* application.outage
        yield* Deferred.succeed(gate, undefined)
        const [duration] = yield* Effect.timed(Scope.close(scope, Exit.void))
        assert.isBelow(Number(duration.value._tag === "Nanos" ? duration.value.nanos / 1_000_000n : 0), 15_000)
        assert.lengthOf(yield* running, 2)
      }).pipe(Effect.scoped, Effect.provide(setting.clients))
    })
  )
})
