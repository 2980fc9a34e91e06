/**
 * The rehearsal of a rolling upgrade: `npm run upgrade`, `npm run upgrade -- --seconds 20` for longer stretches. On a server
 * of its own, or on the one of AWA_TEST_DATABASE_URL. Exits with 1 when something was lost, doubled, or let through.
 */
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "@effect/sql"
import { Config, Console, Effect, Layer, Redacted } from "effect"
import { layer as embedded, EmbeddedPostgres } from "effect-awa/layers/EmbeddedPostgres"
import { TestDatabase, Testing } from "effect-awa/testing"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { buildGenerations } from "./generations.js"
import { tables } from "./load.js"
import { rehearse } from "./scenario.js"

const at = process.argv.indexOf("--seconds")
const seconds = at < 0 ? 3 : Number(process.argv[at + 1])
if (!(seconds >= 1)) throw new Error("--seconds: expected a number of seconds, at least 1")

const rehearsal = (server: Redacted.Redacted) =>
  Effect.gen(function* () {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "effect-awa-upgrade-"))),
      (made) => Effect.sync(() => Fs.rmSync(made, { recursive: true, force: true }))
    )
    const programs = yield* Effect.promise(() => buildGenerations(folder))
    const { url } = yield* TestDatabase.TestDatabase
    const client = PgClient.layer({ url, maxConnections: 4, applicationName: "rehearsal" })
    return yield* Effect.provide(
      Effect.gen(function* () {
        yield* (yield* SqlClient.SqlClient).unsafe(tables)
        return yield* rehearse(url, programs, seconds, Console.log)
      }),
      client
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(Testing.database({ server: Config.succeed(server), profile: "compatible" })),
    Effect.flatMap(({ faults, figures }) =>
      Effect.gen(function* () {
        for (const [name, figure] of Object.entries(figures)) yield* Console.log(`${name.padEnd(42)} ${figure}`)
        for (const fault of faults) yield* Console.error(`FAULT  ${fault}`)
        return faults.length
      })
    )
  )

const given = process.env["AWA_TEST_DATABASE_URL"]
const program =
  given === undefined
    ? Effect.provide(
        Effect.flatMap(EmbeddedPostgres, (server) => rehearsal(server.url("postgres"))),
        embedded({ settings: { fsync: "off" } }).pipe(Layer.orDie)
      )
    : rehearsal(Redacted.make(given))

process.exitCode = (await Effect.runPromise(program)) === 0 ? 0 : 1
