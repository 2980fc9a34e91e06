/**
 * A program that starts a server, says so, and waits: the tests end it in different ways.
 */
import { NodeRuntime } from "@effect/platform-node"
import { make } from "effect-awa/layers/EmbeddedPostgres"
import { Console, Effect } from "effect"

const program = Effect.gen(function* () {
  const server = yield* make({ settings: { fsync: "off" } })
  yield* Console.log(JSON.stringify({ port: server.port, dataDir: server.dataDir }))
  return yield* Effect.never
})

NodeRuntime.runMain(Effect.scoped(program))
