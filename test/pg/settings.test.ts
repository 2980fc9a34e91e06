/** What callers, roles and old installations bring along: settings, clocks and large numbers must not matter. */
import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { randomBytes } from "node:crypto"
import { at, connect, installText, type Session } from "./database.js"
import { begin, claim, claimIds, close, complete, enqueue, evidence, fault, fileDatabase, only } from "./support.js"

const database = fileDatabase()

const roundTrip = (owner: Session, caller: Session) =>
  Effect.gen(function* () {
    const insert = (opts: unknown) =>
      caller.value("select awa.insert_job($1, $2::text::jsonb, $3, $4::text::jsonb)", [
        "it's\\a kind",
        JSON.stringify({ a: "\\" }),
        "q",
        JSON.stringify(opts)
      ])
    const id = yield* insert({ delay_ms: 0, run_at: null })
    const refused = yield* fault(insert({ run_at: "2030-01-01T00:00:00x5Z" }), "22023")
    expect(refused.message).toBe("job 0: run_at: expected an ISO 8601 time with its zone")
    const attempt = only(yield* claim(owner))
    expect([attempt.job_id, attempt.kind, attempt.args]).toEqual([id, "it's\\a kind", { a: "\\" }])
    const receipt = yield* complete(caller, attempt, { progress: { back: "\\" } })
    expect(receipt["outcome"]).toBe("completed")
    expect(yield* evidence(owner, [attempt])).toEqual([["closed", "completed"]])
  })

/** A role with nothing but the two functions of an application, and settings of its own. */
const applicationRole = (owner: Session, settings: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const role = `awa_pg_role_${randomBytes(4).toString("hex")}`
    const password = randomBytes(8).toString("hex")
    yield* Effect.acquireRelease(owner.script(`create role ${role} login password '${password}'`), () =>
      Effect.ignore(owner.script(`drop owned by ${role}; drop role ${role}`))
    )
    yield* owner.script(
      `grant usage on schema awa to ${role};
       revoke all on all routines in schema awa from public;
       grant execute on function awa.insert_job, awa.insert_jobs, awa.complete_job to ${role};
       ${settings.map((setting) => `alter role ${role} set ${setting};`).join("\n")}`
    )
    return { role, password }
  })

// F-32, F-79, C-12: no table privilege, and whatever the role's settings say
for (const settings of [
  ["search_path = ''"],
  ["standard_conforming_strings = off", "escape_string_warning = off", "backslash_quote = on"],
  ["default_transaction_isolation = 'serializable'"],
  ["default_transaction_isolation = 'repeatable read'", "default_transaction_deferrable = on"],
  [
    "plan_cache_mode = force_custom_plan",
    "enable_indexscan = off",
    "enable_nestloop = off",
    "jit = on",
    "jit_above_cost = 0"
  ],
  [
    "datestyle = 'SQL, DMY'",
    "intervalstyle = 'sql_standard'",
    "timezone = 'Pacific/Kiritimati'",
    "bytea_output = 'escape'"
  ],
  ["row_security = off", "check_function_bodies = off", "extra_float_digits = 0", "client_min_messages = error"]
]) {
  it.scopedLive(`a role with ${settings.join(", ")} enqueues and completes`, () =>
    Effect.gen(function* () {
      const db = yield* database
      const owner = yield* db.session
      const { password, role } = yield* applicationRole(owner, settings)
      const url = new URL(at(db.url, db.name, role))
      url.password = password
      // before the role is dropped
      yield* Effect.scoped(
        Effect.gen(function* () {
          const caller = yield* connect(url.href)
          expect(yield* caller.value("select current_user")).toBe(role)
          yield* roundTrip(owner, caller)
          const id = yield* caller.value("select awa.insert_job('k', '{}', 'q')")
          const attempt = only(yield* claim(owner))
          expect(attempt.job_id).toBe(id)
          yield* caller.script("begin")
          yield* complete(caller, attempt)
          expect(yield* caller.command("commit")).toBe("COMMIT")
          yield* fault(caller.rows("select * from awa.meta"), "42501")
          yield* fault(caller.rows("select * from awa.claim('q', 1, 1)"), "42501")
        })
      )
    })
  )
}

// C-50, C-54: shadowing by a schema of the caller's, and by its temporary objects
it.scopedLive("a caller's own functions and operators are not what complete_job calls", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    yield* Effect.acquireRelease(
      session.script(
        `create schema evil;
         create function evil.hit() returns boolean language plpgsql as $$ begin raise exception 'reached'; end $$;
         create function evil.clock_timestamp() returns timestamptz language sql as 'select null::timestamptz where evil.hit()';
         create function evil.pg_advisory_xact_lock(bigint) returns void language sql as 'select from evil.hit()';
         create function evil.ne(bigint, bigint) returns boolean language sql as 'select evil.hit()';
         create operator evil.<> (function = evil.ne, leftarg = bigint, rightarg = bigint);
         create operator evil.< (function = evil.ne, leftarg = bigint, rightarg = bigint);
         create temp table pg_database (oid oid, datname name)`
      ),
      () => Effect.ignore(session.script("reset search_path; drop schema evil cascade; drop table pg_temp.pg_database"))
    )
    yield* enqueue(session, 2)
    const attempts = yield* claim(session)
    yield* session.script("set search_path = evil, pg_temp, pg_catalog")
    for (const attempt of attempts) yield* complete(session, attempt)
    yield* enqueue(session, 1)
    expect(yield* claim(session)).toHaveLength(1)
  })
)

// F-31: a name that needs quoting wherever it goes, and the engine's lock keys and notes with it
it.scopedLive("a schema of any name works, beside another installation in the same database", () =>
  Effect.gen(function* () {
    const schema = `We"ird-$$-Sch\u00e9ma'\\ {{ring}}`
    const name = `"${schema.replaceAll('"', '""')}"`
    const db = yield* database
    const session = yield* db.session
    yield* Effect.acquireRelease(session.script(`begin; ${installText({ ring: 4, schema })}; commit`), () =>
      Effect.ignore(session.script(`drop schema ${name} cascade`))
    )
    const other = yield* db.session
    yield* begin(other)
    yield* enqueue(other, 1)
    const id = yield* session.value(`select ${name}.insert_job('k', '{}', 'q')`)
    const [row = {}] = yield* session.rows(`select * from ${name}.claim('q', 10, 1)`)
    expect(row["job_id"]).toBe(id)
    yield* begin(session)
    yield* session.rows(`select * from ${name}.complete_job($1, $2, $3, $4, $5, $6)`, [
      ...["job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index"].map((field) => row[field])
    ])
    expect(yield* session.value("select current_setting('awa.finalized')")).toBe(
      `[${schema}/${String(row["receipt_id"])}]`
    )
    yield* session.script("commit")
    expect(yield* session.value(`select outcome::text from ${name}.attempts`)).toBe("completed")
    yield* session.rows(`select nextval(format('%s.entry_seq', $1::text)::regclass) from generate_series(1, 64)`, [
      name
    ])
    for (const step of ["rotate('0', 1)", "rotate('0', 1)", "drain_segments()", "prune_segment('0')"]) {
      yield* session.rows(`select ${name}.${step}`)
    }
    expect(yield* session.value(`select count(*) from ${name}.closures`)).toBe(0n)
  })
)

// F-25: bigint everywhere; 2^31, 2^53 + 1
it.scopedLive("ids beyond 2^31 and 2^53 are exact through every call", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    for (const start of [2n ** 31n + 1n, 2n ** 53n + 1n, 2n ** 62n + 1n]) {
      for (const sequence of ["job_ids", "entry_seq", "batch_seq", "runtime_ids"]) {
        yield* session.rows(`select setval('awa.${sequence}', $1::bigint, false)`, [start])
      }
      yield* session.script("discard sequences")
      const ids = yield* enqueue(session, 4)
      expect(ids).toEqual([0n, 1n, 2n, 3n].map((n) => start + n))
      const attempts = yield* claim(session)
      expect(attempts.map((a) => [a.job_id, a.batch_id])).toEqual(ids.map((id) => [id, start]))
      const [a, b, c, d] = attempts
      if (!a || !b || !c || !d) throw new Error("four attempts")
      expect(
        yield* close(session, [a, b], { outcome: ["completed", "retried"], closer: 1, detail: { delay_ms: 60_000 } })
      ).toEqual(["closed", "closed"])
      expect((yield* complete(session, c))["job_id"]).toBe(c.job_id)
      yield* session.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '1 hour'")
      expect(yield* session.value("select awa.rescue_stale('1 min', 10)")).toBe(1)
      expect(yield* claimIds(session)).toEqual([d.job_id])
      yield* session.script("delete from awa.deferred_jobs")
      yield* session.script(
        "truncate awa.ready_entries_0, awa.claim_batches_0, awa.closures_0; update awa.segments set rescued_to = 0"
      )
      expect(yield* session.value("select awa.beat_runtime(null, 'r', 1, '{}')")).toBe(start)
    }
  })
)

// F-63: opposite signs, so that a sign bug cannot pass
for (const zone of ["America/New_York", "Pacific/Kiritimati"]) {
  it.scopedLive(`times are the same in a session of ${zone}`, () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script(`set timezone = '${zone}'`)
      const now = yield* enqueue(session, 1, { opts: { run_at: new Date(Date.now() - 60_000).toISOString() } })
      const soon = yield* enqueue(session, 1, { opts: { run_at: new Date(Date.now() + 60_000).toISOString() } })
      const delayed = yield* enqueue(session, 1, { opts: { delay_ms: 90_000 } })
      const attempt = only(yield* claim(session))
      expect(attempt.job_id).toBe(now[0])
      expect(
        yield* session.rows(
          "select job_id, round(extract(epoch from run_at - clock_timestamp()) / 30)::int as half_minutes from awa.deferred_jobs order by 1"
        )
      ).toEqual([
        { job_id: soon[0], half_minutes: 2 },
        { job_id: delayed[0], half_minutes: 3 }
      ])
      expect(yield* session.value("select promoted from awa.promote_due(10)")).toBe(0)
      expect(yield* session.value("select awa.rescue_stale('30 s', 10)")).toBe(0) // a live attempt reads live
      yield* close(session, [attempt], { outcome: "retried", detail: { delay_ms: 60_000 } })
      expect(yield* session.value("select promoted from awa.promote_due(10)")).toBe(0)
      yield* session.script("update awa.deferred_jobs set run_at = run_at - interval '2 min'")
      expect(yield* session.value("select promoted from awa.promote_due(10)")).toBe(3)
    })
  )
}

// F-62: now() is the start of the transaction
it.scopedLive("a transaction opened two seconds ago reckons from the clock, not from its start", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [old, session] = [yield* db.session, yield* db.session]
    yield* begin(old)
    yield* old.script("select now()")
    yield* enqueue(session, 1)
    const attempt = only(yield* claim(session))
    yield* Effect.sleep("2 seconds")
    const [delayed] = yield* enqueue(old, 1, { opts: { delay_ms: 1500 } })
    const receipt = yield* complete(old, attempt)
    expect(
      yield* old.value("select clock_timestamp() - $1::timestamptz < interval '1 s'", [receipt["finalized_at"]])
    ).toBe(true)
    yield* old.script("commit")
    expect(yield* claimIds(session)).toEqual([]) // not due: 1.5 s from now, not from then
    expect(
      yield* session.rows(
        "select job_id, run_at > clock_timestamp() + interval '500 ms' as waits, run_at - created_at as after from awa.deferred_jobs"
      )
    ).toEqual([{ job_id: delayed, waits: true, after: "00:00:01.5" }])
    // and a claim in a transaction that was opened long ago is young, of one lane and of two
    const lanes = { one: [2], two: [1, 3] }
    const claimers = { one: session, two: yield* db.session }
    for (const queue of ["one", "two"] as const) {
      for (const priority of lanes[queue]) yield* enqueue(old, 1, { queue, opts: { priority } })
      yield* begin(claimers[queue])
      yield* claimers[queue].script("select now()")
    }
    yield* Effect.sleep("1200 millis")
    for (const queue of ["one", "two"] as const) {
      expect(yield* claim(claimers[queue], { queue })).toHaveLength(lanes[queue].length)
      yield* claimers[queue].script("commit")
    }
    expect(yield* old.value("select awa.rescue_stale('1 s', 10)")).toBe(0)
  })
)
