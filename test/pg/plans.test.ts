/**
 * Plan independence. The plans of the hot functions are made once per session, generic, often while a segment is empty or
 * has just been analyzed with a handful of rows, and then live for hours. What they do with a full segment is measured by
 * auto_explain: by rows and blocks, which no other load on the machine disturbs.
 */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  beat,
  besideOlder,
  claim,
  close,
  closeCompleted,
  complete,
  completeMany,
  drain,
  enqueue,
  evidence,
  explainBuffers,
  fileDatabase,
  only,
  rotate
} from "./support.js"

const database = fileDatabase()

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string | undefined
  readonly "Index Name"?: string | undefined
  readonly "Actual Rows": number
  readonly "Actual Loops": number
  readonly "Rows Removed by Filter"?: number | undefined
  readonly "Rows Removed by Join Filter"?: number | undefined
  readonly "Rows Removed by Index Recheck"?: number | undefined
  readonly "Shared Hit Blocks": number
  readonly "Shared Read Blocks": number
  readonly Plans?: ReadonlyArray<Node> | undefined
}

const optionalNumber = Schema.optional(Schema.Number)

const Node: Schema.Schema<Node> = Schema.Struct({
  "Node Type": Schema.String,
  "Relation Name": Schema.optional(Schema.String),
  "Index Name": Schema.optional(Schema.String),
  "Actual Rows": Schema.Number,
  "Actual Loops": Schema.Number,
  "Rows Removed by Filter": optionalNumber,
  "Rows Removed by Join Filter": optionalNumber,
  "Rows Removed by Index Recheck": optionalNumber,
  "Shared Hit Blocks": Schema.Number,
  "Shared Read Blocks": Schema.Number,
  Plans: Schema.optional(Schema.Array(Schema.suspend(() => Node)))
})

const decodePlan = Schema.decodeUnknownSync(
  Schema.parseJson(Schema.Struct({ "Query Text": Schema.String, Plan: Node }))
)

const nodesOf = (node: Node): ReadonlyArray<Node> => [node, ...(node.Plans ?? []).flatMap(nodesOf)]

const explainEverything = `
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_nested_statements = on;
set auto_explain.log_analyze = on;
set auto_explain.log_buffers = on;
set auto_explain.log_timing = off;
set auto_explain.log_format = json;
set auto_explain.log_level = notice;
set client_min_messages = notice`

interface Measured {
  readonly blocks: number
  /** Everything that a plan did beyond what the given number of rows explains. */
  readonly excess: ReadonlyArray<string>
}

/** Rescue and sweep read attempt_state as a whole: it holds the long attempts only. */
const hot = /_\d+$|^deferred_jobs$/

/** What the statements of a call did, given how many rows it has to touch. */
const measure = <A, E>(session: Session, rows: number, call: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    yield* session.notices
    const result = yield* call
    const plans = (yield* session.notices)
      .filter((notice) => notice.startsWith("duration:"))
      .map((notice) => decodePlan(notice.slice(notice.indexOf("{"))))
    // The call itself comes last; its blocks are those of everything inside it.
    const outermost = plans.at(-1)
    if (outermost === undefined || plans.length < 3) throw new Error("auto_explain says nothing")
    const excess = plans.flatMap(({ "Query Text": text, Plan }) =>
      nodesOf(Plan).flatMap((node) => {
        const what = `${node["Node Type"]} ${node["Relation Name"] ?? ""} ${node["Index Name"] ?? ""} in ${text.replace(/\s+/g, " ").slice(0, 150)}`
        const removed =
          (node["Rows Removed by Filter"] ?? 0) +
          (node["Rows Removed by Join Filter"] ?? 0) +
          (node["Rows Removed by Index Recheck"] ?? 0)
        const touched = (node["Actual Rows"] + removed) * node["Actual Loops"]
        const scansHot = node["Node Type"] === "Seq Scan" && hot.test(node["Relation Name"] ?? "")
        return scansHot || touched > rows * 2 + 50 ? [`${what}: ${touched} rows`] : []
      })
    )
    const measured: Measured = {
      blocks: outermost.Plan["Shared Hit Blocks"] + outermost.Plan["Shared Read Blocks"],
      excess
    }
    return { result, measured }
  })

/** One job through every function, so that each has its plans, made for next to nothing. */
const roundTrips = (session: Session) =>
  Effect.gen(function* () {
    for (const outcome of ["completed", "retried", "released"]) {
      yield* enqueue(session, 3)
      const attempts = yield* claim(session)
      yield* beat(session, attempts)
      yield* evidence(session, attempts)
      yield* complete(session, only(attempts.slice(0, 1)))
      yield* close(session, attempts.slice(0, 1), { closer: 2 })
      yield* close(session, attempts.slice(1), { outcome, hasState: true })
      yield* session.rows("select * from awa.promote_due(10)")
      yield* closeCompleted(session, yield* claim(session))
    }
    // of two lanes, which goes step by step
    for (const priority of [1, 2]) yield* enqueue(session, 1, { opts: { priority } })
    yield* closeCompleted(session, yield* claim(session))
    yield* enqueue(session, 2)
    yield* claim(session)
    yield* session.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '1 hour'")
    yield* session.value("select awa.rescue_stale('1 min', 10)")
    yield* close(session, yield* claim(session))
    yield* session.value("select awa.sweep('1 day')")
    yield* drain(session)
  })

const noAutovacuum = `
do $$ declare t regclass; begin
  for t in select oid from pg_class where relnamespace = 'awa'::regnamespace and relkind = 'r' loop
    execute format('alter table %s set (autovacuum_enabled = false)', t);
  end loop;
end $$`

describe("plans that were made for an empty segment", () => {
  for (const statistics of ["never analyzed", "analyzed while nearly empty"]) {
    it.scopedLive(
      `${statistics}, do with a full one what the rows in question need, and no more`,
      () =>
        Effect.gen(function* () {
          const db = yield* database
          const [session, owner] = [yield* db.session, yield* db.session]
          yield* owner.script(noAutovacuum)
          if (statistics !== "never analyzed") {
            yield* roundTrips(owner)
            yield* owner.script("analyze")
          }
          yield* roundTrips(session)
          // 50 000 entries, as many closures and claims beside them, and 20 000 jobs that wait
          for (let n = 0; n < 10; n++) {
            yield* enqueue(owner, 2500)
            yield* close(owner, yield* claim(owner, { limit: 2500 }))
            yield* enqueue(owner, 2000, { opts: { delay_ms: 3_600_000 } })
          }
          for (let n = 0; n < 5; n++) yield* enqueue(owner, 5000)
          for (let n = 0; n < 4; n++) yield* beat(owner, yield* claim(owner, { limit: 1000 })) // others' running attempts
          yield* session.script(explainEverything)

          const seen: Record<string, Measured> = {}
          const note = <A, E>(name: string, rows: number, call: Effect.Effect<A, E>) =>
            Effect.map(measure(session, rows, call), ({ measured, result }) => {
              seen[name] = measured
              return result
            })
          const small = yield* note("claim 50", 50, claim(session, { limit: 50 }))
          const attempts: ReadonlyArray<Attempt> = yield* note("claim 500", 500, claim(session, { limit: 500 }))
          expect([small.length, attempts.length]).toEqual([50, 500])
          const part = (from: number, to: number) => attempts.slice(from, to)
          yield* note("heartbeat 400, the first", 400, beat(session, part(0, 400)))
          yield* note("heartbeat 400, the second", 400, beat(session, part(0, 400)))
          yield* note("evidence 500", 500, evidence(session, attempts))
          yield* session.script("begin") // the session learns of the functions and tables, and nothing is completed
          yield* complete(session, only(part(1, 2)))
          yield* session.script("rollback")
          yield* note("complete", 1, complete(session, only(part(0, 1))))
          yield* session.script("begin")
          yield* completeMany(session, part(471, 475))
          yield* session.script("rollback")
          yield* note("complete 25 at once", 25, completeMany(session, part(471, 496)))
          yield* note("close 200 completed", 200, close(session, part(1, 201), { hasState: true }))
          yield* note("close 100 completed plainly", 100, closeCompleted(session, part(371, 471)))
          yield* note("close 200 again", 200, close(session, part(1, 201), { hasState: true }))
          yield* note(
            "close 100 retried",
            100,
            close(session, part(201, 301), { hasState: true, outcome: "retried", detail: { delay_ms: 1 } })
          )
          yield* note("close 50 released", 50, close(session, part(301, 351), { hasState: true, outcome: "released" }))
          yield* note("close 20 failed", 20, close(session, part(351, 371), { hasState: true, outcome: "failed" }))
          yield* Effect.sleep("5 millis")
          yield* note("promote 100", 100, session.rows("select * from awa.promote_due(500)"))
          yield* note("promote none", 0, session.rows("select * from awa.promote_due(500)"))
          yield* rotate(owner)
          yield* note("drain, unclaimed", 0, drain(session))
          // beside an open segment it goes step by step, by plans that an empty one has made
          const more: ReadonlyArray<Attempt> = yield* note(
            "claim 500 step by step",
            500,
            claim(session, { limit: 500 })
          )
          expect(more).toHaveLength(500)
          yield* closeCompleted(owner, more)
          expect(Object.values(seen).flatMap((measured) => measured.excess)).toEqual([])

          const blocks = (name: string): number => seen[name]?.blocks ?? 0
          expect(blocks("claim 500")).toBeLessThan(500 * 8 + 500)
          expect(blocks("claim 500")).toBeLessThan(blocks("claim 50") * 11)
          expect(blocks("close 200 completed")).toBeLessThan(200 * 24)
          expect(blocks("close 200 again")).toBeLessThan(200 * 16)
          expect(blocks("heartbeat 400, the second")).toBeLessThan(400 * 30)
          expect(blocks("complete")).toBeLessThan(150)

          // Rescue looks once at everything that was claimed since its mark, then at nothing.
          yield* owner.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '1 hour'")
          yield* owner.script("update awa.attempt_state set heartbeat_at = clock_timestamp()")
          const first = yield* measure(session, 40_000, session.value("select awa.rescue_stale('1 min', 500)"))
          expect([first.result, first.measured.excess]).toEqual([54, []])
          const second = yield* measure(session, 4100, session.value("select awa.rescue_stale('1 min', 500)"))
          expect([second.result, second.measured.excess]).toEqual([0, []])
          const swept = yield* measure(session, 4100, session.value("select awa.sweep('1 day')"))
          expect(swept.measured.blocks).toBeLessThan(60_000)
        }),
      120_000
    )
  }
})

describe("plans that were made when all batches were of one lane", () => {
  const rings = [
    ["one segment", database],
    ["beside an older segment", besideOlder(database)]
  ] as const
  for (const [ring, database] of rings)
    it.scopedLive(`${ring}: find the last batch of a lane that has none without walking those`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [session, owner] = [yield* db.session, yield* db.session]
        yield* owner.script(noAutovacuum)
        yield* enqueue(owner, 410)
        for (let n = 0; n < 400; n++) yield* claim(owner, { limit: 1 })
        yield* owner.script("analyze")
        yield* session.script(explainEverything)
        for (const { measured } of [
          yield* measure(session, 1, claim(session, { limit: 1 })),
          yield* measure(session, 1, claim(session, { limit: 1 })),
          yield* measure(session, 10, drain(session))
        ]) {
          expect(measured.excess).toEqual([])
        }
      })
    )
})

describe("the view of jobs", () => {
  it.scopedLive("reads each batch once, however many entries its lane has", () =>
    Effect.gen(function* () {
      const db = yield* database
      const session = yield* db.session
      yield* enqueue(session, 1)
      yield* close(session, yield* claim(session))
      yield* session.script("analyze")
      yield* enqueue(session, 1500)
      for (let n = 0; n < 150; n++) yield* close(session, yield* claim(session, { limit: 10 }))
      const blocks = yield* explainBuffers(session, "select state, count(*) from awa.jobs group by state")
      expect(blocks).toBeLessThan(10 * 1500)
    })
  )
})
