import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/layers/Migrations"
import { Config, ConfigProvider, Effect, Layer } from "effect"
import { freshDatabase } from "../migrations/support.js"

const environment = (values: Record<string, string>) =>
  Layer.setConfigProvider(ConfigProvider.fromMap(new Map(Object.entries(values))))

// C-62
describe("the Migrations layer", () => {
  it.scopedLive("has the schema in place before what it is provided to", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const count = fresh.admin.rows(`select count(*)::int as n from pg_class where relname = 'meta'`)
      const consumer = Layer.effectDiscard(Effect.map(count, (rows) => expect(rows).toEqual([{ n: 1 }])))
      const migrated = Migrations.layer({ url: fresh.redacted, ring: 4 })
      yield* Layer.build(consumer.pipe(Layer.provide(migrated)))
      yield* Layer.build(migrated) // at every start
    })
  )

  it.scopedLive("reads the environment when no url is given", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const layer = Migrations.layer({ schema: "jobs", ring: 4 })
      yield* Layer.build(layer.pipe(Layer.provide(environment({ AWA_DATABASE_URL: fresh.url }))))
      expect(yield* fresh.admin.rows("select ring_size from jobs.meta")).toEqual([{ ring_size: 4 }])
      const error = yield* Layer.build(layer.pipe(Layer.provide(environment({})))).pipe(Effect.flip)
      expect(JSON.stringify(error)).toContain("AWA_DATABASE_URL")
    })
  )

  it.scopedLive("takes its options from configuration", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const layer = Migrations.layerConfig({
        url: Config.redacted("DATABASE_URL"),
        schema: Config.string("JOBS_SCHEMA"),
        ring: Config.integer("JOBS_RING")
      })
      const values = { DATABASE_URL: fresh.url, JOBS_SCHEMA: `my "jobs"`, JOBS_RING: "5" }
      yield* Layer.build(layer.pipe(Layer.provide(environment(values))))
      expect(yield* fresh.admin.rows(`select ring_size from "my ""jobs""".meta`)).toEqual([{ ring_size: 5 }])
      const other = yield* Layer.build(layer.pipe(Layer.provide(environment({ ...values, JOBS_RING: "6" })))).pipe(
        Effect.flip
      )
      expect(other).toMatchObject({ _tag: "RingSizeFixed", installed: 5, requested: 6 })
    })
  )
})
