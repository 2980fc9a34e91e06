/** Who can become an owner, at any depth, by every option of a membership (C-51, C-53). */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { examine, type Fault, findsAll, findsAndMends, Installation, isHealthy } from "./support.js"
import type { Strict } from "../privileges/support.js"

/** `with` only where the server has options of memberships. */
const grant = (role: string, member: string, options: string) =>
  `do $$ begin execute 'grant "${role}" to "${member}"' || case when current_setting('server_version_num')::int >= 160000
     then ' with ${options}' else '' end; end $$;`

const setOnly = "set true, inherit false"

const deep = ({ owners, roleOf }: Strict) =>
  grant(owners.executionOwner, roleOf("callback"), setOnly) +
  grant(roleOf("callback"), roleOf("producer"), setOnly) +
  grant(roleOf("producer"), roleOf("executor"), setOnly)

const faults: ReadonlyArray<Fault> = [
  {
    name: "a member of the routines' owner",
    sql: ({ owners, roleOf }) => grant(owners.executionOwner, roleOf("finalizer"), setOnly),
    code: "role-set-path",
    found: /_finalizer → \S+_exec, by SET/
  },
  {
    name: "a member of the tables' owner",
    sql: ({ nobody, owners }) => grant(owners.schemaOwner, nobody, "set true, inherit true"),
    code: "role-set-path",
    found: /_nobody → \S+_owner, by SET, INHERIT; .* owner of the tables/
  },
  {
    name: "a member of a member of a member",
    sql: deep,
    code: "role-set-path",
    found:
      /_callback → \S+_exec; \S+_producer → \S+_callback → \S+_exec; \S+_executor → \S+_producer → \S+_callback → \S+_exec, by/,
    after: ({ roleOf }) =>
      `revoke "${roleOf("callback")}" from "${roleOf("producer")}"; revoke "${roleOf("producer")}" from "${roleOf("executor")}"`
  },
  {
    name: "a member of the migrator",
    sql: ({ plain, roleOf }) => grant(plain.role, roleOf("admin_mutator"), setOnly),
    code: "role-set-path",
    found: /_admin_mutator → \S+_role, by .* is the migrator/
  },
  {
    name: "a member with ADMIN",
    sql: ({ nobody, owners }) => `grant "${owners.executionOwner}" to "${nobody}" with admin option`,
    code: "role-set-path",
    found: /ADMIN/
  },
  {
    name: "a migrator with ADMIN",
    sql: ({ owners, plain }) => `grant "${owners.executionOwner}" to "${plain.role}" with admin option`,
    code: "role-admin-path",
    found: /_role → \S+_exec/
  }
]

const faultsOf15: ReadonlyArray<Fault> = [
  {
    name: "a migrator that inherits",
    sql: ({ plain }) => `alter role "${plain.role}" inherit`,
    code: "role-migrator-inherits",
    found: /INHERIT/
  },
  {
    name: "a bound role with CREATEROLE",
    sql: ({ roleOf }) => `alter role "${roleOf("executor")}" createrole`,
    code: "role-creates",
    found: /CREATEROLE/
  }
]

const faultsOf16: ReadonlyArray<Fault> = [
  {
    name: "privileges without SET",
    sql: ({ nobody, owners }) => grant(owners.executionOwner, nobody, "set false, inherit true"),
    code: "role-inherit-path",
    found: /by INHERIT;/
  },
  {
    name: "ADMIN alone",
    sql: ({ nobody, owners }) => grant(owners.executionOwner, nobody, "set false, inherit false, admin true"),
    code: "role-admin-path",
    found: /by ADMIN;/
  },
  {
    name: "a migrator that inherits an owner",
    sql: ({ owners, plain }) => grant(owners.schemaOwner, plain.role, "inherit true"),
    code: "role-migrator-inherits",
    found: /SET, INHERIT/
  },
  {
    name: "the implicit ADMIN of a creator, which is permitted",
    sql: ({ nobody, owners }) => implicit(owners.schemaOwner, nobody),
    code: "role-creator-admin",
    found: /_nobody created \S+_owner/,
    severity: "note",
    after: ({ nobody }) => `alter role "${nobody}" nocreaterole`
  }
]

/** As CREATE ROLE makes it: granted by the bootstrap superuser. */
const implicit = (role: string, creator: string) =>
  `alter role "${creator}" createrole; ${grant(role, creator, "admin true, set false, inherit false")}`

layer(Installation.layer, { excludeTestServices: true, timeout: "60 seconds" })("doctor finds, and mends", (it) => {
  const major = Effect.flatMap(Installation, ({ admin }) =>
    Effect.map(admin.rows("select current_setting('server_version_num')::int / 10000 as major"), ([row]) =>
      Number(row?.["major"])
    )
  )
  for (const fault of faults) it.effect(fault.name, () => findsAndMends(fault), 30_000)
  for (const fault of faultsOf15) {
    it.effect(`15: ${fault.name}`, (context) =>
      Effect.flatMap(major, (major) => (major < 16 ? findsAndMends(fault) : Effect.sync(() => context.skip())))
    )
  }
  for (const fault of faultsOf16) {
    it.effect(`16 and later: ${fault.name}`, (context) =>
      Effect.flatMap(major, (major) => (major >= 16 ? findsAndMends(fault) : Effect.sync(() => context.skip())))
    )
  }

  it.effect("16 and later: a creator that gave itself more", (context) =>
    Effect.gen(function* () {
      if ((yield* major) < 16) return context.skip()
      const installed = yield* Installation
      const { admin, nobody, owners } = installed
      yield* admin.script(
        `${implicit(owners.schemaOwner, nobody)}; set role "${nobody}"; ${grant(owners.schemaOwner, nobody, setOnly)} reset role`
      )
      yield* findsAll(installed, ["role-creator-admin", "role-set-path"])
      yield* admin.script(`alter role "${nobody}" nocreaterole`)
    })
  )

  it.effect("nothing in a membership without any power", (context) =>
    Effect.gen(function* () {
      if ((yield* major) < 16) return context.skip()
      const installed = yield* Installation
      const { admin, nobody, owners } = installed
      yield* admin.script(grant(owners.executionOwner, nobody, "set false, inherit false, admin false"))
      isHealthy(yield* examine(installed))
      yield* admin.script(`revoke "${owners.executionOwner}" from "${nobody}"`)
    })
  )

  it.effect("a second migrator, whoever asks", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const { admin, nobody, owners, plain } = installed
      yield* admin.script(
        `alter role "${nobody}" noinherit;` +
          Object.values(owners)
            .map((owner) => grant(owner, nobody, setOnly))
            .join("")
      )
      const [unclear, ...more] = yield* examine(installed)
      assert.lengthOf(more, 0)
      assert.deepInclude(unclear, { code: "role-migrator-unclear", severity: "error", sql: null })
      // the migrator itself knows who it is
      const asked = yield* examine(installed, { url: plain.redacted })
      assert.deepStrictEqual(
        asked.filter(({ code }) => code !== "check-skipped").map(({ code, object }) => [code, object]),
        [
          ["role-set-path", nobody],
          ["role-set-path", nobody]
        ]
      )
      assert.lengthOf(yield* examine(installed, { migrator: nobody }), 2)
      const found = yield* examine(installed, { migrator: plain.role })
      for (const { sql } of found) yield* admin.script(sql ?? "")
      isHealthy(yield* examine(installed))
    })
  )

  it.effect("two owners, two ways", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const { admin, nobody, owners, roleOf } = installed
      yield* admin.script(
        grant(owners.executionOwner, roleOf("callback"), setOnly) + grant(owners.schemaOwner, nobody, setOnly)
      )
      yield* findsAll(installed, ["role-set-path", "role-set-path"])
    })
  )
})
