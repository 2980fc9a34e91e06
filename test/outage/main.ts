/**
 * A worker under load whose database server is stopped, as by a crash, for a while: `npm run outage -- --seconds 5,60,180`.
 * Exits with 1 unless every job ended once, every permit came back, none before its evidence or its budget, and, when the
 * server was away for longer than the budget, the watcher told what became of each attempt that was given up.
 */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Console, Effect } from "effect"
import { Migrations } from "effect-awa"
import { EmbeddedPostgres, layer } from "effect-awa/layers/EmbeddedPostgres"
import { run } from "./scenario.js"

const option = (name: string): string | undefined => {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? undefined : process.argv[at + 1]
}

const durations = (option("seconds") ?? "5,60,180").split(",").map(Number)
const rate = Number(option("rate") ?? "5")
const budgetSeconds = 30

const outage = (seconds: number) =>
  Effect.gen(function* () {
    const server = yield* EmbeddedPostgres
    const url = server.url("postgres")
    yield* Migrations.migrate({ url })
    return yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`create table application_rows (kind text not null, job_id bigint not null, run_lease bigint not null)`
      const { faults, figures } = yield* run({
        runtime: url,
        application: url,
        concurrency: 20,
        budget: `${budgetSeconds} seconds`,
        staleness: "60 seconds",
        beat: "15 seconds",
        seconds,
        rate,
        outage: server.stop("immediate"),
        recovery: Effect.orDie(server.start),
        say: Console.log
      })
      // an outage that nobody noticed proves nothing
      const unresolved = figures["unresolved"] ?? 0
      const unseen =
        seconds > budgetSeconds + 15 && unresolved === 0
          ? ["no attempt was given up"]
          : seconds < budgetSeconds / 2 && unresolved > 0
            ? [`${unresolved} attempts were given up within the budget`]
            : []
      const all = [...faults, ...unseen]
      yield* Console.log(`${seconds} s: ${JSON.stringify(figures)}`)
      for (const fault of all) yield* Console.error(`FAULT  ${fault}`)
      return all.length
    }).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 4 })))
  }).pipe(Effect.provide(layer({ settings: { fsync: "off" } }))) // the server crashes, the machine does not

const program = Effect.map(Effect.forEach(durations, outage), (faults) => faults.reduce((a, b) => a + b, 0))

process.exitCode = (await Effect.runPromise(Effect.scoped(program))) === 0 ? 0 : 1
