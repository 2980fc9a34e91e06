/** Jobs before and after their attempts: enqueued by the program, at a time, once; promoted; paused; read back. */
import { assert, describe, layer } from "@effect/vitest"
import { DateTime, Effect, Layer, Option, Redacted, Schema } from "effect"
import { Admin, Inspect, Migrations, RuntimePool } from "effect-awa"
import * as Job from "effect-awa/Job"
import { TestDatabase } from "effect-awa/testing"
import { freshName, type Session } from "../pg/database.js"
import { claim, claimIds, complete, fault, only } from "../pg/support.js"
import { database } from "../runtime/support.js"
import { isStrict } from "../tools/strictRoles.js"
import { cell } from "./cell.js"
import { millis, sessions } from "./sessions.js"

const Remind = Job.make("remind", { payload: Schema.Struct({ tag: Schema.String }) })

/** The operators' services; nothing else claims, promotes or rescues here. */
const operators = Layer.mergeAll(Admin.layer(), Inspect.layer).pipe(
  Layer.provideMerge(
    Layer.unwrapEffect(Effect.map(TestDatabase.TestDatabase, ({ schema, url }) => RuntimePool.layer({ url, schema })))
  ),
  Layer.provideMerge(database())
)

/** One call of the SQL function that every language enqueues by. */
const insert = (application: Session, queue: string, opts: Readonly<Record<string, unknown>>, args: unknown = {}) =>
  Effect.map(
    application.rows(`select job_id, answer from ${application.schema}.insert_jobs($1::text::jsonb)`, [
      JSON.stringify([{ kind: "remind", queue, args, opts }])
    ]),
    only
  )

const runAt = (observer: Session, id: unknown) =>
  Effect.map(
    observer.value(`select ${millis("run_at")} from ${observer.schema}.deferred_jobs where job_id = $1`, [id]),
    Number
  )

const promote = (runtime: Session) =>
  Effect.map(runtime.rows(`select promoted, next_due_ms from ${runtime.schema}.promote_due(100)`), only)

/**
 * The last hour that New York does not have and the two that it has twice, and the day that Kiritimati is ahead by: as UTC, and as
 * other places write them.
 */
const moments = [
  "2299-03-12T02:30:00Z",
  "2299-03-12T07:30:00.123Z",
  "2299-11-05T05:30:00Z",
  "2299-11-05T06:30:00Z",
  "2299-12-31T10:00:00Z",
  "2300-01-01T00:00:00+14:00",
  "2299-12-31T19:30:00.5-05:00",
  "2300-01-01T05:45:00+0545"
]

layer(operators, { excludeTestServices: true })("a job", (it) => {
  describe("for later", () => {
    it.scoped("is due at the moment that was said, in whatever zone that was [matrix]", () =>
      Effect.gen(function* () {
        const { application, observer } = yield* sessions
        const inspect = yield* Inspect.Inspect
        for (const moment of moments) {
          const wanted = DateTime.unsafeMake(moment.replace("+0545", "+05:45"))
          const bySql = yield* insert(application, "moments", { run_at: moment })
          const typed = yield* Remind.enqueue({ tag: moment }, { queue: "moments", runAt: wanted })
          for (const id of [bySql["job_id"], typed.id]) {
            assert.strictEqual(yield* runAt(observer, id), wanted.epochMillis, moment)
          }
          const record = Option.getOrThrow(yield* inspect.job(typed.id))
          assert.strictEqual(record.runAt?.epochMillis, wanted.epochMillis)
        }
      })
    )

    it.scoped(
      "waits until then and no longer: half an hour away on either side of now, as any zone writes it [matrix]",
      () =>
        Effect.gen(function* () {
          const { application, observer, runtime } = yield* sessions
          const queue = "halves"
          const now = Number(yield* observer.value(`select ${millis("clock_timestamp()")}`))
          /** The same moment as a clock in that zone shows it. */
          const written = (moment: number, hours: number) =>
            `${new Date(moment + hours * 3_600_000).toISOString().slice(0, -1)}${hours < 0 ? "-" : "+"}${String(Math.abs(hours)).padStart(2, "0")}:00`
          const due: Array<unknown> = []
          for (const hours of [-12, -5, 0, 14]) {
            due.push((yield* insert(application, queue, { run_at: written(now - 1_800_000, hours) }))["job_id"])
            const later = yield* insert(application, queue, { run_at: written(now + 1_800_000, hours) })
            assert.strictEqual(yield* runAt(observer, later["job_id"]), Math.trunc(now + 1_800_000))
          }
          assert.strictEqual((yield* promote(runtime))["promoted"], 0)
          assert.deepStrictEqual(yield* claimIds(runtime, { queue }), due)
        })
    )

    it.scoped("is promoted when its time has come, not before [matrix]", () =>
      Effect.gen(function* () {
        const { application, observer, runtime } = yield* sessions
        const queue = "promoted"
        const before = Number(yield* observer.value(`select ${millis("clock_timestamp()")}`))
        const { id } = yield* Remind.enqueue({ tag: "delayed" }, { queue, delay: "1 hour" })
        const after = Number(yield* observer.value(`select ${millis("clock_timestamp()")}`))
        const at = yield* runAt(observer, id)
        assert.isAtLeast(at, before + 3_600_000)
        assert.isAtMost(at, after + 3_600_000)
        const soon = yield* insert(application, queue, { delay_ms: 1 })
        yield* Effect.sleep("20 millis")
        const { next_due_ms, promoted } = yield* promote(runtime)
        assert.strictEqual(promoted, 1)
        assert.isAtMost(Number(next_due_ms), 3_600_000)
        assert.deepStrictEqual(yield* claimIds(runtime, { queue }), [soon["job_id"]])
        // an hour later
        yield* observer.rows(
          `update ${observer.schema}.deferred_jobs set run_at = run_at - interval '1 h', xid = pg_current_xact_id() where job_id = $1`,
          [id]
        )
        assert.strictEqual((yield* promote(runtime))["promoted"], 1)
        assert.deepStrictEqual(yield* claimIds(runtime, { queue }), [id])
      })
    )
  })

  it.scoped("that is unique has no twin until its key is free, and a window ends when it was said to [matrix]", () =>
    // C-13
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const queue = "unique"
      const key = `Ørsted's \\"key"`
      const first = yield* insert(application, queue, { unique: { key } })
      assert.strictEqual(first["answer"], "inserted")
      assert.deepStrictEqual(yield* insert(application, queue, { unique: { key } }), { ...first, answer: "existing" })
      const twin = yield* Remind.enqueue({ tag: "typed" }, { queue, unique: { key } })
      assert.deepStrictEqual({ job_id: twin.id, answer: twin.answer }, { ...first, answer: "existing" })
      yield* fault(insert(application, queue, { unique: { key, on_conflict: "error" } }), "23505")
      const attempt = only(yield* claim(runtime, { queue }))
      yield* application.script("begin")
      yield* complete(application, attempt)
      yield* application.script("rollback")
      assert.strictEqual((yield* insert(application, queue, { unique: { key } }))["answer"], "existing")
      yield* complete(application, attempt)
      assert.strictEqual((yield* insert(application, queue, { unique: { key } }))["answer"], "inserted")

      const windowed = { unique: { key: "windowed", states: "all", window_ms: 86_400_000 } }
      const { job_id } = yield* insert(application, queue, windowed)
      const left = yield* observer.value(
        `select ${millis("expires_at - clock_timestamp()")} from ${observer.schema}.unique_claims where job_id = $1`,
        [job_id]
      )
      assert.isAtMost(Number(left), 86_400_000)
      assert.isAbove(Number(left), 86_400_000 - 60_000)
      assert.deepStrictEqual(yield* insert(application, queue, windowed), { job_id, answer: "existing" })
    })
  )

  it.scoped("is enqueued with the caller's rows, or not at all [matrix]", () =>
    // C-13
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const queue = "atomic"
      yield* application.script("begin")
      const undone = yield* insert(application, queue, {})
      yield* application.script("rollback; begin")
      const kept = yield* insert(application, queue, {})
      yield* application.script("commit")
      assert.deepStrictEqual(yield* claimIds(runtime, { queue }), [kept["job_id"]])
      assert.deepStrictEqual(
        yield* observer.rows(`select state from ${observer.schema}.jobs where job_id = $1`, [undone["job_id"]]),
        []
      )
    })
  )

  it.scoped("that its caller completed reads back, with its times and its attempts [matrix]", () =>
    // C-23
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const inspect = yield* Inspect.Inspect
      const queue = "history"
      const now = Effect.map(observer.value(`select ${millis("clock_timestamp()")}`), Number)
      const before = yield* now
      const { id } = yield* Remind.enqueue({ tag: "history" }, { queue })
      const attempt = only(yield* claim(runtime, { queue }))
      const receipt = yield* complete(application, attempt, { progress: { pages: 3 } })
      const after = yield* now
      const record = Option.getOrThrow(yield* inspect.job(id))
      assert.deepInclude(record, {
        queue,
        kind: "remind",
        args: { tag: "history" },
        state: "completed",
        runLease: 1n,
        attempt: 1,
        progress: { pages: 3 }
      })
      const times = [record.createdAt, record.claimedAt, record.finalizedAt].map((time) => time?.epochMillis ?? 0)
      assert.deepStrictEqual(
        times,
        [...times].sort((one, other) => one - other)
      )
      for (const time of times) {
        assert.isAtLeast(time, Math.floor(before))
        assert.isAtMost(time, Math.ceil(after))
      }
      const finalizedAt = yield* observer.value(`select ${millis("$1::timestamptz")}`, [receipt["finalized_at"]])
      assert.strictEqual(record.finalizedAt?.epochMillis, Math.floor(Number(finalizedAt)))
      const [told, ...others] = yield* inspect.attempts(id)
      assert.lengthOf(others, 0)
      assert.deepInclude(told, { runLease: 1n, outcome: "completed", callerOwned: true, progress: { pages: 3 } })
      assert.strictEqual(told?.closedAt?.epochMillis, record.finalizedAt?.epochMillis)
    })
  )

  it.scoped("of a queue that is paused is not claimed until it is resumed [matrix]", () =>
    Effect.gen(function* () {
      const { application, runtime } = yield* sessions
      const admin = yield* Admin.Admin
      const queue = `paused "Ø'`
      assert.isTrue(yield* admin.pauseQueue(queue))
      const { job_id } = yield* insert(application, queue, {})
      assert.deepStrictEqual(yield* claimIds(runtime, { queue }), [])
      assert.isFalse(yield* admin.pauseQueue(queue))
      assert.isTrue(yield* admin.resumeQueue(queue))
      assert.deepStrictEqual(yield* claimIds(runtime, { queue }), [job_id])
    })
  )
})

/** Who migrates: the owner; in the strict profile a role that can become both owners, since nobody can connect as these. */
const migratorOf = (observer: Session, url: Redacted.Redacted) =>
  Effect.gen(function* () {
    if (!isStrict) return url
    const role = freshName("migrator")
    yield* Effect.acquireRelease(
      observer.script(
        `create role ${role} login noinherit password 'secret' in role awa_test_owner, awa_test_execution`
      ),
      () => Effect.ignore(observer.script(`drop role ${role}`))
    )
    const changed = new URL(Redacted.value(url))
    changed.username = role
    changed.password = "secret"
    return Redacted.make(changed.href)
  })

layer(database(), { excludeTestServices: true })("migrate", (it) => {
  it.scoped("changes nothing of a schema that is there already, and brings one of another version back [matrix]", () =>
    // C-50, C-51, C-62
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const { url } = yield* TestDatabase.TestDatabase
      const { schema } = observer
      yield* insert(application, "migrated", {})
      const catalog = observer.rows(
        `select p.oid::regprocedure::text as name, p.proowner::regrole::text as owner, p.proacl::text[] @> '{}' as acl, md5(p.prosrc) as body
         from pg_proc p where p.pronamespace = (select pronamespace from pg_proc where proname = 'complete_job') order by 1`
      )
      const before = yield* catalog
      assert.isAbove(before.length, 100)
      const migrate = Migrations.migrate({ url: yield* migratorOf(observer, url), schema: cell.schema })
      assert.deepInclude(yield* migrate, { action: "unchanged", schema: cell.schema })
      // as a library of another version leaves it
      yield* observer.script(
        `create or replace function ${schema}.name_fault(p_name text) returns text language sql immutable as 'select null';
         update ${schema}.meta set rendered_hash = 'of another version'`
      )
      assert.notDeepEqual(yield* catalog, before)
      assert.deepInclude(yield* migrate, { action: "refreshed" })
      assert.deepStrictEqual(yield* catalog, before)
      assert.lengthOf(yield* claimIds(runtime, { queue: "migrated" }), 1)
    })
  )
})
