import { SqlClient } from "@effect/sql"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { countRows, database } from "../runtime/support.js"
import { Pay, type Payload, Work } from "./jobs.js"
import { jobBecomes, jobOf, Program, start } from "./support.js"

/** Starts workers one after the other, until one of them has lived to be told to stop; answers how many died. */
const untilCalm = (
  finished: Effect.Effect<unknown, unknown, SqlClient.SqlClient>,
  nodeOptions: ReadonlyArray<string> = []
) =>
  Effect.gen(function* () {
    for (let deaths = 0; ; deaths++) {
      const child = yield* start({ nodeOptions })
      const survived = yield* Effect.raceFirst(Effect.as(finished, true), Effect.as(child.ended, false))
      if (!survived) continue
      yield* child.signal("SIGTERM")
      assert.strictEqual((yield* child.ended).code, 0)
      return deaths
    }
  })

const ways: Readonly<Record<string, { readonly deed: Payload["deed"]; readonly nodeOptions?: ReadonlyArray<string> }>> =
  {
    "kills its process": { deed: "kill" },
    "exits its process": { deed: "exit" },
    "takes all the memory": { deed: "exhaust-memory", nodeOptions: ["--max-old-space-size=64"] },
    "throws in a timer": { deed: "throw-in-timer" },
    "leaves a rejection to nobody": { deed: "reject-unhandled" }
  }

layer(Program.layer, { excludeTestServices: true })("a handler that", (it) => {
  for (const [way, { deed, nodeOptions }] of Object.entries(ways)) {
    it.scoped(`${way} is quarantined after its attempts`, () =>
      // F-52, F-53: the state is whole, whatever the process died of
      Effect.gen(function* () {
        const poison = yield* Work.enqueue({ tag: "poison", deed }, { maxAttempts: 2 })
        const deaths = yield* untilCalm(jobBecomes(poison.id, "failed"), nodeOptions)
        assert.strictEqual(deaths, 2)
        const job = yield* jobOf(poison.id)
        assert.deepStrictEqual(
          job.errors.map(({ abandoned, error }) => [error.name, abandoned]),
          [
            ["AttemptAbandoned", 1],
            ["AttemptAbandoned", 2]
          ]
        )
      }).pipe(Effect.provide(database()))
    )
  }

  it.scoped("kills its process takes its batch along at most as often as it has attempts", () =>
    // F-52: the bound of what one such job can cost its neighbours
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`select awa.set_queue('default', '{"dead_letter": true}')`
      const [poison] = yield* Work.enqueueAll([{ tag: "poison", deed: "kill" }], { maxAttempts: 3 })
      const neighbours = yield* Pay.enqueueAll(
        Array.from({ length: 8 }, (_, i): Payload => ({ tag: `n${i}`, deed: "sleep", millis: 200 }))
      )
      const all = Effect.zipRight(
        jobBecomes(poison?.id ?? 0n, "dead_lettered"),
        Effect.forEach(neighbours, ({ id }) => jobBecomes(id, "completed"))
      )
      assert.strictEqual(yield* untilCalm(all), 3)
      assert.deepStrictEqual(yield* sql`select reason, attempt from awa.dlq_entries`, [
        { reason: "attempts exhausted, 3 of them abandoned by their worker", attempt: 3 }
      ])
      for (const { id } of neighbours) assert.isAtMost((yield* jobOf(id)).attempt, 4)
      for (const [i] of neighbours.entries()) assert.strictEqual(yield* countRows(`n${i}`), 1)
    }).pipe(Effect.provide(database()))
  )
})
