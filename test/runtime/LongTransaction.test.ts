import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Testing } from "effect-awa/testing"
import { eventually, insertRow } from "./support.js"
import { Charge, Direct, errorNames, type OwnedHandler, run } from "./world.js"

/** Holds the transaction open in the first attempt, after its write; the second one does it right. */
const holding =
  (hold: Effect.Effect<void>): OwnedHandler =>
  (job) =>
    job.finalize(
      Effect.zipRight(insertRow(job.payload.tag, String(job.attempt)), job.attempt === 1 ? hold : Effect.void)
    )

const waysToHold: Readonly<Record<string, Effect.Effect<void>>> = {
  "waits in it": Effect.never,
  "ignores its interruption": Effect.uninterruptible(Effect.never)
}

describe("a handler that holds its transaction", () => {
  for (const [way, hold] of Object.entries(waysToHold)) {
    it.live(`and ${way} is refused by its maximum duration, rolled back, and runs again`, () =>
      // C-40, C-17.2, F-75
      run({ owned: holding(hold), applicationTransaction: "1 second" }, (lines) =>
        Effect.gen(function* () {
          const testing = yield* Testing.Testing
          const sql = yield* Direct
          const { id } = yield* Charge.enqueue({ tag: "a" }, { maxAttempts: 10 })
          yield* testing.drain({ scheduled: true })
          const row = yield* testing.expectState(id, "completed")
          assert.strictEqual(errorNames(row)[0], "TransactionTooLong")
          assert.isAbove(row.attempt, 1)
          assert.deepStrictEqual(yield* sql`select value from application_rows`, [{ value: String(row.attempt) }])
          // nothing of it is left on the server: neither its transaction, nor a lock of it
          yield* eventually(
            "no transaction of the application",
            Effect.map(
              sql`select from pg_stat_activity where datname = current_database() and application_name = 'application'
                and xact_start is not null and pid <> pg_backend_pid()`,
              (rows) => rows.length === 0
            )
          )
          assert.strictEqual(
            lines.some(({ message }) => message.includes("ignores its interruption")),
            way === "ignores its interruption"
          )
        })
      )
    )
  }
})
