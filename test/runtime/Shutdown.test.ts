import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { FaultProxy } from "effect-awa/testing"
import { countRows, eventually, insertRow, rescueNow } from "./support.js"
import { Charge, Direct, Notify, Proxies, world } from "./world.js"

describe("a worker that stops", () => {
  for (const [mode, job] of [
    ["an ordinary", Notify],
    ["a caller-owned", Charge]
  ] as const) {
    it.live(`gives back ${mode} attempt that a claim under way has taken, and does not begin it`, () =>
      // C-05, F-15, F-94
      Effect.gen(function* () {
        const answer = yield* Deferred.make<void>()
        let began = 0
        const begin = Effect.sync(() => {
          began += 1
        })
        const setting = world({
          ordinary: () => begin,
          owned: (attempt) => Effect.zipRight(begin, attempt.finalize(insertRow("a")))
        })
        yield* Effect.gen(function* () {
          const { runtime } = yield* Proxies
          const sql = yield* Direct
          const claim = yield* runtime.rule({
            match: /"awa"\.claim\(/,
            action: FaultProxy.holdAnswer(Deferred.await(answer)),
            limit: 1
          })
          yield* job.enqueue({ tag: "a" })
          const scope = yield* Scope.make()
          yield* Layer.buildWithScope(setting.worker, scope)
          yield* eventually(
            "the claim",
            Effect.map(claim.counts, ({ injected }) => injected === 1)
          )
          const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
          yield* Effect.sleep("100 millis") // the stop has begun by then: it waits for the claim
          yield* Deferred.succeed(answer, undefined)
          yield* Fiber.join(closing)
          assert.strictEqual(began, 0)
          yield* eventually(
            "the end of its connections",
            Effect.map(
              sql`select from pg_stat_activity where datname = current_database() and application_name like 'effect-awa%runtime%'`,
              (rows) => rows.length === 0
            )
          )
          assert.deepStrictEqual(yield* sql`select state, attempt, run_lease from awa.jobs`, [
            { state: "available", attempt: 0, run_lease: "1" }
          ])
        }).pipe(Effect.scoped, Effect.provide(setting.clients))
      })
    )
  }

  it.live("gives back attempts of jobs whose ids no double can hold", () =>
    // F-25
    Effect.gen(function* () {
      const reached = yield* Deferred.make<void>()
      const wait = Effect.zipRight(Deferred.succeed(reached, undefined), Effect.never)
      const setting = world({
        ordinary: () => wait,
        owned: () => wait,
        worker: { shutdownGrace: "50 millis" }
      })
      yield* Effect.gen(function* () {
        const sql = yield* Direct
        yield* sql`select setval('awa.job_ids', 9007199254740992), setval('awa.batch_seq', 9007199254740992)`
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(setting.worker, scope)
        const ordinary = yield* Notify.enqueue({ tag: "a" })
        const owned = yield* Charge.enqueue({ tag: "a" })
        assert.deepStrictEqual([ordinary.id, owned.id], [9007199254740993n, 9007199254740994n])
        const running = sql`select from awa.jobs where state = 'running'`
        yield* Deferred.await(reached)
        yield* eventually(
          "two attempts",
          Effect.map(running, (rows) => rows.length === 2)
        )
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(yield* sql`select job_id, state, attempt from awa.jobs order by 1`, [
          { job_id: "9007199254740993", state: "available", attempt: 0 },
          { job_id: "9007199254740994", state: "available", attempt: 0 }
        ])
      }).pipe(Effect.provide(setting.clients))
    })
  )

  it.live("does not wait for a claim that is not answered longer than for its handlers", () =>
    // F-94, F-96: what it took is left to rescue
    Effect.gen(function* () {
      const setting = world({ worker: { shutdownGrace: "50 millis", interruptGrace: "50 millis" } })
      yield* Effect.gen(function* () {
        const { runtime } = yield* Proxies
        const sql = yield* Direct
        const claim = yield* runtime.rule({
          match: /"awa"\.claim\(/,
          action: FaultProxy.holdAnswer(Effect.never),
          limit: 1
        })
        yield* Notify.enqueue({ tag: "a" })
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(setting.worker, scope)
        yield* eventually(
          "the claim",
          Effect.map(claim.counts, ({ injected }) => injected === 1)
        )
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(yield* sql`select state, attempt from awa.jobs`, [{ state: "running", attempt: 1 }])
        yield* rescueNow(sql)
        assert.deepStrictEqual(yield* sql`select state, attempt from awa.jobs`, [{ state: "available", attempt: 1 }])
      }).pipe(Effect.scoped, Effect.provide(setting.clients))
    })
  )

  it.live("names what it leaves behind, stores its progress, and what it says later is stale", () =>
    // C-05, F-3, F-96
    Effect.gen(function* () {
      const reached = yield* Deferred.make<void>()
      const release = yield* Deferred.make<void>()
      const over = yield* Deferred.make<Exit.Exit<unknown, { readonly _tag: string }>>()
      const setting = world({
        owned: (job) =>
          job.progress.set({ at: 7 }).pipe(
            Effect.zipRight(Deferred.succeed(reached, undefined)),
            Effect.zipRight(Deferred.await(release)),
            Effect.zipRight(job.finalize(insertRow(job.payload.tag))),
            Effect.onExit((exit) => Deferred.succeed(over, exit)),
            Effect.uninterruptible
          ),
        worker: { shutdownGrace: "50 millis", interruptGrace: "200 millis", beat: "1 minute" },
        staleness: "1 hour"
      })
      yield* Effect.gen(function* () {
        const sql = yield* Direct
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(setting.worker, scope)
        const { id } = yield* Charge.enqueue({ tag: "late" })
        yield* Deferred.await(reached)
        yield* Scope.close(scope, Exit.void)
        const said = setting.lines.filter(({ message }) => message.startsWith("Left behind"))
        assert.deepStrictEqual(
          said.map(({ message }) => message),
          [`Left behind, to rescue: 1 attempts whose handlers ignored their interruption: charge ${id}`]
        )
        assert.deepStrictEqual(yield* sql`select state, progress from awa.jobs`, [
          { state: "running", progress: { at: 7 } }
        ])
        yield* rescueNow(sql)
        yield* Deferred.succeed(release, undefined)
        const exit = yield* Deferred.await(over)
        assert.include(Cause.pretty(Exit.isFailure(exit) ? exit.cause : Cause.empty), "StaleAttempt")
        assert.strictEqual(yield* countRows("late"), 0)
        assert.deepStrictEqual(yield* sql`select state, attempt, progress from awa.jobs`, [
          { state: "available", attempt: 1, progress: { at: 7 } }
        ])
      }).pipe(Effect.provide(setting.clients))
    })
  )
})
