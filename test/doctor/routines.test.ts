/** Every routine is this version's, in every respect, and nothing stands beside or before it (C-53, C-54). */
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { expectedRoutines } from "../../src/internal/doctor/expected.js"
import { schemasOf } from "../../src/internal/doctor/shadows.js"
import { manifest, unfold } from "../../src/internal/manifest.js"
import { type Fault, findsAll, findsAndMends, Installation, quoted } from "./support.js"

/** ALTER of a routine that is named by its name alone. */
const alter = (action: string) => `alter routine ${quoted}.complete_job ${action}`

/** CREATE OR REPLACE of a routine as it is, with one thing changed in its definition. */
const redefine = (name: string, from: string, to: string) => `do $do$
declare v_text text;
begin
  select pg_get_functiondef(p.oid) into strict v_text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = 'We"ird' and p.proname = '${name}';
  if position('${from}' in v_text) = 0 then raise exception 'nothing to change in %', v_text; end if;
  execute replace(v_text, '${from}', '${to}');
end $do$`

const faults: ReadonlyArray<Fault> = [
  {
    name: "the body",
    sql: () => redefine("complete_job", "begin", "begin perform 1;"),
    code: "routine-body",
    found: /^sha256 [0-9a-f]{16}$/
  },
  {
    name: "the body of one segment's routine",
    sql: () => redefine("close_2", "begin", "begin perform 1;"),
    code: "routine-body",
    found: /^sha256/
  },
  { name: "SECURITY INVOKER", sql: () => alter("security invoker"), code: "routine-security", found: /invoker/ },
  {
    name: "SECURITY DEFINER where it must not be",
    sql: () => `alter routine ${quoted}.require_read_committed security definer`,
    code: "routine-security",
    found: /definer/
  },
  { name: "no search_path", sql: () => alter("reset search_path"), code: "routine-search-path", found: /^none$/ },
  {
    name: "an unsafe search_path",
    sql: () => alter("set search_path = public, pg_catalog"),
    code: "routine-search-path",
    found: /public, pg_catalog/
  },
  {
    name: "a setting that is gone",
    sql: () => `alter routine ${quoted}.claim reset jit`,
    code: "routine-settings",
    found: /force_generic_plan/
  },
  {
    name: "another language",
    sql: () => `set check_function_bodies = off; ${redefine("stops_one", "LANGUAGE sql", "LANGUAGE plpgsql")}`,
    code: "routine-language",
    found: /plpgsql/
  },
  { name: "STRICT", sql: () => alter("strict"), code: "routine-attributes", found: /strict/ },
  { name: "another volatility", sql: () => alter("stable"), code: "routine-attributes", found: /stable/ },
  { name: "LEAKPROOF", sql: () => alter("leakproof"), code: "routine-attributes", found: /leakproof/ },
  {
    name: "another owner",
    sql: ({ roleOf }) => alter(`owner to "${roleOf("admin_reader")}"`),
    code: "routine-owner",
    found: /admin_reader/
  },
  {
    name: "an overload",
    sql: () => `create function ${quoted}.complete_job(text) returns void language sql as ''`,
    code: "routine-overload",
    found: /complete_job\(text\)/
  },
  {
    name: "another signature",
    sql: () =>
      `drop function ${quoted}.evidence_keep; create function ${quoted}.evidence_keep(integer) returns interval language sql stable as $$ select null::interval $$`,
    code: "routine-signature",
    found: /evidence_keep\(integer\)/
  },
  {
    name: "another result",
    sql: () =>
      `drop function ${quoted}.evidence_keep; create function ${quoted}.evidence_keep() returns text language sql stable as $$ select '' $$`,
    code: "routine-signature",
    found: /returns text/
  },
  {
    name: "another default",
    sql: () =>
      redefine("rescue_stale", " DEFAULT true", " DEFAULT true, p_more integer DEFAULT 1").replace(
        "execute replace",
        `drop function ${quoted}.rescue_stale; execute replace`
      ),
    code: "routine-signature",
    found: /p_more/
  },
  {
    name: "a routine that is gone",
    sql: () => `drop function ${quoted}.require_contract`,
    code: "routine-missing",
    found: /no such/
  },
  {
    name: "a routine that nobody knows",
    sql: () => `create function ${quoted}.surprise() returns void language sql as ''`,
    code: "routine-unexpected",
    found: /surprise/
  },
  {
    name: "a wrapper of the same name on the default search_path",
    sql: () => `create function public.complete_job(text) returns void language sql as ''`,
    code: "routine-shadow",
    found: /complete_job\(text\).*_finalizer/
  },
  {
    name: "a routine of the same name on the search_path of one role",
    sql: ({ database, roleOf }) =>
      `create schema "Other, one"; create function "Other, one".insert_job() returns void language sql as '';
       alter role "${roleOf("producer")}" in database ${database} set search_path = "Other, one", public`,
    code: "routine-shadow",
    found: /insert_job\(\), on the search_path of \S+_producer$/,
    after: ({ database, roleOf }) =>
      `drop schema "Other, one"; alter role "${roleOf("producer")}" in database ${database} reset search_path`
  }
]

describe("what this version installs", () => {
  it("is read from its own text: every routine of the manifest, whatever the schema is called", () => {
    for (const schema of ["awa", `We"ird`, "a $$ language sql as $$", "create or replace function"]) {
      const names = expectedRoutines({ schema, ring: 4 }).map(({ name }) => name)
      assert.deepStrictEqual(
        names.toSorted(),
        manifest.routines
          .flatMap((routine) => unfold(routine, 4))
          .map(({ name }) => name)
          .toSorted()
      )
    }
  })

  it("knows a search_path as PostgreSQL reads it", () => {
    assert.deepStrictEqual(schemasOf('"$user", Public,"a,""b"', "me"), ["me", "public", 'a,"b'])
    assert.deepStrictEqual(schemasOf('""', "me"), [""])
  })
})

layer(Installation.layer, { excludeTestServices: true, timeout: "60 seconds" })("doctor finds, and mends", (it) => {
  for (const fault of faults) it.effect(fault.name, () => findsAndMends(fault), 30_000)

  it.effect("several things of one routine, each by its own code", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      yield* installed.admin.script(`${alter("security invoker")}; ${alter("reset search_path")}`)
      yield* findsAll(installed, ["routine-search-path", "routine-security"])
    })
  )
})
