/** Servers to restore into, and a storage in which every kind of job waits for its turn. */
import { make, type EmbeddedPostgres } from "effect-awa/layers/EmbeddedPostgres"
import * as Migrations from "effect-awa/Migrations"
import * as RuntimePool from "effect-awa/RuntimePool"
import { Data, Effect, Redacted, type Scope } from "effect"
import { expect } from "vitest"
import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { awaHere } from "../cli/support.js"
import { connect, type PgFault, type Session } from "../pg/database.js"
import { type Attempt, bigints, claim, close, column, enqueue, settle } from "../pg/engine.js"

export type Server = EmbeddedPostgres["Type"]

/** Debian's build of PostgreSQL 15, which comes with the client tools that npm's lacks. */
export const debian = "/usr/lib/postgresql/15"
export const hasDebian = Fs.existsSync(`${debian}/bin/pg_dump`)

export const settings = { fsync: "off", full_page_writes: "on", max_connections: "50", max_prepared_transactions: "10" }

export const newest = (more: Readonly<Record<string, string>> = {}) => make({ settings: { ...settings, ...more } })
export const fifteen = (more: Readonly<Record<string, string>> = {}) =>
  make({ binaries: debian, settings: { ...settings, ...more } })

export const urlOf = (server: Server, database = "app"): string => Redacted.value(server.url(database))

export class ToolFailed extends Data.TaggedError("ToolFailed")<{ readonly message: string }> {}

/** A program's end, with what it said when it failed. */
export const tool = (
  command: string,
  args: ReadonlyArray<string>,
  options: ChildProcess.SpawnOptions = {}
): Effect.Effect<void, ToolFailed> =>
  Effect.async((resume) => {
    const child = ChildProcess.spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] })
    let said = ""
    child.stdout.on("data", (chunk: Buffer) => (said += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()))
    child.once("error", (cause) => resume(Effect.fail(new ToolFailed({ message: `${command}: ${cause.message}` }))))
    child.once("close", (code) =>
      resume(
        code === 0
          ? Effect.void
          : Effect.fail(new ToolFailed({ message: `${command} ended with ${String(code)}: ${said}` }))
      )
    )
  })

/** The account that a server runs as. */
export const accountOf = (server: Server): { readonly uid: number; readonly gid: number } => {
  const { gid, uid } = Fs.statSync(server.dataDir)
  return { uid, gid }
}

/** A directory that the account of a server may write to. */
export const directoryFor = (server: Server): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const directory = Fs.mkdtempSync(Path.join(Os.tmpdir(), "effect-awa-restore-"))
      const { gid, uid } = accountOf(server)
      if (process.getuid?.() === 0) Fs.chownSync(directory, uid, gid)
      return directory
    }),
    (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
  )

export const administer = (server: Server, sql: string): Effect.Effect<void, PgFault> =>
  Effect.scoped(Effect.flatMap(connect(urlOf(server, "postgres")), (session) => session.script(sql)))

/** Moves a server's transaction ids on. */
export const burn = (server: Server, count: number) =>
  administer(server, `do $$ begin for i in 1..${count} loop perform pg_current_xact_id(); commit; end loop; end $$`)

export const install = (server: Server) =>
  Effect.zipRight(administer(server, "create database app"), Migrations.migrate({ url: server.url("app"), ring: 4 }))

/** Moves the current segment on; what is asked is the entries' sequence. */
const rotate = (session: Session) =>
  Effect.gen(function* () {
    yield* session.script("select nextval('awa.entry_seq') from generate_series(1, 64)")
    expect(yield* session.value("select awa.rotate('0', 1)")).toBe("opened")
    expect(yield* session.value("select awa.rotate('0', 1)")).toBe("advanced")
  })

export interface Populated {
  /** What has to run, in its order: all of one lane. */
  readonly runnable: ReadonlyArray<bigint>
  readonly completed: ReadonlyArray<bigint>
  /** Attempts that are open. */
  readonly open: ReadonlyArray<Attempt>
  /** The tables that a restore must not change, as text. */
  readonly kept: ReadonlyArray<unknown>
}

/** Everything that stays as it is: ended, waiting for a time, or a holder of a unique key. */
export const keptOf = (session: Session) =>
  session.rows(`
    select 'deferred ' || (to_jsonb(d) - 'xid')::text as row from awa.deferred_jobs d
    union all select 'terminal ' || to_jsonb(t)::text from awa.terminal_jobs t
    union all select 'dead ' || to_jsonb(t)::text from awa.dlq_entries t
    union all select 'unique ' || to_jsonb(u)::text from awa.unique_claims u
    union all select 'queue ' || to_jsonb(q)::text from awa.queues q
    union all select 'closed ' || jsonb_build_array(a.job_id, a.run_lease, a.outcome, a.closed_at, a.progress)::text
      from awa.attempts a where a.outcome <> 'released'
    order by 1`)

/** Jobs in every state, over three segments, with a head, a late committer and attempts that were open. */
export const populate = (url: string): Effect.Effect<Populated, PgFault> =>
  Effect.scoped(
    Effect.gen(function* () {
      const [session, other] = yield* Effect.all([connect(url), connect(url)])
      yield* session.script("insert into awa.queues (queue, aging) values ('q', '0')")
      const completed = yield* enqueue(session, 40)
      const done = yield* claim(session)
      yield* close(session, done)
      yield* enqueue(session, 6)
      const [failed, dead, retried, snoozed, cancelled, discarded] = yield* claim(session)
      for (const [attempt, outcome, detail] of [
        [failed, "failed", { error: { name: "Declined" } }],
        [dead, "dead_lettered", { reason: "poison" }],
        [retried, "retried", { error: { name: "Declined" }, delay_ms: 3_600_000 }],
        [snoozed, "snoozed", { delay_ms: 3_600_000, progress: { page: 4 } }],
        [cancelled, "cancelled", {}],
        [discarded, "discarded", {}]
      ] as const) {
        if (attempt === undefined) throw new Error("six attempts")
        expect(yield* settle(session, attempt, outcome, detail)).toBe("closed")
      }
      yield* enqueue(session, 3, { opts: { delay_ms: 7_200_000 } })
      yield* session.script(
        "insert into awa.unique_claims values (sha256('a'), 3, 3, now() + interval '1 day'), (sha256('b'), 47, 1, null)"
      )
      const first = yield* enqueue(session, 5)
      const open = [...(yield* claim(session, { limit: 2 }))]
      yield* other.script("begin")
      const late = yield* enqueue(other, 3)
      const passing = yield* enqueue(session, 1)
      open.push(...(yield* claim(session, { limit: 4 })))
      yield* other.script("commit")
      yield* rotate(session)
      // two of the late ones leave the ring, and one of them is claimed from the head
      expect(yield* session.value("select awa.spill_0('q', 2::smallint, 2)")).toBe(2)
      open.push(...(yield* claim(session, { limit: 1 })))
      const sealed = yield* enqueue(session, 20)
      yield* rotate(session)
      const current = yield* enqueue(session, 20)
      return {
        runnable: [...first, ...passing, ...late, ...sealed, ...current],
        completed,
        open,
        kept: yield* keptOf(session)
      }
    })
  )

/** What a runtime says when it starts here. */
export const start = (server: Server, database = "app") =>
  Effect.scoped(RuntimePool.make({ url: server.url(database) })).pipe(
    Effect.as("started"),
    Effect.catchTag("StartRefused", (refused) => Effect.succeed(refused.message))
  )

export const refused = (server: Server, why: string) =>
  Effect.map(start(server), (said) => {
    expect(said).toContain("database-replaced")
    expect(said).toContain("awa storage rebase")
    expect(said).toContain(why)
  })

/** The copied beats, if any, are old by now; the command does what it says. */
export const rebase = (server: Server) =>
  Effect.gen(function* () {
    const env = { AWA_DATABASE_URL: urlOf(server) }
    const asked = yield* awaHere(["storage", "rebase"], env)
    expect(asked).toMatchObject({ code: 1 })
    expect(asked.stderr).toContain("--yes")
    const done = yield* awaHere(["storage", "rebase", "--yes"], env)
    expect(done).toMatchObject({ code: 0, stderr: "" })
    expect(done.stdout).toContain("Rebased")
    const again = yield* awaHere(["storage", "rebase", "--yes"], env)
    expect(again).toMatchObject({ code: 1, stdout: "" })
    expect(again.stderr).toContain("nothing to rebase")
    return done.stdout
  })

/** Claims and completes all there is, and answers the jobs in the order in which they ran. */
export const drain = (session: Session): Effect.Effect<ReadonlyArray<bigint>, PgFault> =>
  Effect.gen(function* () {
    const ran: Array<bigint> = []
    for (;;) {
      const taken = yield* claim(session, { limit: 7 })
      if (taken.length === 0) return ran
      ran.push(...taken.map((attempt) => attempt.job_id))
      expect(new Set(yield* close(session, taken))).toEqual(new Set(["closed"]))
    }
  })

/** After a restore and whatever it needed: all that was there runs exactly once, in order, before what is new. */
export const runsOnce = (server: Server, populated: Populated, database = "app") =>
  Effect.scoped(
    Effect.gen(function* () {
      const session = yield* connect(urlOf(server, database))
      expect(yield* keptOf(session)).toEqual(populated.kept)
      // tokens of the original are nobody's here
      expect(new Set(yield* close(session, populated.open))).toEqual(new Set(["stale"]))
      const fresh = yield* enqueue(session, 3)
      expect(yield* drain(session)).toEqual([...populated.runnable, ...fresh])
      const completed = yield* session.rows("select job_id from awa.attempts where outcome = 'completed' order by 1")
      const all = [...populated.completed, ...populated.runnable, ...fresh]
      expect(bigints(column(completed, "job_id"))).toEqual(all.sort((a, b) => Number(a - b)))
      // what was restored is history, which goes when its time has come
      const history = yield* session.value("select count(*) from awa.segments where state = 'drained'")
      for (let left = Number(history); left > 0; left--) {
        expect(yield* session.value("select awa.prune_segment('0')")).not.toBeNull()
      }
      yield* rotate(session)
      const later = yield* enqueue(session, 2)
      expect(yield* drain(session)).toEqual(later)
    })
  )

/** Without a rebase: what was unclaimed runs in its order, and what was claimed when it is rescued. */
export const adoptedRuns = (server: Server, populated: Populated, database = "app", url = urlOf(server, database)) =>
  Effect.scoped(
    Effect.gen(function* () {
      const session = yield* connect(url)
      expect(yield* keptOf(session)).toEqual(populated.kept)
      const open = populated.open.map((attempt) => attempt.job_id)
      expect(yield* drain(session)).toEqual(populated.runnable.filter((id) => !open.includes(id)))
      expect(yield* session.value("select awa.rescue_stale('0', 100)")).toBe(open.length)
      expect(yield* drain(session)).toEqual(open)
    })
  )
