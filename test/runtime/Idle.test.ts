/** storage.md: an idle system rotates nothing and writes nothing but one runtime beat per instance (F-92, F-93). */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Testing } from "effect-awa/testing"
import { eventually } from "./support.js"
import { Direct, Notify, run } from "./world.js"

const written = Effect.flatMap(Direct, (sql) =>
  Effect.map(
    sql<{ relname: string; n: number }>`
      select relname, (n_tup_ins + n_tup_upd + n_tup_del)::int as n from pg_stat_user_tables
      where schemaname = 'awa' and n_tup_ins + n_tup_upd + n_tup_del > 0`,
    (rows) => new Map(rows.map(({ n, relname }) => [relname, n]))
  )
)

describe("an idle worker", () => {
  it.live("writes its own beat and nothing else, through every tick of maintenance", () =>
    run({ worker: { beat: "300 millis" } }, () =>
      Effect.gen(function* () {
        yield* Notify.enqueue({ tag: "before" })
        yield* (yield* Testing.Testing).drain()
        const beats = Effect.map(written, (rows) => rows.get("runtimes") ?? 0)
        yield* eventually(
          "the first beats",
          Effect.map(beats, (n) => n > 0)
        ).pipe(Effect.zipRight(Effect.sleep("2 seconds")))
        // Sessions report what they wrote when they please, ten seconds later at the latest; what is written at every tick, or
        // now and again, is in every one of these stretches.
        const stretch = Effect.gen(function* () {
          const before = yield* written
          yield* Effect.sleep("3 seconds")
          const after = yield* written
          assert.deepStrictEqual(
            [...after].flatMap(([table, n]) => (before.get(table) !== n ? [table] : [])),
            ["runtimes"]
          )
          assert.isAtMost((after.get("runtimes") ?? 0) - (before.get("runtimes") ?? 0), 3_000 / 300 + 5)
        })
        yield* Effect.retry(Effect.sandbox(stretch), { times: 5 })
      })
    )
  )
})
