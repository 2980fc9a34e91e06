/**
 * C-30, both ways: no statement of the runtime on an application's connection, and none of the application's on the runtime's.
 * The server's own log of every statement, by `application_name`, decides; the handlers do whatever a seed says.
 */
import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Config, Effect, Layer, Option, Schema } from "effect"
import { Admin, Inspect, JobId, RuntimePool } from "effect-awa"
import { make as embedded } from "effect-awa/layers/EmbeddedPostgres"
import { TestDatabase, Testing } from "effect-awa/testing"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { makeRandom, type Random } from "../stress/random.js"
import { settings } from "../tools/globalSetup.js"
import { eventually, insertRow, keptLocks } from "./support.js"
import { Charge, Declined, Direct, Notify, type Owned, type OwnedHandler, run } from "./world.js"

const seed = Number(process.env["AWA_SEED"] ?? Math.floor(Math.random() * 2 ** 31))
const jobs = 60

/** A server that logs every statement, whole, with who sent it. */
const logging = {
  ...settings,
  logging_collector: "on",
  log_destination: "jsonlog",
  log_directory: "log",
  log_filename: "all.log",
  log_rotation_age: "0",
  log_rotation_size: "0",
  log_statement: "all"
}

const Line = Schema.parseJson(
  Schema.Struct({
    dbname: Schema.optional(Schema.String),
    application_name: Schema.optional(Schema.String),
    message: Schema.optional(Schema.String)
  })
)

interface Sent {
  readonly by: string
  /** `statement`, or `execute` with the name of what was prepared. */
  readonly how: string
  readonly sql: string
}

const statements = (dataDir: string, database: string): ReadonlyArray<Sent> =>
  readFileSync(join(dataDir, "log", "all.json"), "utf8")
    .split("\n")
    .flatMap((text): ReadonlyArray<Sent> => {
      const line = Option.getOrUndefined(Schema.decodeOption(Line)(text))
      const found = /^(statement|execute [^:]*): ([\s\S]*)$/.exec(line?.message ?? "")
      if (line === undefined || found === null || line.dbname !== database) return []
      return [{ by: line.application_name ?? "", how: found[1] ?? "", sql: found[2] ?? "" }]
    })

/** The library's functions that a statement names. */
const calls = (sql: string): ReadonlyArray<string> =>
  Array.from(sql.matchAll(/"awa"\.(\w+)/g), ([, name]) => name ?? "")

/** What an application's connection may be asked to do for the library: its own part of the contract, and nothing else. */
const ofTheApplication = (sql: string): boolean =>
  calls(sql).every((name) => name === "insert_batch" || name === "complete_job") &&
  !/\bawa\.(?!finalized)|pg_notify|^listen|begin isolation level/.test(sql)

const ofTheRuntime = (sql: string): boolean =>
  !/application_rows|savepoint|insert_jobs|insert_batch|complete_job\(|awa\.finalized/i.test(sql) &&
  (calls(sql).length > 0 ||
    /^(begin isolation level read committed; set local|set statement_timeout = 5000; |commit$|listen |select pg_notify|select to_regclass)/.test(
      sql
    ) ||
    /pg_control_system|max_connections|pg_backend_pid/.test(sql))

type Operators = Admin.Admin["Type"] & Inspect.Inspect["Type"]

/** One thing that a handler might do, well or badly. */
const acts = {
  forkDaemon: () => Effect.forkDaemon(Effect.delay(Effect.ignore(insertRow("daemon")), "30 millis")),
  nest: () => Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.ignore(sql.withTransaction(insertRow("nested")))),
  undo: () =>
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      Effect.ignore(sql.withTransaction(Effect.zipRight(insertRow("undone"), new Declined())))
    ),
  enqueue: () => Effect.ignore(Notify.enqueue({ tag: "child" })),
  finalizeInside: (job: Owned) =>
    Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.ignore(sql.withTransaction(job.finalize(insertRow("inside"))))),
  leakCompletion: (job: Owned) =>
    Effect.forkDaemon(Effect.delay(Effect.ignore(job.finalize(insertRow("late"))), "20 millis")),
  inspect: (job: Owned, operators: Operators) => Effect.ignore(operators.job(job.jobId)),
  administer: (job: Owned, operators: Operators) => Effect.ignore(operators.reprioritize([job.jobId], 3)),
  cancelOther: (job: Owned, operators: Operators) => Effect.ignore(operators.cancel([JobId.make(job.jobId + 1n)])),
  progress: (job: Owned) => Effect.ignore(job.progress.set({ at: job.runLease.toString() })),
  wait: () => Effect.sleep("25 millis"),
  fail: () => new Declined(),
  die: () => Effect.die(new Error("a defect")),
  interrupt: () => Effect.interrupt
}

const weights = {
  forkDaemon: 4,
  nest: 4,
  undo: 3,
  enqueue: 4,
  finalizeInside: 3,
  leakCompletion: 1,
  inspect: 4,
  administer: 3,
  cancelOther: 1,
  progress: 3,
  wait: 4,
  fail: 1,
  die: 1,
  interrupt: 1
}

const some = (random: Random, job: Owned, operators: Operators, done: Map<string, number>) =>
  Effect.forEach(
    Array.from({ length: random.between(0, 4) }, () => random.weighted(weights)),
    (name) => {
      done.set(name, (done.get(name) ?? 0) + 1)
      return acts[name](job, operators)
    },
    { discard: true }
  )

describe(`whatever handlers do, by seed ${seed}`, () => {
  it.live(
    "each side's statements stay on its own connections, in the server's own log",
    () =>
      Effect.gen(function* () {
        const server = yield* embedded({ settings: logging })
        const done = new Map<string, number>()
        let operators: Operators | undefined
        const owned: OwnedHandler = (job) =>
          Effect.suspend(() => {
            const random = makeRandom(seed, `${job.payload.tag}/${job.runLease}`)
            const act = operators === undefined ? Effect.void : some(random, job, operators, done)
            const inside = operators === undefined ? Effect.void : some(random, job, operators, done)
            return Effect.zipRight(act, job.finalize(Effect.zipRight(insertRow(job.payload.tag), inside)))
          })
        yield* run({ server: Config.succeed(server.url("postgres")), owned, worker: { beat: "30 millis" } }, () =>
          Effect.gen(function* () {
            const { name, url } = yield* TestDatabase.TestDatabase
            const services = yield* Layer.build(
              Layer.provide(Layer.merge(Admin.layer(), Inspect.layer), RuntimePool.layer({ url }))
            )
            operators = yield* Effect.provide(
              Effect.map(Effect.all([Admin.Admin, Inspect.Inspect]), ([admin, inspect]) => ({ ...inspect, ...admin })),
              services
            )
            yield* Charge.enqueueAll(Array.from({ length: jobs }, (_, i) => ({ tag: `job ${i}` })))
            yield* (yield* Testing.Testing).drain({ scheduled: true, atMost: "2 minutes" })
            const sql = yield* Direct
            yield* eventually(
              "the last of what was leaked",
              Effect.map(
                sql`select from pg_stat_activity where application_name = 'application' and pid <> pg_backend_pid() and state <> 'idle'
                    and datname = current_database()`,
                (rows) => rows.length === 0
              )
            )
            // between two transactions no connection holds a lock
            assert.deepStrictEqual(yield* keptLocks(sql), [])
            const log = statements(server.dataDir, name)
            const by = (application: string) => log.filter((sent) => sent.by === application)
            const strange = [
              ...by("application").filter(({ sql }) => !ofTheApplication(sql)),
              ...by("effect-awa runtime").filter(({ sql }) => !ofTheRuntime(sql)),
              ...by("effect-awa runtime listener").filter(({ sql }) => !sql.startsWith("listen "))
            ]
            assert.deepStrictEqual(strange, [])
            // nothing is prepared by name but what is asked for all the time, on connections that are direct
            const how = (application: string) => [...new Set(by(application).map(({ how }) => how))]
            assert.sameMembers(how("effect-awa runtime"), [
              "statement",
              "execute <unnamed>",
              "execute effect_awa_claim",
              "execute effect_awa_attempt-evidence",
              "execute effect_awa_close-completed"
            ])
            assert.sameMembers(how("application"), [
              "statement",
              "execute <unnamed>",
              "execute effect_awa_complete",
              "execute effect_awa_commit"
            ])
            // and it was no empty log, nor an idle handler
            const seen = (application: string) => new Set(by(application).flatMap(({ sql }) => calls(sql)))
            assert.includeMembers([...seen("application")], ["insert_batch", "complete_job"])
            assert.includeMembers(
              [...seen("effect-awa runtime")],
              [
                "claim",
                "heartbeat",
                "attempt_evidence",
                "settle_attempt",
                "close_completed",
                "beat_runtime",
                "rescue_stale"
              ]
            )
            assert.includeMembers(
              [...done.keys()],
              ["forkDaemon", "nest", "undo", "enqueue", "finalizeInside", "inspect", "administer", "progress", "wait"]
            )
          }).pipe(Effect.scoped)
        )
      }).pipe(Effect.scoped),
    180_000
  )
})
