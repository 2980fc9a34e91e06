/** Effect's own PersistedQueue, on @effect/sql. */
import * as PersistedQueue from "@effect/experimental/PersistedQueue"
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import * as SqlPersistedQueue from "@effect/sql/SqlPersistedQueue"
import { Effect, Layer, Logger, LogLevel, ManagedRuntime, Redacted, Schema } from "effect"
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { accountOf, type Payload, type Place, serve } from "./serve.js"

const { version } = Schema.decodeUnknownSync(Schema.parseJson(Schema.Struct({ version: Schema.String })))(
  readFileSync(createRequire(import.meta.url).resolve("@effect/sql/package.json"), "utf8")
)

const connections = 20
const takers = 100
const schema = Schema.Struct({ n: Schema.Int })

const runtimeOf = ({ url }: Place) =>
  ManagedRuntime.make(
    PersistedQueue.layer.pipe(
      Layer.provide(SqlPersistedQueue.layerStore({ pollInterval: "100 millis" })),
      Layer.provideMerge(PgClient.layer({ url: Redacted.make(url), maxConnections: connections })),
      Layer.provide(Logger.minimumLogLevel(LogLevel.Warning))
    )
  )

const queuesOf = (names: ReadonlyArray<string>) =>
  Effect.map(
    Effect.forEach(names, (name) => PersistedQueue.make({ name, schema })),
    (queues) => new Map(queues.map((queue, i) => [names[i] ?? "", queue]))
  )

await serve({
  describe: {
    name: "Effect PersistedQueue",
    version,
    configuration: `@effect/sql's SqlPersistedQueue, ${takers} takers on ${connections} connections, polling every 100 ms; one offer per job, ${connections} at a time`,
    guarantee: "at least once; a dead worker's elements are taken again after two minutes",
    owned: "not atomic: the update commits by itself, the element is marked completed afterwards"
  },
  bulk: { size: 1, calls: connections },
  install: async (place) => {
    const runtime = runtimeOf(place)
    await runtime.runtime()
    await runtime.dispose()
  },
  producer: async (place, names) => {
    const runtime = runtimeOf(place)
    const queues = await runtime.runPromise(queuesOf(names))
    return {
      enqueue: async (name, payloads) => {
        const queue = queues.get(name)
        if (queue === undefined) throw new Error(`no queue ${name}`)
        await runtime.runPromise(Effect.forEach(payloads, (payload) => queue.offer(payload), { discard: true }))
      },
      close: () => runtime.dispose()
    }
  },
  work: async (place, { lane, queues: names, started }) => {
    const runtime = runtimeOf(place)
    const run = (payload: Payload) =>
      Effect.zipRight(
        Effect.sync(() => started(payload)),
        lane === "ordinary"
          ? Effect.void
          : Effect.flatMap(
              SqlClient.SqlClient,
              (sql) => sql`update bench_accounts set n = n + 1 where id = ${accountOf(payload)}`
            )
      )
    runtime.runFork(
      Effect.flatMap(queuesOf(names), (queues) =>
        Effect.forEach(
          [...queues.values()],
          (queue) =>
            Effect.all(
              Array.from({ length: Math.ceil(takers / names.length) }, () => Effect.forever(queue.take(run))),
              { concurrency: "unbounded", discard: true }
            ),
          { concurrency: "unbounded", discard: true }
        )
      )
    )
    await runtime.runtime()
    return { close: () => runtime.dispose() }
  },
  remaining: async (place) => {
    const runtime = runtimeOf(place)
    const [row] = await runtime.runPromise(
      Effect.flatMap(
        SqlClient.SqlClient,
        (sql) => sql<{ left: number }>`select count(*)::int as left from effect_queue where not completed`
      )
    )
    await runtime.dispose()
    return row?.left ?? Number.NaN
  }
})
