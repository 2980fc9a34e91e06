import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Testing } from "effect-awa/testing"
import { eventually } from "./support.js"
import { Direct, Notify, run } from "./world.js"

const decodeLags = Schema.decodeUnknownSync(Schema.Array(Schema.Struct({ what: Schema.String, lag: Schema.Number })))

/** A tick is a second while work is open; the machine may be busy with something else for a while. */
const tickMillis = 1_000
const patienceMillis = 15_000

describe("maintenance rescues", () => {
  // storage.md "Defaults"; F-54, F-58, F-67: in the database's own times
  it.live(
    "an abandoned claim within the staleness and a tick, and an attempt past its queue's deadline within a tick",
    () =>
      run(
        {
          ordinary: () => Effect.void,
          worker: { queues: { elsewhere: { concurrency: 1 } } },
          staleness: "2 seconds"
        },
        () =>
          Effect.gen(function* () {
            const sql = yield* Direct
            const testing = yield* Testing.Testing
            yield* sql`select awa.set_queue('hurried', '{"attempt_deadline_ms": 500}')`
            yield* Notify.enqueue({ tag: "stale" }, { maxAttempts: 1 })
            yield* Notify.enqueue({ tag: "late" }, { maxAttempts: 1, queue: "hurried" })
            for (const queue of ["default", "hurried"]) {
              yield* eventually(
                `a claim from ${queue}`,
                Effect.map(sql`select from awa.claim(${queue}, 1, 99)`, (rows) => rows.length === 1)
              )
            }
            yield* eventually(
              "both rescues",
              Effect.map(testing.jobs, (jobs) => jobs.every(({ state }) => state === "failed"))
            )
            const lags = decodeLags(
              yield* sql`
              select j.args ->> 'tag' as what,
                extract(epoch from c.closed_at - coalesce(b.deadline_at, b.claimed_at + '2 s'))::float8 * 1000 as lag
              from awa.closures c join awa.claim_batches b using (batch_id)
              join awa.jobs j on j.job_id = b.job_ids[c.batch_index]
              where c.outcome = 'rescued' order by 1`
            )
            assert.deepStrictEqual(
              lags.map(({ what }) => what),
              ["late", "stale"]
            )
            for (const { lag, what } of lags) {
              assert.isAtLeast(lag, 0, what)
              assert.isAtMost(lag, tickMillis + patienceMillis, what)
            }
          })
      )
  )
})
