/** What a flush answers for each of its attempts (contract C-04). */
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, pipe } from "effect"
import { Claim, Completion, RuntimePool } from "effect-awa"
import { TestDatabase } from "effect-awa/testing"
import { database } from "./support.js"

const pool = Layer.unwrapEffect(Effect.map(TestDatabase.TestDatabase, ({ url }) => RuntimePool.layer({ url })))
const services = Layer.mergeAll(Claim.layer, Completion.layer({ lingerMillis: 20 })).pipe(Layer.provideMerge(pool))

const claimed = (count: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`select awa.insert_job('k', '{}', 'q') from generate_series(1, ${count})`
    const { attempts } = yield* (yield* Claim.Claim).take("q", count, 1n)
    return attempts.map(({ token }) => token)
  })

const stolen = (jobId: bigint) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`insert into awa.closures_0 (batch_id, batch_index, outcome, closed_at, xid)
      select batch_id, batch_index, 'rescued', clock_timestamp(), pg_current_xact_id() from awa.attempts where job_id = ${String(jobId)}`
  )

const ends = (requests: ReadonlyArray<Completion.EndRequest>) =>
  Effect.flatMap(Completion.Completion, (completion) =>
    Effect.map(Effect.forEach(requests, completion.end, { concurrency: "unbounded" }), (settled) =>
      settled.map(({ how, outcome }) => `${how} ${outcome}`)
    )
  )

const completed = { ending: { outcome: "completed" }, hasState: false } as const

describe("a flush", () => {
  it.scopedLive("of completions is stale for the one that somebody else ended, and closes its neighbours", () =>
    pipe(
      Effect.gen(function* () {
        const tokens = yield* claimed(4)
        yield* stolen(tokens[1]?.jobId ?? 0n)
        assert.deepStrictEqual(yield* ends(tokens.map((token) => ({ token, ...completed }))), [
          "closed completed",
          "stale completed",
          "closed completed",
          "closed completed"
        ])
      }),
      Effect.provide(services),
      Effect.provide(database())
    )
  )

  it.scopedLive(
    "that fails as a whole takes no more than a few of the runtime's connections while it is tried in parts",
    () =>
      pipe(
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const tokens = yield* claimed(60)
          const waiting = Effect.map(
            sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock' and query ~ 'close_(completed|attempts)'`,
            ([row]) => row?.n ?? 0
          )
          let most = 0
          // the last halves are tried while it lasts; a claim and the beats would stand behind them
          const held = yield* Effect.fork(
            sql.withTransaction(
              Effect.zipRight(sql`lock table awa.closures_0 in access exclusive mode`, Effect.sleep("3500 millis"))
            )
          )
          const look = Effect.map(waiting, (n) => void (most = Math.max(most, n)))
          yield* Effect.fork(Effect.forever(Effect.delay(look, "20 millis")))
          yield* Effect.sleep("100 millis")
          const settled = yield* ends(tokens.map((token) => ({ token, ...completed })))
          yield* Fiber.join(held)
          assert.deepStrictEqual(new Set(settled), new Set(["closed completed"]))
          assert.include([1, 2, 3], most)
        }),
        Effect.provide(services),
        Effect.provide(database())
      )
  )

  it.scopedLive("of several outcomes, some with more to say than others, ends each as it was asked to", () =>
    pipe(
      Effect.gen(function* () {
        const tokens = yield* claimed(6)
        yield* stolen(tokens[4]?.jobId ?? 0n)
        const endings = [
          { outcome: "completed" },
          { outcome: "retried", delayMillis: 60_000, error: { name: "E", message: "no" } },
          { outcome: "completed", progress: `{"at": 3}` },
          { outcome: "failed", error: { name: "E", message: "no" } },
          { outcome: "retried", delayMillis: 60_000 },
          { outcome: "completed" }
        ] as const
        const requests = tokens.flatMap((token, i) => {
          const ending = endings[i]
          return ending === undefined ? [] : [{ token, ending, hasState: false }]
        })
        assert.deepStrictEqual(yield* ends(requests), [
          "closed completed",
          "closed retried",
          "closed completed",
          "closed failed",
          "stale retried",
          "closed completed"
        ])
        const sql = yield* SqlClient.SqlClient
        assert.deepStrictEqual(
          yield* sql`select state, progress from awa.jobs where job_id <> ${String(tokens[4]?.jobId)} order by job_id`,
          [
            { state: "completed", progress: null },
            { state: "retryable", progress: null },
            { state: "completed", progress: { at: 3 } },
            { state: "failed", progress: null },
            { state: "completed", progress: null }
          ]
        )
      }),
      Effect.provide(services),
      Effect.provide(database())
    )
  )
})
