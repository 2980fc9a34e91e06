/** How much a worker takes on: per queue, per worker, per process rate and fleet-wide rate. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Testing } from "effect-awa/testing"
import { eventually } from "./support.js"
import { Direct, Notify, run } from "./world.js"

const payloads = (count: number) => Array.from({ length: count }, (_, i) => ({ tag: `job ${i}` }))

/** A handler that counts how many of it run at once, and when each began. */
const gauge = (hold: (state: { readonly most: number }) => Effect.Effect<void> = () => Effect.sleep("20 millis")) => {
  const starts: Array<number> = []
  const state = { now: 0, most: 0, starts }
  const run = Effect.acquireUseRelease(
    Effect.sync(() => {
      state.now++
      state.most = Math.max(state.most, state.now)
      state.starts.push(performance.now())
    }),
    () => hold(state),
    () => Effect.sync(() => state.now--)
  )
  return { state, run }
}

const completed = (count: number) =>
  Effect.flatMap(Direct, (sql) =>
    Effect.map(
      sql<{ n: number }>`select count(*)::int as n from awa.jobs where state = 'completed'`,
      ([row]) => row?.n === count
    )
  )

describe("a worker's limits", () => {
  it.live("hold for all of its queues together", () => {
    // each holds its place until as many run as may, and a while longer, so that one more would be seen
    const { run: body, state } = gauge((state) =>
      eventually(
        "five at once",
        Effect.sync(() => state.most >= 5)
      ).pipe(Effect.orDie, Effect.delay("20 millis"))
    )
    const queues = { default: { concurrency: 4 }, second: { concurrency: 4 }, third: { concurrency: 4 } }
    return run({ ordinary: () => body, worker: { queues, concurrency: 5 } }, () =>
      Effect.gen(function* () {
        for (const queue of Object.keys(queues)) yield* Notify.enqueueAll(payloads(10), { queue })
        yield* (yield* Testing.Testing).drain()
        assert.isTrue(yield* completed(30))
        assert.strictEqual(state.most, 5)
      })
    )
  })

  it.live("as a rate are a token bucket of the process", () => {
    const { run: body, state } = gauge()
    const queues = { default: { concurrency: 50, rateLimit: { limit: 5, interval: "500 millis" } } } as const
    return run({ ordinary: () => body, worker: { queues } }, () =>
      Effect.gen(function* () {
        yield* Notify.enqueueAll(payloads(12))
        yield* eventually("twelve jobs", completed(12))
        const [first = 0] = state.starts
        const last = state.starts[11] ?? 0
        assert.isAtLeast(last - first, 500) // a burst of five; then one each 100 ms, seven times
      })
    )
  })

  it.live("of the fleet are the queue's, and a worker waits for as long as the database says", () => {
    const { run: body } = gauge()
    return run({ ordinary: () => body, worker: { queues: { limited: { concurrency: 50 } } } }, () =>
      Effect.gen(function* () {
        const sql = yield* Direct
        yield* sql`insert into awa.queues (queue, rate_limit, rate_interval) values ('limited', 3, '400 milliseconds')`
        yield* Notify.enqueueAll(payloads(8), { queue: "limited" })
        yield* eventually("eight jobs", completed(8))
        const rows = yield* sql<{ at: number }>`
          select (extract(epoch from b.claimed_at) * 1000)::float8 as at
          from awa.claim_batches b cross join lateral generate_series(1, b.n) order by 1`
        const claimed = rows.map(({ at }) => at)
        assert.lengthOf(claimed, 8)
        claimed.forEach((at, i) => {
          const fourth = claimed[i + 3]
          if (fourth !== undefined) assert.isAtLeast(fourth - at, 399)
        })
        assert.isBelow((claimed[7] ?? 0) - (claimed[0] ?? 0), 5_000) // not by the poll interval of 30 seconds
      })
    )
  })
})
