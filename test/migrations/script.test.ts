import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect, Either } from "effect"
import { migrations } from "../../src/internal/schemaText.generated.js"
import { catalogOf, connect, freshDatabase, publicPrivileges } from "./support.js"

const script = (options?: Migrations.ScriptOptions) => Either.getOrThrow(Migrations.script(options))

const metaOf = (s: string) =>
  `select product, schema_version, minimum_contract, ring_size, rendered_hash from ${s}.meta`

describe("the printed script", () => {
  it("is the same text for the same options, one transaction, and holds no placeholder", () => {
    expect(script()).toBe(script({ schema: "awa", ring: 16, from: 0 }))
    expect(script({ ring: 4 })).not.toBe(script())
    const text = script({ ring: 4 })
    expect(text.match(/^begin isolation level read committed read write;$/gm)).toHaveLength(1)
    expect(text.match(/^commit;$/gm)).toHaveLength(1)
    expect(text.trimEnd().endsWith("commit;")).toBe(true)
    expect(text).not.toContain("{{")
    expect(text).not.toMatch(/^\\/m) // no psql command
  })

  it("holds each migration exactly when it comes after the version that it starts from", () => {
    const versions = migrations.map((migration) => Number(migration.name.slice(0, 4)))
    expect(versions).toEqual(versions.map((_, i) => i + 1)) // forward only, without a gap
    expect(Migrations.schemaVersion).toBe(versions.length)
    for (let from = 0; from <= Migrations.schemaVersion; from++) {
      const text = script({ from, ring: 4 })
      for (const { name } of migrations) {
        expect(text.includes(`-- ${name}\n`), name).toBe(Number(name.slice(0, 4)) > from)
      }
      expect(text).toContain(`create or replace function "awa".complete_job(`)
    }
    for (const from of [-1, Migrations.schemaVersion + 1, 0.5]) {
      expect(Either.getOrElse(Migrations.script({ from }), (error) => error)).toMatchObject({ option: "from" })
    }
  })

  it.scopedLive("leaves the same schema as migrate does, which then has nothing to do", () =>
    Effect.gen(function* () {
      const { admin, plain, database } = yield* freshDatabase
      yield* admin.rows(`grant create on database ${database} to ${plain.role}`)
      for (const schema of [`awa`, `We"ird-Schéma`, "a$$b\\c", "a\nb"]) {
        yield* admin.rows(
          `alter role ${plain.role} set standard_conforming_strings = ${schema === "awa" ? "on" : "off"}`
        )
        yield* (yield* connect(plain.url)).script(script({ schema, ring: 5 }))
        expect(yield* publicPrivileges(admin, schema)).toEqual([])
        const printed = yield* catalogOf(admin, schema, { writers: false })
        expect(yield* Migrations.migrate({ url: plain.redacted, schema })).toMatchObject({
          action: "unchanged",
          ring: 5
        })

        const other = yield* freshDatabase
        yield* other.admin.rows(`grant create on database ${other.database} to ${other.plain.role}`)
        yield* Migrations.migrate({ url: other.plain.redacted, schema, ring: 5 })
        const migrated = yield* catalogOf(other.admin, schema, { writers: false })
        expect(printed.map((line) => line.replaceAll(plain.role, "role"))).toEqual(
          migrated.map((line) => line.replaceAll(other.plain.role, "role"))
        )
      }
      expect(yield* Migrations.migrate({ url: plain.redacted, ring: 5 })).toMatchObject({ action: "unchanged" })
      const meta = yield* admin.rows(metaOf("awa"))
      expect(meta).toMatchObject([{ product: "effect-awa", schema_version: Migrations.schemaVersion, ring_size: 5 }])
    })
  )

  it.scopedLive("runs into an empty schema, refuses one that is not, and leaves that untouched", () =>
    Effect.gen(function* () {
      const { admin, url } = yield* freshDatabase
      yield* admin.rows("create schema awa")
      yield* (yield* connect(url)).script(script({ ring: 4 }))
      const before = yield* catalogOf(admin, "awa", { writers: true })
      const error = yield* (yield* connect(url)).script(script({ ring: 4 })).pipe(Effect.flip)
      expect(error.code).toBe("55000")
      expect(error.message).toContain("is not empty")
      expect(yield* catalogOf(admin, "awa", { writers: true })).toEqual(before)
    })
  )

  it.scopedLive("upgrades the version and the ring that it was printed for, and no other", () =>
    Effect.gen(function* () {
      const { admin, redacted, url } = yield* freshDatabase
      yield* Migrations.migrate({ url: redacted, ring: 4 })
      const before = yield* catalogOf(admin, "awa", { writers: false })
      yield* admin.rows("update awa.meta set rendered_hash = ''")
      yield* (yield* connect(url)).script(script({ ring: 4, from: Migrations.schemaVersion }))
      expect(yield* catalogOf(admin, "awa", { writers: false })).toEqual(before)
      expect(yield* Migrations.migrate({ url: redacted })).toMatchObject({ action: "unchanged" })

      const wrongRing = script({ ring: 5, from: Migrations.schemaVersion })
      expect((yield* (yield* connect(url)).script(wrongRing).pipe(Effect.flip)).code).toBe("55000")
      yield* admin.rows("update awa.meta set functions_revision = functions_revision + 1")
      const overLater = script({ ring: 4, from: Migrations.schemaVersion })
      expect((yield* (yield* connect(url)).script(overLater).pipe(Effect.flip)).message).toContain("a later release")
      yield* admin.rows("update awa.meta set functions_revision = 0, schema_version = 99")
      const wrongVersion = script({ ring: 4, from: Migrations.schemaVersion })
      expect((yield* (yield* connect(url)).script(wrongVersion).pipe(Effect.flip)).code).toBe("55000")
      expect(yield* catalogOf(admin, "awa", { writers: false })).toEqual(before)
    })
  )
})
