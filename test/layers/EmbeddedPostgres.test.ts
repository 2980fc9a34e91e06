import { existsSync } from "node:fs"
import { assert, describe, it, layer as sharing } from "@effect/vitest"
import { EmbeddedPostgres, layer, make } from "effect-awa/layers/EmbeddedPostgres"
import { Effect, Option, Redacted, Schedule } from "effect"
import { Client } from "pg"

/** The first column of the first row. */
const query = (server: EmbeddedPostgres["Type"], sql: string) =>
  Effect.acquireUseRelease(
    Effect.promise(async () => {
      const client = new Client({ connectionString: Redacted.value(server.url("postgres")) })
      client.on("error", () => {})
      await client.connect()
      return client
    }),
    (client) => Effect.tryPromise(() => client.query<[unknown]>({ text: sql, rowMode: "array" })),
    (client) => Effect.promise(() => client.end())
  ).pipe(Effect.map(({ rows }) => rows[0]?.[0]))

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

const fast = { fsync: "off" }

describe("EmbeddedPostgres", () => {
  it.live("serves while its scope is open, and leaves nothing behind", () =>
    Effect.gen(function* () {
      const { dataDir, pid } = yield* Effect.scoped(
        Effect.gen(function* () {
          const server = yield* make({ settings: fast })
          assert.match(String(yield* query(server, "select version()")), new RegExp(`^PostgreSQL ${server.version}`))
          assert.strictEqual(yield* query(server, "show timezone"), "UTC")
          assert.strictEqual(yield* query(server, "show server_encoding"), "UTF8")
          assert.strictEqual(yield* query(server, "select upper('é')"), "É")
          return { dataDir: server.dataDir, pid: Option.getOrThrow(yield* server.pid) }
        })
      )
      assert.isFalse(isAlive(pid))
      assert.isFalse(existsSync(dataDir))
    })
  )

  it.scopedLive("takes settings, which ALTER SYSTEM still overrules", () =>
    Effect.gen(function* () {
      const quoted = `it's 100% "quoted" \\ in full`
      const server = yield* make({ settings: { ...fast, work_mem: "7MB", "awa.note": quoted } })
      assert.strictEqual(yield* query(server, "show work_mem"), "7MB")
      assert.strictEqual(yield* query(server, "show awa.note"), quoted)
      assert.strictEqual(yield* query(server, "show max_connections"), "200")
      assert.strictEqual(yield* query(server, "show default_text_search_config"), "pg_catalog.english")
      yield* query(server, "alter system set work_mem = '9MB'")
      yield* server.restart("fast")
      assert.strictEqual(yield* query(server, "show work_mem"), "9MB")
    })
  )

  it.scopedLive("fails with what the server said", () =>
    Effect.gen(function* () {
      const unknown = yield* Effect.flip(make({ settings: { no_such_setting: "1" } }))
      assert.include(unknown, { _tag: "EmbeddedPostgresError", phase: "start" })
      assert.match("log" in unknown ? unknown.log : "", /unrecognized configuration parameter "no_such_setting"/)
      const misspelt = yield* Effect.flip(make({ settings: { "a = 1\nb": "1" } }))
      assert.include(misspelt, { _tag: "EmbeddedPostgresError", phase: "prepare" })
    })
  )

  it.scopedLive("runs several at once", () =>
    Effect.gen(function* () {
      const servers = yield* Effect.all([make({ settings: fast }), make({ settings: fast })], { concurrency: 2 })
      const ports = yield* Effect.forEach(servers, (server) => query(server, "show port"))
      assert.sameOrderedMembers(
        ports,
        servers.map(({ port }) => String(port))
      )
      assert.notStrictEqual(ports[0], ports[1])
    })
  )

  it.effect("takes its time by the machine's clock, also under a test's clock", () =>
    Effect.gen(function* () {
      const server = yield* EmbeddedPostgres
      yield* server.restart("fast")
      assert.strictEqual(yield* query(server, "select 1"), 1)
    }).pipe(Effect.provide(layer({ settings: fast })))
  )

  it.live("can be interrupted while it starts", () =>
    Effect.gen(function* () {
      const started = Date.now()
      const result = yield* Effect.scoped(make({ settings: fast })).pipe(Effect.timeoutOption("300 millis"))
      assert.deepStrictEqual(result, Option.none())
      assert.isBelow(Date.now() - started, 1000)
    })
  )
})

describe("a running EmbeddedPostgres", () => {
  sharing(layer({ settings: fast }), { excludeTestServices: true })((it) => {
    it.effect("asks for the password, and does not show it", () =>
      Effect.gen(function* () {
        const server = yield* EmbeddedPostgres
        const { host, port, user } = server
        const { error: refused } = yield* Effect.flip(
          Effect.tryPromise(() => new Client({ host, port, user, password: "guess", database: "postgres" }).connect())
        )
        assert.include(refused, { code: "28P01" })
        assert.notInclude(JSON.stringify(server), Redacted.value(server.password))
      })
    )

    it.effect("keeps its port and what was committed over a crash", () =>
      Effect.gen(function* () {
        const server = yield* EmbeddedPostgres
        const before = yield* server.pid
        yield* query(server, "create table kept as select 42 as answer")
        yield* server.restart("immediate")
        assert.notDeepEqual(yield* server.pid, before)
        assert.strictEqual(yield* query(server, "select answer from kept"), 42)
      })
    )

    it.effect("stops and starts, however often it is told to", () =>
      Effect.gen(function* () {
        const server = yield* EmbeddedPostgres
        yield* Effect.all([server.stop("fast"), server.stop("immediate")], { concurrency: "unbounded" })
        assert.deepStrictEqual(yield* server.pid, Option.none())
        yield* Effect.all([server.start, server.start], { concurrency: "unbounded" })
        const started = yield* server.pid
        yield* server.start
        assert.deepStrictEqual(yield* server.pid, started)
        assert.strictEqual(yield* query(server, "select 1"), 1)
      })
    )

    it.effect("notices that its process has gone, and can start another", () =>
      Effect.gen(function* () {
        const server = yield* EmbeddedPostgres
        process.kill(Option.getOrThrow(yield* server.pid), "SIGQUIT")
        yield* Effect.repeat(server.pid, { until: Option.isNone, schedule: Schedule.spaced("20 millis") })
        yield* server.start
        assert.strictEqual(yield* query(server, "select 1"), 1)
      })
    )
  })
})
