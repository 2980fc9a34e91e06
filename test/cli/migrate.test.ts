import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect, Either } from "effect"
import * as Fs from "node:fs"
import { version } from "effect-awa/cli/version"
import { catalogOf, freshDatabase } from "../migrations/support.js"
import { migrations } from "../../src/internal/schemaText.generated.js"
import { awa, awaHere } from "./support.js"

const packageJson: unknown = JSON.parse(Fs.readFileSync(new URL("../../package.json", import.meta.url), "utf8"))

describe("awa", () => {
  it.live("says its version, which is the package's", () =>
    Effect.gen(function* () {
      expect(packageJson).toMatchObject({ version })
      for (const end of [yield* awa(["--version"]), yield* awaHere(["--version"])]) {
        expect(end).toMatchObject({ code: 0, stderr: "" })
        expect(end.stdout.trim()).toBe(version)
      }
    })
  )

  it.live("explains itself", () =>
    Effect.gen(function* () {
      const help = yield* awaHere(["--help"])
      expect(help).toMatchObject({ code: 0, stderr: "" })
      expect(help.stdout).toContain("migrate")
      const migrate = yield* awaHere(["migrate", "--help"])
      expect(migrate).toMatchObject({ code: 0, stderr: "" })
      for (const option of ["--schema", "--ring", "--database-url", "--print", "--from", "AWA_DATABASE_URL"]) {
        expect(migrate.stdout).toContain(option)
      }
    })
  )

  it.live("fails for what it does not know", () =>
    Effect.gen(function* () {
      expect(yield* awaHere(["frobnicate"])).toMatchObject({ code: 1, stdout: "" })
      expect(yield* awaHere(["migrate", "--ring", "many"])).toMatchObject({ code: 1, stdout: "" })
    })
  )
})

describe("awa migrate", () => {
  it.scopedLive("installs, and says what it did", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const args = ["migrate", "--schema", `We"ird`, "--ring", "4", "--database-url", fresh.url]
      expect(yield* awa(args)).toEqual({
        code: 0,
        stderr: "",
        stdout: `Installed effect-awa into schema "We\\"ird": version ${Migrations.schemaVersion}, a ring of 4 segments.\nApplied: ${migrations.map(({ name }) => name).join(", ")}\n`
      })
      const environment = { AWA_DATABASE_URL: fresh.url }
      const again = yield* awaHere(["migrate", "--schema", `We"ird`], environment)
      expect(again).toMatchObject({ code: 0, stderr: "" })
      expect(again.stdout).toContain("Nothing was written")
      // an argument goes before the environment
      expect(
        yield* awaHere(["migrate", "--database-url", fresh.url], { AWA_DATABASE_URL: "postgres://127.0.0.1:1/x" })
      ).toMatchObject({ code: 0 })
    })
  )

  it.scopedLive("exits with 1 and one line that says what is wrong", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      yield* fresh.admin.script(`create schema "a\nb"; create table "a\nb".t ()`)
      const env = { AWA_DATABASE_URL: fresh.url }
      const unreachable = { AWA_DATABASE_URL: "postgres://me:hunter2@127.0.0.1:1/db" }
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, Record<string, string>, string]> = [
        [["migrate"], {}, "AWA_DATABASE_URL"],
        [["migrate"], { AWA_DATABASE_URL: "hunter2" }, "postgres://"],
        [["migrate"], unreachable, "ECONNREFUSED"],
        [["migrate", "--schema", "a\nb"], env, "is not effect-awa's"],
        [["migrate", "--schema", "pg_x"], env, "reserves"],
        [["migrate", "--ring", "3"], env, "4 to 64"],
        [["migrate", "--from", "0"], env, "--print"],
        [["migrate", "--print", "--from", "99"], {}, "from"]
      ]
      for (const [args, environment, expected] of cases) {
        const end = yield* awaHere(args, environment)
        expect(end, args.join(" ")).toMatchObject({ code: 1, stdout: "" })
        expect(end.stderr).toMatch(/^awa: [^\n]+\n$/)
        expect(end.stderr).toContain(expected)
        expect(end.stderr).not.toContain("hunter2")
      }
      const process = yield* awa(["migrate"], unreachable)
      expect(process).toEqual(yield* awaHere(["migrate"], unreachable))
    })
  )

  it.scopedLive("prints the script without a database, and the script is what it says", () =>
    Effect.gen(function* () {
      const printed = yield* awa(["migrate", "--print", "--ring", "4"], {
        AWA_DATABASE_URL: "postgres://127.0.0.1:1/x"
      })
      expect(printed).toMatchObject({ code: 0, stderr: "" })
      expect(printed.stdout).toBe(Either.getOrThrow(Migrations.script({ ring: 4 })))
      const rest = yield* awaHere(["migrate", "--print", "--from", "1", "--ring", "4"])
      expect(rest.stdout).toBe(Either.getOrThrow(Migrations.script({ ring: 4, from: 1 })))

      const fresh = yield* freshDatabase
      yield* fresh.admin.script(printed.stdout)
      expect((yield* catalogOf(fresh.admin, "awa", { writers: false })).length).toBeGreaterThan(50)
    })
  )
})
