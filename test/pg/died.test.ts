import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { claim, close, enqueue, fileDatabase } from "./support.js"

const database = fileDatabase()

const due = "update awa.deferred_jobs set run_at = clock_timestamp(); select awa.promote_due(1000)"

/** As if everything in flight had been claimed two minutes ago, by a worker that is gone. */
const crash = (session: Session) =>
  Effect.zipRight(
    session.script(
      Array.from(
        { length: 4 },
        (_, n) => `update awa.claim_batches_${n} set claimed_at = claimed_at - interval '2 min';`
      ).join("\n")
    ),
    session.value("select awa.rescue_stale('1 min', 1000)")
  )

// F-52, F-53
describe("a job whose worker died", () => {
  it.scopedLive("says how often, from entry to entry, and so does the reason of its end", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("insert into awa.queues (queue, dead_letter) values ('q', true)")
      yield* enqueue(session, 1, { opts: { max_attempts: 25 } })
      for (let attempt = 1; attempt <= 24; attempt++) {
        const attempts = yield* claim(session)
        expect(attempts).toHaveLength(1)
        // a failure in between is none of its worker's
        if (attempt === 2) yield* close(session, attempts, { outcome: "retried", detail: { error: { name: "E" } } })
        else expect(yield* crash(session)).toBe(1)
        if (attempt === 3) {
          expect(
            yield* session.value(
              "select jsonb_path_query_array(errors, '$[*].abandoned') || to_jsonb(jsonb_array_length(errors)) from awa.deferred_jobs"
            )
          ).toEqual([1, 2, 3])
        }
        yield* session.script(due)
      }
      yield* claim(session)
      expect(yield* crash(session)).toBe(1)
      // more often than the list of its errors is long
      expect(
        yield* session.rows(
          "select reason, attempt, jsonb_array_length(errors) as kept, errors -> -1 -> 'abandoned' as abandoned from awa.dlq_entries"
        )
      ).toEqual([
        { reason: "attempts exhausted, 24 of them abandoned by their worker", attempt: 25, kept: 20, abandoned: 24 }
      ])
    })
  )

  it.scopedLive("comes back apart from those it took along, from the second time on", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 40)
      for (let attempt = 1; attempt <= 4; attempt++) {
        expect(yield* claim(session, { limit: 40 })).toHaveLength(40)
        expect(yield* crash(session)).toBe(40)
        if (attempt < 4) yield* session.script(due)
      }
      // the pause after the fourth is at most 7 s and at least half of that
      const [spread] = yield* session.rows(
        `select count(distinct run_at)::int as times, bool_and(run_at - at between '3.5 s' and '7 s') as within,
           extract(epoch from max(run_at) - min(run_at)) > 1 as apart
         from (select run_at, (errors -> -1 ->> 'at')::timestamptz as at from awa.deferred_jobs) d`
      )
      expect(spread?.["within"]).toBe(true)
      expect(spread?.["apart"]).toBe(true)
      expect(spread?.["times"]).toBeGreaterThan(30)
    })
  )
})
