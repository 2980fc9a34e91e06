import { assert, describe, inject, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Option, Redacted, Scope } from "effect"
import { Client, Query } from "pg"
import * as FaultProxy from "../../layers/testing/FaultProxy.js"

const direct = Redacted.make(inject("postgresUrl"))

const connect = (url: Redacted.Redacted, options: { readonly name?: string; readonly ssl?: boolean } = {}) =>
  Effect.gen(function* () {
    const client = new Client({
      connectionString: Redacted.value(url),
      application_name: options.name ?? "fault-proxy-test",
      ...(options.ssl === true ? { ssl: true } : {})
    })
    client.on("error", () => undefined)
    // A client behind a black hole waits for an end that does not come.
    yield* Effect.addFinalizer(() =>
      Effect.promise(() => client.end()).pipe(Effect.timeout("500 millis"), Effect.ignore)
    )
    yield* Effect.tryPromise(() => client.connect())
    return {
      client,
      run: (text: string, values?: ReadonlyArray<unknown>, name?: string) =>
        Effect.tryPromise(() =>
          client.query<Record<string, unknown>>({
            text,
            ...(values === undefined ? {} : { values: [...values] }),
            ...(name === undefined ? {} : { name })
          })
        )
    }
  })

let tables = 0

/** A proxy, a client through it, a connection beside it, and a table to see from there what was committed. */
const setup = Effect.gen(function* () {
  const proxy = yield* FaultProxy.makeUrl(direct)
  const through = yield* proxy.through(direct)
  const beside = yield* connect(direct)
  const table = `fault_proxy_${process.pid}_${++tables}`
  yield* Effect.acquireRelease(beside.run(`create table ${table} (id int)`), () =>
    Effect.ignore(beside.run(`drop table ${table}`))
  )
  const rows = Effect.map(beside.run(`select id from ${table}`), (result) => result.rowCount)
  return { proxy, through, beside, table, rows, via: yield* connect(through) }
})

const isBroken = (exit: Exit.Exit<unknown, unknown>) => assert.isTrue(Exit.isFailure(exit), "the client saw no error")

describe("cutAfter", () => {
  it.scopedLive("loses the answer of a COMMIT that took effect", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, via } = yield* setup
      const rule = yield* proxy.rule({
        match: /^commit$/i,
        action: FaultProxy.cutAfter(),
        expect: FaultProxy.committed,
        limit: 1
      })
      const pid = yield* via.run("select pg_backend_pid() as pid")
      yield* via.run("begin")
      yield* via.run(`insert into ${table} values (1)`)
      isBroken(yield* Effect.exit(via.run("COMMIT")))
      assert.strictEqual(yield* rows, 1)
      const [effect] = yield* rule.effects
      assert.deepInclude(effect, {
        action: "CutAfter",
        statement: "COMMIT",
        applicationName: "fault-proxy-test",
        tags: ["COMMIT"],
        sqlStates: [],
        transactionStatus: "I"
      })
      assert.deepStrictEqual(pid.rows, [{ pid: effect?.backendPid }])
      assert.deepStrictEqual(yield* rule.counts, { matched: 1, injected: 1, tookEffect: 1, defects: 0 })
    })
  )

  it.scopedLive("records every tag and every error of a multi-statement query", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, through, via } = yield* setup
      const rule = yield* proxy.rule({ match: /commit/i, action: FaultProxy.cutAfter({ reset: true }) })
      yield* via.run("begin")
      const body = `do $$ begin insert into ${table} values (1); end $$`
      isBroken(yield* Effect.exit(via.run(`${body}; commit`)))
      assert.strictEqual(yield* rows, 1)
      const again = yield* connect(through)
      isBroken(yield* Effect.exit(again.run(`begin; ${body}; select 1/0; commit`)))
      assert.strictEqual(yield* rows, 1)
      assert.deepStrictEqual(
        (yield* rule.effects).map((_) => _.tags),
        [["DO", "COMMIT"]]
      )
      assert.deepStrictEqual(
        (yield* rule.misses).map((_) => [_.tags, _.sqlStates, _.transactionStatus]),
        [[["BEGIN", "DO"], ["22012"], "E"]]
      )
    })
  )

  it.scopedLive("delivers nothing of a long answer", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, via } = yield* setup
      const rule = yield* proxy.rule({ match: /^insert/, action: FaultProxy.cutAfter() })
      let delivered = 0
      yield* Effect.async<void>((resume) => {
        const query = new Query(`insert into ${table} select generate_series(1, 50000) returning id, repeat('x', 100)`)
        query.on("row", () => delivered++)
        query.on("error", () => resume(Effect.void))
        via.client.query(query)
      })
      assert.strictEqual(delivered, 0)
      assert.strictEqual(yield* rows, 50_000)
      assert.deepStrictEqual(
        (yield* rule.effects).map((_) => _.tags),
        [["INSERT 0 50000"]]
      )
    })
  )

  it.scopedLive("does not count a COMMIT that was answered by ROLLBACK", () =>
    Effect.gen(function* () {
      const { proxy, via } = yield* setup
      const rule = yield* proxy.rule({ match: /^commit$/, action: FaultProxy.cutAfter(), expect: FaultProxy.committed })
      yield* via.run("begin")
      yield* Effect.exit(via.run("select 1/0"))
      isBroken(yield* Effect.exit(via.run("commit")))
      assert.deepStrictEqual(
        (yield* rule.misses).map((_) => _.tags),
        [["ROLLBACK"]]
      )
      assert.deepStrictEqual(yield* rule.counts, { matched: 1, injected: 1, tookEffect: 0, defects: 0 })
    })
  )

  it.scopedLive("knows a prepared statement by its name, in the execution that was chosen", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, via } = yield* setup
      const rule = yield* proxy.rule({ match: /^insert/, action: FaultProxy.cutAfter(), skip: 2 })
      const insert = (id: number) => via.run(`insert into ${table} values ($1)`, [id], "ins")
      yield* insert(1)
      yield* insert(2)
      isBroken(yield* Effect.exit(insert(3)))
      assert.strictEqual(yield* rows, 3)
      assert.deepStrictEqual(
        (yield* rule.effects).map((_) => _.tags),
        [["INSERT 0 1"]]
      )
      assert.strictEqual((yield* rule.counts).matched, 3)
    })
  )
})

describe("cutBefore", () => {
  it.scopedLive("keeps the statement from the server, simple or extended", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, through, via } = yield* setup
      const rule = yield* proxy.rule({ match: /^(commit|insert .*\$1)/, action: FaultProxy.cutBefore() })
      yield* via.run("begin")
      yield* via.run(`insert into ${table} values (1)`)
      isBroken(yield* Effect.exit(via.run("commit")))
      const again = yield* connect(through)
      isBroken(yield* Effect.exit(again.run(`insert into ${table} values ($1)`, [2])))
      assert.strictEqual(yield* rows, 0)
      assert.strictEqual((yield* rule.counts).tookEffect, 2)
      assert.strictEqual((yield* proxy.stats).cut, 2)
    })
  )
})

describe("hold", () => {
  it.scopedLive("keeps the answer until an effect completes", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, via } = yield* setup
      const go = yield* Deferred.make<void>()
      const rule = yield* proxy.rule({ match: /^insert/, action: FaultProxy.holdAnswer(Deferred.await(go)), limit: 1 })
      const fiber = yield* Effect.fork(via.run(`insert into ${table} values (1)`))
      yield* rule.awaitEffects(1)
      assert.strictEqual(yield* rows, 1)
      assert.isTrue(Option.isNone(yield* Fiber.poll(fiber)))
      yield* Deferred.succeed(go, undefined)
      assert.strictEqual((yield* Fiber.join(fiber)).rowCount, 1)
      yield* via.run("select 1")
    })
  )

  it.scopedLive("keeps the statement from the server until the rule is removed", () =>
    Effect.gen(function* () {
      const { proxy, rows, table, via } = yield* setup
      const scope = yield* Scope.make()
      const rule = yield* Scope.extend(
        proxy.rule({ match: /^insert/, action: FaultProxy.holdStatement(Effect.never) }),
        scope
      )
      const fiber = yield* Effect.fork(via.run(`insert into ${table} values ($1)`, [1]))
      yield* rule.awaitEffects(1)
      yield* Effect.sleep("50 millis")
      assert.strictEqual(yield* rows, 0)
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* Fiber.join(fiber)).rowCount, 1)
      assert.strictEqual(yield* rows, 1)
    })
  )
})

describe("blackHole", () => {
  for (const direction of ["to-server", "to-client", "both"] as const) {
    it.scopedLive(`swallows ${direction} and keeps the sockets open`, () =>
      Effect.gen(function* () {
        const { beside, proxy, rows, table, via } = yield* setup
        const scope = yield* Scope.make()
        const rule = yield* Scope.extend(
          proxy.rule({ match: /^insert/, action: FaultProxy.blackHole(direction) }),
          scope
        )
        const fiber = yield* Effect.fork(Effect.exit(via.run(`insert into ${table} values (1)`)))
        yield* rule.awaitEffects(1)
        yield* Effect.sleep("50 millis")
        assert.strictEqual(yield* rows, direction === "to-client" ? 1 : 0)
        assert.isTrue(Option.isNone(yield* Fiber.poll(fiber)))
        assert.strictEqual(yield* proxy.connections, 1)

        // A client that gives up is not noticed by a server it has lost.
        const [effect] = yield* rule.effects
        const session = Effect.map(
          beside.run("select 1 from pg_stat_activity where pid = $1", [effect?.backendPid]),
          (result) => result.rowCount
        )
        yield* Effect.fork(Effect.promise(() => via.client.end()))
        isBroken(yield* Fiber.join(fiber))
        yield* Effect.sleep("100 millis")
        assert.strictEqual(yield* session, direction === "to-client" ? 0 : 1)
        yield* Scope.close(scope, Exit.void)
        yield* Effect.repeat(session, { until: (count) => count === 0 })
        yield* Effect.repeat(proxy.connections, { until: (count) => count === 0 })
      })
    )
  }
})

describe("rules", () => {
  it.scopedLive("choose by count, by seeded chance and by connection", () =>
    Effect.gen(function* () {
      const { proxy, through, via } = yield* setup
      const action = FaultProxy.holdAnswer(0)
      const third = yield* proxy.rule({ match: /third/g, action, every: 3, limit: 2 })
      const chance = { match: /chance/, action, probability: { rate: 0.5, seed: 7 } }
      const [first, second] = [yield* proxy.rule(chance), yield* proxy.rule({ ...chance, match: /again/ })]
      const boom = () => {
        throw new Error("boom")
      }
      const other = yield* proxy.rule({ match: (_) => _.connection.applicationName === "other", action })
      const throws = yield* proxy.rule({ match: boom, action })
      for (let i = 0; i < 20; i++) {
        yield* via.run("select 'third'")
        yield* via.run(`select 'chance ${i}'`)
        yield* via.run(`select 'again ${i}'`)
      }
      yield* (yield* connect(through, { name: "other" })).run("select 1")
      assert.deepStrictEqual(yield* third.counts, { matched: 20, injected: 2, tookEffect: 2, defects: 0 })
      const ids = (list: ReadonlyArray<FaultProxy.FaultEffect>) => list.map((_) => _.statement.replace(/\D/g, ""))
      assert.deepStrictEqual(ids(yield* first.effects), ids(yield* second.effects))
      assert.notInclude([0, 20], (yield* first.counts).injected)
      assert.strictEqual((yield* other.counts).injected, 1)
      assert.isAbove((yield* throws.counts).defects, 0)
    })
  )
})

describe("connections", () => {
  it.scopedLive("are all cut by cutAll, refused in an outage, and end with the proxy", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { proxy, through, via } = yield* Scope.extend(setup, scope)
      const second = yield* connect(through)
      assert.strictEqual(yield* proxy.cutAll, 2)
      isBroken(yield* Effect.exit(via.run("select 1")))
      isBroken(yield* Effect.exit(second.run("select 1")))
      yield* Effect.scoped(Effect.zipRight(proxy.outage, Effect.exit(connect(through)).pipe(Effect.map(isBroken))))
      const third = yield* connect(through)
      yield* third.run("select 1")
      yield* Scope.close(scope, Exit.void)
      isBroken(yield* Effect.exit(third.run("select 1")))
      isBroken(yield* Effect.exit(connect(through)))
      assert.deepInclude(yield* proxy.stats, { open: 0, refused: 1, cut: 2 })
    })
  )

  it.scopedLive("fail when the server is unreachable, or when the client insists on TLS", () =>
    Effect.gen(function* () {
      const free = yield* Effect.scoped(FaultProxy.make({ host: "127.0.0.1", port: 1 }))
      const proxy = yield* FaultProxy.make({ host: "127.0.0.1", port: free.port })
      isBroken(yield* Effect.exit(connect(yield* proxy.through(direct))))
      assert.strictEqual((yield* proxy.stats).unreachable, 1)
      const { through } = yield* setup
      const url = new URL(Redacted.value(through))
      url.searchParams.delete("sslmode")
      isBroken(yield* Effect.exit(connect(Redacted.make(url.toString()), { ssl: true })))
    })
  )
})
