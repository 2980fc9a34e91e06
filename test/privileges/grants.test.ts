/** What each principal may do is what the manifest says, and nothing else (C-50, C-51, C-52). */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { Migrations, Roles } from "effect-awa"
import { manifest, unfold } from "../../src/internal/manifest.js"
import type { Session } from "../migrations/support.js"
import { capabilities, ring, type Strict, strict } from "./support.js"

const schema = `We"ird`
const quoted = `"We""ird"`

const mayOf = (holder: string) => ({
  routines: manifest.routines
    .filter(
      ({ class: own }) =>
        own === holder ||
        (own === "contract" && !["nobody", "finalizer", "batch_finalizer", "expectation"].includes(holder))
    )
    .map(({ name }) => name)
    .sort(),
  relations: manifest.relations
    .flatMap((relation) => unfold(relation, ring))
    .flatMap(({ grants, name }) =>
      Object.entries(grants)
        .filter(([capability]) => capability === holder)
        .flatMap(([, privileges]) => privileges.map((privilege) => `${privilege} ${name}`))
    )
    .sort()
})

const privilegesOf = (admin: Session, role: string) =>
  Effect.gen(function* () {
    const routines = yield* admin.rows(
      `select p.proname::text as name from pg_proc p join pg_namespace n on n.oid = p.pronamespace
       where n.nspname = $1 and has_function_privilege($2, p.oid, 'execute') order by 1`,
      [schema, role]
    )
    const relations = yield* admin.rows(
      `select lower(v.privilege) || ' ' || c.relname as name
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
       cross join unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) as v(privilege)
       where n.nspname = $1 and c.relkind in ('r', 'v') and has_table_privilege($2, c.oid, v.privilege)
       union all
       select lower(v.privilege) || ' ' || c.relname
       from pg_class c join pg_namespace n on n.oid = c.relnamespace cross join unnest('{SELECT,USAGE,UPDATE}'::text[]) as v(privilege)
       where n.nspname = $1 and c.relkind = 'S' and has_sequence_privilege($2, c.oid, v.privilege) order by 1`,
      [schema, role]
    )
    const [onSchema] = yield* admin.rows(
      "select has_schema_privilege($2, $1, 'usage') as usage, has_schema_privilege($2, $1, 'create') as create",
      [quoted.slice(1, -1).replaceAll('""', '"'), role]
    )
    const names = (rows: ReadonlyArray<Record<string, unknown>>) => rows.map(({ name }) => String(name)).sort()
    return { routines: names(routines), relations: names(relations), ...onSchema }
  })

const everybody = (installed: Strict) =>
  Effect.forEach([...capabilities, "nobody"] as const, (holder) =>
    Effect.map(
      privilegesOf(installed.admin, holder === "nobody" ? installed.nobody : installed.roleOf(holder)),
      (found) => [holder, found] as const
    )
  ).pipe(Effect.map(Object.fromEntries))

const expected = Object.fromEntries(
  [...capabilities, "nobody"].map((holder) => [holder, { ...mayOf(holder), usage: holder !== "nobody", create: false }])
)

/** The items of an ACL have no order: which comes first is said by the dictionary order of names that differ from run to run. */
const catalog = (admin: Session) =>
  admin.rows(
    `select p.proname::text as name, p.proowner::regrole::text as owner,
       array(select item::text from unnest(p.proacl) item order by 1) as acl from pg_proc p
     join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1
     union all
     select c.relname::text, c.relowner::regrole::text, array(select item::text from unnest(c.relacl) item order by 1) from pg_class c
     join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind in ('r', 'v', 'S') order by 1, 2, 3`,
    [schema]
  )

const refresh = ({ admin, plain }: Strict) =>
  Effect.gen(function* () {
    yield* admin.rows(`update ${quoted}.meta set rendered_hash = ''`)
    expect(yield* Migrations.migrate({ url: plain.redacted, schema })).toMatchObject({ action: "refreshed" })
  })

describe("privileges", () => {
  for (const profile of ["strict", "compatible"] as const) {
    it.scopedLive(
      `are the manifest's, for every principal, in the ${profile} profile, and stay so when everything is replaced`,
      () =>
        Effect.gen(function* () {
          const installed = yield* strict(schema, profile)
          expect(yield* everybody(installed)).toEqual(expected)
          const before = yield* catalog(installed.admin)
          yield* refresh(installed)
          expect(yield* catalog(installed.admin)).toEqual(before)
        }),
      60_000
    )
  }

  it.scopedLive("of the owners: nobody logs in, tables and routines are apart, and the migrator inherits neither", () =>
    Effect.gen(function* () {
      const { admin, owners, plain } = yield* strict(schema)
      expect(
        yield* admin.rows(
          `select distinct owner from (
             select p.proowner::regrole::text as owner from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1
             union select c.relowner::regrole::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = $1 and c.relkind = 'v') o`,
          [schema]
        )
      ).toEqual([{ owner: owners.executionOwner }])
      expect(
        yield* admin.rows(
          `select distinct c.relowner::regrole::text as owner from pg_class c join pg_namespace n on n.oid = c.relnamespace
           where n.nspname = $1 and c.relkind <> 'v'`,
          [schema]
        )
      ).toEqual([{ owner: owners.schemaOwner }])
      expect(
        yield* admin.rows(
          `select rolcanlogin or rolsuper or rolcreatedb or rolcreaterole or rolbypassrls or rolreplication as more,
             (select count(*)::int from pg_auth_members m where m.member = r.oid) as memberships
           from pg_roles r where rolname = any ($1)`,
          [Object.values(owners)]
        )
      ).toEqual([
        { more: false, memberships: 0 },
        { more: false, memberships: 0 }
      ])
      const [of] = yield* admin.rows(
        `select bool_or(has_schema_privilege($1, n.oid, 'usage')) as usage,
           bool_or(has_function_privilege($1, p.oid, 'execute')) as execute
         from pg_namespace n join pg_proc p on p.pronamespace = n.oid where n.nspname = $2`,
        [plain.role, schema]
      )
      expect(of).toEqual({ usage: false, execute: false })
    })
  )

  it.scopedLive("come back to nothing more: by hand, by DROP and CREATE, by a new routine, by default privileges", () =>
    // C-50, C-52
    Effect.gen(function* () {
      const installed = yield* strict(schema)
      const { admin, nobody, owners } = installed
      const before = yield* catalog(admin)
      yield* admin.script(`
        grant execute on function ${quoted}.complete_job to public;
        grant execute on function ${quoted}.claim to "${nobody}";
        grant select on ${quoted}.leases to "${nobody}";
        grant truncate on ${quoted}.closures_0 to public;
        grant create, usage on schema ${quoted} to "${nobody}";
        grant usage on sequence ${quoted}.job_ids to "${nobody}";
        revoke execute on function ${quoted}.insert_jobs from "${installed.roleOf("producer")}";
        revoke select on ${quoted}.jobs from "${installed.roleOf("admin_reader")}";
        alter default privileges for role "${owners.executionOwner}" grant execute on functions to public;
        alter default privileges for role "${owners.executionOwner}" in schema ${quoted} grant execute on functions to "${nobody}";
        drop function ${quoted}.require_contract;
        drop function ${quoted}.cancel_jobs`)
      yield* refresh(installed)
      expect(yield* catalog(admin)).toEqual(before)
      expect(yield* everybody(installed)).toEqual(expected)
    })
  )

  it.scopedLive("follow the bindings, and what is not bound any more is revoked", () =>
    Effect.gen(function* () {
      const installed = yield* strict(schema)
      const { admin, options, roleOf } = installed
      yield* Roles.apply({ ...options, bindings: { producer: [roleOf("finalizer")] } })
      expect(yield* privilegesOf(admin, roleOf("finalizer"))).toEqual(expected["producer"])
      for (const capability of capabilities.filter((other) => other !== "finalizer")) {
        expect(yield* privilegesOf(admin, roleOf(capability)), capability).toEqual(expected["nobody"])
      }
    })
  )

  for (const beside of [[], ["producer"], ["expectation"], ["producer", "expectation"]] as const) {
    it.scopedLive(`of a finalizer${beside.map((other) => ` that is ${other} too`).join("")}`, () =>
      Effect.gen(function* () {
        const { admin, options, roleOf } = yield* strict(schema)
        const role = roleOf("finalizer")
        const bindings = Object.fromEntries(["finalizer", ...beside].map((capability) => [capability, [role]]))
        yield* Roles.apply({ ...options, bindings })
        const found = yield* privilegesOf(admin, role)
        const contract = beside.some((other) => other === "producer") ? ["require_contract"] : []
        expect(found.routines).toEqual(
          [
            "complete_job",
            ...contract,
            ...beside.flatMap((other) => mayOf(other).routines.filter((name) => name !== "require_contract"))
          ].sort()
        )
        expect(found.relations).toEqual([])
      })
    )
  }
})
