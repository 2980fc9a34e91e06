import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect } from "effect"
import { catalogOf, connect, freshDatabase, publicPrivileges } from "./support.js"

describe("migrate without superuser", () => {
  // F-36
  it.scopedLive("needs CREATE on the database, and nothing else", () =>
    Effect.gen(function* () {
      const { admin, database, plain } = yield* freshDatabase
      const denied = yield* Migrations.migrate({ url: plain.redacted }).pipe(Effect.flip)
      expect(denied).toMatchObject({ _tag: "MigrationFailed", step: "create schema", sqlState: "42501" })
      yield* admin.rows(`grant create on database ${database} to ${plain.role}`)
      expect(yield* Migrations.migrate({ url: plain.redacted })).toMatchObject({ action: "installed" })
      expect(yield* Migrations.migrate({ url: plain.redacted })).toMatchObject({ action: "unchanged" })
      yield* admin.rows("update awa.meta set rendered_hash = ''")
      expect(yield* Migrations.migrate({ url: plain.redacted })).toMatchObject({ action: "refreshed" })
      expect(
        yield* admin.rows(
          "select distinct proowner::regrole::text as role from pg_proc where pronamespace = 'awa'::regnamespace"
        )
      ).toEqual([{ role: plain.role }])
    })
  )

  it.scopedLive("installs into an empty schema that the role owns, or may only create in", () =>
    Effect.gen(function* () {
      const { admin, plain } = yield* freshDatabase
      yield* admin.rows(`create schema "owned" authorization ${plain.role}`)
      yield* admin.rows(`create schema "lent"`)
      yield* admin.rows(`grant usage, create on schema "lent" to ${plain.role}`)
      for (const schema of ["owned", "lent"]) {
        expect(yield* Migrations.migrate({ url: plain.redacted, schema })).toMatchObject({
          action: "installed",
          schema
        })
        expect(yield* Migrations.migrate({ url: plain.redacted, schema })).toMatchObject({ action: "unchanged" })
        expect(yield* publicPrivileges(admin, schema)).toEqual([])
      }
      const session = yield* connect(plain.url)
      expect(yield* session.rows(`select "owned".insert_job('kind', '{}')::text as id`)).toEqual([{ id: "1" }])
    })
  )

  it.scopedLive("takes from PUBLIC what a site's default privileges give it", () =>
    // C-50, C-52
    Effect.gen(function* () {
      const { admin, plain } = yield* freshDatabase
      yield* admin.rows(`create schema "awa" authorization ${plain.role}`)
      yield* admin.rows("grant usage on schema awa to public")
      const session = yield* connect(plain.url)
      yield* session.rows("alter default privileges in schema awa grant execute on functions to public")
      yield* session.rows("alter default privileges grant execute on functions to public")
      expect(yield* Migrations.migrate({ url: plain.redacted })).toMatchObject({ action: "installed" })
      expect(yield* publicPrivileges(admin, "awa")).toEqual([])
    })
  )

  // F-33
  it.scopedLive("lets a fresh role call nothing", () =>
    Effect.gen(function* () {
      const { admin, plain, redacted } = yield* freshDatabase
      yield* Migrations.migrate({ url: redacted, ring: 4 })
      expect(
        yield* admin.rows(
          `select p.proname from pg_proc p where p.pronamespace = 'awa'::regnamespace
           and has_function_privilege('${plain.role}', p.oid, 'execute')`
        )
      ).toEqual([])
      expect(yield* admin.rows(`select has_schema_privilege('${plain.role}', 'awa', 'usage') as may`)).toEqual([
        { may: false }
      ])
      const denied = yield* Migrations.migrate({ url: plain.redacted }).pipe(Effect.flip)
      expect(denied).toMatchObject({ _tag: "MigrationFailed", step: "look at the schema", sqlState: "42501" })
    })
  )

  // F-76, F-79, F-31, F-32
  it.scopedLive("is not moved by what the role or the database sets", () =>
    Effect.gen(function* () {
      const { admin, database, plain, redacted } = yield* freshDatabase
      yield* admin.rows(`grant create on database ${database} to ${plain.role}`)
      const settings = {
        search_path: "''",
        standard_conforming_strings: "off",
        default_transaction_isolation: "serializable",
        default_transaction_read_only: "on",
        statement_timeout: "'250ms'",
        idle_in_transaction_session_timeout: "'250ms'",
        lock_timeout: "'1ms'",
        check_function_bodies: "off",
        client_min_messages: "debug1",
        quote_all_identifiers: "on",
        "plpgsql.extra_errors": "'all'",
        timezone: "'Pacific/Kiritimati'"
      }
      for (const [name, value] of Object.entries(settings)) {
        yield* admin.rows(`alter role ${plain.role} set ${name} = ${value}`)
      }
      yield* Migrations.migrate({ url: plain.redacted, schema: "a\\b", ring: 4 })
      yield* Migrations.migrate({ url: redacted, schema: "plain", ring: 4 })
      const [moved, still] = [
        yield* catalogOf(admin, "a\\b", { writers: false }),
        yield* catalogOf(admin, "plain", { writers: false })
      ]
      expect(moved.length).toBe(still.length)
    })
  )
})
