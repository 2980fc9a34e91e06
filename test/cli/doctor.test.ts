/** `awa doctor`: what it prints, and the exit code that a pipeline goes by (C-53). */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Doctor } from "effect-awa"
import * as Fs from "node:fs"
import { strict } from "../privileges/support.js"
import { awa, awaHere } from "./support.js"

const schema = `We"ird`

const Report = Schema.Struct({
  schema: Schema.String,
  profile: Schema.Literal("strict", "compatible"),
  migrator: Schema.NullOr(Schema.String),
  runtimes: Schema.NullOr(
    Schema.Array(
      Schema.Struct({
        id: Schema.String,
        name: Schema.String,
        contract: Schema.Int,
        callerOwned: Schema.Boolean,
        poolMode: Schema.NullOr(Schema.String),
        connections: Schema.Struct({ application: Schema.Int, runtime: Schema.Int }),
        wakeup: Schema.NullOr(Schema.String)
      })
    )
  ),
  findings: Schema.Array(
    Schema.Struct({
      code: Schema.String,
      severity: Schema.Literal("error", "warning", "note"),
      object: Schema.String,
      found: Schema.String,
      expected: Schema.String,
      sql: Schema.NullOr(Schema.String),
      advice: Schema.NullOr(Schema.String)
    })
  )
})

const decode = Schema.decodeUnknownSync(Schema.parseJson(Report), { onExcessProperty: "error" })

describe("awa doctor", () => {
  it.scopedLive(
    "exits with 0 for nothing, 1 for errors, 2 for what it could not examine",
    () =>
      Effect.gen(function* () {
        const { admin, plain, url } = yield* strict(schema)
        const args = ["doctor", "--strict", "--schema", schema, "--database-url", url]
        const well = yield* awa(args)
        assert.deepInclude(well, { code: 0, stderr: "" })
        assert.strictEqual(
          well.stdout,
          `Schema "We\\"ird", strict profile, migrator ${plain.role}: 0 errors, 0 warnings, 0 notes. Nothing was changed.\n`
        )
        yield* admin.script(`grant execute on function "We""ird".complete_job to public`)
        const ill = yield* awa(args)
        assert.deepInclude(ill, { code: 1, stderr: "awa: doctor found 1 error\n" })
        assert.match(ill.stdout, /^error: routine-public: complete_job\(/)
        assert.match(ill.stdout, / {4}revoke execute on routine "We""ird"\.complete_job\(.*\) from public cascade;\n/)

        const json = yield* awaHere([...args, "--json"])
        const report = decode(json.stdout)
        assert.deepStrictEqual(
          report.findings.map(({ code }) => code),
          ["routine-public"]
        )
        yield* admin.script(report.findings[0]?.sql ?? "")
        assert.deepStrictEqual(decode((yield* awaHere([...args, "--json"])).stdout).findings, [])

        yield* admin.rows(`select "We""ird".beat_runtime(null, 'one', 1, $1)`, [
          JSON.stringify({
            callerOwned: true,
            connections: { mode: "separate", application: 10, runtime: 7 },
            wakeup: "listening"
          })
        ])
        assert.deepInclude(decode((yield* awaHere([...args, "--json"])).stdout).runtimes?.[0], {
          name: "one",
          callerOwned: true,
          poolMode: "separate",
          connections: { application: 10, runtime: 7 },
          wakeup: "listening"
        })
        assert.include(
          (yield* awaHere(args)).stdout,
          "runtime one: contract 1, caller-owned and ordinary completion, pools separate (10 application, 7 runtime), work by listening\n"
        )

        const without = { AWA_DATABASE_URL: "postgres://me:hunter2@127.0.0.1:1/db" }
        for (const [given, environment] of [
          [["doctor"], {}],
          [["doctor"], without],
          [["doctor", "--schema", "nothing", "--database-url", url], {}],
          [["doctor", "--no-such-option"], {}]
        ] as const) {
          const end = yield* awa(given, environment)
          assert.strictEqual(end.code, 2, given.join(" "))
          assert.notInclude(end.stdout + end.stderr, "hunter2")
        }
        // of the others, 1 is what went wrong
        assert.strictEqual((yield* awa(["migrate"], without)).code, 1)
      }),
    60_000
  )

  it.scopedLive("is content with warnings and notes, which --strict may not be", () =>
    Effect.gen(function* () {
      const { url } = yield* strict(schema, "compatible")
      const args = ["--schema", schema, "--database-url", url]
      const relaxed = yield* awaHere(["doctor", ...args])
      assert.deepInclude(relaxed, { code: 0, stderr: "" })
      assert.include(relaxed.stdout, "note: profile-compatible")
      assert.include(relaxed.stdout, "0 errors, 0 warnings, 1 note.")
      assert.strictEqual((yield* awaHere(["doctor", "--strict", ...args])).code, 1)
    })
  )

  it("has every code in the table of schema/README.md", () => {
    const text = Fs.readFileSync(new URL("../../schema/README.md", import.meta.url), "utf8")
    const [, table = ""] = text.split("\n## What doctor finds\n")
    const rows = [...table.matchAll(/^\| `([a-z-]+)` \| (\w+(?:, \w+ under strict)?) \| (.+) \|$/gm)].map(
      ([, code, severity, meaning]) => [code, severity, meaning]
    )
    assert.deepStrictEqual(
      rows,
      Object.entries(Doctor.codes).map(([code, { meaning, severity, strict }]) => [
        code,
        strict === undefined ? severity : `${severity}, ${strict} under strict`,
        meaning
      ])
    )
  })
})
