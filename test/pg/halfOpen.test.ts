/** The server's own limits for an application transaction whose client has vanished: contract C-40, on every supported major. */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { describe, expect, it } from "@effect/vitest"
import { ApplicationPool, RuntimePool } from "effect-awa"
import { Deferred, Effect, Exit, Layer, Redacted, Schedule } from "effect"
import { spawn } from "node:child_process"
import { join } from "node:path"
import * as Migrations from "effect-awa/Migrations"
import { PgFault, type Session } from "./database.js"
import { type Attempt, claim, enqueue, evidence, fileDatabase } from "./support.js"

// A runtime starts only where a migration has noted its version.
const database = fileDatabase({
  then: `update awa.meta set schema_version = ${Migrations.schemaVersion}; create table public.ledger (name text);`
})

/** A role of the application, with settings of its own for this database; gone with the scope. */
const role = (admin: Session, url: string, settings: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const parsed = new URL(url)
    const name = `${parsed.pathname.slice(1)}_role`
    const version = Number(yield* admin.value("select current_setting('server_version_num')"))
    yield* Effect.acquireRelease(
      admin.script(`
        create role ${name} login password 'secret';
        grant usage on schema awa to ${name};
        grant execute on function awa.complete_job to ${name};
        grant insert on public.ledger to ${name}`),
      () => Effect.ignore(admin.script(`drop owned by ${name}; drop role ${name}`))
    )
    for (const [setting, value] of Object.entries(settings)) {
      if (setting === "transaction_timeout" && version < 170000) continue
      yield* admin.script(`alter role ${name} in database ${parsed.pathname.slice(1)} set ${setting} = '${value}'`)
    }
    parsed.username = name
    parsed.password = "secret"
    return parsed.href
  })

const everyLimit = (value: string) => ({
  statement_timeout: value,
  idle_in_transaction_session_timeout: value,
  transaction_timeout: value,
  ...(value === "1h" ? { tcp_user_timeout: value } : {})
})

/** Waits for what the server shows of a session. */
const shown = (session: Session, name: string, condition: string) =>
  session
    .value(
      `select count(*) from pg_stat_activity where datname = current_database() and application_name = $1 and ${condition}`,
      [name]
    )
    .pipe(
      Effect.filterOrFail(
        (n) => n === 1n,
        () => new PgFault({ code: "", message: `never seen of ${name}: ${condition}`, detail: undefined })
      ),
      Effect.retry(Schedule.spaced("20 millis").pipe(Schedule.upTo("60 seconds")))
    )

/** Rescues until nothing of these is open any more; what a transaction holds, it leaves alone. */
const rescued = (session: Session, attempts: ReadonlyArray<Attempt>) =>
  Effect.zipRight(session.value("select awa.rescue_stale('1 min', 10)"), evidence(session, attempts)).pipe(
    Effect.filterOrFail(
      (all) => all.every(([status]) => status !== "open"),
      (all) => new PgFault({ code: "", message: `still held: ${JSON.stringify(all)}`, detail: undefined })
    ),
    Effect.retry(Schedule.spaced("50 millis").pipe(Schedule.upTo("45 seconds")))
  )

/** The program, and what it says at its end. */
const program = (args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const said = yield* Deferred.make<string>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          process.execPath,
          [
            "--conditions=@effect-awa/source",
            "--import",
            "tsx",
            join(import.meta.dirname, "halfOpen.child.ts"),
            ...args
          ],
          { stdio: ["ignore", "pipe", "inherit"] }
        )
      ),
      (started) => Effect.sync(() => started.kill("SIGKILL"))
    )
    let output = ""
    child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.once("close", () => Deferred.unsafeDone(said, Effect.succeed(output)))
    return { said: Deferred.await(said), kill: (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal)) }
  })

const hangs = [
  ["between two statements", "state = 'idle in transaction' and query like '%complete_job%'"],
  ["in the middle of a statement", "state = 'active' and query like '%pg_sleep%'"],
  ["before an answer that it does not read", "state = 'active' and query like '%generate_series%'"]
] as const

const callOf = ({ batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease }: Attempt) =>
  `select awa.complete_job(${job_id}, ${run_lease}, ${claim_slot}, ${receipt_id}, ${batch_id}, ${batch_index})`

describe("a client that freezes after complete_job and before COMMIT", () => {
  it.scopedLive(
    "is ended by the server wherever it hangs, whatever the role says; rescue takes its attempt, and its COMMIT is void",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const session = yield* db.session
        const application = yield* role(session, db.url, everyLimit("1h"))
        yield* enqueue(session, hangs.length)
        const attempts = yield* claim(session)
        const programs = yield* Effect.forEach(
          hangs,
          ([hang, seen], i) =>
            Effect.gen(function* () {
              const attempt = attempts[i]
              if (attempt === undefined) throw new Error("an attempt for each")
              const name = `frozen ${i}`
              const observer = yield* db.session
              const frozen = yield* program([db.url, application, callOf(attempt), hang, name])
              yield* shown(observer, name, seen)
              yield* frozen.kill("SIGSTOP")
              return frozen
            }),
          { concurrency: "unbounded" }
        )
        yield* session.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '1 hour'")
        expect(yield* rescued(session, attempts)).toEqual(hangs.map(() => ["closed", "rescued"]))
        expect(yield* session.rows("select * from awa.held_attempts()")).toEqual([])
        for (const { kill, said } of programs) {
          yield* kill("SIGCONT")
          expect(yield* said).toMatch(/^failed /m)
        }
        expect(yield* session.value("select count(*) from public.ledger")).toBe(0n)
        expect(yield* session.value("select count(*) from awa.attempts where outcome = 'completed'")).toBe(0n)
      }),
    180_000
  )
})

// F-76: neither does a role's shorter limit end a transaction that is as long as it may be
it.scopedLive("an application transaction has the time that the program gives it, whatever the role says", () =>
  Effect.gen(function* () {
    const db = yield* database
    const session = yield* db.session
    const application = yield* role(session, db.url, everyLimit("150ms"))
    const clients = ApplicationPool.layer({ maximumDuration: "30 seconds" }).pipe(
      Layer.provideMerge(PgClient.layer({ url: Redacted.make(application), maxConnections: 1 })),
      Layer.provide(RuntimePool.layer({ url: Redacted.make(db.url) }))
    )
    const exit = yield* Effect.gen(function* () {
      const pool = yield* ApplicationPool.ApplicationPool
      return yield* Effect.exit(
        pool.transaction(
          Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            yield* sql`insert into public.ledger values ('kept')`
            yield* sql`select pg_sleep(0.4)`
            yield* Effect.sleep("400 millis")
            yield* sql`select 1`
          })
        )
      )
    }).pipe(Effect.provide(clients))
    expect(Exit.isSuccess(exit) ? "committed" : exit.cause.toString()).toBe("committed")
    expect(yield* session.rows("select name from public.ledger")).toEqual([{ name: "kept" }])
  })
)
