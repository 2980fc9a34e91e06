/** Databases for test files, and the waiting that a race of two sessions needs. */
import { isStrict, makeStrict } from "../tools/strictRoles.js"
import { Effect, Exit, Schedule, Schema, Scope } from "effect"
import { afterAll, beforeAll, expect, inject } from "vitest"
import {
  at,
  connect,
  createDatabase,
  freshName,
  installText,
  PgFault,
  rollbackPrepared,
  type Session
} from "./database.js"
import { column, enqueue, isBigint } from "./engine.js"
import { throughPooler } from "../tools/throughPooler.js"
import { sabotages } from "./sabotages.js"

export * from "./engine.js"

export interface Database {
  readonly name: string
  readonly url: string
  /** Another session of the owner. */
  readonly session: Effect.Effect<Session, PgFault, Scope.Scope>
}

/** A sabotage to look at by hand: `AWA_SABOTAGE="<its name>" npx vitest run test/pg`. */
export const edit = (() => {
  const chosen = process.env["AWA_SABOTAGE"]
  if (chosen === undefined) return undefined
  const found = sabotages.find(({ name }) => name === chosen)
  if (found === undefined) throw new Error(`no sabotage is called ${chosen}`)
  return found
})()

export interface DatabaseOptions {
  readonly ring?: number
  /** Statements to run after the installation. */
  readonly then?: string
  /** Whether it is proven whose database this is, as a worker does when it starts (C-34); true unless said otherwise. */
  readonly proven?: boolean
}

const install = (server: string, name: string, { proven = true, ring = 4, then = "" }: DatabaseOptions) =>
  Effect.gen(function* () {
    const url = yield* createDatabase(server, name)
    yield* Effect.scoped(
      Effect.gen(function* () {
        const session = yield* connect(url)
        yield* session.script(`begin;\n${installText({ ring, edit })}\n${then}\ncommit;\n`)
        yield* session.script(resetFunction)
        if (proven) yield* session.script("select awa.prove_identity()")
      })
    )
    if (isStrict) yield* makeStrict(url)
  })

/** Back to what was installed: cheaper by far than another copy of the database for every test. */
const resetFunction = `
create schema reset;
create table reset.segments as table awa.segments;
create function reset.everything() returns void language plpgsql as $$
declare
  v_table  regclass;
  v_used   boolean;
begin
  for v_table in
    select c.oid from pg_class c where c.relnamespace = 'awa'::regnamespace and c.relkind = 'r' and c.relname <> 'meta'
  loop
    execute format('select exists (select from %s)', v_table) into v_used;
    if v_used then  -- a TRUNCATE makes new files for the table and all its indexes
      execute format('truncate %s', v_table);
    end if;
  end loop;
  insert into awa.segments table reset.segments;
  perform setval(s, 1, false)
  from unnest('{awa.job_ids,awa.runtime_ids,awa.entry_seq,awa.batch_seq}'::regclass[]) s;
  perform setval('awa.segment_cursor', (select ring_size from awa.meta));
end $$`

/** Whoever was left behind by an earlier test of the file, a prepared transaction included, is gone. */
const reset = (session: Session) =>
  Effect.gen(function* () {
    yield* rollbackPrepared(session)
    yield* session
      .value(
        `select count(pg_terminate_backend(pid)) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`
      )
      .pipe(Effect.repeat({ schedule: Schedule.spaced("5 millis"), until: (left) => left === 0n }))
    yield* session.value("select reset.everything()")
  })

/** Installs the schema once for a test file, whose tests then find it empty. Called at the top of a file. */
export const fileDatabase = (options: DatabaseOptions = {}): Effect.Effect<Database, PgFault> => {
  const server = inject("postgresUrl")
  const name = freshName("file")
  const url = at(server, name)
  const scope = Effect.runSync(Scope.make())
  beforeAll(() => Effect.runPromise(Scope.extend(install(server, name, options), scope)))
  afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))
  return Effect.as(Effect.scoped(Effect.flatMap(connect(url), reset)), {
    name,
    url,
    session: connect(throughPooler(url))
  })
}

/** With an older segment, which another queue keeps from being drained: a claim that finds two goes step by step. */
export const besideOlder = (database: Effect.Effect<Database, PgFault>) =>
  Effect.tap(database, ({ session }) =>
    Effect.scoped(
      Effect.gen(function* () {
        const older = yield* session
        yield* enqueue(older, 1, { queue: "elsewhere" })
        yield* rotate(older)
      })
    )
  )

/** The fault of a statement that must fail, with the SQLSTATE that it must have. */
export const fault = <A>(effect: Effect.Effect<A, PgFault>, code: string): Effect.Effect<PgFault> =>
  Effect.flip(effect).pipe(
    Effect.catchAll((result) =>
      Effect.dieMessage(
        `expected ${code}, got ${JSON.stringify(result, (_, v: unknown) => (isBigint(v) ? String(v) : v))}`
      )
    ),
    Effect.tap((error) => Effect.sync(() => expect(`${error.code} ${error.message}`).toContain(`${code} `)))
  )

/** Waits until another session waits for a lock; behind a pooler in transaction mode a session is no backend: until one does. */
export const blocked = (observer: Session, waiting: Session): Effect.Effect<void, PgFault> =>
  (inject("poolMode") === "transaction"
    ? observer.value(
        "select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
      )
    : observer.value("select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", [waiting.pid])
  ).pipe(
    Effect.filterOrFail(
      (answer) => answer === true,
      () => new PgFault({ code: "", message: "the session does not wait for a lock", detail: undefined })
    ),
    Effect.retry(Schedule.spaced("5 millis").pipe(Schedule.upTo("10 seconds"))),
    Effect.asVoid
  )

/** Moves the current segment on. */
export const rotate = (session: Session) =>
  Effect.gen(function* () {
    // The entries' sequence is what tells an idle segment; a session may have numbers of it in its cache.
    yield* session.script("select nextval('awa.entry_seq') from generate_series(1, 64)")
    expect(yield* session.value("select awa.rotate('0', 1)")).toBe("opened")
    expect(yield* session.value("select awa.rotate('0', 1)")).toBe("advanced")
  })

export const drain = (session: Session) => session.value("select awa.drain_segments()")

export const prune = (session: Session, keep = "0") => session.value("select awa.prune_segment($1::interval)", [keep])

export const states = (session: Session) =>
  Effect.map(session.rows("select state from awa.segments order by slot"), (rows) => column(rows, "state").join(" "))

export const currentSlot = (session: Session) =>
  session.value("select (last_value % (select ring_size from awa.meta))::int from awa.segment_cursor")

/** Everything is claimed and closed, and gone with its segment: rotates out the current segment and prunes it. */
export const recycle = (session: Session) =>
  Effect.gen(function* () {
    yield* rotate(session)
    expect(yield* drain(session)).toBe(1)
    expect(yield* prune(session)).not.toBeNull()
  })

const Explained = Schema.Tuple(
  Schema.Struct({
    Plan: Schema.Struct({ "Shared Hit Blocks": Schema.Number, "Shared Read Blocks": Schema.Number })
  })
)

/** The blocks that a statement touches, whatever functions it runs: a measure that no other load disturbs. */
export const explainBuffers = (session: Session, sql: string) =>
  session.value(`explain (analyze, buffers, timing off, format json) ${sql}`).pipe(
    Effect.map((plan) => Schema.decodeUnknownSync(Explained)(plan)[0].Plan),
    Effect.map((plan) => plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
  )
