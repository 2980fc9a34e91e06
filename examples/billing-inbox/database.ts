/**
 * Where the demo happens: a PostgreSQL server that it starts for itself, or two schemas of their own on the user's.
 */
import { randomBytes } from "node:crypto"
import { SqlClient } from "@effect/sql/SqlClient"
import { PgClient } from "@effect/sql-pg"
import { Config, Context, Effect, Layer, Option, Redacted } from "effect"
import { InstalledSchema, Migrations } from "effect-awa"
import * as EmbeddedPostgres from "effect-awa/layers/EmbeddedPostgres"

export class Database extends Context.Tag("billing-inbox/Database")<
  Database,
  {
    /** Finds the business tables by their plain names. */
    readonly url: Redacted.Redacted
    /** The schema that effect-awa is installed in. */
    readonly awa: string
    readonly server: string
  }
>() {}

/** The url, with the schema of the business tables first on the search path of its sessions. */
const withSearchPath = (url: Redacted.Redacted, schema: string) =>
  Effect.try(() => {
    const changed = new URL(Redacted.value(url))
    const options = changed.searchParams.get("options")
    changed.searchParams.set("options", [...(options === null ? [] : [options]), `-csearch_path=${schema}`].join(" "))
    return Redacted.make(changed.toString())
  })

const describe = Effect.gen(function* () {
  const sql = yield* SqlClient
  const [row] = yield* sql<{ version: string; fsync: string }>`
    select split_part(current_setting('server_version'), ' ', 1) as version, current_setting('fsync') as fsync`
  return row === undefined ? "PostgreSQL" : `PostgreSQL ${row.version}, fsync ${row.fsync}`
})

const make = Effect.gen(function* () {
  const theirs = yield* Config.option(Config.redacted("AWA_DATABASE_URL"))
  const server = yield* Option.match(theirs, {
    onSome: (url) => Effect.succeed({ url, where: "yours (AWA_DATABASE_URL)" }),
    onNone: () =>
      Effect.map(EmbeddedPostgres.make(), ({ port, url }) => ({
        url: url("postgres"),
        where: `embedded, port ${String(port)}`
      }))
  })
  const id = randomBytes(4).toString("hex")
  const [awa, business] = [`awa_demo_${id}`, `billing_demo_${id}`]
  const url = yield* withSearchPath(server.url, business)
  const client = PgClient.layer({ url, maxConnections: 1 })

  const drop = Effect.gen(function* () {
    const sql = yield* SqlClient
    yield* sql`drop schema if exists ${sql(business)} cascade`
    yield* sql`drop schema if exists ${sql(awa)} cascade`
  }).pipe(
    Effect.provide(client),
    Effect.catchAllCause((cause) => Effect.logError(`Schemas ${awa} and ${business} could not be removed`, cause))
  )
  // A server of our own is removed as a whole.
  if (Option.isSome(theirs)) yield* Effect.addFinalizer(() => drop)

  yield* Migrations.migrate({ url, schema: awa, ring: 4 })
  const version = yield* Effect.gen(function* () {
    const sql = yield* SqlClient
    yield* sql`create schema ${sql(business)}`
    return yield* describe
  }).pipe(Effect.provide(client))
  return Database.of({ url, awa, server: `${version}, ${server.where}` })
})

/** The demo's database, and a client that connects to it directly, past every proxy. */
export const DatabaseLive = Layer.unwrapEffect(
  Effect.map(Database, ({ awa, url }) =>
    Layer.merge(
      PgClient.layer({ url, applicationName: "billing-inbox", maxConnections: 4 }),
      Layer.succeed(InstalledSchema.InstalledSchema, awa)
    )
  )
).pipe(Layer.provideMerge(Layer.scoped(Database, make)))
