import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect } from "effect"
import { connect, freshDatabase } from "../migrations/support.js"
import { awa, awaHere } from "./support.js"

const installed = Effect.gen(function* () {
  const fresh = yield* freshDatabase
  yield* Migrations.migrate({ url: fresh.redacted, schema: `We"ird`, ring: 4 })
  return { ...fresh, args: ["--schema", `We"ird`, "--database-url", fresh.url] }
})

/** A copy that left the sequence of the current segment behind. */
const spoil = `update "We""ird".meta set system_identifier = 1; select setval('"We""ird".segment_cursor', 0)`

// C-34
describe("awa storage", () => {
  it.scopedLive("status shows the ring and whose it is", () =>
    Effect.gen(function* () {
      const { admin, args } = yield* installed
      const ours = yield* awaHere(["storage", "status", ...args])
      expect(ours).toMatchObject({ code: 0, stderr: "" })
      expect(ours.stdout).toContain("belongs to this database")
      expect(ours.stdout).toMatch(/^0 +1 +open, current +\S.* +- +- +0\.\d MB$/m)
      expect(ours.stdout).toContain("3 of 4 segments are free.")
      yield* admin.script(`update "We""ird".meta set database_oid = 1`)
      expect((yield* awaHere(["storage", "status", ...args])).stdout).toContain("is a copy")
      yield* admin.script(spoil)
      const refused = yield* awaHere(["storage", "status", ...args])
      expect(refused).toMatchObject({ code: 0, stderr: "" })
      expect(refused.stdout).toContain("No runtime starts on this database: segment_cursor")
    })
  )

  it.scopedLive("status names what keeps the oldest segment, and what the runtimes' settings keep", () =>
    Effect.gen(function* () {
      const { admin, args, url } = yield* installed
      yield* admin.rows(`select "We""ird".insert_job('k', '{}', 'lonely') from generate_series(1, 3)`)
      const writer = yield* connect(url)
      yield* writer.script("begin")
      yield* writer.rows(`select "We""ird".insert_job('k', '{}', 'open')`)
      const [me] = yield* writer.rows("select pg_backend_pid() as pid")
      yield* admin.script(`select "We""ird".rotate('0', 1)`)
      yield* admin.script(`select "We""ird".rotate('0', 1)`)
      const nobody = yield* awaHere(["storage", "status", ...args])
      expect(nobody.stdout).toContain("No runtime is alive to say for how long they are kept.")
      expect(nobody.stdout).toMatch(new RegExp(`^0 +writer +pid ${String(me?.["pid"])} `, "m"))
      expect(nobody.stdout).toMatch(/^0 +unclaimed +queue lonely, priority 2 /m)
      const maintenance = {
        completedHistoryMillis: 7_200_000,
        segmentAgeMillis: 600_000,
        terminalRetentionMillis: null,
        deadLetterRetentionMillis: 86_400_000
      }
      yield* admin.rows(`select "We""ird".beat_runtime(null, 'r', 1, $1)`, [JSON.stringify({ maintenance })])
      const kept = yield* awaHere(["storage", "status", ...args])
      expect(kept.stderr).toBe("")
      expect(kept.stdout).toContain(
        "The settings of 1 live runtimes keep them for at least 2h, and for about 30m while segments are rotated by age; " +
          "failed, discarded and cancelled jobs for ever, dead letters for 1d."
      )
    })
  )

  it.scopedLive("rebase does nothing unasked, then what it says, then nothing again", () =>
    Effect.gen(function* () {
      const { admin, args } = yield* installed
      yield* admin.rows(`select "We""ird".insert_job('k', '{}') from generate_series(1, 3)`)
      yield* admin.script(spoil)
      const asked = yield* awaHere(["storage", "rebase", ...args])
      expect(asked.code).toBe(1)
      expect(asked.stderr).toMatch(/^awa: yes: nothing was done; [^\n]+--yes\n$/)
      const done = yield* awaHere(["storage", "rebase", "--yes", ...args])
      expect(done).toMatchObject({ code: 0, stderr: "" })
      expect(done.stdout).toContain("3 unclaimed jobs were moved from the ring")
      const again = yield* awa(["storage", "rebase", "--yes", ...args])
      expect(again).toMatchObject({ code: 1, stdout: "" })
      expect(again.stderr).toMatch(/^awa: there is nothing to rebase[^\n]+\n$/)
    })
  )

  it.scopedLive("exits with 1 and one line that says what is wrong", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const env = { AWA_DATABASE_URL: fresh.url }
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, Record<string, string>, string]> = [
        [["status"], {}, "AWA_DATABASE_URL"],
        [["rebase", "--yes"], { AWA_DATABASE_URL: "hunter2" }, "postgres://"],
        [["status"], { AWA_DATABASE_URL: "postgres://me:hunter2@127.0.0.1:1/db" }, "ECONNREFUSED"],
        [["status"], env, "awa migrate"],
        [["rebase", "--yes"], env, "run `awa migrate`"],
        [["status", "--schema", "nosuch"], env, "run `awa migrate --schema nosuch`"],
        [["status", "--schema", "it's"], env, "run `awa migrate --schema 'it'\\''s'`"],
        [["rebase", "--yes", "--schema", "pg_x"], env, "reserves"]
      ]
      for (const [args, environment, expected] of cases) {
        const end = yield* awaHere(["storage", ...args], environment)
        expect(end, args.join(" ")).toMatchObject({ code: 1, stdout: "" })
        expect(end.stderr).toMatch(/^awa: [^\n]+\n$/)
        expect(end.stderr).toContain(expected)
        expect(end.stderr).not.toContain("hunter2")
      }
    })
  )
})
