/** Settings that bite, wherever they are said (C-53). */
import { assert, it as test, layer } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { checkSettings } from "../../src/internal/doctor/settings.js"
import { examine, type Fault, findsAndMends, Installation, isHealthy } from "./support.js"

const faults: ReadonlyArray<Fault> = [
  {
    name: "a role whose transactions are read-only",
    sql: ({ roleOf }) => `alter role "${roleOf("executor")}" set default_transaction_read_only = on`,
    code: "setting-read-only",
    found: /= on, set for role \S+_executor; it concerns \S+_executor$/
  },
  {
    name: "a database whose transactions are read-only",
    sql: ({ database }) => `alter database ${database} set default_transaction_read_only = on`,
    code: "setting-read-only",
    found: /set for this database; it concerns .*_callback.*_producer/
  },
  {
    name: "SERIALIZABLE",
    sql: ({ roleOf }) => `alter role "${roleOf("finalizer")}" set default_transaction_isolation = 'serializable'`,
    code: "setting-isolation",
    found: /serializable/
  },
  {
    name: "synchronous_commit off, of one role in this database",
    sql: ({ database, roleOf }) =>
      `alter role "${roleOf("producer")}" in database ${database} set synchronous_commit = off`,
    code: "setting-synchronous-commit",
    found: /role \S+_producer in this database/
  },
  {
    name: "a time zone",
    sql: ({ database }) => `alter database ${database} set timezone = 'Pacific/Kiritimati'`,
    code: "setting-time-zone",
    found: /Kiritimati/,
    severity: "note"
  },
  {
    name: "dates that are not ISO",
    sql: ({ database }) => `alter database ${database} set datestyle = 'German, DMY'`,
    code: "setting-date-style",
    found: /German/
  },
  {
    name: "row_security off",
    sql: ({ roleOf }) => `alter role "${roleOf("executor")}" set row_security = off`,
    code: "setting-row-security",
    found: /row_security = off/
  },
  {
    name: "standard_conforming_strings off",
    sql: ({ roleOf }) => `alter role "${roleOf("producer")}" set standard_conforming_strings = off`,
    code: "setting-strings",
    found: /standard_conforming_strings = off/
  },
  {
    name: "idle_session_timeout of a runtime",
    sql: ({ roleOf }) => `alter role "${roleOf("executor")}" set idle_session_timeout = '1min'`,
    code: "setting-idle-session",
    found: /= 1min/
  },
  {
    name: "a finalizer without limits",
    sql: ({ roleOf }) =>
      `alter role "${roleOf("finalizer")}" reset statement_timeout; alter role "${roleOf("finalizer")}" set lock_timeout = 0`,
    code: "finalizer-timeouts",
    found: /no statement_timeout, no lock_timeout$/
  },
  {
    name: "a search_path that anybody may create in",
    sql: () => "grant create on schema public to public",
    code: "path-writable",
    found: /PUBLIC may create in public/
  }
]

layer(Installation.layer, { excludeTestServices: true, timeout: "60 seconds" })("doctor finds, and mends", (it) => {
  for (const fault of faults) it.effect(fault.name, () => findsAndMends(fault), 30_000)

  it.effect("17 and later: transaction_timeout of a runtime", (context) =>
    Effect.gen(function* () {
      const { admin } = yield* Installation
      const [row] = yield* admin.rows("select current_setting('transaction_timeout', true) as it")
      if (row?.["it"] === null) return context.skip()
      yield* findsAndMends({
        name: "transaction_timeout",
        sql: ({ roleOf }) => `alter role "${roleOf("executor")}" set transaction_timeout = '1s'`,
        code: "setting-transaction-timeout",
        found: /= 1s/
      })
    })
  )

  it.effect("not what does not concern a role", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      yield* installed.admin.script(`alter role "${installed.nobody}" set default_transaction_read_only = on;
        alter role "${installed.roleOf("producer")}" set idle_session_timeout = '1min'`)
      isHealthy(yield* examine(installed))
    })
  )

  it.effect("what the url asks for, without SQL", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const url = new URL(installed.url)
      url.searchParams.set("options", "-c default_transaction_isolation=serializable")
      const [finding, ...more] = yield* examine(installed, { url: Redacted.make(url.href) })
      assert.lengthOf(more, 0)
      assert.deepInclude(finding, { code: "setting-isolation", sql: null })
      assert.match(finding?.advice ?? "", /PGOPTIONS/)
    })
  )
})

test("a standby is an error", () => {
  const settings = { database: "app", me: "me", standby: true, stored: [], session: [] }
  assert.deepStrictEqual(
    checkSettings(settings, []).map(({ code }) => code),
    ["server-standby"]
  )
  assert.deepStrictEqual(checkSettings({ ...settings, standby: false }, []), [])
})
