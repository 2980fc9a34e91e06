/** F-13, F-73: sessions that an administrator, or a failover, ends. */
import { assert, describe, inject, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Backends, TestDatabase } from "effect-awa/testing"
import { server } from "../runtime/support.js"
import { eventually, session } from "./support.js"

const names = ["victim 1", "victim 2", "victim 3", "bystander"]

const setup = Effect.gen(function* () {
  const { url } = yield* TestDatabase.make({ server })
  const sessions = yield* Effect.forEach(names, (name) => session(url, name))
  const alive = Effect.map(
    Effect.forEach(sessions, ({ values }) => Effect.isSuccess(values("select 1"))),
    (all) => names.filter((_, i) => all[i])
  )
  return { url, alive }
})

describe("terminate", () => {
  it.scopedLive("ends the sessions that match, and answers those that the server says are gone", () =>
    Effect.gen(function* () {
      const { alive, url } = yield* setup
      const gone = yield* Backends.terminate({ url, applicationName: /^victim/g })
      assert.sameMembers(
        gone.map(({ applicationName }) => applicationName),
        names.slice(0, 3)
      )
      assert.deepStrictEqual(yield* alive, ["bystander"])
      assert.deepStrictEqual(yield* Backends.terminate({ url, applicationName: /^victim/ }), [])
    })
  )

  it.scopedLive("fails with a typed error when there is no server to ask", () =>
    Effect.gen(function* () {
      const nowhere = new URL(inject("postgresUrl"))
      nowhere.port = "1"
      const error = yield* Effect.flip(Backends.terminate({ url: Redacted.make(nowhere.toString()) }))
      assert.strictEqual(error._tag, "BackendsError")
    })
  )
})

describe("storm", () => {
  it.scopedLive("ends one session after the other up to its limit, and counts what took effect", () =>
    Effect.gen(function* () {
      const { alive, url } = yield* setup
      const storm = yield* Backends.storm({ url, applicationName: /^victim/, rate: 100, seed: 7, limit: 2 })
      yield* eventually(
        "two ends",
        Effect.map(storm.counts, ({ tookEffect }) => tookEffect === 2)
      )
      const survivors = yield* alive
      assert.lengthOf(survivors, 2)
      assert.include(survivors, "bystander")
      assert.sameMembers(
        (yield* storm.terminated).map(({ applicationName }) => applicationName),
        names.filter((name) => !survivors.includes(name))
      )
      assert.deepStrictEqual(yield* storm.counts, { attempted: 2, tookEffect: 2, failed: 0 })
    })
  )

  it.scopedLive("hits the same ones by the same seed", () =>
    Effect.gen(function* () {
      const order = (seed: number) =>
        Effect.gen(function* () {
          const { url } = yield* setup
          const storm = yield* Backends.storm({ url, applicationName: /^victim/, rate: 100, seed, limit: 3 })
          yield* eventually(
            "three ends",
            Effect.map(storm.counts, ({ tookEffect }) => tookEffect === 3)
          )
          return (yield* storm.terminated).map(({ applicationName }) => applicationName)
        }).pipe(Effect.scoped)
      assert.deepStrictEqual(yield* order(3), yield* order(3))
    })
  )
})
