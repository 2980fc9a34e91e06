import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Option, Ref, Schema } from "effect"
import * as Job from "effect-awa/Job"
import * as JobOutcome from "effect-awa/JobOutcome"
import * as RetryPolicy from "effect-awa/RetryPolicy"
import { Worker } from "effect-awa"
import { Testing } from "effect-awa/testing"
import { database, eventually, handlerFailures, rescueNow } from "./support.js"
import { Declined, Direct, errorNames, Notify, type OrdinaryHandler, run } from "./world.js"

const finished = (ordinary: OrdinaryHandler, state: string, options?: { readonly maxAttempts?: number }) =>
  run({ ordinary }, () =>
    Effect.gen(function* () {
      const testing = yield* Testing.Testing
      const { id } = yield* Notify.enqueue({ tag: "a" }, options)
      yield* testing.drain({ scheduled: true })
      return yield* testing.expectState(id, state)
    })
  )

describe("an ordinary attempt", () => {
  it.live("is retried until it succeeds, with its failures kept [matrix]", () =>
    Effect.gen(function* () {
      const row = yield* finished((job) => (job.attempt < 3 ? new Declined() : Effect.void), "completed")
      assert.deepStrictEqual(errorNames(row), ["Declined", "Declined"])
      assert.deepInclude(row, { attempt: 3, runLease: 3n })
    })
  )

  it.live("ends in the terminal jobs after its last attempt, by whatever it was failed", () =>
    // F-51
    Effect.gen(function* () {
      const declined = yield* finished(() => new Declined(), "failed")
      assert.deepStrictEqual(errorNames(declined), ["Declined", "Declined", "Declined"])
      const retryAfter = yield* finished(() => Effect.succeed(JobOutcome.retryAfter("1 hour", "later")), "failed")
      assert.strictEqual(retryAfter.runLease, 3n)
      const died = yield* finished(() => Effect.die("boom"), "failed", { maxAttempts: 1 })
      assert.strictEqual(died.attempt, 1)
    })
  )

  it.live(
    "whose handler fails is told to the log with its cause: the last failure and a defect as errors, a choice not at all",
    () => {
      const answers: ReadonlyArray<ReturnType<OrdinaryHandler>> = [
        new Declined(),
        Effect.die(new Error("boom")),
        JobOutcome.end(JobOutcome.snooze("1 millis")),
        new Declined(),
        Effect.succeed(JobOutcome.discard("enough"))
      ]
      return run({ ordinary: (job) => answers[Number(job.runLease) - 1] ?? Effect.die("no answer is left") }, (lines) =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { id } = yield* Notify.enqueue({ tag: "a" }, { maxAttempts: 3 })
          yield* testing.drain({ scheduled: true })
          const failures = handlerFailures(lines)
          assert.deepStrictEqual(
            failures.map(({ level, message }) => `${level.label} ${message}`),
            [
              "WARN A handler failed in attempt 1 of 3",
              "ERROR A handler failed in attempt 2 of 3",
              "ERROR A handler failed in attempt 3 of 3"
            ]
          )
          assert.include(failures[0]?.cause, "Declined")
          assert.match(failures[1]?.cause ?? "", /boom[^]*Ordinary\.test/) // with its stack
          assert.deepInclude(failures[1]?.annotations, {
            kind: "notify",
            queue: "default",
            jobId: String(id),
            runLease: "2",
            exit: "defect"
          })
        })
      )
    }
  )

  it.live("that an operator cancels is interrupted, and nobody is warned of it", () =>
    Effect.gen(function* () {
      const began = yield* Deferred.make<void>()
      const interrupted = yield* Deferred.make<void>()
      const ordinary: OrdinaryHandler = () =>
        Effect.zipRight(Deferred.succeed(began, undefined), Effect.never).pipe(
          Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
        )
      yield* run({ ordinary, worker: { beat: "100 millis" } }, (lines) =>
        Effect.gen(function* () {
          const { id } = yield* Notify.enqueue({ tag: "a" })
          yield* Deferred.await(began)
          const sql = yield* Direct
          yield* sql`select from awa.cancel_jobs(array[${String(id)}::bigint])`
          yield* Deferred.await(interrupted)
          assert.deepStrictEqual(
            lines.map(({ message }) => message),
            []
          )
        })
      )
    })
  )

  it.live("of which the database refused a statement keeps what the database said", () =>
    Effect.gen(function* () {
      const row = yield* finished(
        () => Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql`select from no_such_table`)),
        "failed",
        { maxAttempts: 1 }
      )
      const [{ error }] = Schema.decodeUnknownSync(
        Schema.Tuple(Schema.Struct({ error: Schema.Struct({ name: Schema.String, message: Schema.String }) }))
      )(row.errors)
      assert.strictEqual(error.name, "SqlError")
      assert.include(error.message, 'relation "no_such_table" does not exist (42P01)')
    })
  )

  it.live("keeps failing when its error cannot be stored as it is", () =>
    // F-20, F-21
    Effect.gen(function* () {
      const row = yield* finished(() => Effect.die(new Error(`a\u0000b\ud800c${"x".repeat(100_000)}`)), "failed", {
        maxAttempts: 1
      })
      const [{ error }] = Schema.decodeUnknownSync(
        Schema.Tuple(Schema.Struct({ error: Schema.Struct({ message: Schema.String }) }))
      )(row.errors)
      assert.isTrue(error.message.startsWith("a\ufffdb\ufffdc"))
      assert.isAtMost(Buffer.byteLength(JSON.stringify(row.errors)), 8_192)
    })
  )

  it.live("snoozes without counting, discards and cancels", () =>
    Effect.gen(function* () {
      const snoozed = yield* finished(
        (job) => Effect.succeed(job.runLease < 4n ? JobOutcome.snooze("1 hour") : undefined),
        "completed"
      )
      assert.deepInclude(snoozed, { attempt: 1, runLease: 4n })
      yield* finished(() => Effect.succeed(JobOutcome.discard("useless")), "discarded")
      yield* finished(() => JobOutcome.end(JobOutcome.cancel("unwanted")), "cancelled")
    })
  )

  it.live("goes to the dead letters when its handler says so, with the reason, and does not run again", () =>
    Effect.gen(function* () {
      const reason = `no such customer\u0000${"x".repeat(10_000)}`
      yield* run({ ordinary: () => Effect.succeed(JobOutcome.deadLetter(reason)) }, () =>
        Effect.gen(function* () {
          const sql = yield* Direct
          const testing = yield* Testing.Testing
          yield* Notify.enqueue({ tag: "a" })
          yield* testing.drain({ scheduled: true })
          const rows = yield* sql<{ reason: string; attempt: number; name: string }>`
            select reason, attempt, errors -> 0 -> 'error' ->> 'name' as name from awa.dlq_entries`
          assert.deepStrictEqual(
            rows.map(({ attempt, name }) => [attempt, name]),
            [[1, "DeadLettered"]]
          )
          assert.isTrue(rows.every(({ reason }) => reason.startsWith("no such customer\ufffdxxx")))
          assert.isTrue(rows.every(({ reason }) => Buffer.byteLength(reason) <= 4_096))
        })
      )
    })
  )

  it.live("ends with the fibers that its handler forked, and is not settled before", () =>
    // C-17: a permit is freed when nothing of its attempt runs any more
    Effect.gen(function* () {
      const ending = yield* Deferred.make<void>()
      const ended = yield* Deferred.make<void>()
      const child = Effect.onInterrupt(Effect.never, () =>
        Effect.zipRight(Deferred.succeed(ending, undefined), Deferred.await(ended))
      )
      yield* run({ ordinary: () => Effect.zipRight(Effect.fork(child), Effect.yieldNow()) }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { id } = yield* Notify.enqueue({ tag: "a" })
          yield* Deferred.await(ending)
          yield* Effect.sleep("100 millis") // longer than a flush takes
          yield* testing.expectState(id, "running")
          yield* Deferred.succeed(ended, undefined)
          yield* testing.drain()
          yield* testing.expectState(id, "completed")
        })
      )
    })
  )

  it.live("keeps its progress over attempts, and refuses progress that cannot be stored", () =>
    Effect.gen(function* () {
      const seen = yield* Ref.make<ReadonlyArray<unknown>>([])
      const row = yield* finished(
        (job) =>
          Effect.gen(function* () {
            yield* Effect.flatMap(job.progress.get, (value) =>
              Ref.update(seen, (all) => [...all, Option.getOrNull(value)])
            )
            const refused = yield* Effect.flip(job.progress.set("\u0000")).pipe(Effect.orDie)
            assert.strictEqual(refused.path, "progress")
            yield* Effect.orDie(job.progress.set({ step: job.attempt }))
            if (job.attempt < 3) return yield* new Declined()
          }),
        "completed"
      )
      assert.deepStrictEqual(yield* Ref.get(seen), [null, { step: 1 }, { step: 2 }])
      assert.deepStrictEqual(row.progress, { step: 3 })
    })
  )

  it.live("is interrupted when it is lost, and leaves the winner alone [matrix]", () =>
    // C-02, F-3
    Effect.gen(function* () {
      const interrupted = yield* Ref.make(0)
      yield* run(
        {
          ordinary: (job) =>
            job.runLease > 1n
              ? Effect.void
              : Effect.onInterrupt(Effect.never, () => Ref.update(interrupted, (n) => n + 1)),
          worker: { beat: "100 millis" }
        },
        (lines) =>
          Effect.gen(function* () {
            const testing = yield* Testing.Testing
            const worker = yield* Worker.Worker
            const { id } = yield* Notify.enqueue({ tag: "a" })
            yield* eventually(
              "the attempt",
              Effect.map(worker.inFlight, (n) => n === 1)
            )
            yield* rescueNow(yield* Direct)
            yield* testing.drain({ scheduled: true })
            assert.deepInclude(yield* testing.expectState(id, "completed"), { runLease: 2n })
            assert.strictEqual(yield* Ref.get(interrupted), 1)
            assert.deepInclude(lines.find(({ message }) => message.includes("was lost"))?.annotations, {
              jobId: String(id),
              runLease: "1",
              outcome: "rescued"
            })
          })
      )
    })
  )

  it.live("is kept by its heartbeats for as long as it runs", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      yield* run({ ordinary: () => Deferred.await(gate), worker: { beat: "50 millis" }, staleness: "200 millis" }, () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const { id } = yield* Notify.enqueue({ tag: "a" })
          yield* Effect.sleep("1200 millis")
          assert.deepInclude(yield* testing.expectState(id, "running"), { runLease: 1n })
          yield* Deferred.succeed(gate, undefined)
          yield* testing.drain()
          assert.deepInclude(yield* testing.expectState(id, "completed"), { runLease: 1n })
          // at once, or by the next sweep: a beat that was under way when the attempt ended may have come behind it
          const sql = yield* Direct
          yield* eventually(
            "the end of its state",
            Effect.map(
              Effect.zipRight(sql`select awa.sweep('1 day')`, sql`select from awa.attempt_state`),
              (rows) => rows.length === 0
            )
          )
        })
      )
    })
  )

  it.live("of a worker that is gone is rescued, and the crash counts", () =>
    // F-52, F-53, F-54
    run(
      { ordinary: () => Effect.void, worker: { queues: { elsewhere: { concurrency: 1 } } }, staleness: "200 millis" },
      () =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const sql = yield* Direct
          const { id } = yield* Notify.enqueue({ tag: "a" }, { maxAttempts: 2 })
          for (const lease of [1n, 2n]) {
            yield* eventually(
              `claim ${lease}`,
              Effect.map(sql`select from awa.claim('default', 1, 99)`, (rows) => rows.length === 1)
            )
            assert.deepInclude(yield* testing.expectState(id, "running"), { runLease: lease, attempt: Number(lease) })
            yield* eventually(
              "the rescue",
              Effect.map(testing.jobs, ([job]) => job?.state !== "running")
            )
          }
          assert.deepStrictEqual(errorNames(yield* testing.expectState(id, "failed")), [
            "AttemptAbandoned",
            "AttemptAbandoned"
          ])
        })
    )
  )
})

describe("what no handler can run", () => {
  const Unknown = Job.make("nobody-serves-this", { payload: Schema.Struct({}), maxAttempts: 1 })
  const Changed = Job.make("notify", { payload: Schema.Struct({ other: Schema.Int }), maxAttempts: 1 })

  it.live("fails its own attempt and nobody else's", () =>
    run({}, () =>
      Effect.gen(function* () {
        const testing = yield* Testing.Testing
        const unknown = yield* Unknown.enqueue({})
        const changed = yield* Changed.enqueue({ other: 1 })
        const fine = yield* Notify.enqueue({ tag: "a" })
        yield* testing.drain()
        assert.deepStrictEqual(errorNames(yield* testing.expectState(unknown.id, "failed")), ["AttemptFailed"])
        assert.deepStrictEqual(errorNames(yield* testing.expectState(changed.id, "failed")), ["AttemptFailed"])
        yield* testing.expectState(fine.id, "completed")
      })
    )
  )

  it.live("runs past its timeout", () =>
    // F-97
    Effect.gen(function* () {
      const Slow = Job.make("slow", {
        payload: Schema.Struct({}),
        maxAttempts: 2,
        timeout: "50 millis",
        retry: RetryPolicy.make({ base: 0 })
      })
      const Live = Testing.worker({ jobs: [Slow] }).pipe(
        Layer.provide(Slow.toLayer(() => Effect.never)),
        Layer.provideMerge(database())
      )
      yield* Effect.gen(function* () {
        const testing = yield* Testing.Testing
        const { id } = yield* Slow.enqueue({})
        yield* testing.drain()
        assert.deepStrictEqual(errorNames(yield* testing.expectState(id, "failed")), ["AttemptFailed", "AttemptFailed"])
      }).pipe(Effect.provide(Live))
    })
  )
})

describe("a worker with a defect of its own", () => {
  it.live(
    "stops claiming, says so, and frees no permit",
    () =>
      // "a defect in reconciliation must stop the worker loudly"
      run({ worker: { shutdownGrace: "100 millis", interruptGrace: "100 millis" } }, () =>
        Effect.gen(function* () {
          const worker = yield* Worker.Worker
          const sql = yield* Direct
          const crash = yield* Effect.fork(Effect.flip(worker.join))
          // a function that answers nonsense stands for any broken invariant between the two sides
          yield* sql`drop function awa.close_completed`
          yield* sql.unsafe(`create function awa.close_completed(bigint, integer[], bigint[], bigint[], integer[], integer[], bigint[],
          bigint[]) returns text language sql as $$ select 'nonsense' $$`)
          yield* Notify.enqueue({ tag: "a" })
          const error = yield* Fiber.join(crash)
          assert.strictEqual(error._tag, "WorkerCrashed")
          yield* Effect.sleep("200 millis") // a claim that was under way ends, and takes what is there by then
          yield* Notify.enqueue({ tag: "b" })
          yield* Effect.sleep("300 millis")
          const states = yield* sql`select state from awa.jobs order by job_id`
          assert.deepStrictEqual(states, [{ state: "running" }, { state: "available" }])
          assert.strictEqual(yield* worker.inFlight, 0) // not beaten for any more: its lease is left to rescue
        })
      ),
    30_000
  )
})
