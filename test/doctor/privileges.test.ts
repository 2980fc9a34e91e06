/** Owners, relations, and exactly the privileges of manifest × bindings (C-51, C-52, C-53). */
import { assert, it as test, layer } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Roles, RuntimePool } from "effect-awa"
import { connect } from "../migrations/support.js"
import { strict } from "../privileges/support.js"
import { examine, type Fault, findsAndMends, Installation, isHealthy, quoted, schema } from "./support.js"

const faults: ReadonlyArray<Fault> = [
  {
    name: "EXECUTE of PUBLIC",
    sql: () => `grant execute on function ${quoted}.complete_job to public`,
    code: "routine-public",
    found: /^PUBLIC has execute/
  },
  {
    name: "EXECUTE of somebody who is not bound",
    sql: ({ nobody }) => `grant execute on function ${quoted}.claim to "${nobody}"`,
    code: "routine-acl",
    found: /_nobody has execute/
  },
  {
    name: "EXECUTE of a bound role that needs it for nothing",
    sql: ({ roleOf }) => `grant execute on function ${quoted}.claim to "${roleOf("finalizer")}"`,
    code: "routine-acl",
    found: /_finalizer has execute/
  },
  {
    name: "EXECUTE that was taken away",
    sql: ({ roleOf }) => `revoke execute on function ${quoted}.complete_job from "${roleOf("finalizer")}"`,
    code: "routine-acl",
    found: /_finalizer lacks execute/
  },
  {
    name: "a grant option",
    sql: ({ roleOf }) =>
      `grant execute on function ${quoted}.complete_job to "${roleOf("finalizer")}" with grant option`,
    code: "routine-acl",
    found: /_finalizer may grant execute/
  },
  {
    name: "a privilege on a table",
    sql: ({ roleOf }) => `grant delete on ${quoted}.closures_1 to "${roleOf("executor")}"`,
    code: "relation-acl",
    found: /_executor has delete/
  },
  {
    name: "a privilege on one column",
    sql: ({ nobody }) => `grant select (args) on ${quoted}.deferred_jobs to "${nobody}"`,
    code: "relation-acl",
    found: /_nobody has select \(args\)/
  },
  {
    name: "a privilege on a sequence",
    sql: ({ nobody }) => `grant usage on sequence ${quoted}.job_ids to "${nobody}"`,
    code: "relation-acl",
    found: /_nobody has usage/
  },
  {
    name: "a privilege that the routines' owner lacks",
    sql: ({ owners }) => `revoke insert on ${quoted}.closures_0 from "${owners.executionOwner}"`,
    code: "relation-acl",
    found: /_exec lacks insert/
  },
  {
    name: "TRUNCATE of PUBLIC",
    sql: () => `grant truncate on ${quoted}.leases to public`,
    code: "relation-public",
    found: /^PUBLIC has truncate/
  },
  {
    name: "CREATE on the schema",
    sql: ({ owners }) => `grant create on schema ${quoted} to "${owners.executionOwner}"`,
    code: "schema-acl",
    found: /_exec has create/
  },
  {
    name: "USAGE on the schema that is gone",
    sql: ({ roleOf }) => `revoke usage on schema ${quoted} from "${roleOf("callback")}"`,
    code: "schema-acl",
    found: /_callback lacks usage/
  },
  {
    name: "USAGE of PUBLIC",
    sql: () => `grant usage on schema ${quoted} to public`,
    code: "schema-public",
    found: /^PUBLIC has usage/
  },
  {
    name: "a table of somebody else's",
    sql: ({ roleOf }) => `alter table ${quoted}.terminal_jobs owner to "${roleOf("executor")}"`,
    code: "relation-owner",
    found: /_executor/
  },
  {
    name: "a view that runs as somebody else",
    sql: ({ owners }) => `alter view ${quoted}.jobs owner to "${owners.schemaOwner}"`,
    code: "relation-owner",
    found: /_owner/
  },
  {
    name: "a schema of somebody else's",
    sql: ({ nobody }) => `alter schema ${quoted} owner to "${nobody}"`,
    code: "schema-owner",
    found: /_nobody/
  },
  {
    name: "a table that nobody knows",
    sql: () => `create table ${quoted}.surprise ()`,
    code: "relation-unexpected",
    found: /surprise/,
    byHand: () => `drop table ${quoted}.surprise`
  },
  {
    name: "a view that is gone",
    sql: () => `alter view ${quoted}.attempts set schema public`,
    code: "relation-missing",
    found: /no view attempts/,
    byHand: () => `alter view public.attempts set schema ${quoted}`
  },
  {
    name: "a trigger that nobody knows",
    sql: () =>
      `create trigger surprise after insert on ${quoted}.closures_0 execute function suppress_redundant_updates_trigger()`,
    code: "relation-trigger",
    found: /trigger surprise/
  },
  {
    name: "an expectation that a replica's session would not ask",
    sql: () => `alter table ${quoted}.expected_completions_3 enable trigger kept`,
    code: "relation-trigger",
    found: /trigger kept/
  },
  {
    name: "a rule",
    sql: () => `create rule surprise as on insert to ${quoted}.closures_0 do instead nothing`,
    code: "relation-trigger",
    found: /rule surprise/
  },
  {
    name: "row security",
    sql: () => `alter table ${quoted}.leases enable row level security`,
    code: "relation-trigger",
    found: /row security/
  },
  {
    name: "an owner that logs in",
    sql: ({ owners }) => `alter role "${owners.executionOwner}" login`,
    code: "owner-attributes",
    found: /nologin/
  },
  {
    name: "an owner that passes by row security",
    sql: ({ owners }) => `alter role "${owners.schemaOwner}" bypassrls`,
    code: "owner-attributes",
    found: /nobypassrls/
  },
  {
    name: "an owner that is a member",
    sql: ({ nobody, owners }) => `grant "${nobody}" to "${owners.executionOwner}"`,
    code: "owner-member",
    found: /_nobody/
  },
  {
    name: "a binding of a role that is gone",
    sql: () => `insert into ${quoted}.role_bindings (capability, role) values ('producer', 'it''s nobody')`,
    code: "binding-role-missing",
    found: /it's nobody/
  },
  {
    name: "a capability of an owner",
    sql: ({ owners }) =>
      `insert into ${quoted}.role_bindings (capability, role) values ('finalizer', '${owners.executionOwner}')`,
    code: "binding-owner",
    found: /_exec/
  },
  {
    name: "a bound role that no grant binds",
    sql: ({ roleOf }) => `alter role "${roleOf("finalizer")}" bypassrls`,
    code: "binding-attributes",
    found: /nobypassrls/
  },
  {
    name: "functions of another version",
    // whatever it did to them: what mends this version's would be half an upgrade
    sql: () => `update ${quoted}.meta set rendered_hash = 'other'; alter routine ${quoted}.complete_job strict`,
    code: "schema-not-current",
    found: /rendered other/,
    byHand: () =>
      `update ${quoted}.meta set rendered_hash = current_setting('awa_test.hash'); alter routine ${quoted}.complete_job called on null input`,
    severity: "error"
  }
]

layer(Installation.layer, { excludeTestServices: true, timeout: "60 seconds" })("doctor finds, and mends", (it) => {
  for (const fault of faults) {
    it.effect(
      fault.name,
      () =>
        Effect.gen(function* () {
          const { admin } = yield* Installation
          yield* admin.rows(`select set_config('awa_test.hash', rendered_hash, false) from ${quoted}.meta`)
          yield* findsAndMends(fault)
        }),
      30_000
    )
  }

  it.scoped("so that the migrator, who is no superuser, can run what is printed", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const { admin, nobody, owners, plain } = installed
      const migrator = yield* connect(plain.url)
      yield* admin.script(`
        alter function ${quoted}.complete_job security invoker;
        alter function ${quoted}.claim set search_path = public;
        drop function ${quoted}.require_contract;
        grant execute on function ${quoted}.complete_job to public;
        grant select on ${quoted}.leases to "${nobody}";
        revoke insert on ${quoted}.closures_0 from "${owners.executionOwner}";
        grant create on schema ${quoted} to public;
        alter sequence ${quoted}.batch_seq cache 7;
        insert into ${quoted}.role_bindings (capability, role) values ('producer', 'gone')`)
      const findings = yield* examine(installed)
      assert.lengthOf(findings, 9)
      for (const { sql } of findings) yield* migrator.script(sql ?? "")
      isHealthy(yield* examine(installed))
    })
  )

  it.effect("the same, whatever the session is set to", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const url = new URL(installed.url)
      const settings = {
        ...{ search_path: "pg_temp,public", standard_conforming_strings: "off", row_security: "off" },
        ...{ default_transaction_isolation: "serializable", default_transaction_read_only: "on" },
        ...{ datestyle: "German", intervalstyle: "sql_standard", timezone: "Pacific/Kiritimati" },
        ...{ statement_timeout: "1min", extra_float_digits: "-15", bytea_output: "escape" }
      }
      url.searchParams.set(
        "options",
        Object.entries(settings)
          .map(([name, value]) => `-c ${name}=${value}`)
          .join(" ")
      )
      const findings = yield* examine(installed, { url: Redacted.make(url.href) })
      assert.deepStrictEqual(findings.map(({ code }) => code).toSorted(), [
        "setting-date-style",
        "setting-isolation",
        "setting-read-only",
        "setting-row-security",
        "setting-strings",
        "setting-time-zone"
      ])
    })
  )

  it.effect("nothing of what it may not look at, and says so", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      for (const role of [installed.nobody, installed.roleOf("finalizer")]) {
        const findings = yield* examine(installed, { url: installed.redactedAs(role) })
        assert.deepStrictEqual(
          findings.map(({ code, object, severity }) => [code, severity, object]),
          [
            ["check-skipped", "error", "bindings, and privileges by them"],
            ["check-skipped", "error", "the version"],
            ["check-skipped", "error", "whose database this is"],
            ["check-skipped", "error", "the ring"],
            ["check-skipped", "error", "other roles' sessions"],
            ["check-skipped", "error", "how far sequences are"],
            ["check-skipped", "error", "the runtimes"]
          ]
        )
        assert.match(findings[0]?.found ?? "", /_(nobody|finalizer) may not read "We""ird".role_bindings/)
      }
      const reader = yield* examine(installed, { url: installed.redactedAs(installed.roleOf("admin_reader")) })
      assert.deepStrictEqual(
        reader.map(({ code, object }) => [code, object]),
        [
          ["check-skipped", "whose database this is"],
          ["check-skipped", "other roles' sessions"],
          ["check-skipped", "how far sequences are"]
        ]
      )
    })
  )
})

test.scopedLive("doctor labels the compatible profile, and refuses it as strict (C-51)", () =>
  Effect.gen(function* () {
    const installed = yield* strict(schema, "compatible")
    const relaxed = yield* examine(installed, { strict: false })
    assert.deepStrictEqual(
      relaxed.map(({ code, severity }) => [code, severity]),
      [["profile-compatible", "note"]]
    )
    const [finding] = yield* examine(installed)
    assert.deepInclude(finding, { code: "profile-compatible", severity: "error" })
    yield* Roles.apply({ ...installed.options, profile: "strict" })
    isHealthy(yield* examine(installed))
  })
)

for (const name of ["awa", "Awa.", "a$$b"]) {
  test.scopedLive(`doctor knows an installation in a schema called ${name}`, () =>
    Effect.gen(function* () {
      const installed = yield* strict(name)
      isHealthy(yield* examine(installed, { schema: name }))
      const url = installed.redactedAs(installed.roleOf("executor"))
      yield* Effect.scoped(RuntimePool.make({ url, schema: name, strict: true }))
      yield* installed.admin
        .script(`grant execute on function "${name}".take_over to public; drop function "${name}".take_over;
        grant execute on function "${name}".set_queue to "${installed.nobody}"`)
      const findings = yield* examine(installed, { schema: name })
      assert.deepStrictEqual(
        findings.map(({ code }) => code),
        ["routine-missing", "routine-acl"]
      )
      for (const { sql } of findings) yield* installed.admin.script(sql ?? "")
      isHealthy(yield* examine(installed, { schema: name }))
    })
  )
}

test.scopedLive("doctor leaves what was granted by hand alone where no role was ever bound, PUBLIC excepted", () =>
  Effect.gen(function* () {
    const installed = yield* strict(schema, "compatible")
    yield* Roles.apply({ ...installed.options, profile: "compatible", bindings: {} })
    yield* installed.admin.script(
      `grant execute on function ${quoted}.claim to "${installed.nobody}"; grant execute on function ${quoted}.claim to public`
    )
    const findings = yield* examine(installed, { strict: false })
    assert.deepStrictEqual(
      findings.map(({ code }) => code),
      ["routine-public", "profile-compatible"]
    )
  })
)
