/** A start that was asked to be strict refuses what doctor refuses, by the runtime's own connection and privileges (C-53). */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Cause, Config, Effect, Exit, Layer, Option } from "effect"
import { Roles, RuntimePool } from "effect-awa"
import * as WorkerLayer from "effect-awa/layers/Worker"
import { strict } from "../privileges/support.js"
import { Installation, quoted, schema } from "./support.js"

const failureOf = <A, E>(exit: Exit.Exit<A, E>) =>
  Exit.isFailure(exit) ? Option.getOrUndefined(Cause.failureOption(exit.cause)) : undefined

layer(Installation.layer, { excludeTestServices: true, timeout: "60 seconds" })("a strict start", (it) => {
  const start = Effect.flatMap(Installation, (installed) =>
    RuntimePool.make({
      url: installed.redactedAs(installed.roleOf("executor")),
      schema,
      strict: true
    }).pipe(Effect.scoped, Effect.exit, Effect.map(failureOf))
  )

  for (const [name, fault, mend, code] of [
    [
      "a body of another version",
      `create or replace function ${quoted}.stops_one(p_state text) returns boolean language sql immutable as $$ select true $$`,
      "", // the next one replaces it
      "routine-body"
    ],
    [
      "EXECUTE of PUBLIC",
      `grant execute on function ${quoted}.complete_job to public`,
      `revoke execute on function ${quoted}.complete_job from public`,
      "routine-public"
    ],
    [
      "another owner",
      `alter function ${quoted}.complete_job owner to current_user`,
      `grant create on schema ${quoted} to "OWNER"; alter function ${quoted}.complete_job owner to "OWNER"; revoke create on schema ${quoted} from "OWNER"`,
      "routine-owner"
    ],
    [
      "an unsafe search_path",
      `alter function ${quoted}.complete_job set search_path = public`,
      `alter function ${quoted}.complete_job set search_path = pg_catalog, pg_temp`,
      "routine-search-path"
    ],
    ["a way to the owner", `grant "OWNER" to "NOBODY"`, `revoke "OWNER" from "NOBODY"`, "role-set-path"]
  ] as const) {
    it.effect(`refuses ${name}`, () =>
      Effect.gen(function* () {
        const { admin, nobody, owners } = yield* Installation
        const named = (sql: string) => sql.replaceAll("OWNER", owners.executionOwner).replaceAll("NOBODY", nobody)
        assert.isUndefined(yield* start)
        const [before] = yield* admin.rows(
          `select pg_get_functiondef(p.oid) as sql from pg_proc p join pg_namespace n on n.oid = p.pronamespace
           where n.nspname = $1 and p.proname = 'stops_one'`,
          [schema]
        )
        yield* admin.script(named(fault))
        assert.deepInclude(yield* start, { _tag: "StartRefused", reason: "not-strict", codes: [code] })
        yield* admin.script(mend === "" ? String(before?.["sql"]) : named(mend))
        assert.isUndefined(yield* start)
      })
    )
  }

  it.effect("does not compare what another version installed, and looks at the rest", () =>
    Effect.gen(function* () {
      const { admin } = yield* Installation
      yield* admin.rows(`select set_config('awa_test.hash', rendered_hash, false) from ${quoted}.meta`)
      yield* admin.script(`update ${quoted}.meta set rendered_hash = 'other'; alter function ${quoted}.claim strict`)
      assert.isUndefined(yield* start)
      yield* admin.script(`grant execute on function ${quoted}.claim to public`)
      assert.deepInclude(yield* start, { _tag: "StartRefused", codes: ["routine-public"] })
      yield* admin.script(`revoke execute on function ${quoted}.claim from public`)
      yield* admin.script(`update ${quoted}.meta set rendered_hash = current_setting('awa_test.hash')`)
      assert.deepInclude(yield* start, { _tag: "StartRefused", codes: ["routine-attributes"] })
      yield* admin.script(`alter function ${quoted}.claim called on null input`)
      assert.isUndefined(yield* start)
    })
  )

  it.effect("is not fooled by the search_path of its role", () =>
    Effect.gen(function* () {
      const { admin, roleOf } = yield* Installation
      yield* admin.script(`alter role "${roleOf("executor")}" set search_path = ${quoted}, public`)
      assert.isUndefined(yield* start)
      yield* admin.script(`alter role "${roleOf("executor")}" reset search_path`)
    })
  )

  it.scoped("refuses the compatible profile, by a worker's option, and a start that is not strict does not", () =>
    Effect.gen(function* () {
      const installed = yield* strict(schema, "compatible")
      const both = installed.roleOf("executor")
      yield* Roles.apply({
        ...installed.options,
        bindings: { executor: [both], maintenance: [both], producer: [both], finalizer: [both], expectation: [both] }
      })
      const url = installed.redactedAs(both)
      const worker = (isStrict: boolean) =>
        WorkerLayer.layer({
          jobs: [],
          queues: { default: { concurrency: 1 } },
          database: Config.succeed(url),
          schema,
          strict: isStrict
        }).pipe(Layer.provide(PgClient.layer({ url })), Layer.build, Effect.scoped, Effect.exit, Effect.map(failureOf))
      assert.isUndefined(yield* worker(false))
      const failure = yield* worker(true)
      assert.deepInclude(failure, { _tag: "StartRefused", codes: ["profile-compatible"] })
      assert.include(failure?._tag === "StartRefused" ? failure.message : "", "awa doctor --strict")
    })
  )
})
