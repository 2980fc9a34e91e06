import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Layer, Scope } from "effect"
import { countRows, insertRow } from "./support.js"
import { Charge, Direct, Notify, type OwnedHandler, world } from "./world.js"

/** Stops the worker while its handler stands at the given place; answers the job's state afterwards. */
const stopAt = (owned: (reached: Effect.Effect<boolean>) => OwnedHandler) =>
  Effect.gen(function* () {
    const reached = yield* Deferred.make<void>()
    const setting = world({
      owned: owned(Deferred.succeed(reached, undefined)),
      worker: { shutdownGrace: "50 millis", interruptGrace: "1 second" }
    })
    return yield* Effect.gen(function* () {
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(setting.worker, scope)
      const { id } = yield* Charge.enqueue({ tag: "a" })
      yield* Deferred.await(reached)
      yield* Scope.close(scope, Exit.void)
      const sql = yield* Direct
      const [row] = yield* sql`select state, attempt, run_lease from awa.jobs`
      const runtimes = yield* sql`select from awa.runtimes`
      return { id, row, rows: yield* countRows("a"), runtimes: runtimes.length }
    }).pipe(Effect.provide(setting.clients))
  })

describe("a worker that stops", () => {
  it.live("gives back an attempt that was interrupted before its transaction", () =>
    // C-05
    Effect.gen(function* () {
      const { row, rows, runtimes } = yield* stopAt(
        (reached) => (job) =>
          reached.pipe(Effect.zipRight(Effect.never), Effect.zipRight(job.finalize(insertRow(job.payload.tag))))
      )
      assert.deepInclude(row, { state: "available", attempt: 0, run_lease: "1" })
      assert.strictEqual(rows, 0)
      assert.strictEqual(runtimes, 0)
    })
  )

  it.live("rolls back and gives back an attempt that was interrupted inside its transaction", () =>
    // C-05, C-13
    Effect.gen(function* () {
      const { row, rows } = yield* stopAt(
        (reached) => (job) =>
          job.finalize(insertRow(job.payload.tag).pipe(Effect.zipRight(reached), Effect.zipRight(Effect.never)))
      )
      assert.deepInclude(row, { state: "available", attempt: 0, run_lease: "1" })
      assert.strictEqual(rows, 0)
    })
  )

  it.live("accepts an attempt that was interrupted after its transaction", () =>
    // C-05, C-17.1
    Effect.gen(function* () {
      const { row, rows } = yield* stopAt(
        (reached) => (job) =>
          Effect.zipLeft(job.finalize(insertRow(job.payload.tag)), Effect.zipRight(reached, Effect.never))
      )
      assert.deepInclude(row, { state: "completed", run_lease: "1" })
      assert.strictEqual(rows, 1)
    })
  )

  it.live("lets handlers finish within the grace", () =>
    // C-05
    Effect.gen(function* () {
      const reached = yield* Deferred.make<void>()
      const setting = world({
        ordinary: (job) =>
          Deferred.succeed(reached, undefined).pipe(
            Effect.zipRight(Effect.sleep("300 millis")),
            Effect.zipRight(insertRow(job.payload.tag)),
            Effect.asVoid
          )
      })
      yield* Effect.gen(function* () {
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(setting.worker, scope)
        const { id } = yield* Notify.enqueue({ tag: "a" })
        yield* Deferred.await(reached)
        yield* Scope.close(scope, Exit.void)
        const sql = yield* Direct
        assert.deepStrictEqual(yield* sql`select state from awa.jobs where job_id = ${String(id)}`, [
          { state: "completed" }
        ])
        assert.strictEqual(yield* countRows("a"), 1)
      }).pipe(Effect.provide(setting.clients))
    })
  )

  it.live(
    "leaves behind a handler that ignores its interruption, and its attempt to rescue",
    () =>
      // C-05, F-96
      Effect.gen(function* () {
        const release = yield* Deferred.make<void>()
        const { row } = yield* stopAt(
          (reached) => (job) =>
            Effect.uninterruptible(Effect.zipRight(reached, Deferred.await(release))).pipe(
              Effect.zipRight(job.finalize(Effect.void))
            )
        )
        assert.deepInclude(row, { state: "running", run_lease: "1" })
        yield* Deferred.succeed(release, undefined)
      }),
    30_000
  )
})
