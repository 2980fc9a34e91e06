import type { SqlClient } from "@effect/sql"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Layer, Redacted, type Scope } from "effect"
import { Driver } from "effect-awa"
import { TokenRejected } from "effect-awa/JobError"
import { FaultProxy, TestDatabase, Testing } from "effect-awa/testing"
import { protocolEvents } from "../../runtime/support.js"
import {
  Charge,
  closing,
  Direct,
  errorNames,
  type Owned,
  type OwnedHandler,
  Proxies,
  world
} from "../../runtime/world.js"
import { throughPooler } from "../../tools/throughPooler.js"
import { type Case, cases, type OwnCase } from "./cases.js"
import type { DriverUnderTest } from "./driver.js"

const pooled = (url: Redacted.Redacted) => Redacted.make(throughPooler(Redacted.value(url)))

/** Puts a driver through the cases, and through those of its own, one after the other, with one worker in one database. */
export const conformance = <Tx, More>(
  name: string,
  open: (url: Redacted.Redacted) => Effect.Effect<DriverUnderTest<Tx> & More, never, Scope.Scope>,
  own: ReadonlyArray<OwnCase<DriverUnderTest<Tx> & More>> = []
) => {
  const handlers = new Map<string, OwnedHandler>()
  const { clients, lines, worker } = world({
    owned: (job) => handlers.get(job.payload.tag)?.(job) ?? Effect.dieMessage("no such case"),
    // each attempt is settled before the next case begins
    worker: { queues: { default: { concurrency: 1 } } }
  })
  layer(Layer.provideMerge(worker, clients), { excludeTestServices: true, timeout: "1 minute" })(name, (it) => {
    for (const { contract, events = [], handler, name, ...expected } of [...cases, ...own]) {
      it.scoped(`${name} (${contract})`, () =>
        Effect.gen(function* () {
          const { url } = yield* TestDatabase.TestDatabase
          const direct = yield* Direct
          const driver = yield* open(pooled(url))
          const ended = yield* Deferred.make<unknown>()
          handlers.set(name, (job) =>
            handler(driver, job, direct).pipe(
              Effect.onExit((exit) => Deferred.succeed(ended, exit)),
              Effect.catchAll((error) => Effect.die(error))
            )
          )
          yield* verify(name, expected, direct)
          yield* Deferred.await(ended)
          assert.deepStrictEqual(
            protocolEvents(lines).map(({ message }) => message),
            events
          )
          lines.length = 0
        })
      )
    }

    it.scoped(
      "an attempt whose handler has ended is unknown here, so that a kept token keeps nothing alive (C-17)",
      () =>
        Effect.gen(function* () {
          const { url } = yield* TestDatabase.TestDatabase
          const driver = yield* open(pooled(url))
          const kept = yield* Deferred.make<Owned>()
          handlers.set("kept", (job) =>
            Effect.zipRight(
              Deferred.succeed(kept, job),
              driver.finalize(job, (tx) => driver.write(tx, "kept"))
            )
          )
          yield* verify("kept", { state: "completed", rows: 1 }, yield* Direct)
          const job = yield* Deferred.await(kept)
          const late = yield* Effect.tryPromise({
            try: () => driver.transaction("read committed", (tx) => Driver.completeInTx(driver.query(tx), job)),
            catch: (error) => error
          }).pipe(Effect.flip)
          assert.instanceOf(late, TokenRejected)
        })
    )

    it.scoped("lost acknowledgement of COMMIT (C-17)", () =>
      Effect.gen(function* () {
        const { url } = yield* TestDatabase.TestDatabase
        const { application } = yield* Proxies
        const direct = yield* Direct
        const driver = yield* open(yield* application.through(url))
        const ended = yield* Deferred.make<Exit.Exit<unknown, unknown>>()
        const lost = yield* application.rule({
          match: closing,
          action: FaultProxy.cutAfter(),
          expect: FaultProxy.committed,
          limit: 1
        })
        handlers.set("lost", (job) =>
          Effect.onExit(
            driver.finalize(job, (tx) => driver.write(tx, job.payload.tag)),
            (exit) => Deferred.succeed(ended, exit)
          )
        )
        yield* verify("lost", { state: "completed", rows: 1 }, direct)
        const exit = yield* Deferred.await(ended)
        assert.isTrue(Exit.isFailure(exit) && String(exit.cause).includes("COMMIT was sent and its answer was lost"))
        assert.lengthOf(yield* lost.effects, 1)
        assert.deepStrictEqual(
          protocolEvents(lines).map(({ message }) => message),
          ["Protocol event: the handler did not succeed, its completion is durable: accepted"]
        )
      })
    )
  })
}

const verify = (
  name: string,
  expected: Omit<Case, "name" | "contract" | "handler" | "events">,
  direct: SqlClient.SqlClient
) =>
  Effect.gen(function* () {
    const testing = yield* Testing.Testing
    const before = (yield* testing.jobs).length
    const { id } = yield* Charge.enqueue({ tag: name }, { maxAttempts: 1 })
    yield* testing.drain()
    const row = yield* testing.expectState(id, expected.state)
    const rows = yield* direct<{ n: number }>`select count(*)::int as n from application_rows where tag = ${name}`
    assert.strictEqual(rows[0]?.n, expected.rows)
    if (expected.error !== undefined) assert.deepStrictEqual(errorNames(row), [expected.error])
    if (expected.message !== undefined) assert.include(JSON.stringify(row.errors), JSON.stringify(expected.message))
    assert.strictEqual((yield* testing.jobs).length - before - 1, expected.enqueued ?? 0)
  })
