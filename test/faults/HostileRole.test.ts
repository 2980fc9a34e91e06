/**
 * A whole worker, both its pools, as a role whose settings are against it (F-32, F-63, F-76, F-79): every kind of job comes to
 * its end, with its effects exactly once.
 */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Config, Deferred, Effect, Layer, Option, Schema } from "effect"
import { InstalledSchema } from "effect-awa"
import * as Callbacks from "effect-awa/Callbacks"
import * as Job from "effect-awa/Job"
import * as JobOutcome from "effect-awa/JobOutcome"
import * as RetryPolicy from "effect-awa/RetryPolicy"
import { HostileRole, TestDatabase, Testing } from "effect-awa/testing"
import { sqlStateOf } from "../../src/internal/sqlState.js"
import { database } from "../runtime/support.js"
import { isStrict } from "../tools/strictRoles.js"

const payload = Schema.Struct({ tag: Schema.String })
class NotYet extends Schema.TaggedError<NotYet>()("NotYet", {}) {}

// In SERIALIZABLE the application's own transactions may fail with 40001, and the attempt is repeated: documented, C-14.
const options = {
  payload,
  error: NotYet,
  maxAttempts: 30,
  retry: RetryPolicy.make({ base: "20 millis", maximum: "200 millis" })
}
const Charge = Job.make("charge", options)
const Notify = Job.make("notify", options)
const Stubborn = Job.make("stubborn", options)
const Sleepy = Job.make("sleepy", options)
const Webhook = Job.make("webhook", options)

/** With a backslash and a quote: what `standard_conforming_strings = off` reads differently. */
const note = (tag: string, kind: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.asVoid(sql`insert into public.application_rows (tag, value) values (${tag}, ${`it's\\a ${kind}`})`)
  )

/** Longer than the role's limits and shorter than the application transaction's own, which are the ones that count there. */
const slowly = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.zipRight(sql`select pg_catalog.pg_sleep(1.3)`, Effect.sleep("1300 millis"))
)

const handlers = (told: Deferred.Deferred<string>, limited: boolean) =>
  Layer.mergeAll(
    Charge.toLayerCallerOwned((job) =>
      job.finalize(
        Effect.gen(function* () {
          if (limited) yield* slowly
          yield* note(job.payload.tag, job.kind)
          yield* Notify.enqueue({ tag: "follow-up" })
        })
      )
    ),
    Notify.toLayer((job) => note(job.payload.tag, job.kind)),
    Stubborn.toLayerCallerOwned((job) =>
      job.attempt < 3 ? new NotYet() : job.finalize(note(job.payload.tag, job.kind))
    ),
    Sleepy.toLayerCallerOwned((job) =>
      job.runLease < 3n ? JobOutcome.end(JobOutcome.snooze("30 millis")) : job.finalize(note(job.payload.tag, job.kind))
    ),
    Webhook.toLayerCallerOwned((job) =>
      Effect.gen(function* () {
        const callback = yield* job.callback({ timeout: "1 minute", result: Schema.Struct({ tag: Schema.String }) })
        yield* Deferred.succeed(told, callback.id)
        const { tag } = yield* callback.await
        return yield* job.finalize(note(tag, job.kind))
      })
    )
  )

const tags = (direct: SqlClient.SqlClient) =>
  Effect.map(
    direct<{ tag: string; value: string }>`select tag, value from public.application_rows order by tag, value`,
    (rows) => rows.map(({ tag, value }) => `${tag}: ${value}`)
  )

const twin = { unique: { key: "it's\\one", states: "incomplete" } } as const

/** The application's own statements meet what such a role meets: SERIALIZABLE, and limits of a second. It says them again. */
const again = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.retry(effect, {
    while: (error) => Option.exists(sqlStateOf(error), (state) => ["40001", "57014", "25P03"].includes(state)),
    times: 20
  })

const everyKind = (told: Deferred.Deferred<string>, direct: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const testing = yield* Testing.Testing
    const sql = yield* SqlClient.SqlClient
    const first = yield* again(Notify.enqueue({ tag: "unique" }, { ...twin, delay: "1 hour" }))
    assert.deepInclude(yield* again(Notify.enqueue({ tag: "unique" }, twin)), { id: first.id, answer: "existing" })
    yield* again(sql.withTransaction(Effect.zipRight(note("producer", "row"), Charge.enqueue({ tag: "it's\\mine" }))))
    yield* again(Notify.enqueue({ tag: "ordinary" }))
    yield* again(Notify.enqueue({ tag: "scheduled" }, { delay: "300 millis" }))
    yield* again(Stubborn.enqueue({ tag: "stubborn" }))
    yield* again(Sleepy.enqueue({ tag: "sleepy" }))
    yield* again(Webhook.enqueue({ tag: "webhook" }))
    yield* again(Callbacks.resume(yield* Deferred.await(told), { tag: "called back" }))
    yield* again(testing.drain({ scheduled: true, atMost: "100 seconds" }))
    const jobs = yield* again(testing.jobs)
    assert.deepStrictEqual(
      jobs.filter(({ state }) => state !== "completed"),
      []
    )
    assert.lengthOf(jobs, 8)
    assert.deepStrictEqual(yield* tags(direct), [
      "called back: it's\\a webhook",
      "follow-up: it's\\a notify",
      "it's\\mine: it's\\a charge",
      "ordinary: it's\\a notify",
      "producer: it's\\a row",
      "scheduled: it's\\a notify",
      "sleepy: it's\\a sleepy",
      "stubborn: it's\\a stubborn",
      "unique: it's\\a notify"
    ])
  })

const runAs = (settings: HostileRole.RoleSettings) =>
  Effect.gen(function* () {
    const direct = yield* SqlClient.SqlClient
    const { schema, url } = yield* TestDatabase.TestDatabase
    const role = yield* HostileRole.make({ url, settings })
    assert.isTrue(yield* role.tookEffect, JSON.stringify(yield* role.inForce))
    // in the strict profile nobody has what a superuser owns
    if (isStrict) yield* direct.unsafe(`grant awa_test_application, awa_test_runtime to ${role.role}`)
    const told = yield* Deferred.make<string>()
    const client = PgClient.layer({ url: role.url, maxConnections: 6, applicationName: "application" })
    const worker = Testing.worker({
      jobs: [Charge, Notify, Stubborn, Sleepy, Webhook],
      database: Config.succeed(role.url)
    }).pipe(
      Layer.provide(
        handlers(told, "statement_timeout" in settings || "idle_in_transaction_session_timeout" in settings)
      ),
      Layer.provideMerge(client)
    )
    yield* everyKind(told, direct).pipe(
      Effect.provide(worker),
      Effect.provideService(InstalledSchema.InstalledSchema, schema)
    )
  }).pipe(Effect.scoped, Effect.provide(database()))

const patience = 120_000

describe("a worker, as a role with", () => {
  for (const [name, settings] of Object.entries(HostileRole.hostile)) {
    it.live(`${name}, does everything`, () => runAs(settings), patience)
  }
  it.live("everything at once, does everything", () => runAs(HostileRole.everything), patience)
})

describe("a role with settings of its own", () => {
  it.live("says what is in force, and is gone with its scope", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { url } = yield* TestDatabase.TestDatabase
      const role = yield* Effect.scoped(
        Effect.gen(function* () {
          const made = yield* HostileRole.make({ url, settings: HostileRole.everything })
          assert.deepInclude(yield* made.inForce, {
            statement_timeout: "1s",
            idle_in_transaction_session_timeout: "1s",
            default_transaction_isolation: "serializable",
            TimeZone: "Pacific/Kiritimati",
            standard_conforming_strings: "off",
            search_path: '""'
          })
          return made.role
        })
      )
      assert.lengthOf(yield* sql`select from pg_roles where rolname = ${role}`, 0)
      const error = yield* Effect.flip(Effect.scoped(HostileRole.make({ url, settings: { no_such_setting: "1" } })))
      assert.include(error.message, "no_such_setting")
    }).pipe(Effect.provide(database()))
  )
})
