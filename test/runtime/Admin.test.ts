import { SqlClient } from "@effect/sql"
import { assert, describe, layer } from "@effect/vitest"
import { DateTime, Duration, Effect, Fiber, Layer, Option } from "effect"
import { Admin, type AdminError, Inspect, JobId, RuntimePool } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import { database, eventually } from "./support.js"

/** The operators' services over a pool of their own: there is no worker here. */
const operators = Layer.mergeAll(Admin.layer({ patience: "300 millis" }), Inspect.layer).pipe(
  Layer.provideMerge(
    Layer.unwrapEffect(Effect.map(TestDatabase.TestDatabase, ({ url }) => RuntimePool.layer({ url })))
  ),
  Layer.provideMerge(database())
)

const enqueue = (queue: string, count = 1) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ id: string }>`
        select job_id::text as id from awa.insert_jobs(
          (select jsonb_agg(jsonb_build_object('kind', 'task', 'queue', ${queue}::text, 'args', jsonb_build_object('n', i)) order by i)
           from generate_series(0, ${count} - 1) i))`,
      (rows) => rows.map(({ id }) => JobId.make(BigInt(id)))
    )
  )

const claim = (queue: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`select job_id from awa.claim(${queue}, 100, 1)`)

/** Ends every open attempt of a queue. */
const end = (queue: string, outcome: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`
      select c.answer from awa.attempts a, awa.meta m, awa.close_attempts(1, array[(m.fingerprint << 12) | 256 | a.segment],
        array[a.batch_id], array[a.batch_index], array[a.job_id], array[a.run_lease], array[a.receipt_id],
        array[${outcome}::text::awa.outcome], '{"1": {"error": {"name": "E"}}}', true) c
      where a.queue = ${queue} and a.outcome is null`
  )

layer(operators, { excludeTestServices: true })("operators", (it) => {
  describe("Admin", () => {
    it.effect("cancels, reprioritizes, redrives and deletes, answer by answer, without a worker", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const inspect = yield* Inspect.Inspect
        const ids = yield* enqueue("verbs", 3)
        const [a = JobId.make(1n), b = JobId.make(1n)] = ids
        const state = (id: JobId.JobId) => Effect.map(inspect.job(id), (job) => Option.getOrUndefined(job)?.state)
        assert.deepStrictEqual(yield* admin.reprioritize([a], 4), [{ jobId: a, answer: "reprioritized" }])
        assert.deepStrictEqual(yield* admin.cancel([a, JobId.make(4_000_000n)]), [
          { jobId: a, answer: "cancelled" },
          { jobId: JobId.make(4_000_000n), answer: "unknown" }
        ])
        assert.strictEqual(yield* state(a), "cancelled")
        assert.deepStrictEqual(yield* admin.redrive([a]), [{ jobId: a, answer: "redriven" }])
        assert.strictEqual(yield* state(a), "available")
        assert.deepStrictEqual(yield* admin.delete([b]), [{ jobId: b, answer: "deleted" }])
        assert.strictEqual(yield* state(b), undefined)
        assert.deepStrictEqual(yield* admin.cancel([]), [])
      })
    )

    it.effect("takes lists of any length, and each id once", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const ids = yield* enqueue("long", 450)
        const answers = yield* admin.cancel([...ids, ...ids])
        assert.deepStrictEqual(
          answers.map(({ jobId }) => jobId),
          ids
        )
        assert.deepStrictEqual([...new Set(answers.map(({ answer }) => answer))], ["cancelled"])
      })
    )

    // C-60
    it.effect(
      "disables and enables caller-owned completion; what was put aside runs again, in parts, and the counts say so",
      () =>
        Effect.gen(function* () {
          const admin = yield* Admin.Admin
          const inspect = yield* Inspect.Inspect
          const sql = yield* SqlClient.SqlClient
          const counts = Effect.map(inspect.counts(), (all) => all.filter(({ queue }) => queue === "gated"))
          yield* enqueue("gated", 1_100)
          assert.isTrue(yield* admin.disableCallerOwned("gated"))
          assert.isFalse((yield* admin.setQueue("gated", {})).callerOwned)
          yield* sql`
          with a as (select array_agg((m.fingerprint << 12) | 256) as s, array_agg(c.batch_id) as b, array_agg(c.batch_index) as i,
              array_agg(c.job_id) as j, array_agg(c.run_lease) as l, array_agg(c.receipt_id) as r,
              array_agg('gated'::awa.outcome) as o
            from awa.claim('gated', 2000, 1) c, awa.meta m where c.job_id is not null)
          select from a, awa.close_attempts(1, a.s, a.b, a.i, a.j, a.l, a.r, a.o, '{}', false)`
          assert.deepStrictEqual(
            Array.from(yield* counts, ({ count, state }) => [state, count]),
            [["gated", 1_100]]
          )
          assert.strictEqual(yield* admin.enableCallerOwned("gated"), 1_100)
          assert.deepStrictEqual(
            Array.from(yield* counts, ({ count, state }) => [state, count]),
            [["available", 1_100]]
          )
          assert.isTrue((yield* admin.setQueue("gated", {})).callerOwned)
          assert.deepInclude(yield* Effect.flip(admin.enableCallerOwned("")), { _tag: "AdminRejected", field: "queue" })
        })
    )

    it.effect("asks again for what is busy, and answers busy when its patience is over", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const sql = yield* SqlClient.SqlClient
        const ids = yield* enqueue("busy", 1)
        const claiming = (pause: Duration.DurationInput) =>
          sql.withTransaction(Effect.zipLeft(sql`select job_id from awa.claim('busy', 1, 1)`, Effect.sleep(pause)))
        const long = yield* Effect.fork(claiming("1 second"))
        yield* eventually(
          "the claim",
          Effect.map(sql`select from pg_locks where locktype = 'advisory'`, (rows) => rows.length > 0)
        )
        assert.deepStrictEqual(
          (yield* admin.cancel(ids)).map(({ answer }) => answer),
          ["busy"]
        )
        yield* Fiber.join(long)
        assert.deepStrictEqual(
          (yield* admin.cancel(ids)).map(({ answer }) => answer),
          ["cancelled"]
        )
        const more = yield* enqueue("busy", 1)
        const short = yield* Effect.fork(claiming("100 millis"))
        yield* eventually(
          "the claim",
          Effect.map(sql`select from pg_locks where locktype = 'advisory'`, (rows) => rows.length > 0)
        )
        assert.deepStrictEqual(
          (yield* admin.cancel(more)).map(({ answer }) => answer),
          ["cancelled"]
        )
        yield* Fiber.join(short)
      })
    )

    it.effect("redrives by a filter, page by page, and goes on behind an id", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const ids = yield* enqueue("filter", 300)
        while ((yield* claim("filter")).length > 0) yield* end("filter", "failed")
        const filter = { source: "terminal", queue: "filter", kind: "task" } as const
        assert.deepStrictEqual(yield* admin.redriveWhere({ ...filter, before: DateTime.unsafeMake(0) }), [])
        const sql = yield* SqlClient.SqlClient
        yield* sql`update awa.terminal_jobs set unique_key = '\\x01'::bytea || sha256('key') where job_id <= ${String(ids[2])} and queue = 'filter'`
        yield* sql`insert into awa.unique_claims values (sha256('key'), 1, 1, null)`
        const first = yield* admin.redriveWhere({ ...filter, limit: 250 })
        assert.deepStrictEqual(
          first,
          ids.slice(0, 250).map((jobId, i) => ({ jobId, answer: i < 3 ? "duplicate" : "redriven" }))
        )
        const rest = yield* admin.redriveWhere({ ...filter, after: ids[259] })
        assert.deepStrictEqual(
          rest.map(({ jobId }) => jobId),
          ids.slice(260)
        )
        const error = yield* Effect.flip(admin.redriveWhere({ ...filter, limit: 0 }))
        assert.strictEqual(error._tag === "AdminRejected" ? error.field : error._tag, "limit")
      })
    )

    it.effect("drains a queue: paused at once, done when its handlers are, and paused still when time is over", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        yield* enqueue("drained", 4)
        const sql = yield* SqlClient.SqlClient
        yield* sql`select job_id from awa.claim('drained', 2, 1)`
        const error = yield* Effect.flip(admin.drainQueue("drained", "150 millis"))
        assert.strictEqual(error._tag, "DrainTimedOut")
        assert.deepStrictEqual(yield* claim("drained"), [])
        const draining = yield* Effect.fork(admin.drainQueue("drained", "20 seconds"))
        yield* Effect.sleep("100 millis")
        assert.isTrue(Option.isNone(yield* Fiber.poll(draining)))
        yield* end("drained", "completed")
        yield* Fiber.join(draining)
        assert.isFalse(yield* admin.pauseQueue("drained"))
        assert.isTrue(yield* admin.resumeQueue("drained"))
        assert.strictEqual((yield* claim("drained")).length, 2)
      })
    )

    it.effect("names the argument that breaks a rule", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const fieldOf = <A>(effect: Effect.Effect<A, AdminError.AdminError>) =>
          Effect.map(Effect.flip(effect), (error) => (error._tag === "AdminRejected" ? error.field : error._tag))
        // a lone surrogate would be sent as U+FFFD, which may be the name of another queue
        for (const queue of ["", "a\u0000b", "\ud800"]) {
          assert.strictEqual(yield* fieldOf(admin.pauseQueue(queue)), "queue")
          assert.strictEqual(yield* fieldOf(admin.resumeQueue(queue)), "queue")
          assert.strictEqual(yield* fieldOf(admin.setQueue(queue, {})), "queue")
          assert.strictEqual(yield* fieldOf(admin.redriveWhere({ source: "dlq", queue })), "queue")
          assert.strictEqual(yield* fieldOf(admin.redriveWhere({ source: "dlq", kind: queue })), "kind")
        }
        const before = DateTime.unsafeMake(8.64e15)
        assert.strictEqual(yield* fieldOf(admin.redriveWhere({ source: "dlq", before })), "before")
        assert.throws(() => JobId.make(2n ** 63n))
      })
    )

    it.effect("refuses a setting of a queue that cannot be kept, by the name it was written under", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const bad = [Duration.infinity, "-1 second", -1, -1n, NaN, [-1, 0], [0, NaN], 1e12] as const
        const rejected = (settings: Admin.QueueSettings) =>
          Effect.map(Effect.flip(admin.setQueue("refused", settings)), (error) =>
            error._tag === "AdminRejected" ? error.field : error._tag
          )
        for (const duration of bad) {
          assert.strictEqual(yield* rejected({ aging: duration }), "aging", String(duration))
          assert.strictEqual(yield* rejected({ attemptDeadline: duration }), "attemptDeadline", String(duration))
          assert.strictEqual(yield* rejected({ rate: { limit: 1, interval: duration } }), "rate.interval")
        }
        // a program that is not type-checked
        // @ts-expect-error there is no such unit
        assert.strictEqual(yield* rejected({ aging: "3 fortnights" }), "aging")
        assert.strictEqual(yield* rejected({ attemptDeadline: 0 }), "attemptDeadline")
        assert.strictEqual(yield* rejected({ rate: { limit: 1, interval: 0 } }), "rate.interval")
        for (const limit of [0, -1, 0.5, NaN, 1e9]) {
          assert.strictEqual(yield* rejected({ rate: { limit, interval: "1 second" } }), "rate.limit")
        }
        const inspect = yield* Inspect.Inspect
        assert.notInclude(
          (yield* inspect.queues).map(({ queue }) => queue),
          "refused"
        )
        const none = yield* admin.setQueue("unaged", { aging: 0 })
        assert.strictEqual(Duration.toMillis(none.aging), 0)
      })
    )

    it.effect("sets what is given of a queue, and leaves the rest", () =>
      Effect.gen(function* () {
        const admin = yield* Admin.Admin
        const inspect = yield* Inspect.Inspect
        const set = yield* admin.setQueue("settings", {
          aging: "10 seconds",
          attemptDeadline: "1 minute",
          rate: { limit: 5, interval: "1 second" }
        })
        assert.deepInclude(set, { queue: "settings", paused: false, deadLetter: false, rateLimit: 5 })
        assert.deepStrictEqual(set.attemptDeadline?.pipe(Duration.toSeconds), 60)
        const again = yield* admin.setQueue("settings", { deadLetter: true, rate: null, aging: null })
        assert.deepInclude(again, { deadLetter: true, rateLimit: undefined, rateInterval: undefined })
        assert.strictEqual(Duration.toSeconds(again.aging), 60)
        assert.isTrue(Duration.equals(again.attemptDeadline ?? 0, "1 minute"))
        const stored = (yield* inspect.queues).find(({ queue }) => queue === "settings")
        assert.deepStrictEqual(stored, again)
      })
    )
  })

  describe("Inspect", () => {
    it.effect("answers a job, its attempts, the counts and the ring", () =>
      Effect.gen(function* () {
        const inspect = yield* Inspect.Inspect
        const [id = JobId.make(1n)] = yield* enqueue("read", 3)
        yield* claim("read")
        yield* end("read", "failed")
        const job = Option.getOrThrow(yield* inspect.job(id))
        assert.deepInclude(job, { jobId: id, queue: "read", kind: "task", args: { n: 0 }, state: "failed", attempt: 1 })
        assert.strictEqual(job.runLease, 1n)
        assert.deepInclude(job.errors[0], { attempt: 1, outcome: "failed", error: { name: "E" } })
        assert.isTrue(DateTime.isUtc(job.createdAt) && job.finalizedAt !== undefined && job.runAt === undefined)
        const [attempt] = yield* inspect.attempts(id)
        assert.deepInclude(attempt, { runLease: 1n, outcome: "failed", authority: "claim", error: { name: "E" } })
        assert.deepInclude(yield* inspect.counts(2), { queue: "read", state: "failed", count: 2, isExact: false })
        assert.deepInclude(yield* inspect.counts(), { queue: "read", state: "failed", count: 3, isExact: true })
        const storage = yield* inspect.storage
        assert.strictEqual(storage.segments.filter(({ isCurrent }) => isCurrent).length, 1)
        assert.strictEqual(storage.freeSlots, storage.segments.length - 1)
        assert.isDefined(storage.historySince)
        assert.isTrue(Option.isNone(yield* inspect.job(JobId.make(5_000_000n))))
      })
    )
  })
})
