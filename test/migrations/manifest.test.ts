import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect, Schema } from "effect"
import * as Fs from "node:fs"
import { freshDatabase } from "./support.js"

const Routine = Schema.Struct({
  name: Schema.String,
  arguments: Schema.String,
  class: Schema.Literal(
    "contract",
    "producer",
    "finalizer",
    "batch_finalizer",
    "expectation",
    "executor",
    "maintenance",
    "callback",
    "admin_reader",
    "admin_mutator",
    "migrator",
    "internal"
  ),
  securityDefiner: Schema.Boolean,
  searchPath: Schema.NullOr(Schema.String),
  grants: Schema.Array(Schema.String)
})

type Routine = typeof Routine.Type

const Manifest = Schema.Struct({
  classes: Schema.Record({ key: Schema.String, value: Schema.String }),
  routines: Schema.Array(Routine)
})

const manifest = Schema.decodeUnknownSync(Schema.parseJson(Manifest))(
  Fs.readFileSync(new URL("../../schema/manifest.json", import.meta.url), "utf8")
)

const ring = 4
const schema = `We"ird`
const quoted = `"We""ird"`

/** One entry for each segment, in the schema of this test. */
const unfold = (routine: Routine): ReadonlyArray<Routine> => {
  const entry = { ...routine, arguments: routine.arguments.replaceAll("{schema}", quoted) }
  return routine.name.includes("{segment}")
    ? Array.from({ length: ring }, (_, segment) => ({
        ...entry,
        name: entry.name.replace("{segment}", String(segment))
      }))
    : [entry]
}

const expected = manifest.routines.flatMap(unfold)

const byName = (a: { readonly name: string }, b: { readonly name: string }) => (a.name < b.name ? -1 : 1)

const installed = `
select p.proname::text as name, pg_get_function_identity_arguments(p.oid) as arguments, p.prosecdef as "securityDefiner",
       (select substr(c, 13) from unnest(p.proconfig) c where c like 'search_path=%') as "searchPath",
       coalesce((select array_agg(distinct a.grantee::regrole::text) from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                 where a.grantee <> p.proowner), '{}') as grants,
       p.prosrc
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1`

describe("schema/manifest.json", () => {
  it.scopedLive("is what is installed: no routine more, none less, and as it says", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, schema, ring })
      const rows = yield* fresh.admin.rows(installed, [schema])
      const found = rows.map((row) => ({
        name: String(row["name"]),
        arguments: row["arguments"],
        securityDefiner: row["securityDefiner"],
        searchPath: row["searchPath"],
        grants: row["grants"]
      }))
      // `-`, the role of number 0, would be PUBLIC
      expect(found.sort(byName)).toEqual(expected.map(({ class: _, ...routine }) => routine).sort(byName))
    })
  )

  it("gives every SECURITY DEFINER routine a search_path that ends in pg_temp", () => {
    for (const routine of expected.filter((routine) => routine.securityDefiner)) {
      expect(routine.searchPath, routine.name).toBe("pg_catalog, pg_temp")
    }
    expect(new Set(expected.map((routine) => routine.name)).size).toBe(expected.length) // C-15: no overload
    expect(new Set(manifest.routines.map((routine) => routine.class))).toEqual(new Set(Object.keys(manifest.classes)))
  })

  it.scopedLive("lets each class call what its routines call", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* Migrations.migrate({ url: fresh.redacted, schema, ring })
      const rows = yield* fresh.admin.rows(installed, [schema])
      const classOf = new Map(expected.map((routine) => [routine.name, routine.class]))
      const faults: Array<string> = []
      for (const row of rows.filter((row) => row["securityDefiner"] === false)) {
        const caller = String(row["name"])
        if (classOf.get(caller) === "internal") continue // it runs as the owner
        for (const [, callee] of String(row["prosrc"]).matchAll(/"We""ird"\.(\w+)\(/g)) {
          const needed = classOf.get(String(callee))
          if (needed !== undefined && needed !== classOf.get(caller)) faults.push(`${caller} -> ${callee}: ${needed}`)
        }
      }
      expect(faults).toEqual([])
    })
  )
})
