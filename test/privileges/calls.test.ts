/** What the roles of a strict installation can do with what they hold, whatever their sessions are made to find first (C-51, C-54). */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { manifest } from "../../src/internal/manifest.js"
import { type Fresh, type Session } from "../migrations/support.js"
import { capabilities, type Strict, strict } from "./support.js"

/** Objects that would be found instead of the right ones by whoever does not say exactly what is meant. */
const shadows = ({ admin, database }: Fresh) =>
  Effect.gen(function* () {
    yield* admin.script(`
      create schema evil;
      create function evil.trap(bigint, bigint) returns boolean language plpgsql as $$ begin raise exception 'shadowed: ='; end $$;
      create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.trap);
      create operator evil.<> (leftarg = bigint, rightarg = bigint, function = evil.trap);
      create operator evil.< (leftarg = bigint, rightarg = bigint, function = evil.trap);
      create function evil.clock_timestamp() returns timestamptz language plpgsql as $$ begin raise exception 'shadowed: clock'; end $$;
      create function evil.pg_advisory_xact_lock(bigint) returns void language plpgsql as $$ begin raise exception 'shadowed: lock'; end $$;
      create function evil.hashtextextended(text, bigint) returns bigint language plpgsql as $$ begin raise exception 'shadowed: hash'; end $$;
      create function evil.pg_current_xact_id() returns xid8 language plpgsql as $$ begin raise exception 'shadowed: xid'; end $$;
      create function evil.set_config(text, text, boolean) returns text language plpgsql as $$ begin raise exception 'shadowed: set'; end $$;
      create function evil.complete_job(bigint, bigint, integer, bigint, bigint, integer, jsonb) returns text language sql as $$ select 'shadowed' $$;
      create table evil.meta (fingerprint text);
      create table evil.claim_batches_0 (batch_id text);
      grant usage on schema evil to public;
      grant execute on all functions in schema evil to public;
      grant temporary on database ${database} to public`)
  })

/** A session that would find all of them first. */
const led = (session: Session) =>
  Effect.as(
    session.script(`
      set search_path = evil, pg_catalog, public;
      create temporary table meta (fingerprint text);
      create temporary table closures_0 (batch_id text);
      create temporary table runtimes (runtime_id text)`),
    session
  )

const codeOf = (session: Session, sql: string) =>
  session.script(sql).pipe(
    Effect.as("ok"),
    Effect.catchAll((error) => Effect.succeed(error.code ?? "?"))
  )

const fields = ["job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index"]

const claimOne = (session: Session) =>
  Effect.map(session.rows("select * from awa.claim('default', 1, 1)"), ([row]) =>
    fields.map((name) => String(row?.[name]))
  )

const everyday = (installed: Strict, lead: (session: Session) => Effect.Effect<Session, unknown>) =>
  Effect.gen(function* () {
    const as = (capability: (typeof capabilities)[number]) =>
      Effect.flatMap(installed.as(installed.roleOf(capability)), lead)
    const producer = yield* as("producer")
    for (let n = 0; n < 3; n++) yield* producer.rows("select awa.insert_job('kind', '{}')")
    const executor = yield* as("executor")
    const [owned, expected, batched] = [yield* claimOne(executor), yield* claimOne(executor), yield* claimOne(executor)]

    const finalizer = yield* as("finalizer")
    yield* finalizer.script(`begin; select * from awa.complete_job(${owned.join()}); commit`)
    expect(yield* codeOf(finalizer, `select awa.expect_completion(${expected.join()})`)).toBe("42501")
    expect(yield* codeOf(finalizer, `begin; select * from awa.complete_job(${owned.join()}); commit`)).toBe("WA001")
    yield* finalizer.script("rollback")

    const many = `array[${owned[0]}::bigint], array[${owned[1]}::bigint], array[${owned[2]}], array[${owned[3]}::bigint],
      array[${owned[4]}::bigint], array[${owned[5]}]`
    expect(yield* codeOf(finalizer, `select * from awa.complete_jobs(${many})`)).toBe("42501")
    const batches = yield* as("batch_finalizer")
    expect(yield* codeOf(batches, `select * from awa.complete_job(${owned.join()})`)).toBe("42501")
    expect(yield* codeOf(batches, `select * from awa.complete_jobs(${many})`)).toBe("WA001")

    const expectation = yield* as("expectation")
    expect(yield* codeOf(expectation, `begin; select awa.expect_completion(${expected.join()}); commit`)).toBe("WA007")

    const [slot, batch, index] = [batched[2], batched[4], batched[5]]
    const closed = yield* executor.rows(
      `select answer from awa.close_attempts(1, array[${slot}], array[${batch}]::bigint[], array[${index}], array[${batched[0]}]::bigint[],
         array[${batched[1]}]::bigint[], array[${batched[3]}]::bigint[], '{completed}', '{}', false)`
    )
    expect(closed).toEqual([{ answer: "closed" }])

    const maintenance = yield* as("maintenance")
    expect(yield* maintenance.rows("select awa.rescue_stale('0', 100) as n")).toEqual([{ n: 1 }])
    const mutator = yield* as("admin_mutator")
    const [job] = expected
    expect(yield* mutator.rows(`select answer from awa.cancel_jobs(array[${job ?? ""}]::bigint[])`)).toEqual([
      { answer: "cancelled" }
    ])
    const reader = yield* as("admin_reader")
    expect(yield* reader.rows("select state, count(*)::int as n from awa.jobs group by 1 order by 1")).toEqual([
      { state: "cancelled", n: 1 },
      { state: "completed", n: 2 }
    ])
    // who leads cannot make it forget before its time
    yield* maintenance.rows("select awa.sweep('1 day', '0', '0', '0')")
    expect(yield* codeOf(maintenance, "select awa.sweep('1 day', '-1 day')")).toBe("22023")
    // who it was, though the function runs as its owner
    expect(yield* reader.rows("select session_role::text as role, verb from awa.audit")).toEqual([
      { role: installed.roleOf("admin_mutator"), verb: "cancel" }
    ])
  })

describe("the roles of a strict installation", () => {
  it.scopedLive("do their work with what they hold", () =>
    Effect.flatMap(strict(), (installed) => everyday(installed, Effect.succeed))
  )

  it.scopedLive("and find nothing else, whatever their search_path, temporary objects and operators say", () =>
    Effect.gen(function* () {
      const installed = yield* strict()
      yield* shadows(installed)
      yield* everyday(installed, led)
    })
  )

  it.scopedLive(
    "can call whatever their class names, and nothing of another",
    () =>
      Effect.gen(function* () {
        const installed = yield* strict()
        for (const capability of capabilities) {
          const session = yield* installed.as(installed.roleOf(capability))
          for (const { arguments: types, class: own, name } of manifest.routines) {
            if (name.includes("{segment}")) continue
            const inputs = types === "" ? [] : types.split(", ").filter((argument) => !argument.startsWith("OUT "))
            const call = `begin; select awa.${name}(${inputs.map((argument) => `null::${argument.replace(/^(INOUT )?\S+ /, "").replaceAll("{schema}", "awa")}`).join()}); rollback`
            const code = yield* codeOf(session, call)
            if (code !== "ok") yield* session.script("rollback")
            const may =
              own === capability ||
              (own === "contract" && !["finalizer", "batch_finalizer", "expectation"].includes(capability))
            // whatever nulls lead to, it is no lack of privilege
            if (may) expect(code, `${capability} ${name}`).not.toBe("42501")
            else expect(code, `${capability} ${name}`).toBe("42501")
          }
        }
      }),
    120_000
  )

  it.scopedLive("cannot touch a table, nor install, nor truncate", () =>
    Effect.gen(function* () {
      const installed = yield* strict()
      const statements = [
        "select from awa.leases",
        "insert into awa.closures_0 select",
        "update awa.queues set paused = true",
        "delete from awa.terminal_jobs",
        "truncate awa.ready_entries_0",
        "do $$ begin lock table awa.closures_0 in access exclusive mode; end $$",
        "create table awa.mine ()",
        "create function awa.mine() returns void language sql as ''",
        "alter table awa.meta add column mine text",
        "drop schema awa cascade",
        "select nextval('awa.job_ids')",
        `set role "${installed.owners.executionOwner}"`,
        `set role "${installed.owners.schemaOwner}"`
      ]
      for (const role of [...capabilities.map(installed.roleOf), installed.nobody]) {
        const session = yield* installed.as(role)
        for (const statement of statements)
          expect(yield* codeOf(session, statement), `${role} ${statement}`).toBe("42501")
      }
    })
  )
})
