/** F-69: a LISTEN connection that is half-open reports no error, it is only silent. */
import { assert, describe, inject, it } from "@effect/vitest"
import { Config, Effect, Exit, Layer, Redacted, Schema, Scope } from "effect"
import * as Job from "effect-awa/Job"
import { FaultProxy, TestDatabase, Testing } from "effect-awa/testing"
import { database } from "../runtime/support.js"
import { eventually, session } from "./support.js"

const direct = Redacted.make(inject("postgresUrl"))

const setup = Effect.gen(function* () {
  const proxy = yield* FaultProxy.makeUrl(direct)
  const through = yield* proxy.through(direct)
  const listener = yield* session(through, "listener")
  const channel = `half_open_${process.pid}_${proxy.port}`
  yield* listener.values(`listen ${channel}`)
  const [other, beside] = [yield* session(through, "other"), yield* session(direct, "beside")]
  const notify = beside.values(`notify ${channel}`)
  yield* notify
  yield* eventually(
    "the first notification",
    Effect.sync(() => listener.heard.length === 1)
  )
  const backends = (name: string) =>
    Effect.map(
      beside.values("select from pg_stat_activity where application_name = $1 and query like $2", [
        name,
        `listen ${channel}`
      ]),
      (rows) => rows.length
    )
  return { proxy, listener, other, notify, backends }
})

describe("halfOpen", () => {
  it.scopedLive(
    "takes the connection that listens and no other: the server goes on notifying, and nobody is told",
    () =>
      Effect.gen(function* () {
        const { backends, listener, notify, other, proxy } = yield* setup
        const scope = yield* Scope.make()
        const half = yield* Scope.extend(proxy.halfOpen(), scope)
        assert.deepStrictEqual(
          half.connections.map(({ applicationName, listening }) => [applicationName, listening]),
          [["listener", true]]
        )
        assert.deepStrictEqual(yield* half.lost, { fromServer: 0, fromClient: 0, notifications: 0 })
        yield* notify
        yield* half.awaitLost(1)
        assert.deepStrictEqual(yield* half.lost, { fromServer: 1, fromClient: 0, notifications: 1 })
        yield* Effect.fork(listener.values("select 1"))
        yield* half.awaitLost(2)
        assert.isAbove((yield* half.lost).fromClient, 0)
        assert.strictEqual(listener.heard.length, 1)
        assert.strictEqual(yield* backends("listener"), 1) // for the server it is open as well
        assert.deepStrictEqual(yield* other.values("select 1"), [[1]])
        yield* Scope.close(scope, Exit.void)
        yield* eventually(
          "the end of its session",
          Effect.map(backends("listener"), (n) => n === 0)
        )
        yield* other.values("select 1")
      })
  )

  it.scopedLive("can lose what the server says and pass on what the client does", () =>
    Effect.gen(function* () {
      const { listener, notify, proxy } = yield* setup
      const half = yield* proxy.halfOpen({
        match: ({ applicationName }) => applicationName === "listener",
        direction: "to-client"
      })
      yield* Effect.fork(listener.values("select pg_notify('unheard', '')"))
      yield* half.awaitLost(1)
      yield* notify
      yield* eventually(
        "a lost notification",
        Effect.map(half.lost, ({ notifications }) => notifications === 1)
      )
      const lost = yield* half.lost
      assert.strictEqual(lost.fromClient, 0)
      assert.isAbove(lost.fromServer, 1)
    })
  )
})

const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })

describe("a worker whose LISTEN connection is half-open", () => {
  it.live("notices by its probe, and finds what it was not told of", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.TestDatabase
      const proxy = yield* FaultProxy.makeUrl(url)
      const worker = Testing.worker({
        jobs: [Greet],
        database: Config.succeed(yield* proxy.through(url)),
        // far longer than this test may take: without the probe the job would wait for it
        wakeup: { probe: "200 millis", pollWhileListening: "10 minutes" }
      }).pipe(Layer.provide(Greet.toLayer(() => Effect.void)))
      yield* Effect.gen(function* () {
        const testing = yield* Testing.Testing
        yield* Greet.enqueue({ name: "told" })
        yield* testing.drain()
        const half = yield* proxy.halfOpen()
        assert.lengthOf(half.connections, 1)
        const { id } = yield* Greet.enqueue({ name: "not told" })
        yield* testing.drain({ atMost: "40 seconds" })
        yield* testing.expectState(id, "completed")
        assert.isAbove((yield* half.lost).notifications, 0)
      }).pipe(Effect.provide(worker))
    }).pipe(Effect.scoped, Effect.provide(database()))
  )
})
