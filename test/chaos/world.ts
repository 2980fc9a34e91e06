/** What a run happens in: a server of its own, the proxies before it, and roles of different settings. */
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "@effect/sql"
import { Effect, Layer, type Redacted, type Scope } from "effect"
import { InstalledSchema, Migrations } from "effect-awa"
import * as EmbeddedPostgres from "effect-awa/layers/EmbeddedPostgres"
import { FaultProxy, HostileRole } from "effect-awa/testing"
import { tables } from "./tables.js"

export const ring = 8

export interface World {
  readonly server: EmbeddedPostgres.EmbeddedPostgres["Type"]
  /** Past all proxies. */
  readonly url: Redacted.Redacted
  readonly runtime: FaultProxy.FaultProxy["Type"]
  readonly application: FaultProxy.FaultProxy["Type"]
  readonly producers: FaultProxy.FaultProxy["Type"]
  /** Urls of roles, by what their settings are; `plain` has none. */
  readonly roles: Readonly<Record<string, Redacted.Redacted>>
  /** A client of the run itself, past all proxies; its statements are tried again while the server is away. */
  readonly direct: Layer.Layer<SqlClient.SqlClient>
  /** The producers' client, through their proxy. */
  readonly producing: Layer.Layer<SqlClient.SqlClient | InstalledSchema.InstalledSchema>
}

const settingsOf = {
  everything: HostileRole.everything,
  serializable: HostileRole.hostile.serializable,
  west: { ...HostileRole.hostile.west, ...HostileRole.hostile.noSearchPath },
  impatient: { ...HostileRole.hostile.statementTimeout, ...HostileRole.hostile.idleInTransaction }
}

export const makeWorld = (
  settings: Readonly<Record<string, string>> = {}
): Effect.Effect<World, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const server = yield* EmbeddedPostgres.make({ settings: { max_connections: "150", ...settings } })
    const url = server.url("postgres")
    yield* Migrations.migrate({ url, ring })
    const client = (url: Redacted.Redacted, applicationName: string, maxConnections: number) =>
      PgClient.layer({ url, applicationName, maxConnections })
    const context = yield* Layer.build(client(url, "chaos itself", 4))
    yield* Effect.provide(
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql.unsafe(tables(ring))
        yield* sql`insert into awa.queues (queue, attempt_deadline) values ('billing', '4 seconds')`
      }),
      context
    )
    const roles: Record<string, Redacted.Redacted> = { plain: url }
    for (const [name, settings] of Object.entries(settingsOf)) {
      roles[name] = (yield* HostileRole.make({ url, settings })).url
    }
    const proxy = FaultProxy.makeUrl(url)
    const producers = yield* proxy
    // Built here, for as long as the world: a layer that is provided to what only starts fibers would end before them.
    const producing = yield* Layer.build(client(yield* producers.through(url), "chaos producers", 6))
    return {
      server,
      url,
      runtime: yield* proxy,
      application: yield* proxy,
      producers,
      roles,
      direct: Layer.succeedContext(context),
      producing: Layer.merge(Layer.succeedContext(producing), Layer.succeed(InstalledSchema.InstalledSchema, "awa"))
    }
  })
