import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { inject } from "vitest"
import { stress } from "../stress/cursor.js"
import { edit } from "./support.js"

const seed = Number(process.env["AWA_STRESS_SEED"] ?? Math.floor(Math.random() * 2 ** 31))

// storage.md, "What must be proven": no loss, no double. The long form is test/stress/cursor.ts, run by hand.
it.live(
  `every committed job is completed exactly once (AWA_STRESS_SEED=${seed})`,
  () =>
    Effect.gen(function* () {
      const report = yield* stress({ server: inject("postgresUrl"), jobs: 15_000, seed, edit })
      const told = JSON.stringify(report, null, 1)
      expect(report.faults, told).toEqual({})
      expect(report.totals["jobs"], told).toBeGreaterThanOrEqual(15_000)
      // The run was what it claims to have been.
      for (const what of [
        ...["batches with pending transactions", "attempts from behind a cursor", "completed by callers"],
        ...["read committed", "repeatable read", "serializable", "long transactions", "savepoints rolled back"],
        ...["prepared, committed", "prepared, rolled back", "producers cut", "rolled back", "claims rolled back"],
        ...["enqueued after the claim", "released in the claim's transaction", "promoted", "rescued", "abandoned"],
        ...["callers: cut before commit", "callers: cut at commit", "callers: savepoint", "callers: rollback"],
        ...["flush again: repeated", "flush: stale", "rotate: advanced", "drained", "segments pruned"]
      ]) {
        expect(report.totals[what] ?? report.counts[what] ?? 0, `${what} in ${told}`).toBeGreaterThan(0)
      }
    }),
  150_000
)
