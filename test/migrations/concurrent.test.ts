import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { lock } from "../../src/internal/migrateScript.js"
import { awa } from "../cli/support.js"
import { catalogOf, connect, freshDatabase } from "./support.js"

const processes = 8

// F-39, F-41
describe("eight processes", () => {
  it.scopedLive(
    "migrate an empty database at once, with one connection each, and all succeed",
    () =>
      Effect.gen(function* () {
        const fresh = yield* freshDatabase
        const gate = yield* connect(fresh.url)
        yield* gate.rows("begin")
        yield* gate.rows(lock("awa")) // nobody starts before all are there
        const running = yield* Effect.fork(
          Effect.all(
            Array.from({ length: processes }, () => awa(["migrate", "--ring", "4"], { AWA_DATABASE_URL: fresh.url })),
            { concurrency: "unbounded" }
          )
        )
        const seen = yield* fresh.admin
          .rows(
            `select count(distinct a.pid)::int as sessions, count(*) filter (where l.locktype = 'advisory' and not l.granted)::int as waiting
           from pg_stat_activity a left join pg_locks l on l.pid = a.pid
           where a.datname = current_database() and a.application_name = 'effect-awa migrate'`
          )
          .pipe(
            Effect.delay("50 millis"),
            Effect.repeat({ until: ([row]) => row?.["waiting"] === processes }),
            Effect.timeout("100 seconds")
          )
        expect(seen).toEqual([{ sessions: processes, waiting: processes }])
        yield* gate.rows("commit")
        const ended = yield* running
        expect(ended.map((end) => [end.code, end.stderr])).toEqual(ended.map(() => [0, ""]))
        expect(ended.filter((end) => end.stdout.startsWith("Installed"))).toHaveLength(1)
        expect(ended.filter((end) => end.stdout.startsWith("Nothing to do"))).toHaveLength(processes - 1)
        expect((yield* catalogOf(fresh.admin, "awa", { writers: false })).length).toBeGreaterThan(50)
        expect(yield* fresh.admin.rows("select count(*)::int as n from awa.meta")).toEqual([{ n: 1 }])
      }),
    120_000
  )
})
