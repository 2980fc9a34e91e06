/** Dumps and copies into servers that know nothing of the original's transaction ids (contract C-34). */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { connect, PgFault } from "../pg/database.js"
import {
  administer,
  adoptedRuns,
  burn,
  debian,
  directoryFor,
  fifteen,
  hasDebian,
  install,
  newest,
  populate,
  rebase,
  refused,
  runsOnce,
  type Server,
  start,
  tool,
  urlOf
} from "./support.js"

if (!hasDebian) console.info(`skipped: what needs pg_dump, since ${debian}/bin is not there`)

/** Dumps one server's database into another's. */
const dumpInto = (from: Server, to: Server) =>
  Effect.gen(function* () {
    const file = `${yield* directoryFor(from)}/dump`
    yield* tool(`${debian}/bin/pg_dump`, ["--format=custom", `--file=${file}`, `--dbname=${urlOf(from)}`])
    yield* administer(to, "create database app")
    yield* tool(`${debian}/bin/pg_restore`, ["--exit-on-error", `--dbname=${urlOf(to)}`, file])
  }).pipe(Effect.scoped)

/** Every table of the schema, whose rows are carried over by files on the server's side; sequences are not. */
const copyTables = (from: Server, to: Server) =>
  Effect.scoped(
    Effect.gen(function* () {
      const directory = yield* directoryFor(from)
      const [source, target] = yield* Effect.all([connect(urlOf(from)), connect(urlOf(to))])
      const tables = yield* source.rows(
        "select relname::text as name from pg_class where relnamespace = 'awa'::regnamespace and relkind = 'r'"
      )
      yield* source.script("begin isolation level repeatable read")
      for (const { name } of tables) {
        yield* source.script(`copy awa.${String(name)} to '${directory}/${String(name)}'`)
        yield* target.script(
          `truncate awa.${String(name)}; copy awa.${String(name)} from '${directory}/${String(name)}'`
        )
      }
    })
  )

describe.skipIf(!hasDebian)("pg_dump of 15", () => {
  it.scopedLive("into a younger 15: refused, rebased, and everything runs exactly once in its order", () =>
    Effect.gen(function* () {
      const original = yield* fifteen()
      yield* burn(original, 20_000)
      yield* install(original)
      const populated = yield* populate(urlOf(original))
      const restored = yield* fifteen()
      yield* dumpInto(original, restored)
      yield* refused(restored, "ahead")
      expect(yield* rebase(restored)).toContain("7 attempts were open")
      expect(yield* start(restored)).toBe("started")
      yield* runsOnce(restored, populated)
      // and the original is as it was
      expect(yield* start(original)).toBe("started")
    })
  )

  it.scopedLive("into a newer major, whose transaction ids lie between the stored ones", () =>
    Effect.gen(function* () {
      const original = yield* fifteen()
      yield* burn(original, 3_000)
      yield* install(original)
      const populated = yield* populate(urlOf(original))
      const restored = yield* newest()
      const [middle] = yield* Effect.scoped(
        Effect.flatMap(connect(urlOf(original)), (session) =>
          session.rows(
            "select (min(xid)::text::bigint + max(xid)::text::bigint) / 2 as middle, max(xid)::text::bigint - min(xid)::text::bigint as width from awa.ready_entries"
          )
        )
      )
      yield* dumpInto(original, restored)
      const at = yield* Effect.scoped(
        Effect.flatMap(connect(urlOf(restored)), (session) =>
          session.value("select pg_current_xact_id()::text::bigint")
        )
      )
      yield* burn(restored, Number(middle?.["middle"]) - Number(at) - 1)
      yield* refused(restored, "ahead")
      yield* rebase(restored)
      expect(yield* start(restored)).toBe("started")
      yield* runsOnce(restored, populated)
    })
  )

  it.scopedLive("into a server whose transaction ids have come further is adopted by itself", () =>
    Effect.gen(function* () {
      const original = yield* fifteen()
      yield* install(original)
      const populated = yield* populate(urlOf(original))
      const restored = yield* fifteen()
      yield* burn(restored, 20_000)
      yield* dumpInto(original, restored)
      expect(yield* start(restored)).toBe("started")
      yield* adoptedRuns(restored, populated)
    })
  )
})

describe("a copy of the tables by COPY", () => {
  it.scopedLive("leaves the sequences behind: refused, rebased, and everything runs exactly once in its order", () =>
    Effect.gen(function* () {
      const [original, copy] = yield* Effect.all([newest(), newest()], { concurrency: 2 })
      yield* Effect.all([install(original), install(copy)], { concurrency: 2 })
      const populated = yield* populate(urlOf(original))
      yield* burn(copy, 20_000) // its transaction ids are no obstacle
      yield* copyTables(original, copy)
      yield* refused(copy, "sequence")
      yield* rebase(copy)
      expect(yield* start(copy)).toBe("started")
      yield* runsOnce(copy, populated)
    })
  )
})

describe("a subscription", () => {
  it.scopedLive("refuses a rebase while it writes; then it is a copy like any other", () =>
    Effect.gen(function* () {
      const [original, copy] = yield* Effect.all([newest({ wal_level: "logical" }), newest()], { concurrency: 2 })
      yield* Effect.all([install(original), install(copy)], { concurrency: 2 })
      yield* burn(original, 20_000)
      const source = yield* connect(urlOf(original))
      const target = yield* connect(urlOf(copy))
      yield* source.script("create publication everything for tables in schema awa")
      const tables = yield* target.value(
        "select string_agg('awa.' || relname, ', ') from pg_class where relnamespace = 'awa'::regnamespace and relkind = 'r'"
      )
      yield* target.script(`truncate ${String(tables)}`)
      yield* target.script(`create subscription awa_copy connection '${urlOf(original)}' publication everything`)
      // part of it comes by the first copy, part of it by the stream
      const populated = yield* populate(urlOf(original))
      const mark = yield* source.value("select pg_current_wal_lsn()::text")
      yield* source
        .value(
          "select coalesce(bool_or(confirmed_flush_lsn >= $1::text::pg_lsn), false) from pg_replication_slots where slot_name = 'awa_copy'",
          [mark]
        )
        .pipe(
          Effect.zipWith(
            target.value("select bool_and(srsubstate = 'r') from pg_subscription_rel"),
            (flushed, ready) => flushed === true && ready === true
          ),
          Effect.filterOrFail(
            (caughtUp) => caughtUp,
            () => new PgFault({ code: "", message: "the subscription has not caught up", detail: undefined })
          ),
          Effect.retry(Schedule.spaced("100 millis").pipe(Schedule.upTo("60 seconds")))
        )
      yield* refused(copy, "ahead")
      const fault = yield* Effect.flip(target.value("select awa.rebase_storage()"))
      expect(fault).toMatchObject({ code: "55000" })
      expect(fault.message).toContain("awa_copy")
      yield* target.script("drop subscription awa_copy")
      yield* rebase(copy)
      expect(yield* start(copy)).toBe("started")
      yield* runsOnce(copy, populated)
    })
  )
})
