import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect } from "effect"
import { freshDatabase } from "../migrations/support.js"
import { awaHere } from "./support.js"

// C-60
describe("awa caller-owned", () => {
  it.scopedLive("disables a queue, and enables it again unless a live worker cannot take part, which it names", () =>
    Effect.gen(function* () {
      const { admin, redacted, url } = yield* freshDatabase
      yield* Migrations.migrate({ url: redacted, schema: `We"ird` })
      const awa = (verb: string) =>
        awaHere(["caller-owned", verb, "--schema", `We"ird`, "--database-url", url, "charges"])
      const disabled = admin.rows(`select caller_owned from "We""ird".queues where queue = 'charges'`)

      expect((yield* awa("disable")).stdout).toContain("is disabled for the queue charges")
      expect((yield* awa("disable")).stdout).toContain("was disabled for the queue charges before")
      expect(yield* disabled).toEqual([{ caller_owned: false }])

      yield* admin.script(
        `insert into "We""ird".runtimes (runtime_id, name, contract, capabilities)
         values (nextval('"We""ird".runtime_ids'), 'old-one', 1, '{"queues": ["charges"]}')`
      )
      const refused = yield* awa("enable")
      expect(refused).toMatchObject({ code: 1, stdout: "" })
      expect(refused.stderr).toMatch(/^awa: caller-owned completion of the queue charges stays disabled: old-one/)

      yield* admin.script(`delete from "We""ird".runtimes`)
      expect((yield* awa("enable")).stdout).toContain("is enabled for the queue charges; 0 jobs")
      expect(yield* disabled).toEqual([{ caller_owned: true }])
    })
  )

  it.live("says what it needs", () =>
    Effect.gen(function* () {
      const nowhere = yield* awaHere(["caller-owned", "enable", "charges"])
      expect(nowhere.code).toBe(1)
      expect(nowhere.stderr).toContain("AWA_DATABASE_URL")
    })
  )
})
