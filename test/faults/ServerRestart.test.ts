/** F-54, F-73: the server goes away and comes back. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { ServerRestart } from "effect-awa/testing"
import { eventually, session } from "./support.js"

describe("restart", () => {
  it.scopedLive("proves by the server's own words that it was away, and whether it crashed", () =>
    Effect.gen(function* () {
      const server = yield* make({ settings: { fsync: "off" } })
      const client = yield* session(server.url("postgres"), "client")
      yield* client.values("create table kept (id int)")
      yield* client.values("insert into kept values (1)")
      const fast = yield* ServerRestart.restart(server, { mode: "fast" })
      assert.deepInclude(fast, { mode: "fast", refused: true, recovered: false, tookEffect: true })
      assert.isTrue(yield* Effect.isFailure(client.values("select 1")))

      const immediate = yield* ServerRestart.restart(server, { mode: "immediate", downFor: "300 millis" })
      assert.deepInclude(immediate, { mode: "immediate", refused: true, recovered: true, tookEffect: true })
      assert.isTrue(Duration.greaterThanOrEqualTo(immediate.away, "300 millis"))
      const again = yield* session(server.url("postgres"), "again")
      assert.deepStrictEqual(yield* again.values("select id from kept"), [[1]])

      // interrupted while the server is away: it comes back all the same
      const cut = yield* Effect.fork(ServerRestart.restart(server, { mode: "fast", downFor: "1 hour" }))
      yield* eventually(
        "the server's absence",
        Effect.map(server.pid, (pid) => pid._tag === "None")
      )
      yield* Fiber.interrupt(cut)
      yield* session(server.url("postgres"), "at last")
    })
  )
})
