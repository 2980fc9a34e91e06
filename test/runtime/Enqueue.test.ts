import { SqlClient } from "@effect/sql"
import { SqlError } from "@effect/sql/SqlError"
import { assert, describe, it, layer } from "@effect/vitest"
import { DateTime, Effect, Exit, FastCheck, Layer, Option, Schema } from "effect"
import type * as Enqueue from "effect-awa/Enqueue"
import { InstalledSchema } from "effect-awa/InstalledSchema"
import * as Job from "effect-awa/Job"
import { TestDatabase } from "effect-awa/testing"
import { saidMissing } from "../../src/internal/enqueueCall.js"
import { sqlStateOf } from "../../src/internal/sqlState.js"
import { database } from "./support.js"

const Anything = Job.make("anything", { payload: Schema.Unknown })
const Point = Job.make("point", {
  payload: Schema.Struct({ at: Schema.Date, x: Schema.Int }),
  queue: "points",
  maxAttempts: 7
})

const Sync = Job.make("sync", {
  payload: Schema.Struct({ account: Schema.Int, cursor: Schema.Int }),
  unique: ({ account }) => account > 0 && { key: String(account), onConflict: "replace" }
})
const Strict = Job.make("strict", { payload: Schema.Int, unique: { onConflict: "error" } })

const stored = (id: bigint) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ args: unknown; queue: string; priority: number; max_attempts: number; state: string }>`
        select args, queue, priority, max_attempts, state from awa.jobs where job_id = ${String(id)}`,
      ([row]) => row
    )
  )

const countJobs = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(sql<{ n: number }>`select count(*)::int as n from awa.jobs`, ([row]) => row?.n ?? -1)
)

const rejected = (payload: unknown, options?: Enqueue.EnqueueOptions) =>
  Effect.gen(function* () {
    const before = yield* countJobs
    const error = yield* Effect.flip(Anything.enqueue(payload, options))
    assert.strictEqual(yield* countJobs, before)
    return error._tag === "PayloadRejected" ? `${error.path}: ${error.rule}` : error._tag
  })

layer(database(), { excludeTestServices: true })("enqueue", (it) => {
  it.effect("stores the payload as its schema encodes it, with the definition's defaults", () =>
    Effect.gen(function* () {
      const { id } = yield* Point.enqueue({ at: new Date(0), x: 1 })
      assert.deepStrictEqual(yield* stored(id), {
        args: { at: "1970-01-01T00:00:00.000Z", x: 1 },
        queue: "points",
        priority: 2,
        max_attempts: 7,
        state: "available"
      })
      const other = yield* Point.enqueue(
        { at: new Date(0), x: 1 },
        { queue: "other", priority: 1, maxAttempts: 1, delay: "1 hour" }
      )
      assert.deepInclude(yield* stored(other.id), { queue: "other", priority: 1, max_attempts: 1, state: "scheduled" })
    })
  )

  it.effect("joins the ambient transaction, and commits by itself outside one", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const before = yield* countJobs
      const exit = yield* Effect.exit(
        sql.withTransaction(
          Effect.zipRight(
            Point.enqueueAll([
              { at: new Date(), x: 1 },
              { at: new Date(), x: 2 }
            ]),
            Effect.fail("undo")
          )
        )
      )
      assert.isTrue(Exit.isFailure(exit))
      assert.strictEqual(yield* countJobs, before)
      const jobs = yield* sql.withTransaction(
        Point.enqueueAll(Array.from({ length: 1000 }, (_, x) => ({ at: new Date(), x })))
      )
      assert.strictEqual(yield* countJobs, before + 1000)
      const xs = yield* Effect.forEach([jobs[0], jobs[999]], (job) => stored(job?.id ?? 0n))
      assert.deepStrictEqual(
        xs.map((row) => Schema.decodeUnknownSync(Schema.Struct({ x: Schema.Int }))(row?.args).x),
        [0, 999]
      )
    })
  )

  it.effect("names the place that jsonb cannot hold, before anything is sent", () =>
    // F-19, F-21
    Effect.gen(function* () {
      assert.strictEqual(
        yield* rejected({ a: [1, { "b c": "x\u0000" }] }),
        `payload.a[1]["b c"]: no NUL character and no lone surrogate`
      )
      assert.strictEqual(yield* rejected({ a: "\ud800" }), "payload.a: no NUL character and no lone surrogate")
      assert.strictEqual(yield* rejected({ "\u0000": 1 }), "payload: no NUL character and no lone surrogate in a key")
      assert.strictEqual(yield* rejected([Number.NaN]), "payload[0]: a finite number")
      assert.strictEqual(yield* rejected({ n: 1n }), "payload.n: a JSON value")
      assert.strictEqual(yield* rejected({ d: new Date() }), "payload.d: a plain JSON value")
      assert.strictEqual(yield* rejected(undefined), "payload: a JSON value")
      assert.strictEqual(yield* rejected("x".repeat(1_048_576)), "payload: at most 1 MiB of JSON")
      let deep: unknown = 0
      for (let i = 0; i < 300; i++) deep = [deep]
      assert.include(yield* rejected(deep), "at most 256 levels deep")
    })
  )

  it.effect("names the option and the rule", () =>
    // F-24, F-29
    Effect.gen(function* () {
      assert.strictEqual(yield* rejected(1, { queue: "" }), "queue: expected a non-empty text")
      assert.strictEqual(yield* rejected(1, { queue: "Ω".repeat(128) }), "queue: at most 255 bytes")
      assert.strictEqual(yield* rejected(1, { queue: "a\nb" }), "queue: no control characters")
      assert.strictEqual(yield* rejected(1, { maxAttempts: 0 }), "maxAttempts: expected an integer from 1 to 32767")
      assert.strictEqual(
        yield* rejected(1, { delay: "1 day", runAt: DateTime.unsafeNow() }),
        "runAt: not together with delay"
      )
      for (const delay of [Number.POSITIVE_INFINITY, 1e14, 1e300]) {
        assert.strictEqual(yield* rejected(1, { delay }), "delay: expected a duration of at most 3000 years")
      }
      for (const time of [8.64e15, -8.64e15]) {
        assert.strictEqual(
          yield* rejected(1, { runAt: DateTime.unsafeMake(time) }),
          "runAt: expected a time from the year 1 to 9999"
        )
      }
      for (const queue of ["a/b", "Ω", "a b", "q".repeat(255), `"quoted"`, "Robert'); drop schema awa;--"]) {
        assert.deepInclude(yield* stored((yield* Anything.enqueue(1, { queue })).id), { queue })
      }
    })
  )

  it.effect("names the part of `unique` and the rule", () =>
    Effect.gen(function* () {
      // what an untyped program may say
      const unique = (value: object) => rejected(1, Object.assign({}, { unique: value }))
      assert.strictEqual(yield* unique({ by: ["payload"] }), "unique.by: expected a list of kind, queue and args")
      assert.strictEqual(yield* unique({ by: "kind" }), "unique.by: expected a list of kind, queue and args")
      assert.strictEqual(yield* unique({ by: [] }), "unique.by: expected one of kind, queue and args, or a key")
      assert.strictEqual(yield* unique({ key: "" }), "unique.key: expected a non-empty text")
      assert.strictEqual(yield* unique({ key: 7 }), "unique.key: expected a non-empty text")
      assert.strictEqual(yield* unique({ key: "\u0000" }), "unique.key: no NUL character and no lone surrogate")
      assert.strictEqual(yield* unique({ key: "\ud800" }), "unique.key: no NUL character and no lone surrogate")
      assert.strictEqual(yield* unique({ key: "Ω".repeat(4097) }), "unique.key: at most 8192 bytes")
      assert.strictEqual(
        yield* unique({ states: "running" }),
        "unique.states: expected unclaimed, incomplete, successful or all"
      )
      for (const states of ["successful", "all"]) {
        assert.strictEqual(yield* unique({ states }), "unique.window: required when states is successful or all")
      }
      for (const window of [0, Number.POSITIVE_INFINITY, 1e14, "a while", null]) {
        assert.strictEqual(
          yield* unique({ window }),
          "unique.window: expected a duration longer than none, of at most 3000 years"
        )
      }
      assert.strictEqual(yield* unique({ onConflict: "ignore" }), "unique.onConflict: expected skip, replace or error")
      const { answer } = yield* Anything.enqueue("borders", {
        unique: { by: [], key: "Ω".repeat(4096), states: "all", window: "1 nanos", onConflict: "skip" }
      })
      assert.strictEqual(answer, "inserted")
    })
  )

  it.effect("answers whether a job is new, is there already, or has replaced what was there", () =>
    Effect.gen(function* () {
      const first = yield* Sync.enqueue({ account: 1, cursor: 1 }, { delay: "1 hour" })
      assert.strictEqual(first.answer, "inserted")
      assert.deepStrictEqual(yield* Sync.enqueue({ account: 1, cursor: 2 }), { ...first, answer: "replaced" })
      assert.deepInclude(yield* stored(first.id), { args: { account: 1, cursor: 2 }, state: "scheduled" })
      assert.deepStrictEqual(
        yield* Sync.enqueue({ account: 1, cursor: 3 }, { unique: { key: "1", states: "all", window: "1 minute" } }),
        { ...first, answer: "existing" }
      )
      const all = yield* Sync.enqueueAll([
        { account: 2, cursor: 1 },
        { account: 1, cursor: 4 },
        { account: 2, cursor: 2 },
        { account: 0, cursor: 1 },
        { account: 0, cursor: 1 }
      ])
      assert.deepStrictEqual(
        all.map(({ answer }) => answer),
        ["inserted", "replaced", "existing", "inserted", "inserted"]
      )
      assert.deepStrictEqual([all[1]?.id, all[2]?.id], [first.id, all[0]?.id])
      const free = yield* Sync.enqueueAll([{ account: 2, cursor: 3 }], { unique: false })
      assert.deepStrictEqual(
        free.map(({ answer }) => answer),
        ["inserted"]
      )
    })
  )

  it.effect("fails with DuplicateJob where the definition or the call says so, and keeps the whole call out", () =>
    Effect.gen(function* () {
      const { id } = yield* Strict.enqueue(1)
      const before = yield* countJobs
      const held = yield* Effect.flip(Strict.enqueueAll([2, 1]))
      assert.deepInclude(held, { _tag: "DuplicateJob", index: 1, jobId: id })
      assert.include(held.message, `job ${id} holds its unique key`)
      const within = yield* Effect.flip(Strict.enqueueAll([3, 4, 4]))
      assert.deepInclude(within, { _tag: "DuplicateJob", index: 2, jobId: undefined })
      assert.strictEqual(yield* countJobs, before)
      const caught = Strict.enqueue(1).pipe(
        Effect.catchTag("DuplicateJob", ({ jobId }) => Effect.succeed({ id: jobId }))
      )
      assert.strictEqual((yield* caught).id, id)
      const skipped = yield* Strict.enqueue(1, { unique: { onConflict: "skip" } })
      assert.deepStrictEqual(skipped, { kind: "strict", id, answer: "existing" })
    })
  )

  it.scoped("takes another unique violation for what it is", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`create table once (n int primary key)`
      yield* sql`grant insert on once to public` // the enqueue runs as the owner of its function
      yield* sql.unsafe(
        "create function once() returns trigger language plpgsql as $$ begin insert into public.once values (1); return new; end $$"
      )
      yield* Effect.acquireRelease(
        sql`create trigger once before insert on awa.deferred_jobs execute function once()`,
        () => Effect.orDie(sql`drop trigger once on awa.deferred_jobs`)
      )
      yield* Strict.enqueue(10, { delay: "1 hour" })
      const error = yield* Effect.flip(Strict.enqueue(11, { delay: "1 hour" }))
      assert.strictEqual(error._tag, "SqlError")
    })
  )

  it.effect("one job that breaks a rule keeps the whole call out", () =>
    Effect.gen(function* () {
      const before = yield* countJobs
      const error = yield* Effect.flip(Anything.enqueueAll([1, "\u0000", 2]))
      assert.strictEqual(error._tag, "PayloadRejected")
      assert.strictEqual(yield* countJobs, before)
      assert.deepStrictEqual(yield* Anything.enqueueAll([]), [])
    })
  )

  it.effect("round-trips whatever JSON it accepts", () =>
    Effect.flatMap(Effect.runtime<SqlClient.SqlClient>(), (runtime) =>
      Effect.promise(() =>
        FastCheck.assert(
          FastCheck.asyncProperty(FastCheck.jsonValue({ maxDepth: 4 }), async (value) => {
            const run = await import("effect/Runtime")
            const json: unknown = JSON.parse(JSON.stringify(value))
            const exit = await run.runPromiseExit(runtime)(
              Effect.flatMap(Anything.enqueue(json), ({ id }) => stored(id))
            )
            if (Exit.isSuccess(exit)) assert.deepStrictEqual(exit.value?.args, json)
            else assert.match(JSON.stringify(json), /\\u0000|\\ud[89a-f]/i)
          }),
          { numRuns: 200 }
        )
      )
    )
  )

  it.effect("finds the schema that the program says", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Anything.enqueue(1).pipe(Effect.provideService(InstalledSchema, `no "such`)))
      assert.strictEqual(error._tag, "SqlError")
    })
  )

  it.effect("says that nothing is installed, and what installs it", () =>
    // C-62
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql.unsafe(`create schema "Emp.ty"`)
      for (const [schema, said, command] of [
        [`no "such`, `schema "no "such" does not exist`, `\`awa migrate --schema 'no "such'\``],
        ["Emp.ty", "does not exist", "`awa migrate --schema Emp.ty`"]
      ] as const) {
        const within = Effect.provideService(InstalledSchema, schema)
        for (const refused of [Effect.asVoid(Anything.enqueue(1)), Effect.asVoid(Anything.enqueueAll([1, 2]))]) {
          const error = yield* Effect.flip(within(refused))
          assert.strictEqual(error._tag, "SqlError")
          assert.include(error.message, `effect-awa is not installed in schema ${JSON.stringify(schema)}`)
          assert.include(error.message, said)
          assert.include(error.message, command)
          assert.isTrue(Option.exists(sqlStateOf(error.cause), (state) => ["3F000", "42883"].includes(state)))
        }
      }
    })
  )

  it("leaves what else is missing to the driver's own words", () => {
    const refused = (code: string, message: string) => {
      const error = new SqlError({ cause: { severity: "ERROR", code, message }, message: "Failed" })
      return saidMissing("awa")(error).message
    }
    assert.match(refused("3F000", `schema "awa" does not exist`), /; run `awa migrate`$/)
    assert.match(refused("42P01", `relation "awa.meta" does not exist`), /; run `awa migrate`$/)
    // by a trigger of the application
    assert.strictEqual(refused("42P01", `relation "awards" does not exist`), "Failed")
    assert.strictEqual(refused("3F000", `schema "my_awa" does not exist`), "Failed")
    assert.strictEqual(refused("42501", `permission denied for schema awa`), "Failed")
  })
})

describe("a schema with another name", () => {
  it.live("works like any other", () =>
    // F-31
    Effect.gen(function* () {
      const { schema } = yield* TestDatabase.TestDatabase
      assert.strictEqual(schema, `We"ird-Schéma`)
      const { id } = yield* Anything.enqueue({ a: 1 })
      assert.strictEqual(id, 1n)
    }).pipe(Effect.provide(Layer.suspend(() => weird)))
  )
})
const weird = database(`We"ird-Schéma`)
