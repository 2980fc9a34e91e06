import { describe, expect, it } from "@effect/vitest"
import { Cause, Effect, Exit, Schema } from "effect"
import * as Job from "effect-awa/Job"
import * as Kinds from "effect-awa/Kinds"
import * as Migrations from "effect-awa/Migrations"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { freshDatabase } from "../migrations/support.js"
import { awa, awaHere } from "./support.js"

const jobs = Path.join(import.meta.dirname, "../workers/jobs.ts")

const folder = Effect.acquireRelease(
  Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "awa-kinds-"))),
  (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

const readJson = (...path: ReadonlyArray<string>): unknown => JSON.parse(Fs.readFileSync(Path.join(...path), "utf8"))

const exported = Effect.gen(function* () {
  const out = yield* folder
  const ended = yield* awa(["kinds", "export", "--from", jobs, "--out", out])
  expect(ended).toMatchObject({ code: 0, stderr: "" })
  return out
})

describe("awa kinds", () => {
  it.scopedLive("export writes the schema of what is stored for every job of a module, and an index", () =>
    Effect.gen(function* () {
      const out = yield* exported
      expect(readJson(out, "kinds.json")).toEqual({
        kinds: [
          { kind: "book", schema: "book.json", queue: "billing", priority: 1, maxAttempts: 7 },
          { kind: "order/v2", schema: "order-v2.json" },
          { kind: "ping", schema: "ping.json" }
        ]
      })
      expect(readJson(out, "book.json")).toMatchObject({
        type: "object",
        required: ["account", "amount"],
        properties: { account: { $ref: "#/$defs/Int" }, amount: { minimum: -1000, maximum: 1000 } },
        additionalProperties: false
      })
      // a time is stored as its text
      expect(readJson(out, "order-v2.json")).toMatchObject({ properties: { at: { type: "string" } } })
    })
  )

  it.scopedLive(
    "register stores them, says what the database does not check, and changes nothing the second time",
    () =>
      Effect.gen(function* () {
        const out = yield* exported
        const { admin, redacted, url } = yield* freshDatabase
        yield* Migrations.migrate({ url: redacted, schema: `We"ird`, ring: 4 })
        const args = ["kinds", "register", "--from", out, "--schema", `We"ird`]
        const first = yield* awaHere(args, { AWA_DATABASE_URL: url })
        expect(first).toMatchObject({ code: 0, stderr: "" })
        expect(first.stdout.split("\n")).toEqual([
          "book: registered",
          "order/v2: registered",
          "  not checked by the database: /$defs/UUID: format",
          "  not checked by the database: /$defs/UUID: pattern",
          "ping: registered",
          ""
        ])
        const again = yield* awaHere(args, { AWA_DATABASE_URL: url })
        expect(again.stdout.match(/unchanged/g)).toHaveLength(3)
        const validated = (amount: number) =>
          admin.rows(`select "We""ird".insert_job('book', $1, 'q', '{"validate": true}')`, [
            JSON.stringify({ account: 1, amount })
          ])
        yield* validated(5)
        const refused = yield* Effect.exit(validated(5000))
        expect(Exit.isFailure(refused) ? Cause.pretty(refused.cause) : "").toContain("job 0: args.amount: maximum 1000")
      })
  )

  it.scopedLive("stubs writes a producer each time, and handlers once", () =>
    Effect.gen(function* () {
      const from = yield* exported
      const out = Path.join(yield* folder, "a/b")
      for (const [lang, producer, worker] of [
        ["python", "awa_producer.py", "awa_worker.py"],
        ["go", "producer.go", "worker.go"]
      ] as const) {
        const args = ["kinds", "stubs", "--from", from, "--lang", lang, "--out", out]
        const first = yield* awaHere(args)
        expect(first).toMatchObject({ code: 0, stderr: "" })
        for (const name of [producer, worker]) Fs.appendFileSync(Path.join(out, name), "mine\n")
        const again = yield* awaHere(args)
        expect(again.stdout).toBe(`Wrote ${Path.join(out, producer)}\nKept ${Path.join(out, worker)}\n`)
        expect(Fs.readFileSync(Path.join(out, producer), "utf8")).not.toContain("mine")
        expect(Fs.readFileSync(Path.join(out, worker), "utf8")).toContain("mine")
      }
    })
  )

  it.scopedLive("exits with 1 and one line that says what is wrong", () =>
    Effect.gen(function* () {
      const out = yield* folder
      const from = yield* exported
      Fs.writeFileSync(Path.join(out, "kinds.json"), `{"kinds": [{"kind": "k", "schema": "no.json"}]}`)
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
        [["export", "--from", "no/such.js", "--out", out], "no/such.js: "],
        [["export", "--from", Path.join(import.meta.dirname, "support.ts"), "--out", out], "exports no job"],
        [["register", "--from", "no/such"], "kinds.json: "],
        [["register", "--from", out], "no.json: "],
        [["register", "--from", from], "AWA_DATABASE_URL"],
        [["stubs", "--from", "no/such", "--lang", "go", "--out", out], "kinds.json: "]
      ]
      for (const [args, expected] of cases) {
        const end = yield* awaHere(["kinds", ...args])
        expect(end, args.join(" ")).toMatchObject({ code: 1, stdout: "" })
        expect(end.stderr).toMatch(/^awa: [^\n]+\n$/)
        expect(end.stderr).toContain(expected)
      }
      const bare = yield* freshDatabase
      const missing = yield* awaHere(["kinds", "register", "--from", from], { AWA_DATABASE_URL: bare.url })
      expect(missing.stderr).toContain("awa migrate")
    })
  )

  it.effect("describe names a kind that is defined twice, or has no JSON Schema", () =>
    Effect.gen(function* () {
      const text = Job.make("k", { payload: Schema.String })
      expect(yield* Kinds.describe([text, text])).toHaveLength(1)
      const twice = yield* Effect.flip(Kinds.describe([text, Job.make("k", { payload: Schema.Int })]))
      expect(twice.message).toBe(`kind "k": it is defined twice`)
      const none = yield* Effect.flip(Kinds.describe([Job.make("big", { payload: Schema.BigIntFromSelf })]))
      expect(none).toMatchObject({ _tag: "KindNotExportable", kind: "big" })
    })
  )
})
