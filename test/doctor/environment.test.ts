/** What surrounds an installation: sequences, old transactions, the ring, copies, publications, the fleet (C-22, C-33, C-34, C-53). */
import { assert, it as test, layer } from "@effect/vitest"
import { Clock, Effect, Redacted } from "effect"
import { connect } from "../migrations/support.js"
import { findPgBouncer, makePgBouncer } from "../poolers/pgbouncer.js"
import { strict } from "../privileges/support.js"
import { examine, type Fault, findsAndMends, Installation, isHealthy, quoted, schema } from "./support.js"

const runtime = (id: number, contract: number, capabilities: object) =>
  `insert into ${quoted}.runtimes (runtime_id, name, contract, capabilities) values (${id}, 'r${id}', ${contract}, '${JSON.stringify(capabilities)}');`

const fits = { callerOwned: true, connections: { mode: "separate", application: 1, runtime: 1 } }
const gone = () => `delete from ${quoted}.runtimes where runtime_id < 0`

const faults: ReadonlyArray<Fault> = [
  {
    name: "a cache of batch_seq",
    sql: () => `alter sequence ${quoted}.batch_seq cache 32`,
    code: "sequence-settings",
    found: /cache 32/,
    severity: "error"
  },
  {
    name: "a sequence that begins again",
    sql: () => `alter sequence ${quoted}.job_ids cycle maxvalue 1000000`,
    code: "sequence-settings",
    found: /cycle, bigint, maximum 1000000/
  },
  {
    name: "ids that are half used up",
    sql: () => `select setval('${quoted}.job_ids', 5000000000000000000)`,
    code: "sequence-headroom",
    found: /at 5000000000000000000/,
    byHand: () => `select setval('${quoted}.job_ids', 1)`
  },
  {
    name: "a copy",
    sql: () => `update ${quoted}.meta set database_oid = 1`,
    code: "database-copied",
    found: /database 1$/
  },
  {
    name: "a copy of another cluster",
    sql: () => `update ${quoted}.meta set system_identifier = 1`,
    code: "database-copied",
    found: /cluster 1,/
  },
  {
    name: "a publication for all tables",
    sql: () => "set client_min_messages = error; create publication everything for all tables",
    code: "publication-truncate",
    found: /everything, FOR ALL TABLES, publishes truncate/,
    after: () => "drop publication everything"
  },
  {
    name: "a publication of a segment",
    sql: () =>
      `set client_min_messages = error; create publication one for table ${quoted}.closures_1 with (publish = 'insert, truncate')`,
    code: "publication-truncate",
    found: /one publishes truncate/,
    after: () => "drop publication one"
  },
  {
    name: "a table that was never analyzed",
    sql: () =>
      `insert into ${quoted}.audit (verb, detail) select 'test', '{}' from generate_series(1, 12000); select pg_stat_force_next_flush()`,
    code: "statistics-stale",
    found: /^12\d+ rows changed/,
    after: () => `truncate ${quoted}.audit`
  },
  {
    name: "a fleet of two generations",
    sql: () => runtime(-1, 1, fits) + runtime(-2, 2, fits),
    code: "runtimes-mixed",
    found: /contract 2: r-2 \(-2\); contract 1: r-1 \(-1\)/,
    byHand: gone
  },
  {
    name: "a runtime that cannot complete in callers' transactions, beside one that can",
    sql: () => runtime(-1, 1, fits) + runtime(-2, 1, { ...fits, callerOwned: false }),
    code: "runtimes-mixed",
    found: /contract 1, ordinary completion only: r-2/,
    byHand: gone
  },
  {
    name: "more connections than there are",
    sql: () => runtime(-1, 1, { ...fits, connections: { mode: "separate", application: 9000, runtime: 7 } }),
    code: "connection-budget",
    found: /may open 9007 connections/,
    byHand: gone
  }
]

const pidOf = (session: { rows: (sql: string) => Effect.Effect<ReadonlyArray<Record<string, unknown>>> }) =>
  Effect.map(session.rows("select pg_backend_pid() as pid"), ([row]) => Number(row?.["pid"]))

layer(Installation.layer, { excludeTestServices: true, timeout: "60 seconds" })("doctor finds, and mends", (it) => {
  for (const fault of faults) it.effect(fault.name, () => findsAndMends(fault), 30_000)

  const soon = { longTransaction: "300 millis" } as const

  it.scoped("a transaction that is left open, by its pid", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const session = yield* connect(installed.url)
      yield* session.script("begin isolation level repeatable read; select 1")
      const pid = yield* pidOf(session)
      isHealthy(yield* examine(installed))
      yield* Effect.sleep("400 millis")
      const [finding, ...more] = yield* examine(installed, soon)
      assert.lengthOf(more, 0)
      assert.deepInclude(finding, { code: "xmin-held", object: `pid ${pid}` })
      yield* installed.admin.script(finding?.sql ?? "")
      yield* Effect.sleep("100 millis")
      isHealthy(yield* examine(installed, soon))
    })
  )

  it.scoped("a transaction that is left prepared, by its gid", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const gid = `it's ${installed.database}`.replaceAll("'", "''")
      yield* Effect.addFinalizer(() => Effect.ignore(installed.admin.script(`rollback prepared '${gid}'`)))
      yield* installed.admin.script(`begin; select pg_current_xact_id(); prepare transaction '${gid}'`)
      yield* Effect.sleep("400 millis")
      const [finding, ...more] = yield* examine(installed, soon)
      assert.lengthOf(more, 0)
      assert.deepInclude(finding, { code: "prepared-transaction", object: `it's ${installed.database}` })
      yield* installed.admin.script(finding?.sql ?? "")
      isHealthy(yield* examine(installed, soon))
    })
  )

  it.scoped("a pooler in transaction mode, and none in session mode", (context) =>
    Effect.gen(function* () {
      if (findPgBouncer() === undefined) return context.skip()
      const installed = yield* Installation
      for (const mode of ["transaction", "session"] as const) {
        const pooler = yield* makePgBouncer({ server: installed.url, mode })
        const findings = yield* examine(installed, { url: Redacted.make(pooler.through(installed.url)) })
        assert.deepStrictEqual(
          findings.map(({ code, found, sql }) => [code, found, sql]),
          mode === "session"
            ? []
            : [
                [
                  "pooler-transaction-mode",
                  "not kept from one transaction to the next: LISTEN, a session's lock, a prepared statement",
                  null
                ]
              ]
        )
        const [left] = yield* installed.admin.rows(
          `select count(*)::int as locks from pg_locks l join pg_database d on d.oid = l.database
           where l.locktype = 'advisory' and d.datname = current_database()`
        )
        assert.deepStrictEqual(left, { locks: 0 })
      }
    })
  )

  it.effect("a clock that is not the server's", () =>
    Effect.gen(function* () {
      const installed = yield* Installation
      const clock = Clock.make()
      for (const [shift, found] of [
        [5_000, /ahead of/],
        [-5_000, /behind/]
      ] as const) {
        const shifted: Clock.Clock = {
          ...clock,
          unsafeCurrentTimeMillis: () => clock.unsafeCurrentTimeMillis() + shift,
          currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + shift),
          unsafeCurrentTimeNanos: () => clock.unsafeCurrentTimeNanos(),
          currentTimeNanos: clock.currentTimeNanos,
          sleep: (duration) => clock.sleep(duration)
        }
        const [finding, ...more] = yield* Effect.withClock(examine(installed), shifted)
        assert.lengthOf(more, 0)
        assert.deepInclude(finding, { code: "clock-offset", sql: null })
        assert.match(finding?.found ?? "", found)
      }
    })
  )
})

test.scopedLive("doctor names who holds a segment, and says when none is free (C-53)", () =>
  Effect.gen(function* () {
    const installed = yield* strict(schema)
    const { admin } = installed
    const soon = { longTransaction: "300 millis" } as const
    yield* admin.script(`select ${quoted}.insert_job('k', '{}', 'lonely')`)
    const writer = yield* connect(installed.url)
    yield* writer.script(`begin; select ${quoted}.insert_job('k', '{}', 'open')`)
    const pid = yield* pidOf(writer)
    for (let i = 0; i < 2; i++) yield* admin.script(`select ${quoted}.rotate('0', 1)`)
    yield* Effect.sleep("400 millis")
    const [finding, ...more] = yield* examine(installed, soon)
    assert.lengthOf(more, 0)
    assert.deepInclude(finding, { code: "ring-blocked", object: "segment 0" })
    assert.include(finding?.found ?? "", `writer: pid ${pid}`)
    yield* admin.script(finding?.sql ?? "")
    yield* Effect.sleep("100 millis")
    isHealthy(yield* examine(installed, soon))

    for (let i = 0; i < 8; i++) {
      // more than the cache of entry_seq
      yield* admin.script(
        `select ${quoted}.insert_job('k', '{}', 'lonely') from generate_series(1, 40); select ${quoted}.rotate('0', 1)`
      )
    }
    const [full, ...others] = yield* examine(installed)
    assert.lengthOf(others, 0)
    assert.deepInclude(full, { code: "ring-full", sql: null })
    assert.match(full?.found ?? "", /none of 4 segments is free; held by unclaimed \(queue lonely\)/)
  })
)

test.scopedLive("doctor says that no runtime starts on a database that was replaced, and mends it (C-34)", () =>
  Effect.gen(function* () {
    const installed = yield* strict(schema)
    yield* installed.admin.script(
      `update ${quoted}.meta set system_identifier = 1; select setval('${quoted}.segment_cursor', 0)`
    )
    const [finding, ...more] = yield* examine(installed)
    assert.lengthOf(more, 0)
    assert.deepInclude(finding, { code: "database-refused", severity: "error" })
    assert.match(finding?.found ?? "", /segment_cursor/)
    yield* installed.admin.script(finding?.sql ?? "")
    isHealthy(yield* examine(installed))
  })
)
