/** A matrix whose cells are all the same proves nothing: what was asked for is in force, where it counts. */
import { assert, layer } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { TestDatabase } from "effect-awa/testing"
import { inject } from "vitest"
import { connect } from "../pg/database.js"
import { database } from "../runtime/support.js"
import { isStrict } from "../tools/strictRoles.js"
import { throughPooler } from "../tools/throughPooler.js"
import { cell } from "./cell.js"

const pooler = inject("pooler")

layer(database(), { excludeTestServices: true })("the cell", (it) => {
  it.scoped("is what it says, for the application and for the runtime [matrix]", () =>
    Effect.gen(function* () {
      const { applicationUrl, runtimeUrl, schema, url } = yield* TestDatabase.TestDatabase
      const superuser = new URL(Redacted.value(url))
      const roles = []
      for (const own of [applicationUrl, runtimeUrl]) {
        const address = throughPooler(Redacted.value(own))
        const session = yield* connect(address)
        roles.push(String(yield* session.value("select current_user::text")))
        const zone = yield* session.value("show timezone")
        if (cell.zone !== undefined) assert.strictEqual(zone, cell.zone)
        // inside a transaction that says nothing of it, which is what a driver's own BEGIN is
        yield* session.script("begin")
        assert.strictEqual(yield* session.value("show transaction_isolation"), cell.isolation)
        yield* session.script("commit")
        const version = Number(yield* session.value("select current_setting('server_version_num')::int / 10000"))
        if (cell.major !== undefined) assert.strictEqual(String(version), cell.major)
        // the server's port is another one than the client's as soon as something stands between them
        const behind = (yield* session.value("select inet_server_port()::text")) !== new URL(address).port
        assert.strictEqual(behind, pooler !== undefined)
      }
      assert.strictEqual(new Set([...roles, superuser.username]).size, isStrict ? 3 : 1)
      assert.strictEqual(schema, cell.schema)
      const admin = yield* connect(superuser.href)
      const names = yield* admin.rows(
        "select nspname::text as name from pg_namespace where oid = (select pronamespace from pg_proc where proname = 'complete_job')"
      )
      assert.deepStrictEqual(names, [{ name: cell.schema }])
    })
  )

  it.scoped("has the pooler's mode that it says [matrix]", () =>
    Effect.gen(function* () {
      const { applicationUrl } = yield* TestDatabase.TestDatabase
      const address = throughPooler(Redacted.value(applicationUrl))
      const first = yield* connect(address)
      const second = yield* connect(address)
      // between its transactions a client has no backend of its own in transaction mode, and the next one gets it
      assert.strictEqual(first.pid === second.pid, inject("poolMode") === "transaction")
    })
  )
})
