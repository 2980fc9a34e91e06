import { describe, expect, it } from "@effect/vitest"
import * as Migrations from "effect-awa/Migrations"
import { Effect } from "effect"
import { quoteIdentifier } from "../../src/internal/renderSql.js"
import { connect, freshDatabase, type Session } from "./support.js"

const names = [
  "awa",
  `We"ird-Schéma`,
  "a$$b\\c",
  "a\nb\r\n-- c",
  "user",
  "select",
  "n".repeat(63),
  "$awa0$",
  "$",
  "it's; drop schema public; --",
  "\\",
  "'\\",
  "%s %I %%",
  "{{schema}} {{segment}}",
  "/* x",
  "日本語",
  " ",
  ".",
  // names of our own tables, variables, parameters and aliases
  "meta",
  "v_meta",
  "job_id",
  "progress",
  "outcome",
  "m"
]

const tokenOf = (row: Record<string, unknown>) =>
  ["claim_slot", "batch_id", "batch_index", "job_id", "run_lease", "receipt_id"].map((name) => row[name])

/** A job's ways through the schema, by every function that a runtime calls. */
const live = (session: Session, schema: string) =>
  Effect.gen(function* () {
    const s = quoteIdentifier(schema)
    const claim = () => session.rows(`select * from ${s}.claim('q', 10, 1)`)
    const close = (row: Record<string, unknown>, outcome: string, details: object) =>
      session.rows(
        `select answer from ${s}.close_attempts(7, array[$1::int], array[$2::bigint], array[$3::int], array[$4::bigint],
           array[$5::bigint], array[$6::bigint], array[$7::${s}.outcome], $8::jsonb, true)`,
        [...tokenOf(row), outcome, JSON.stringify(details)]
      )
    const many = `array[$1::int], array[$2::bigint], array[$3::int], array[$4::bigint], array[$5::bigint], array[$6::bigint]`

    expect(yield* session.rows(`select ${s}.require_contract(1)::text`)).toHaveLength(1)
    expect(yield* session.rows(`select ${s}.adopt_database() as a`)).toEqual([{ a: "ours" }])
    expect(yield* session.rows(`select ${s}.beat_runtime(null, 'r', 1, '{}')::text as id`)).toEqual([{ id: "1" }])
    const [job] = yield* session.rows(`select ${s}.insert_job('kind', $1::jsonb, 'q')::text as id`, [
      JSON.stringify({ a: "\\" })
    ])
    expect(job).toEqual({ id: "1" })
    const future = { run_at: "2999-01-01T00:00:00.5Z" }
    yield* session.rows(`select ${s}.insert_job('kind', 'null', 'q', $1::jsonb)`, [JSON.stringify(future)])

    const [first] = yield* claim()
    expect(first).toMatchObject({ kind: "kind", attempt: 1, lane_busy: false })
    const attempt = first ?? {}
    expect(yield* session.rows(`select * from ${s}.heartbeat(${many}, '{"1": 5}')`, tokenOf(attempt))).toEqual([])
    expect(yield* session.rows(`select status from ${s}.attempt_evidence(${many})`, tokenOf(attempt))).toEqual([
      { status: "open" }
    ])
    expect(yield* close(attempt, "retried", { 1: { error: { message: "x" } } })).toEqual([{ answer: "closed" }])
    expect(yield* close(attempt, "retried", {})).toEqual([{ answer: "repeated" }])

    const [second] = yield* claim() // the retry is runnable at once
    const again = second ?? {}
    expect(again).toMatchObject({ attempt: 2, progress: 5 })
    const [slot, batch, index, id, lease, receipt] = tokenOf(again)
    const [done] = yield* session.rows(
      `select outcome from ${s}.complete_job(job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, batch_id => $5,
         batch_index => $6, progress => null)`,
      [id, lease, slot, receipt, batch, index]
    )
    expect(done).toEqual({ outcome: "completed" })
    expect(yield* session.rows(`select outcome from ${s}.attempt_evidence(${many})`, tokenOf(again))).toEqual([
      { outcome: "completed" }
    ])

    yield* session.rows(`select ${s}.insert_job('kind', '[]', 'q')`)
    yield* session.rows(`select ${s}.insert_job('kind', '[]', 'q')`)
    const [third, fourth] = yield* claim()
    expect(yield* close(third ?? {}, "completed", {})).toEqual([{ answer: "closed" }])
    expect(
      yield* session.rows(
        `select ${s}.close_completed(7, array[$1::int], array[$2::bigint], array[$6::bigint - $3], array[1], array[$3::int],
           array[$4::bigint], array[$5::bigint]) as n`,
        tokenOf(fourth ?? {})
      )
    ).toEqual([{ n: 1 }])

    expect(yield* session.rows(`select promoted from ${s}.promote_due(10)`)).toEqual([{ promoted: 0 }])
    expect(yield* session.rows(`select ${s}.rescue_stale('1 minute', 10) as n`)).toEqual([{ n: 0 }])
    expect(yield* session.rows(`select ${s}.rotate('0', 1) as did`)).toEqual([{ did: "opened" }])
    expect(yield* session.rows(`select ${s}.rotate('0', 1) as did`)).toEqual([{ did: "advanced" }])
    expect(yield* session.rows(`select ${s}.drain_segments() as n`)).toEqual([{ n: 1 }])
    expect(yield* session.rows(`select ${s}.evidence_keep()::text`)).toHaveLength(1)
    expect(yield* session.rows(`select ${s}.prune_segment('0') as slot`)).toEqual([{ slot: 0 }])
    expect(yield* session.rows(`select ${s}.sweep('1 day') as n`)).toEqual([{ n: 0 }])
    expect(yield* session.rows(`select ${s}.retire_runtime(1)::text`)).toHaveLength(1)
    expect(yield* session.rows(`select state from ${s}.jobs`)).toEqual([{ state: "scheduled" }])
  })

// F-31, F-32
describe("any legal schema name", () => {
  it.scopedLive("installs and works, for a plain role with an empty search_path and old string literals", () =>
    Effect.gen(function* () {
      const fresh = yield* freshDatabase
      const { plain } = fresh
      yield* fresh.admin.rows(`grant create on database ${fresh.database} to ${plain.role}`)
      yield* fresh.admin.rows(`alter role ${plain.role} set search_path = ''`)
      yield* fresh.admin.rows(`alter role ${plain.role} set standard_conforming_strings = off`)
      yield* fresh.admin.rows(`alter role ${plain.role} set escape_string_warning = off`)
      for (const schema of names) {
        const report = yield* Migrations.migrate({ url: plain.redacted, schema, ring: 4 })
        expect(report, schema).toMatchObject({ action: "installed", schema })
        expect(yield* Migrations.migrate({ url: plain.redacted, schema })).toMatchObject({ action: "unchanged" })
        const session = yield* connect(plain.url)
        yield* live(session, schema)
      }
      const installed = yield* fresh.admin.rows(
        "select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('public', 'information_schema')"
      )
      expect(installed.map((row) => row["nspname"]).sort()).toEqual([...names].sort())
    })
  )
})
