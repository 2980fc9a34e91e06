/** What `roles plan` and `roles apply` do, and what they refuse to take over (C-51, C-52). */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Migrations, Roles, Storage } from "effect-awa"
import { connect, freshDatabase, type Session } from "../migrations/support.js"
import { strict } from "./support.js"

const reasonOf = (options: Roles.RolesOptions) =>
  Roles.apply(options).pipe(
    Effect.as("applied"),
    Effect.catchAll((error) => Effect.succeed(`${error._tag}: ${error.message}`))
  )

const compatible = strict("awa", "compatible")

const grantsOn = (admin: Session) =>
  admin.rows(
    `select c.oid::regclass::text as object, a.grantee::regrole::text as role, a.privilege_type as privilege, a.is_grantable
     from pg_class c cross join lateral aclexplode(c.relacl) a where c.relnamespace = 'awa'::regnamespace and a.grantee <> c.relowner
     union all
     select p.oid::regprocedure::text, a.grantee::regrole::text, a.privilege_type, a.is_grantable
     from pg_proc p cross join lateral aclexplode(p.proacl) a where p.pronamespace = 'awa'::regnamespace and a.grantee <> p.proowner
     union all
     select c.oid::regclass || '.' || t.attname, a.grantee::regrole::text, a.privilege_type, a.is_grantable
     from pg_class c join pg_attribute t on t.attrelid = c.oid cross join lateral aclexplode(t.attacl) a
     where c.relnamespace = 'awa'::regnamespace order by 1, 2, 3`
  )

describe("roles plan", () => {
  it.scopedLive("prints what apply runs: by an administrator of roles, then by the migrator, neither a superuser", () =>
    Effect.gen(function* () {
      const { admin, database, plain } = yield* freshDatabase
      const dba = `${database}_dba`
      yield* Effect.acquireRelease(admin.rows(`create role ${dba} login createrole password 'x'`), () =>
        Effect.gen(function* () {
          for (const role of ["app", "awa_owner", "awa_execution"].map((name) => `${database}_${name}`)) {
            yield* admin.rows(`drop owned by "${role}" cascade`)
            yield* admin.rows(`drop role "${role}"`)
          }
          yield* admin.rows(`drop role ${dba}`)
        })
      )
      yield* admin.rows(`alter role ${plain.role} noinherit`)
      yield* admin.rows(`grant create on database ${database} to ${plain.role}`)
      yield* Migrations.migrate({ url: plain.redacted, ring: 4 })
      const dbaUrl = new URL(plain.url)
      dbaUrl.username = dba
      dbaUrl.password = "x"
      const options: Roles.RolesOptions = {
        url: Redacted.make(dbaUrl.href),
        profile: "strict",
        migrator: plain.role,
        bindings: { producer: [`${database}_app`], finalizer: [`${database}_app`] }
      }
      const roles = yield* Roles.plan({ ...options, part: "roles" })
      expect(roles).toContain(`create role "${database}_awa_owner" nologin`)
      yield* (yield* connect(dbaUrl.href)).script(roles)
      const privileges = yield* Roles.plan({ ...options, url: plain.redacted, part: "privileges" })
      yield* (yield* connect(plain.url)).script(privileges)
      // what a printed plan left is what apply wants: there is nothing left to alter
      const again = yield* Roles.plan({ ...options, url: plain.redacted, part: "privileges" })
      expect(again).not.toContain("alter table")
      expect(yield* admin.rows("select capability, role::text from awa.role_bindings order by 1")).toEqual([
        { capability: "finalizer", role: `${database}_app` },
        { capability: "producer", role: `${database}_app` }
      ])
      expect(
        yield* admin.rows("select unnest(rolconfig) as setting from pg_roles where rolname = $1 order by 1", [
          `${database}_app`
        ])
      ).toEqual([
        { setting: "idle_in_transaction_session_timeout=30000ms" },
        { setting: "lock_timeout=10000ms" },
        { setting: "statement_timeout=30000ms" }
      ])
      yield* admin.rows(`alter role "${database}_app" set lock_timeout = '1s'`)
      const timeouts = yield* Roles.plan({ ...options, part: "roles" })
      expect(timeouts).not.toContain("lock_timeout = '10000ms'")
    })
  )
})

describe("roles apply", () => {
  it.scopedLive("takes over nothing that somebody else put there", () =>
    Effect.gen(function* () {
      const { admin, nobody, options } = yield* compatible
      const asStrict: Roles.RolesOptions = { ...options, profile: "strict" }
      const put: ReadonlyArray<readonly [string, string, string]> = [
        [
          "routine awa.evil()",
          "create function awa.evil() returns void language sql as ''",
          "drop function awa.evil()"
        ],
        [
          "routine awa.complete_job(integer)",
          "create function awa.complete_job(integer) returns void language sql as ''",
          "drop function awa.complete_job(integer)"
        ],
        ["table awa.evil", "create table awa.evil ()", "drop table awa.evil"],
        ['sequence awa."0"', 'create sequence awa."0"', 'drop sequence awa."0"'],
        [
          "trigger evil on awa.meta",
          "create trigger evil before update on awa.meta for each row execute function suppress_redundant_updates_trigger()",
          "drop trigger evil on awa.meta"
        ],
        [
          "rule evil on awa.audit",
          "create rule evil as on delete to awa.audit do nothing",
          "drop rule evil on awa.audit"
        ],
        ["policy evil on awa.leases", "create policy evil on awa.leases", "drop policy evil on awa.leases"]
      ]
      for (const [object, create, drop] of put) {
        yield* admin.script(create)
        expect(yield* reasonOf(asStrict), object).toContain(`not to be handed over with it: ${object}`)
        yield* admin.script(drop)
      }
      yield* admin.script(`create view awa.evil as select 1; alter view awa.evil owner to "${nobody}"`)
      expect(yield* reasonOf(options)).toContain("not to be handed over with it: view awa.evil")
      yield* admin.script("drop view awa.evil")
      expect(yield* reasonOf(asStrict)).toBe("applied")
    })
  )

  it.scopedLive("refuses owners that others can be", () =>
    Effect.gen(function* () {
      const { admin, nobody, options, owners } = yield* compatible
      const asStrict: Roles.RolesOptions = { ...options, profile: "strict" }
      for (const owner of Object.values(owners)) {
        yield* admin.rows(`grant "${owner}" to "${nobody}"`)
        expect(yield* reasonOf(asStrict)).toContain(`${nobody} can be ${owner}`)
        yield* admin.rows(`revoke "${owner}" from "${nobody}"`)
        yield* admin.rows(`grant "${nobody}" to "${owner}"`)
        expect(yield* reasonOf(asStrict)).toContain(`${owner} is a member of ${nobody}`)
        yield* admin.rows(`revoke "${nobody}" from "${owner}"`)
        yield* admin.rows(`alter role "${owner}" createdb`)
        expect(yield* reasonOf(asStrict)).toContain("more than an owner may be: nocreatedb")
        yield* admin.rows(`alter role "${owner}" nocreatedb`)
      }
      expect(yield* reasonOf({ ...asStrict, migrator: owners.schemaOwner })).toContain("are three roles")
      expect(yield* reasonOf({ ...asStrict, bindings: { executor: [owners.executionOwner] } })).toContain(
        "it owns".slice(3)
      )
      expect(yield* reasonOf({ ...asStrict, bindings: { executor: ["pg_monitor"] } })).toContain("a reserved name")
    })
  )

  it.scopedLive("does not make a strict installation compatible by halves", () =>
    Effect.gen(function* () {
      const { options } = yield* strict()
      expect(yield* reasonOf({ ...options, profile: "compatible" })).toContain("it is of the strict profile")
    })
  )

  it.scopedLive("takes away columns, grant options and what came of them, and mends what is otherwise up to date", () =>
    Effect.gen(function* () {
      const installed = yield* strict()
      const { admin, nobody, options, plain, roleOf } = installed
      const before = yield* grantsOn(admin)
      const damage = `
        grant select (args) on awa.deferred_jobs to "${nobody}";
        grant update (paused) on awa.queues to public;
        grant execute on function awa.insert_jobs to "${roleOf("producer")}" with grant option;
        set role "${roleOf("producer")}";
        grant execute on function awa.insert_jobs to "${nobody}";
        reset role;
        grant select on awa.leases to public`
      for (const mend of [
        Roles.apply(options),
        Effect.map(Migrations.migrate({ url: plain.redacted }), ({ action }) => expect(action).toBe("unchanged"))
      ]) {
        yield* admin.script(damage)
        yield* mend
        expect(yield* grantsOn(admin)).toEqual(before)
      }
    })
  )

  it.scopedLive("is not misled by how the role has identifiers written", () =>
    Effect.gen(function* () {
      const installed = yield* strict()
      const { admin, options, plain } = installed
      const before = yield* grantsOn(admin)
      yield* admin.rows(`alter role ${plain.role} set quote_all_identifiers = on`)
      yield* Roles.apply(options)
      expect(yield* grantsOn(admin)).toEqual(before)
    })
  )
})

describe("the migrator of a strict installation", () => {
  it.scopedLive("is no superuser: what its owner made would run as one", () =>
    Effect.gen(function* () {
      const { redacted } = yield* strict()
      const error = yield* Effect.flip(Migrations.migrate({ url: redacted }))
      expect(error).toMatchObject({ _tag: "MigrationFailed", step: "look at the owners" })
    })
  )

  it.scopedLive("can rebase the storage", () =>
    Effect.gen(function* () {
      const { plain } = yield* strict()
      // it came as far as the question whether anything is to be mended
      expect(yield* Effect.flip(Storage.rebase({ url: plain.redacted }))).toMatchObject({ _tag: "RebaseRefused" })
    })
  )
})
