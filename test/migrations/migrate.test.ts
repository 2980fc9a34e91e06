import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect, Redacted } from "effect"
import { connect as connectMigrator } from "../../src/internal/migrateConnection.js"
import { run } from "../../src/internal/migrateRun.js"
import { lock } from "../../src/internal/migrateScript.js"
import { catalogOf, connect, freshDatabase, publicPrivileges } from "./support.js"

const metaOf = "select schema_version, minimum_contract, ring_size, rendered_hash, product, xmin::text from awa.meta"

describe("migrate", () => {
  it.scopedLive("installs into an empty database, and PUBLIC may execute nothing of it", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const report = yield* Migrations.migrate({ url: fresh.redacted })
      expect(report).toEqual({
        action: "installed",
        schema: "awa",
        version: Migrations.schemaVersion,
        previousVersion: 0,
        ring: 16,
        applied: [
          "0001_storage.sql",
          "0002_lifecycle.sql",
          "0003_roles.sql",
          "0004_gating.sql",
          "0005_throughput.sql",
          "0006_revisions.sql"
        ]
      })
      const [meta] = yield* fresh.admin.rows(metaOf)
      expect(meta).toMatchObject({ product: "effect-awa", schema_version: Migrations.schemaVersion, ring_size: 16 })
      expect(meta?.["rendered_hash"]).toMatch(/^[0-9a-f]{64}$/)
      expect(yield* publicPrivileges(fresh.admin, "awa")).toEqual([]) // C-50, F-33
    })
  )

  // C-62: nothing is written, which is proven by the transaction having no id of its own
  it.scopedLive("writes nothing when everything is in place", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, ring: 4 })
      const before = yield* catalogOf(fresh.admin, "awa", { writers: true })
      const report = yield* Migrations.migrate({ url: fresh.redacted })
      expect(report).toMatchObject({ action: "unchanged", ring: 4, applied: [] })
      expect(yield* catalogOf(fresh.admin, "awa", { writers: true })).toEqual(before)

      const connection = yield* connectMigrator(fresh.redacted)
      const assigned: Array<unknown> = []
      const watched: typeof connection = {
        ...connection,
        execute: (step, sql, millis) =>
          step === "commit"
            ? connection.query(step, "select pg_current_xact_id_if_assigned()::text as xid", [], millis).pipe(
                Effect.tap((rows) => assigned.push(...rows)),
                Effect.zipRight(connection.execute(step, sql, millis))
              )
            : connection.execute(step, sql, millis)
      }
      yield* run(watched, { schema: "awa", ring: undefined, lockMillis: 1000 })
      expect(assigned).toEqual([{ xid: null }])
      yield* run(watched, { schema: "other", ring: 4, lockMillis: 1000 }) // the probe sees a writer
      expect(assigned[1]).not.toEqual({ xid: null })
    })
  )

  it.scopedLive("replaces functions that are others than ours, keeps grants, and takes PUBLIC's away", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, ring: 4 })
      yield* fresh.admin.rows(`grant execute on function awa.lead() to ${fresh.plain.role}`)
      const before = yield* catalogOf(fresh.admin, "awa", { writers: false })
      yield* fresh.admin.script(`
        create or replace function awa.lead() returns boolean language sql as 'select true';
        drop function awa.name_fault(text);
        grant execute on function awa.lead() to public;
        update awa.meta set rendered_hash = 'of another release'`)
      const report = yield* Migrations.migrate({ url: fresh.redacted })
      expect(report).toMatchObject({ action: "refreshed", ring: 4, applied: [] })
      expect(yield* catalogOf(fresh.admin, "awa", { writers: false })).toEqual(before)
      expect(yield* Migrations.migrate({ url: fresh.redacted })).toMatchObject({ action: "unchanged" })
    })
  )

  it.scopedLive("refuses a foreign schema of the same name and leaves it untouched", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const foreign = {
        a_table: "create table %.orders (id int); insert into %.orders values (1)",
        a_function: "create function %.f() returns int language sql as 'select 1'",
        a_type: "create type %.mood as enum ('fine')",
        a_sequence: "create sequence %.s",
        an_operator: "create operator %.=== (leftarg = int, rightarg = int, function = int4eq)",
        a_text_search: "create text search dictionary %.d (template = pg_catalog.simple)",
        a_collation: `create collation %.c (locale = 'C')`,
        an_extension_s_type: "create domain %.d as int",
        other_meta: "create table %.meta (product text, schema_version int)",
        other_product: `create table %.meta (product text, schema_version int, minimum_contract int, ring_size smallint,
          rendered_hash text); insert into %.meta values ('queue-x', 1, 1, 16, '')`,
        empty_meta: `create table %.meta (product text, schema_version int, minimum_contract int, ring_size smallint,
          rendered_hash text)`,
        view_meta: `create view %.meta as select 'effect-awa'::text as product, 0 as schema_version, 1 as minimum_contract,
          16::smallint as ring_size, ''::text as rendered_hash`
      }
      for (const [schema, sql] of Object.entries(foreign)) {
        yield* fresh.admin.script(`create schema ${schema}; ${sql.replaceAll("%", schema)}`)
        const before = yield* catalogOf(fresh.admin, schema, { writers: true })
        expect(before.length).toBeGreaterThan(1)
        const error = yield* Migrations.migrate({ url: fresh.redacted, schema }).pipe(Effect.flip)
        expect(error, schema).toMatchObject({ _tag: "ForeignSchema", schema })
        expect(yield* catalogOf(fresh.admin, schema, { writers: true })).toEqual(before)
      }
      for (const schema of ["information_schema", "pg_catalog", "pg_mine"]) {
        const error = yield* Migrations.migrate({ url: fresh.redacted, schema }).pipe(Effect.flip)
        expect(["ForeignSchema", "InvalidMigrationOption"]).toContain(error._tag)
      }
    })
  )

  // F-40: processes of both releases migrate at their start while a deployment rolls
  it.scopedLive("leaves the functions of a later release alone, and replaces those of an earlier one", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, ring: 4 })
      yield* fresh.admin.script(`
        create or replace function awa.lead() returns boolean language sql as 'select true';
        update awa.meta set rendered_hash = 'of a later release', functions_revision = functions_revision + 1`)
      const later = yield* catalogOf(fresh.admin, "awa", { writers: true })
      expect(yield* Migrations.migrate({ url: fresh.redacted })).toMatchObject({
        action: "newer",
        version: Migrations.schemaVersion
      })
      expect(yield* catalogOf(fresh.admin, "awa", { writers: true })).toEqual(later)
      yield* fresh.admin.rows("update awa.meta set functions_revision = functions_revision - 2")
      expect(yield* Migrations.migrate({ url: fresh.redacted })).toMatchObject({ action: "refreshed" })
      expect(yield* Migrations.migrate({ url: fresh.redacted })).toMatchObject({ action: "unchanged" })
    })
  )

  // F-40
  it.scopedLive("accepts a newer schema that serves its contract, refuses one that does not, writes to neither", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, ring: 4 })
      yield* fresh.admin.rows("update awa.meta set schema_version = 99, rendered_hash = 'of a later release'")
      const before = [yield* catalogOf(fresh.admin, "awa", { writers: true }), yield* fresh.admin.rows(metaOf)]
      expect(yield* Migrations.migrate({ url: fresh.redacted })).toEqual({
        action: "newer",
        schema: "awa",
        version: 99,
        previousVersion: 99,
        ring: 4,
        applied: []
      })
      expect([yield* catalogOf(fresh.admin, "awa", { writers: true }), yield* fresh.admin.rows(metaOf)]).toEqual(before)

      yield* fresh.admin.rows("update awa.meta set minimum_contract = 2")
      const later = yield* fresh.admin.rows(metaOf)
      const error = yield* Migrations.migrate({ url: fresh.redacted }).pipe(Effect.flip)
      expect(error).toMatchObject({ _tag: "SchemaTooNew", installedVersion: 99, minimumContract: 2, contract: 1 })
      expect([yield* catalogOf(fresh.admin, "awa", { writers: true }), yield* fresh.admin.rows(metaOf)]).toEqual([
        before[0],
        later
      ])
    })
  )

  it.scopedLive("refuses to change the size of the ring", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, ring: 5 })
      const error = yield* Migrations.migrate({ url: fresh.redacted, ring: 16 }).pipe(Effect.flip)
      expect(error).toMatchObject({ _tag: "RingSizeFixed", installed: 5, requested: 16 })
      expect(yield* Migrations.migrate({ url: fresh.redacted, ring: 5 })).toMatchObject({ action: "unchanged" })
    })
  )

  it.scopedLive("rolls a failing migration back, whole", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, ring: 4 })
      yield* fresh.admin.rows("update awa.meta set schema_version = 0") // the first migration meets its own tables
      const before = yield* catalogOf(fresh.admin, "awa", { writers: true })
      const error = yield* Migrations.migrate({ url: fresh.redacted }).pipe(Effect.flip)
      expect(error).toMatchObject({ _tag: "MigrationFailed", step: "0001_storage.sql", sqlState: "42710" })
      expect(yield* catalogOf(fresh.admin, "awa", { writers: true })).toEqual(before)
    })
  )

  it.scopedLive("waits for another migrator, not for ever", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* fresh.admin.rows("begin")
      yield* fresh.admin.rows(lock("awa"))
      const error = yield* Migrations.migrate({ url: fresh.redacted, lockTimeout: "200 millis" }).pipe(Effect.flip)
      expect(error).toMatchObject({ _tag: "MigrationBusy", schema: "awa", waitedMillis: 200 })
      // another schema is another lock
      expect(yield* Migrations.migrate({ url: fresh.redacted, schema: "b", lockTimeout: "200 millis" })).toMatchObject({
        action: "installed"
      })
      yield* fresh.admin.rows("commit")
      expect(yield* Migrations.migrate({ url: fresh.redacted, lockTimeout: "200 millis" })).toMatchObject({
        action: "installed"
      })
    })
  )

  it.scopedLive("fails with a typed error when its session ends, or when COMMIT answers ROLLBACK", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* fresh.admin.rows("begin")
      yield* fresh.admin.rows(lock("awa"))
      const fiber = yield* Effect.fork(Migrations.migrate({ url: fresh.redacted }).pipe(Effect.flip))
      const watcher = yield* connect(fresh.url)
      yield* watcher
        .rows(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where datname = $1 and application_name = 'effect-awa migrate' and wait_event_type = 'Lock'`,
          [fresh.database]
        )
        .pipe(
          Effect.delay("20 millis"),
          Effect.repeat({ until: (rows) => rows.length === 1 }),
          Effect.timeout("10 seconds")
        )
      expect(yield* fiber).toMatchObject({ _tag: "MigrationFailed", step: "lock", sqlState: "57P01" })
      yield* fresh.admin.rows("commit")

      // C-42
      const connection = yield* connectMigrator(fresh.redacted)
      const aborted: typeof connection = {
        ...connection,
        execute: (step, sql, millis) =>
          step === "commit"
            ? connection
                .execute("abort", "select 1/0", millis)
                .pipe(Effect.ignore, Effect.zipRight(connection.execute(step, sql, millis)))
            : connection.execute(step, sql, millis)
      }
      const error = yield* run(aborted, { schema: "awa", ring: 4, lockMillis: 1000 }).pipe(Effect.flip)
      expect(error).toMatchObject({ _tag: "MigrationFailed", step: "commit", reason: "the server answered ROLLBACK" })
      expect(yield* catalogOf(fresh.admin, "awa", { writers: false })).toEqual([])
    })
  )

  it.scopedLive("takes what the driver takes for a url, but not the application's parsers", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const url = { connectionString: fresh.url, types: { getTypeParser: () => () => "parsed" } }
      expect(yield* Migrations.migrate({ url, ring: 4 })).toMatchObject({ action: "installed" })
      expect(yield* Migrations.migrate({ url })).toMatchObject({ action: "unchanged", ring: 4 })
    })
  )

  it.scopedLive("leaves nothing open when it is interrupted", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const sessions = `select 1 from pg_stat_activity where application_name = 'effect-awa migrate' and datname = $1`
      yield* fresh.admin.rows("begin")
      yield* fresh.admin.rows(lock("awa"))
      const fiber = yield* Effect.fork(Migrations.migrate({ url: fresh.redacted }))
      const watcher = yield* connect(fresh.url)
      const until = (count: number) =>
        watcher
          .rows(sessions, [fresh.database])
          .pipe(
            Effect.delay("20 millis"),
            Effect.repeat({ until: (rows) => rows.length === count }),
            Effect.timeout("10 seconds")
          )
      yield* until(1)
      yield* fiber.interruptAsFork(fiber.id())
      yield* fiber.await
      yield* fresh.admin.rows("commit")
      yield* until(0)
    })
  )

  it.scopedLive("names what is wrong with its options, and never shows the password", () =>
    Effect.gen(function* () {
      const url = Redacted.make("postgres://user:hunter2@127.0.0.1:1/db")
      const failing = (options: Partial<Migrations.MigrateOptions>) =>
        Migrations.migrate({ url, ...options }).pipe(Effect.flip)
      const schemas = ["", "pg_x", "a\u0000b", "\ud800", "ä".repeat(32)]
      for (const schema of schemas) {
        expect(yield* failing({ schema })).toMatchObject({ _tag: "InvalidMigrationOption", option: "schema" })
      }
      for (const ring of [3, 65, 4.5, Number.NaN]) {
        expect(yield* failing({ ring })).toMatchObject({ _tag: "InvalidMigrationOption", option: "ring" })
      }
      expect(yield* failing({ lockTimeout: 0 })).toMatchObject({ option: "lockTimeout" })
      for (const bad of ["hunter2", "http://user:hunter2@x/y", "postgres://user:hunter2@:x:/y z"]) {
        const error = yield* failing({ url: Redacted.make(bad) })
        expect(error).toMatchObject({ _tag: "InvalidMigrationOption", option: "url" })
        expect(`${error.message}${error.stack}${JSON.stringify(error)}`).not.toContain("hunter2")
      }
      const refused = yield* failing({})
      expect(refused._tag).toBe("MigrationConnectionFailed")
      expect(refused.message).toContain("ECONNREFUSED")
      expect(`${refused.message}${refused.stack}${JSON.stringify(refused)}`).not.toContain("hunter2")
      // both addresses of localhost refuse, and Node says so without a message
      expect((yield* failing({ url: { host: "localhost", port: 1 } })).message).toContain("ECONNREFUSED")
    })
  )
})
