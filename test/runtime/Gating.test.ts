/** Caller-owned completion that is switched off for a queue while a fleet is upgraded (contract C-14, C-60, C-61). */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Layer, Option, Ref } from "effect"
import { Admin, AdminError, Inspect, JobId, RuntimePool } from "effect-awa"
import * as JobOutcome from "effect-awa/JobOutcome"
import * as Worker from "effect-awa/Worker"
import { TestDatabase, Testing } from "effect-awa/testing"
import { countRows, eventually, insertRow, protocolEvents } from "./support.js"
import { Charge, Declined, Direct, Notify, type OwnedHandler, run } from "./world.js"

/** What an operator does, over a pool of its own. */
const operate = <A, E>(use: (admin: Admin.Admin["Type"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(Admin.Admin, use).pipe(
    Effect.provide(
      Admin.layer().pipe(
        Layer.provide(
          Layer.unwrapEffect(Effect.map(TestDatabase.TestDatabase, ({ url }) => RuntimePool.layer({ url })))
        )
      )
    )
  )

const disable = operate((admin) => admin.disableCallerOwned("default"))
const enable = operate((admin) => admin.enableCallerOwned("default"))

const reached = (id: bigint, state: string) =>
  Effect.gen(function* () {
    const testing = yield* Testing.Testing
    yield* eventually(
      `job ${id} ${state}`,
      Effect.map(testing.jobs, (jobs) => jobs.some((job) => job.id === id && job.state === state))
    )
    return yield* testing.expectState(id, state)
  })

/** A handler that comes to its end only once caller-owned completion has been disabled under it. */
const disabledUnder = (finish: (job: Parameters<OwnedHandler>[0]) => ReturnType<OwnedHandler>) =>
  Effect.gen(function* () {
    const running = yield* Deferred.make<void>()
    const go = yield* Deferred.make<void>()
    const owned: OwnedHandler = (job) =>
      job.runLease > 1n
        ? job.finalize(insertRow(job.payload.tag))
        : Deferred.succeed(running, undefined).pipe(Effect.zipRight(Deferred.await(go)), Effect.zipRight(finish(job)))
    const disabled = Deferred.await(running).pipe(
      Effect.zipRight(disable),
      Effect.zipRight(Deferred.succeed(go, undefined))
    )
    return { owned, disabled }
  })

const finalizing: OwnedHandler = (job) => job.finalize(insertRow(job.payload.tag))

describe("while caller-owned completion is disabled for a queue", () => {
  // C-60, C-61
  it.live("its caller-owned jobs are put aside without a run, ordinary ones go on, and enabling runs them", () =>
    Effect.gen(function* () {
      const ran = yield* Ref.make(0)
      const owned: OwnedHandler = (job) =>
        Effect.zipRight(
          Ref.update(ran, (n) => n + 1),
          finalizing(job)
        )
      yield* run({ owned }, (lines) =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          assert.isTrue(yield* disable)
          const charges = yield* Charge.enqueueAll(Array.from({ length: 5 }, (_, i) => ({ tag: `charge ${i}` })))
          const notify = yield* Notify.enqueue({ tag: "n" })
          for (const { id } of charges) {
            const row = yield* reached(id, "gated")
            assert.deepInclude(row, { attempt: 0, runLease: 1n, errors: null })
          }
          yield* reached(notify.id, "completed")
          // it waits for nothing that time brings: not even a test that makes everything due
          yield* testing.drain({ scheduled: true })
          const sql = yield* Direct
          const waiting = yield* sql`select from awa.jobs where state = 'gated' and run_at is null`
          assert.strictEqual(waiting.length, 5)
          assert.strictEqual(yield* Ref.get(ran), 0)
          const told = lines.filter(({ message }) => message.includes("disabled for the queue default"))
          assert.strictEqual(told.length, 1)
          assert.deepStrictEqual(protocolEvents(lines), [])

          assert.strictEqual(yield* enable, 5)
          yield* testing.drain()
          for (const { id } of charges) {
            assert.deepInclude(yield* testing.expectState(id, "completed"), { attempt: 1, runLease: 2n })
          }
          assert.strictEqual(yield* Ref.get(ran), 5)
          assert.isTrue(yield* disable)
          assert.isFalse(yield* disable)
        })
      )
    })
  )

  it.live(
    "an attempt that runs already is refused when it completes, and put aside: its rows are not there, its progress is",
    () =>
      // C-14, C-60
      Effect.gen(function* () {
        const { disabled, owned } = yield* disabledUnder((job) =>
          Effect.zipRight(job.progress.set({ page: 3 }), finalizing(job))
        )
        yield* run({ owned }, (lines) =>
          Effect.gen(function* () {
            const testing = yield* Testing.Testing
            const { id } = yield* Charge.enqueue({ tag: "a" })
            yield* disabled
            const row = yield* reached(id, "gated")
            assert.deepInclude(row, { attempt: 0, runLease: 1n, errors: null, progress: { page: 3 } })
            assert.strictEqual(yield* countRows("a"), 0)
            assert.deepStrictEqual(protocolEvents(lines), [])
            const inspect = yield* Effect.provide(
              Effect.flatMap(Inspect.Inspect, (inspect) => inspect.job(JobId.make(id))),
              Inspect.layer.pipe(
                Layer.provide(
                  Layer.unwrapEffect(Effect.map(TestDatabase.TestDatabase, ({ url }) => RuntimePool.layer({ url })))
                )
              )
            )
            assert.deepInclude(Option.getOrThrow(inspect), { state: "gated", runAt: undefined })
            assert.strictEqual(yield* enable, 1)
            yield* testing.drain()
            assert.deepInclude(yield* testing.expectState(id, "completed"), { attempt: 1, runLease: 2n })
            assert.strictEqual(yield* countRows("a"), 1)
          })
        )
      })
  )

  const ends: ReadonlyArray<{
    readonly says: string
    readonly state: string
    readonly finish: OwnedHandler
  }> = [
    {
      says: "failing with an error of its own",
      state: "gated",
      finish: (job) => Effect.mapError(finalizing(job), () => new Declined())
    },
    { says: "dying of it", state: "gated", finish: (job) => Effect.orDie(finalizing(job)) },
    {
      says: "wrapping it",
      state: "gated",
      finish: (job) =>
        Effect.catchAll(finalizing(job), (cause) => Effect.die(new Error("the charge failed", { cause })))
    },
    {
      says: "failing beside it",
      state: "gated",
      finish: (job) =>
        Effect.catchAllCause(finalizing(job), (cause) => Effect.failCause(Cause.sequential(cause, Cause.die("more"))))
    },
    {
      says: "selecting an outcome in spite of it",
      state: "snoozed",
      finish: (job) => Effect.catchAll(finalizing(job), () => JobOutcome.end(JobOutcome.snooze("1 hour")))
    }
  ]
  for (const { finish, says, state } of ends) {
    it.live(`a handler that is refused and ends by ${says} leaves its job ${state}`, () =>
      Effect.gen(function* () {
        const { disabled, owned } = yield* disabledUnder(finish)
        yield* run({ owned }, () =>
          Effect.gen(function* () {
            const { id } = yield* Charge.enqueue({ tag: "a" })
            yield* disabled
            assert.deepInclude(yield* reached(id, state), { attempt: 0, runLease: 1n, errors: null })
            assert.strictEqual(yield* countRows("a"), 0)
          })
        )
      })
    )
  }

  it.live("one that is put aside and enabled at the same moment is not left behind", () =>
    Effect.gen(function* () {
      yield* run({ owned: finalizing }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const enqueued = Effect.forEach(
            Array.from({ length: 60 }, (_, i) => i),
            (i) => Effect.delay(Charge.enqueue({ tag: `job ${i}` }), "5 millis")
          )
          const switched = Effect.repeatN(
            Effect.zipRight(disable, Effect.zipRight(Effect.sleep("20 millis"), enable)),
            8
          )
          const [ids] = yield* Effect.all([enqueued, switched], { concurrency: 2 })
          yield* enable
          yield* testing.drain()
          for (const { id } of ids) assert.strictEqual((yield* testing.expectState(id, "completed")).attempt, 1)
        })
      )
    })
  )
})

describe("a worker", () => {
  // C-60
  it.live("advertises where it claims and that it can take part; who does not keeps the queue from being enabled", () =>
    run({ worker: { queues: { default: { concurrency: 2 }, second: { concurrency: 2 } } } }, () =>
      Effect.gen(function* () {
        const sql = yield* Direct
        const { runtimeId } = yield* Worker.Worker
        const [row] = yield* sql<{ owned: number; queues: unknown }>`
          select (capabilities -> 'callerOwned')::int as owned, capabilities -> 'queues' as queues from awa.runtimes`
        assert.deepStrictEqual(row, { owned: 1, queues: ["default", "second"] })
        yield* disable
        yield* sql`update awa.runtimes set capabilities = '{"queues": ["default"], "callerOwned": true}', beat_at = clock_timestamp()`
        yield* sql`insert into awa.runtimes (runtime_id, name, contract, capabilities) values (nextval('awa.runtime_ids'), 'behind', 1, '{}')`
        const refused = yield* Effect.flip(enable)
        assert.instanceOf(refused, AdminError.CallerOwnedRefused)
        assert.deepStrictEqual(
          refused.runtimes.map(({ name, runtimeId: id }) => [name, id === runtimeId]),
          [
            [refused.runtimes[0]?.name, true],
            ["behind", false]
          ]
        )
        assert.include(refused.message, "behind (runtime ")
        yield* sql`delete from awa.runtimes where runtime_id <> ${String(runtimeId)}`
        // it says so again with its next beat
        yield* eventually("the queue enabled", Effect.isSuccess(enable))
      })
    )
  )
})
