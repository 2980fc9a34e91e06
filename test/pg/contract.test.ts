import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { contract, keysOf } from "../tools/contract/data.js"
import type { Row, Session } from "./database.js"
import {
  ask,
  beatWorker,
  claimed,
  closeAll,
  completeJob,
  insertMany,
  insertOne,
  register,
  registerKinds,
  settleIt,
  take,
  tokenOf
} from "./contractSupport.js"
import { begin, claim, column, enqueue, fault, fileDatabase, only } from "./support.js"

const database = fileDatabase()

/** Of each function: what schema/contract.json says of it, read from the catalog. */
const installed = `
select p.proname::text as name, count(*) over (partition by p.proname)::int as forms, p.provolatile::text as volatility,
       p.prosecdef as definer, p.proretset as many, p.prorettype::regtype::text as type,
       (select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('name', a.name, 'type', format_type(a.type, null),
                 'default', pg_get_function_arg_default(p.oid, a.n::int))) order by a.n)
        from unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]), coalesce(p.proargmodes, array_fill('i'::"char", array[p.pronargs])))
          with ordinality as a(name, type, mode, n)
        where a.mode = 'i') as arguments,
       coalesce(
         (select jsonb_agg(jsonb_build_object('name', a.name, 'type', format_type(a.type, null)) order by a.n)
          from unnest(p.proargnames, p.proallargtypes, p.proargmodes) with ordinality as a(name, type, mode, n) where a.mode in ('o', 't')),
         (select jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod)) order by a.attnum)
          from pg_type t join pg_attribute a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
          where t.oid = p.prorettype),
         case when p.prorettype <> 'void'::regtype
           then jsonb_build_array(jsonb_build_object('name', p.proname, 'type', format_type(p.prorettype, null))) end) as columns,
       pg_get_function_result(p.oid) as result
from pg_proc p where p.pronamespace = 'awa'::regnamespace and p.proname = any ($1) order by 1`

const shapes = { nothing: "void", value: "scalar", row: "composite", rows: "set" } as const

const shapeOf = (row: Row): string =>
  row["many"] === true
    ? "set"
    : row["type"] === "void"
      ? "void"
      : String(row["type"]).startsWith("awa.")
        ? "composite"
        : "scalar"

// C-15
describe("schema/contract.json", () => {
  it.scopedLive("is what is installed: one form of each, with exactly these arguments, defaults and columns", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const rows = yield* session.rows(installed, [contract.functions.map(({ name }) => name)])
      const found = rows.map((row) => ({
        name: row["name"],
        forms: row["forms"],
        definer: row["definer"],
        volatility: row["volatility"],
        shape: shapeOf(row),
        arguments: row["arguments"],
        columns: row["columns"] ?? []
      }))
      const said = contract.functions.map((fn) => ({
        name: fn.name,
        forms: 1,
        definer: true,
        volatility: fn.name === "require_contract" ? "s" : "v",
        shape: shapes[fn.returns],
        arguments: fn.arguments,
        columns: fn.columns.map(({ name, type }) => ({ name, type }))
      }))
      expect(found).toEqual(said.sort((a, b) => (a.name < b.name ? -1 : 1)))
      expect(rows.find((row) => row["name"] === "complete_job")?.["result"]).toBe("awa.finalization")
    })
  )

  it.scopedLive("lists the outcomes that a worker may report, and no other is taken", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const all = column(yield* session.rows("select unnest(enum_range(null::awa.outcome))::text as o"), "o")
      for (const outcome of all) {
        const { attempt } = yield* claimed(session)
        const settled = settleIt(session, attempt, String(outcome), { delay_ms: 1 })
        if (contract.outcomes.some((known) => known.outcome === outcome)) expect(yield* settled).toBe("closed")
        else expect((yield* fault(settled, "22023")).message).toContain("outcome: expected ")
      }
      expect(contract.outcomes.filter(({ outcome }) => !all.includes(outcome))).toEqual([])
    })
  )

  it.scopedLive("explains every SQLSTATE that it names", () =>
    Effect.sync(() => {
      const named = new Set(contract.functions.flatMap(({ states }) => states.map((state) => state.slice(0, 5))))
      expect(contract.states.map(({ state }) => state).sort()).toEqual([...named].sort())
    })
  )
})

/** One value that each key takes. */
const samples: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  job: { kind: "k", queue: "q", args: null, opts: {} },
  opts: {
    priority: 4,
    max_attempts: 32767,
    run_at: "2000-01-01T00:00:00Z",
    delay_ms: 0,
    notify: false,
    unique: { key: "opts" },
    validate: true
  },
  kind: { kind: "k", schema: { type: "object" }, queue: "q", priority: 1, max_attempts: 5 },
  unique: { by: ["queue"], key: "own", states: "all", window_ms: 5, on_conflict: "replace" },
  detail: { error: { name: "E", message: "m" }, delay_ms: 5, reason: "because", progress: [1] }
}

const job = (part: Row = {}) => ({ kind: "k", queue: "q", args: {}, opts: {}, ...part })

/** How one key, or several, are said of the list. */
const say: Readonly<Record<string, (session: Session, keys: Row) => Effect.Effect<unknown, unknown>>> = {
  job: (session, keys) => insertMany(session, [job(keys)]),
  opts: (session, keys) =>
    Effect.zipRight(registerKinds(session, [{ kind: "k", schema: {} }]), insertOne(session, keys)),
  kind: (session, keys) => registerKinds(session, [{ kind: "k", schema: {}, ...keys }]),
  unique: (session, keys) => insertOne(session, { unique: { window_ms: 5, ...keys } }),
  detail: (session, keys) =>
    Effect.flatMap(claimed(session), ({ attempt }) => settleIt(session, attempt, "failed", keys))
}

describe("the keys", () => {
  for (const { name, unknownKey } of contract.lists) {
    it.scopedLive(`of ${name} are taken, or null, and no other is`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const call = say[name]
        const values = samples[name] ?? {}
        if (call === undefined) throw new Error(`nothing is known of ${name}`)
        expect(Object.keys(values).sort()).toEqual([...keysOf(name)].sort())
        for (const [key, value] of Object.entries(values)) {
          yield* call(session, { [key]: value })
          if (name !== "job" && key !== "kind" && key !== "schema") {
            yield* call(session, name === "unique" ? { key: "k", [key]: null } : { [key]: null })
          }
        }
        const error = yield* Effect.flip(call(session, { [`${keysOf(name)[0] ?? ""} `]: 1 }))
        expect(error).toMatchObject({ _tag: "PgFault", code: unknownKey })
      })
    )
  }

  it.scopedLive("of an attempt's end have rules, and the message names the attempt, the key and the rule", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const long = Array.from({ length: 40_000 }, (_, i) => i)
      const delay = "delay_ms: expected a whole number of milliseconds, at most a hundred years"
      const cases: ReadonlyArray<readonly [string | null, unknown, string]> = [
        ["done", {}, "outcome: expected completed"],
        [null, {}, "outcome: expected completed"],
        ["failed", [], "detail: expected an object"],
        ["failed", "x", "detail: expected an object"],
        ...[-1, 0.5, "soon", 3_155_760_000_001, 1e15].map((delay_ms) => ["retried", { delay_ms }, delay] as const),
        ...["retried", "snoozed"].flatMap((outcome) =>
          [{}, null, { delay_ms: null }].map(
            (detail) => [outcome, detail, "delay_ms: required when the outcome is retried or snoozed"] as const
          )
        ),
        ["dead_lettered", { reason: 5 }, "reason: expected a text"],
        ["dead_lettered", { reason: "x".repeat(4097) }, "reason: at most 4096 bytes"],
        ["failed", { error: long }, "error: at most 64 KiB"],
        ["failed", { progress: long }, "progress: at most 64 KiB"]
      ]
      const { attempt, worker } = yield* claimed(session)
      for (const [outcome, detail, rule] of cases) {
        expect((yield* fault(settleIt(session, attempt, outcome, detail), "22023")).message).toContain(
          `attempt 0: ${rule}`
        )
        const items = [
          { ...attempt, outcome: "failed" },
          { ...attempt, outcome, detail }
        ]
        expect((yield* fault(closeAll(session, items), "22023")).message).toContain(`attempt 1: ${rule}`)
      }
      const over = { ...attempt, progress: long }
      expect((yield* fault(beatWorker(session, worker, [attempt, over]), "22023")).message).toBe(
        "attempt 1: progress: at most 64 KiB"
      )
      expect(yield* ask(session, [attempt])).toMatchObject([{ status: "open" }])
    })
  )

  it.scopedLive("that are null in an attempt's end say nothing: no error is stored, and progress stays", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, worker } = yield* claimed(session)
      expect(yield* beatWorker(session, worker, [{ ...attempt, progress: { step: 3, next: null } }])).toEqual([])
      expect(yield* beatWorker(session, worker, [{ ...attempt, progress: null }])).toEqual([])
      const detail = { error: null, progress: null, reason: null, delay_ms: null }
      expect(yield* settleIt(session, attempt, "failed", detail)).toBe("closed")
      expect(yield* session.rows("select progress, errors from awa.terminal_jobs")).toEqual([
        { progress: { step: 3, next: null }, errors: null }
      ])
    })
  )
})

describe("a worker in another language", () => {
  it.scopedLive("hands back the row of its claim as it came, and is told what became of each attempt, in order", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 5, { args: { n: 1 } })
      const worker = yield* register(session)
      const attempts = yield* take(session, worker)
      expect(attempts.map((row) => [row["kind"], row["args"], row["attempt"], row["retry_ms"]])).toEqual(
        Array.from({ length: 5 }, () => ["k", { n: 1 }, 1, null])
      )
      const origin = String(yield* session.value("select origin_id from awa.meta"))
      expect(column(attempts, "idempotency_key")).toEqual(attempts.map((row) => `${origin}:${String(row["job_id"])}`))
      expect(yield* take(session, worker)).toEqual([])
      const [first = {}, second = {}, third = {}, ...rest] = attempts
      yield* completeJob(session, second)
      expect(yield* settleIt(session, third, "retried", { delay_ms: 60_000, error: { name: "E" } })).toBe("closed")
      expect(yield* settleIt(session, third, "retried", { delay_ms: 60_000 })).toBe("repeated")
      expect(yield* settleIt(session, second, "failed")).toBe("stale")
      const stranger = { ...first, receipt_id: 5n }
      expect((yield* ask(session, [...attempts, stranger])).map((row) => [row["status"], row["outcome"]])).toEqual([
        ["open", null],
        ["closed", "completed"],
        ["closed", "retried"],
        ["open", null],
        ["open", null],
        ["superseded", null]
      ])
      expect(yield* beatWorker(session, worker, attempts)).toEqual([
        { job_id: second["job_id"], run_lease: 1n, outcome: "completed" },
        { job_id: third["job_id"], run_lease: 1n, outcome: "retried" }
      ])
      const ends = [...rest, second].map((row) => ({ ...row, outcome: "completed", detail: null }))
      const answers = closeAll(session, ends)
      expect((yield* answers).map((row) => [row["job_id"], row["answer"]])).toEqual([
        ...rest.map((row) => [row["job_id"], "closed"]),
        [second["job_id"], "stale"]
      ])
      expect(column(yield* answers, "answer")).toEqual(["repeated", "repeated", "stale"])
    })
  )

  it.scopedLive("is told when to ask again where busy is not empty, in a row without an attempt", () =>
    Effect.gen(function* () {
      const { session: connect } = yield* database
      const session = yield* connect
      const other = yield* connect
      yield* enqueue(session, 2)
      const worker = yield* register(session)
      yield* begin(other)
      expect(yield* claim(other, { limit: 1 })).toHaveLength(1)
      const busy = only(yield* take(session, worker))
      expect(Object.entries(busy).filter(([, value]) => value !== null)).toEqual([["retry_ms", 10]])
      yield* other.script("commit")
      // a queue at its rate answers what the claims leave to it
      yield* session.rows("select awa.set_queue('q', $1::text::jsonb)", [
        JSON.stringify({ rate_limit: 2, rate_interval_ms: 60_000 })
      ])
      expect(only(yield* take(session, worker))["job_id"]).not.toBeNull()
      expect(Number(only(yield* take(session, worker))["retry_ms"])).toBeGreaterThan(1000)
    })
  )

  it.scopedLive("is answered busy while its own finalization is in flight, and then by the evidence", () =>
    Effect.gen(function* () {
      const { session: connect } = yield* database
      const session = yield* connect
      const handler = yield* connect
      const { attempt } = yield* claimed(session)
      yield* begin(handler)
      yield* completeJob(handler, attempt)
      expect(yield* ask(session, [attempt])).toMatchObject([{ status: "open" }])
      expect(yield* settleIt(session, attempt, "failed")).toBe("busy")
      yield* handler.script("commit")
      expect(yield* settleIt(session, attempt, "failed")).toBe("stale")
      expect(yield* ask(session, [attempt])).toMatchObject([{ status: "closed", outcome: "completed" }])
    })
  )

  // C-52
  it.scopedLive("needs EXECUTE on these functions, USAGE on the schema, and no table", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 2)
      const signatures = column(
        yield* session.rows(
          `select p.oid::regprocedure::text as f from pg_proc p
           where p.pronamespace = 'awa'::regnamespace and p.proname = any ($1)`,
          [
            contract.functions
              .filter((fn) => ["executor", "finalizer", "contract"].includes(fn.class))
              .map(({ name }) => name)
          ]
        ),
        "f"
      )
      const role = `w_${String(session.pid)}`
      yield* session.script(
        `create role ${role}; grant usage on schema awa to ${role}; ` +
          signatures.map((signature) => `grant execute on function ${String(signature)} to ${role};`).join(" ")
      )
      yield* Effect.addFinalizer(() =>
        Effect.ignore(session.script(`reset role; drop owned by ${role}; drop role ${role}`))
      )
      yield* session.script(`set role ${role}`)
      const worker = yield* register(session)
      const [first = {}, second = {}] = yield* take(session, worker)
      yield* beatWorker(session, worker, [first, second])
      yield* completeJob(session, first)
      expect(yield* settleIt(session, second, "snoozed", { delay_ms: 0 })).toBe("closed")
      expect(column(yield* ask(session, [first, second]), "outcome")).toEqual(["completed", "snoozed"])
      const again = only(yield* take(session, worker))
      expect(yield* closeAll(session, [{ ...again, outcome: "completed" }])).toMatchObject([{ answer: "closed" }])
      yield* session.rows("select awa.require_contract(1), awa.worker_retire($1)", [worker])
      yield* fault(session.rows("select awa.claim('q', 1, 1)"), "42501")
      yield* fault(session.rows("select from awa.ready_entries_0"), "42501")
    })
  )

  it.scopedLive("that hands back what is no token is told which, and nothing is done for the others", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempt, worker } = yield* claimed(session)
      const whole = Object.fromEntries(
        ["job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index"].map((name, i) => [
          name,
          String(tokenOf(attempt)[i])
        ])
      )
      expect(yield* ask(session, [whole])).toMatchObject([{ status: "open" }])
      const wrong: ReadonlyArray<unknown> = [
        null,
        5,
        "x",
        [],
        ...Object.keys(whole).flatMap((name) =>
          [undefined, null, -1, 1.5, "", "9223372036854775808", "1e3"].map((value) => ({ ...whole, [name]: value }))
        ),
        { ...whole, claim_slot: 2 ** 31 },
        { ...whole, batch_index: 2 ** 31 }
      ]
      for (const one of wrong) {
        for (const call of [
          beatWorker(session, worker, [whole, one]),
          ask(session, [whole, one]),
          closeAll(session, [whole, one])
        ]) {
          expect((yield* fault(call, "WA003")).message).toBe("attempt 1: malformed token")
        }
        yield* fault(settleIt(session, one, "failed"), "WA003")
      }
      for (const none of [{}, null, "x"]) {
        expect((yield* fault(ask(session, none), "22023")).message).toBe("attempts: expected a JSON array of tokens")
      }
      yield* fault(
        ask(
          session,
          Array.from({ length: 10_001 }, () => whole)
        ),
        "22023"
      )
      expect(yield* ask(session, [])).toEqual([])
    })
  )
})
