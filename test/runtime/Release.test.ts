import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Ref } from "effect"
import { Worker } from "effect-awa"
import { FaultProxy, Testing } from "effect-awa/testing"
import { commitOf, countRows, eventually, insertRow, rescueNow } from "./support.js"
import { Charge, Direct, Notify, Proxies, run } from "./world.js"

const oneAtATime = { queues: { default: { concurrency: 1 } } }

describe("a permit", () => {
  for (const [mode, job, statement] of [
    ["caller-owned", Charge, /attempt_evidence/],
    ["ordinary", Notify, /close_completed/]
  ] as const) {
    it.live(`of ${mode} attempts is freed only after the database has answered for it`, () =>
      // C-04, C-17
      Effect.gen(function* () {
        const started = yield* Ref.make(0)
        const answer = yield* Deferred.make<void>()
        const count = Ref.update(started, (n) => n + 1)
        yield* run(
          {
            owned: (attempt) => Effect.zipRight(count, attempt.finalize(insertRow("a"))),
            ordinary: () => count,
            worker: oneAtATime
          },
          () =>
            Effect.gen(function* () {
              const testing = yield* Testing.Testing
              const { runtime } = yield* Proxies
              const rule = yield* runtime.rule({
                match: statement,
                action: FaultProxy.holdAnswer(Deferred.await(answer)),
                limit: 1
              })
              yield* job.enqueueAll([{ tag: "1" }, { tag: "2" }])
              yield* eventually(
                "the first attempt's question",
                Effect.map(rule.counts, ({ injected }) => injected === 1)
              )
              yield* Effect.sleep("300 millis")
              assert.strictEqual(yield* Ref.get(started), 1)
              const { permits } = yield* Worker.Worker
              assert.deepStrictEqual(yield* permits, [{ queue: "default", free: 0, total: 1 }])
              yield* Deferred.succeed(answer, undefined)
              yield* testing.drain()
              assert.strictEqual(yield* Ref.get(started), 2)
              yield* eventually(
                "the permit",
                Effect.map(permits, ([permit]) => permit?.free === 1)
              )
            })
        )
      })
    )
  }

  it.live("is kept while the runtime cannot reach the database, and freed once it can", () =>
    // C-04
    Effect.gen(function* () {
      const started = yield* Ref.make(0)
      yield* run({ ordinary: () => Ref.update(started, (n) => n + 1), worker: oneAtATime }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { runtime } = yield* Proxies
          const rule = yield* runtime.rule({
            match: commitOf(/close_completed/),
            action: FaultProxy.cutAfter(),
            expect: FaultProxy.committed,
            limit: 3
          })
          const [first] = yield* Notify.enqueueAll([{ tag: "1" }, { tag: "2" }])
          yield* testing.drain()
          assert.strictEqual((yield* rule.counts).tookEffect, 3)
          // the first flush took effect and its answer was lost: told by its id, not run again
          assert.strictEqual(yield* Ref.get(started), 2)
          assert.strictEqual((yield* testing.expectState(first?.id ?? 0n, "completed")).runLease, 1n)
        })
      )
    })
  )
})

describe("a flush of outcomes", () => {
  it.live("is not held up by a stale member, nor by a neighbour that an application transaction holds", () =>
    // C-04, F-82
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      yield* run({ ordinary: (job) => (job.attempt > 1 ? Effect.void : Deferred.await(gate)) }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const worker = yield* Worker.Worker
          const sql = yield* Direct
          const ids = (yield* Notify.enqueueAll(Array.from({ length: 6 }, (_, i) => ({ tag: String(i) })))).map(
            ({ id }) => id
          )
          const [stale = 0n, hung = 0n, ...others] = ids
          yield* eventually(
            "six attempts",
            Effect.map(worker.inFlight, (n) => n === 6)
          )
          // one attempt was closed by somebody else, another one is being completed in a transaction that stays open
          yield* sql`insert into awa.closures_0 (batch_id, batch_index, outcome, closed_at, xid)
            select batch_id, batch_index, 'rescued', clock_timestamp(), pg_current_xact_id() from awa.attempts where job_id = ${String(stale)}`
          yield* sql.withTransaction(
            Effect.gen(function* () {
              yield* sql`select (awa.complete_job(a.job_id, a.run_lease, (m.fingerprint << 12) | 256 | a.segment, a.receipt_id,
              a.batch_id, a.batch_index)).outcome from awa.attempts a, awa.meta m where a.job_id = ${String(hung)}`
              yield* Deferred.succeed(gate, undefined)
              yield* eventually(
                "all but the hung one",
                Effect.map(worker.inFlight, (n) => n === 1)
              )
              for (const id of others) yield* testing.expectState(id, "completed")
            })
          )
          yield* testing.drain()
          // its outcome was the application's; the flush found it closed and left it alone
          assert.deepInclude(yield* testing.expectState(hung, "completed"), { runLease: 1n })
          // in flight no more, and by a proof each: a defect would have kept the permits
          for (const { free, total } of yield* worker.permits) assert.strictEqual(free, total)
        })
      )
    })
  )
})

describe("two attempts of one job", () => {
  it.live("can be in one process; the older one ends stale", () =>
    // C-03, F-5
    Effect.gen(function* () {
      const first = yield* Deferred.make<void>()
      yield* run(
        {
          owned: (job) =>
            job.runLease === 1n
              ? Effect.zipRight(Deferred.await(first), job.finalize(insertRow("older")))
              : job.finalize(insertRow("newer")),
          worker: { beat: "1 minute" } // which would find the older one lost
        },
        () =>
          Effect.gen(function* () {
            const testing = yield* Testing.Testing
            const worker = yield* Worker.Worker
            const sql = yield* Direct
            const { id } = yield* Charge.enqueue({ tag: "a" })
            yield* eventually(
              "the first attempt",
              Effect.map(worker.inFlight, (n) => n === 1)
            )
            yield* rescueNow(sql)
            yield* eventually(
              "the second attempt's end",
              Effect.map(testing.jobs, ([job]) => job?.state === "completed")
            )
            yield* eventually(
              "its permit",
              Effect.map(worker.inFlight, (n) => n === 1)
            )
            yield* Deferred.succeed(first, undefined)
            yield* testing.drain()
            assert.deepInclude(yield* testing.expectState(id, "completed"), { runLease: 2n })
            assert.strictEqual(yield* countRows("older"), 0)
            assert.strictEqual(yield* countRows("newer"), 1)
          })
      )
    })
  )
})

describe("statements", () => {
  it.live("an ordinary job costs no reconciliation, and a share of two statements", () =>
    // C-18
    Effect.gen(function* () {
      yield* run({ worker: { queues: { default: { concurrency: 50 } } } }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { runtime } = yield* Proxies
          const seen: Array<string> = []
          const note = (statement: { readonly sql: string }) => {
            const name = /"awa"\.(\w+)/.exec(statement.sql)?.[1]
            if (name !== undefined) seen.push(name)
            return false
          }
          yield* runtime.rule({ match: note, action: FaultProxy.cutBefore() })
          yield* Notify.enqueueAll(Array.from({ length: 500 }, (_, i) => ({ tag: String(i) })))
          yield* testing.drain()
          assert.notInclude(seen, "attempt_evidence")
          assert.notInclude(seen, "settle_attempt")
          assert.notInclude(seen, "heartbeat")
          const perJob = seen.filter((name) => name === "claim" || name === "close_completed").length
          assert.isBelow(perJob, 100)
          seen.length = 0
          yield* Charge.enqueue({ tag: "a" })
          yield* testing.drain()
          assert.include(seen, "attempt_evidence") // the counter counts
          assert.notInclude(seen, "close_completed")
        })
      )
    })
  )
})
