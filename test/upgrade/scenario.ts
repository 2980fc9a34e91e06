/**
 * A rolling upgrade under load: generation N at work, the schema upgraded under it, N+1 beside it, N leaving. Processes of both
 * die meanwhile. Contract C-60 … C-62.
 */
import { SqlClient } from "@effect/sql"
import { Context, Effect, Fiber, Layer, Option, Redacted, Ref, Schedule } from "effect"
import { Admin, AdminError, RuntimePool } from "effect-awa"
import { type Generation, nextContract, nextVersion } from "./generations.js"
import { done, drained, faultsOfLedger, feed, longestPause, now, type Span } from "./load.js"
import { type Process, startProcess } from "./processes.js"

/** Shorter than what a worker may be silent for while it lives, even on a machine that is busy. */
const enablingStaleness = "6 seconds"

/** "Throughout": the migration's locks and a busy machine are no reason for more. */
const longestPauseMillis = 5_000

export interface Report {
  readonly faults: ReadonlyArray<string>
  readonly figures: Readonly<Record<string, number>>
}

/** Everything that a process which is refused could have written. */
const stored = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ what: string }>`
      select md5(coalesce(string_agg(w.line, '|' order by w.line), '')) as what from (
        select m::text as line from awa.meta m union all select r.runtime_id::text from awa.runtimes r
        union all select a::text from awa.audit a union all select q::text from awa.queues q
        union all select c.relname || c.xmin::text from pg_class c where c.relnamespace = 'awa'::regnamespace and c.relkind in ('r', 'v', 'i')
        union all select p.proname || p.xmin::text from pg_proc p where p.pronamespace = 'awa'::regnamespace) w`,
    ([row]) => row?.what ?? ""
  )
)

export const rehearse = (
  url: Redacted.Redacted,
  programs: Readonly<Record<Generation, string>>,
  seconds: number,
  say: (line: string) => Effect.Effect<void>
) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const faults: Array<string> = []
    const figures: Record<string, number> = {}
    const expect = (is: boolean, fault: string): void => {
      if (!is) faults.push(fault)
    }
    const start = (generation: Generation, name: string, does: "work" | "migrate" = "work") =>
      startProcess(programs[generation], { does, generation, name, database: Redacted.value(url) })
    const worker = (generation: Generation, name: string) =>
      Effect.tap(start(generation, name), (started: Process) => started.ready)
    const pool = RuntimePool.layer({ url, maxConnections: 2 })
    const operator = yield* Layer.build(Layer.provide(Admin.layer({ staleness: enablingStaleness }), pool))
    const admin = Context.get(operator, Admin.Admin)

    /** A stretch of time in which both generations that are there get something done, of the kinds that they may do. */
    const stretch = Effect.fnUntraced(function* (
      name: string,
      generations: ReadonlyArray<Generation>,
      paying: boolean,
      meanwhile: Effect.Effect<void, Error> = Effect.void
    ) {
      const from = yield* now
      yield* Effect.all([Effect.sleep(seconds * 1_000), meanwhile], { concurrency: 2 })
      // a backlog comes first: then it takes a while longer
      yield* Effect.forEach(generations, (generation) =>
        Effect.flatMap(now, (to) => done("work", generation, { from, to })).pipe(
          Effect.delay("200 millis"),
          Effect.repeat({ until: (worked) => worked > 0 }),
          Effect.timeoutOption("15 seconds")
        )
      )
      const span: Span = { from, to: yield* now }
      for (const generation of generations) {
        const work = yield* done("work", generation, span)
        const pay = yield* done("pay", generation, span)
        figures[`${name}: ${generation} worked`] = work
        figures[`${name}: ${generation} paid`] = pay
        expect(work > 0, `${name}: ${generation} completed no ordinary job`)
        if (paying) expect(pay > 0, `${name}: ${generation} completed no caller-owned job`)
      }
      yield* say(`${name}: ${generations.join(" and ")}, ${seconds} s`)
    })

    /** Tries to enable, and must not be let. Answers who is in the way. */
    const refused = (when: string) =>
      Effect.match(admin.enableCallerOwned("default"), {
        onSuccess: () => {
          faults.push(`${when}: enabled`)
          return []
        },
        onFailure: (error) => {
          expect(error instanceof AdminError.CallerOwnedRefused, `${when}: ${error.message}`)
          return error instanceof AdminError.CallerOwnedRefused ? error.runtimes.map(({ name }) => name).sort() : []
        }
      })
    const inTheWay = Effect.fnUntraced(function* (when: string, ...names: ReadonlyArray<string>) {
      const found = [...new Set(yield* refused(when))]
      expect(found.join() === names.join(), `${when}: refused because of ${found.join()}, not of ${names.join()}`)
    })

    /** A process that must refuse to do anything, and write nothing. */
    const refuses = Effect.fnUntraced(function* (generation: Generation, does: "work" | "migrate", reason: string) {
      const before = yield* stored
      const child = yield* start(generation, `a refused ${generation}`, does)
      const code = yield* Effect.timeoutOption(child.ended, "30 seconds")
      expect(Option.isSome(code) && code.value !== 0, `${generation} ${does} did not end as refused`)
      expect(
        child.said.join("\n").includes(reason),
        `${generation} ${does} does not say ${reason}: ${child.said.join("\n")}`
      )
      expect((yield* stored) === before, `${generation} ${does} was refused and wrote something`)
    })

    const rounds = yield* Ref.make(0)
    const feeder = yield* Effect.fork(
      Effect.tapError(feed(rounds), (error) => Effect.sync(() => faults.push(`the load ended: ${String(error.cause)}`)))
    )

    // N alone, and one of it dies
    const first = yield* worker("n", "n 1")
    const second = yield* worker("n", "n 2")
    yield* stretch("N alone", ["n"], true, second.kill)
    const third = yield* worker("n", "n 3")

    // the operator prepares the upgrade; N+1 does not start before its schema is there
    expect(yield* admin.disableCallerOwned("default"), "it was disabled before")
    const disabledAt = yield* now
    yield* Effect.map(
      sql`select from awa.deferred_jobs where state = 'gated' limit 5`,
      (rows) => rows.length === 5
    ).pipe(
      Effect.delay("50 millis"),
      Effect.repeat({ until: (enough) => enough }),
      Effect.timeoutFail({ duration: "20 seconds", onTimeout: () => new Error("nothing was put aside") })
    )
    const early = yield* start("n+1", "too early")
    const earlyCode = yield* early.ended
    expect(earlyCode !== 0 && early.said.join().includes("schema-outdated"), "N+1 started on the schema of N")

    // the schema is upgraded under N
    const beforeUpgrade = yield* now
    const migrator = yield* start("n+1", "migrator", "migrate")
    const migrated = yield* migrator.ended
    expect(
      migrated === 0 && migrator.said.join().includes(`migrated: upgraded ${nextVersion}`),
      `the upgrade failed: ${migrator.said.join("\n")}`
    )
    figures["paid during the upgrade"] = yield* done("pay", "%", { from: beforeUpgrade, to: yield* now })
    yield* stretch("N on the schema of N+1", ["n"], false)
    yield* inTheWay("with N alone", "n 1", "n 3")

    // both side by side; one of each dies
    const next = yield* worker("n+1", "n+1 1")
    const another = yield* worker("n+1", "n+1 2")
    yield* stretch("side by side", ["n", "n+1"], false, another.kill)
    const again = yield* worker("n+1", "n+1 3")
    yield* third.kill
    yield* inTheWay("with one N left", "n 1", "n 3")

    // the last N leaves; the one that died is forgotten in time
    yield* first.stop
    yield* inTheWay("right after the last N has left", "n 3")
    const enabled = yield* admin.enableCallerOwned("default").pipe(
      Effect.retry({
        schedule: Schedule.spaced("200 millis"),
        while: (error) => error instanceof AdminError.CallerOwnedRefused
      }),
      Effect.timeoutFail({ duration: "30 seconds", onTimeout: () => new Error("never enabled") })
    )
    const [audited] = yield* sql<{ at: string }>`
      select max(at)::text as at from awa.audit where verb = 'enable_caller_owned'` // before it was committed
    const enabledAt = audited?.at ?? ""
    figures["put aside and promoted"] = enabled
    expect(enabled > 0, "nothing had been put aside")
    const paid = yield* done("pay", "%", { from: disabledAt, to: enabledAt })
    expect(paid === 0, `${paid} payments were booked while that was disabled`)
    yield* stretch("N+1 alone", ["n+1"], true, next.kill)
    const last = yield* worker("n+1", "n+1 4")

    yield* Fiber.interrupt(feeder)
    figures["jobs"] = 3 * (yield* Ref.get(rounds))
    yield* drained
    const pause = yield* longestPause({ from: disabledAt, to: enabledAt })
    figures["longest pause of ordinary work, ms"] = pause
    expect(pause < longestPauseMillis, `no ordinary job was completed for ${pause} ms while the fleet was mixed`)
    yield* again.stop
    yield* last.stop
    faults.push(...(yield* faultsOfLedger))

    // the way back is closed: what N does not know is required by now
    yield* sql`update awa.meta set minimum_contract = ${nextContract}`
    yield* refuses("n", "work", "contract-unsupported")
    yield* refuses("n", "migrate", "SchemaTooNew")
    return { faults, figures } satisfies Report
  })
