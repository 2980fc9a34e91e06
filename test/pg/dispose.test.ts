/** Where jobs go when their attempts end without success, and what becomes of one that cannot go there. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  bigints,
  claim,
  claimIds,
  close,
  column,
  enqueue,
  fileDatabase,
  only,
  settle
} from "./support.js"

const database = fileDatabase({
  then: `
create schema hurdle;
create function hurdle.refuse() returns trigger language plpgsql as $$
begin
  if new.kind = 'k' and new.args ? 'poison' then
    raise exception 'the hurdle refuses job %', new.job_id;
  end if;
  return new;
end $$;`
})

/** While the effect runs, the table refuses every job that has poison in its arguments. */
const refusing = <A, E, R>(session: Session, table: string, effect: Effect.Effect<A, E, R>) =>
  Effect.acquireUseRelease(
    session.script(`create trigger hurdle before insert on awa.${table} for each row execute function hurdle.refuse()`),
    () => effect,
    () => Effect.ignore(session.script(`drop trigger hurdle on awa.${table}`))
  )

/** Many running attempts, one of them of a job that will be refused. */
const mixed = (session: Session, n: number, opts: Record<string, unknown> = {}) =>
  Effect.gen(function* () {
    yield* enqueue(session, n / 2, { opts })
    const poisoned = only(yield* enqueue(session, 1, { opts, args: { poison: true } }))
    yield* enqueue(session, n / 2 - 1, { opts })
    return { poisoned, attempts: yield* claim(session, { limit: n }) }
  })

const quarantine = (session: Session) =>
  session.rows("select job_id, attempt, run_lease, reason from awa.quarantined_jobs order by 1")

const expectQuarantined = (session: Session, job_id: bigint, reason: RegExp) =>
  Effect.map(quarantine(session), (rows) => {
    const row = only(rows)
    expect(row["job_id"]).toBe(job_id)
    expect(row["reason"]).toMatch(reason)
    return row
  })

const ids = (session: Session, table: string) =>
  Effect.map(session.rows(`select job_id from awa.${table} order by 1`), (rows) => bigints(column(rows, "job_id")))

const without = (attempts: ReadonlyArray<Attempt>, id: bigint) =>
  attempts.map((attempt) => attempt.job_id).filter((job_id) => job_id !== id)

const age = (session: Session) =>
  session.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '10 min'")

// Issue: batches degrade per row; one row that cannot move is quarantined with a visible reason and wedges nothing
describe("one job of 200 that cannot be stored", () => {
  for (const [outcome, table, detail] of [
    ["retried", "deferred_jobs", { delay_ms: 60_000, error: "e" }],
    ["snoozed", "deferred_jobs", { delay_ms: 60_000 }],
    ["failed", "terminal_jobs", { error: "e" }],
    ["dead_lettered", "dlq_entries", { reason: "no use" }]
  ] as const) {
    it.scopedLive(`is quarantined when its attempt ends as ${outcome}; the others move, and all are closed`, () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const { attempts, poisoned } = yield* mixed(session, 200)
        const answers = yield* refusing(session, table, close(session, attempts, { outcome, detail }))
        expect(new Set(answers)).toEqual(new Set(["closed"]))
        expect(yield* ids(session, table)).toEqual(without(attempts, poisoned))
        const row = yield* expectQuarantined(
          session,
          poisoned,
          new RegExp(`^P0001, on its way from outcome ${outcome}: the hurdle refuses job ${poisoned}$`)
        )
        expect([row["attempt"], row["run_lease"]]).toEqual([outcome === "snoozed" ? 0 : 1, 1n])
        expect(yield* close(session, attempts.slice(0, 2), { outcome, detail })).toEqual(["repeated", "repeated"])
      })
    )
  }

  it.scopedLive("is quarantined by a check constraint as well, and by the close of one attempt", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 2)
      const [one, two] = yield* claim(session)
      if (one === undefined || two === undefined) throw new Error("two attempts")
      yield* session.script(`alter table awa.terminal_jobs add constraint hurdle check (job_id <> ${one.job_id})`)
      expect([yield* settle(session, one, "failed"), yield* settle(session, two, "failed")]).toEqual([
        "closed",
        "closed"
      ])
      yield* session.script("alter table awa.terminal_jobs drop constraint hurdle")
      yield* expectQuarantined(session, one.job_id, /^23514, on its way from outcome failed: .*hurdle/)
      expect(yield* ids(session, "terminal_jobs")).toEqual([two.job_id])
    })
  )

  it.scopedLive("does not wedge rescue", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempts, poisoned } = yield* mixed(session, 200, { max_attempts: 1 })
      yield* age(session)
      const rescue = session.value("select awa.rescue_stale('1 min', 500)")
      expect(yield* refusing(session, "terminal_jobs", rescue)).toBe(200)
      expect(yield* ids(session, "terminal_jobs")).toEqual(without(attempts, poisoned))
      yield* expectQuarantined(session, poisoned, /^P0001, on its way from outcome rescued: /)
      expect([yield* rescue, yield* session.value("select rescued_to from awa.segments where slot = 0")]).toEqual([
        0,
        1n
      ])
    })
  )

  it.scopedLive("does not wedge promotion, which keeps its order", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const before = yield* enqueue(session, 100, { opts: { delay_ms: 1 } })
      const poisoned = only(yield* enqueue(session, 1, { opts: { delay_ms: 1 }, args: { poison: true } }))
      const after = yield* enqueue(session, 99, { opts: { delay_ms: 1 } })
      yield* Effect.sleep("5 millis")
      const promote = session.rows("select promoted, next_due_ms from awa.promote_due(500)")
      expect(yield* refusing(session, "ready_entries_0", promote)).toEqual([{ promoted: 199, next_due_ms: null }])
      expect(yield* promote).toEqual([{ promoted: 0, next_due_ms: null }])
      yield* expectQuarantined(session, poisoned, /^P0001, on its way into the ring: the hurdle/)
      expect(yield* claimIds(session, { limit: 500 })).toEqual([...before, ...after])
    })
  )

  it.scopedLive("is quarantined also on its way back at once", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const { attempts, poisoned } = yield* mixed(session, 20)
      yield* refusing(session, "ready_entries_0", close(session, attempts, { outcome: "released" }))
      const row = yield* expectQuarantined(session, poisoned, /^P0001, on its way into the ring: /)
      expect([row["attempt"], row["run_lease"]]).toEqual([0, 1n])
      expect(yield* claimIds(session)).toEqual(without(attempts, poisoned))
    })
  )
})

it.scopedLive("an error that says nothing of a row is the caller's to try again", () =>
  Effect.gen(function* () {
    const session = yield* (yield* database).session
    const { attempts } = yield* mixed(session, 4)
    yield* session.script(
      `create function hurdle.full() returns trigger language plpgsql as $$
       begin raise exception using errcode = '53100', message = 'no space'; end $$;
       create trigger hurdle before insert on awa.deferred_jobs for each row execute function hurdle.full()`
    )
    const failed = yield* Effect.flip(close(session, attempts, { outcome: "retried", detail: { delay_ms: 60_000 } }))
    expect(failed.code).toBe("53100")
    yield* session.script("drop trigger hurdle on awa.deferred_jobs; drop function hurdle.full()")
    expect(yield* quarantine(session)).toEqual([])
    expect(new Set(yield* close(session, attempts, { outcome: "retried" }))).toEqual(new Set(["closed"]))
  })
)

// Issue: DLQ; C-02
describe("dead letters", () => {
  it.scopedLive("are jobs that failed for good in a queue that keeps them", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("insert into awa.queues (queue, dead_letter) values ('q', true)")
      yield* enqueue(session, 4, { opts: { max_attempts: 1 }, args: { n: 1 } })
      const attempts = yield* claim(session)
      yield* close(session, attempts, {
        outcome: ["failed", "retried", "discarded", "cancelled"],
        detail: { error: "e", progress: { step: 1 } }
      })
      yield* enqueue(session, 1, { opts: { max_attempts: 1 } })
      yield* claim(session)
      yield* age(session)
      expect(yield* session.value("select awa.rescue_stale('1 min', 10)")).toBe(1)
      expect(
        yield* session.rows(
          "select job_id, reason, attempt, run_lease, errors -> 0 ->> 'outcome' as e from awa.dlq_entries order by 1"
        )
      ).toEqual([
        { job_id: attempts[0]?.job_id, reason: "failed", attempt: 1, run_lease: 1n, e: "failed" },
        { job_id: attempts[1]?.job_id, reason: "attempts exhausted", attempt: 1, run_lease: 1n, e: "retried" },
        {
          job_id: 5n,
          reason: "attempts exhausted, 1 of them abandoned by their worker",
          attempt: 1,
          run_lease: 1n,
          e: "rescued"
        }
      ])
      expect(yield* session.rows("select args, progress from awa.dlq_entries where job_id = 1")).toEqual([
        { args: { n: 1 }, progress: { step: 1 } }
      ])
      expect(column(yield* session.rows("select state from awa.terminal_jobs order by job_id"), "state")).toEqual([
        "discarded",
        "cancelled"
      ])
    })
  )

  it.scopedLive("are what a handler sends there, whatever the queue's setting and the attempts left", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 2)
      const attempts = yield* claim(session)
      yield* close(session, attempts.slice(0, 1), { outcome: "dead_lettered", detail: { reason: "no such customer" } })
      yield* close(session, attempts.slice(1), { outcome: "dead_lettered" })
      expect(column(yield* session.rows("select reason from awa.dlq_entries order by job_id"), "reason")).toEqual([
        "no such customer",
        "the handler said so"
      ])
      expect(yield* ids(session, "terminal_jobs")).toEqual([])
      expect(yield* claimIds(session)).toEqual([])
    })
  )
})

describe("exhaustion", () => {
  // F-51, F-15: snoozing burns no attempt, gives back no lease, and is no way past the last attempt
  it.scopedLive("counts failures however many snoozes lie between them", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* enqueue(session, 1, { opts: { max_attempts: 3 } })
      const script = ["snoozed", "retried", "snoozed", "snoozed", "retried", "released", "snoozed", "retried"]
      const seen: Array<unknown> = []
      for (const outcome of script) {
        const attempt = only(yield* claim(session))
        seen.push([attempt.attempt, attempt.run_lease])
        yield* close(session, [attempt], { outcome, detail: { error: "e" } })
      }
      expect(seen).toEqual([1, 1, 2, 2, 2, 3, 3, 3].map((attempt, i) => [attempt, BigInt(i + 1)]))
      expect(yield* claimIds(session)).toEqual([])
      expect(yield* session.rows("select state, attempt, run_lease from awa.terminal_jobs")).toEqual([
        { state: "failed", attempt: 3, run_lease: 8n }
      ])
    })
  )

  // F-57, F-54: a table of the pauses that rescue chooses; no overflow, whatever the attempt
  it.scopedLive(
    "pauses after a rescue: nothing the first time, then doubling, at most an hour, the second half of it drawn",
    () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const attempts = [1, 2, 3, 4, 12, 13, 14, 100, 32_766]
        // the drawn half of the pause: 200 of each come close to both of its ends
        yield* session.rows(
          `select awa.dispose_jobs(array_agg(row(row_number, 1, 'q', 2, a, 32767, 'k', '{}', null, null, clock_timestamp(), null,
           'rescued', '{"error": {}}')::awa.ended_job))
         from (select a, row_number() over () from unnest($1::int[]) a, generate_series(1, 200)) j`,
          [attempts]
        )
        expect(yield* session.value("select count(*)::int from awa.ready_entries_0 where attempt = 1")).toBe(200)
        const ends = yield* session.rows(
          `select attempt, max(pause) as longest, min(pause) as shortest from (
           select attempt, extract(epoch from run_at - (errors -> -1 ->> 'at')::timestamptz)::float8 as pause from awa.deferred_jobs) d
         group by 1 order by 1`
        )
        const pauses = [1, 3, 7, 2047, 3600, 3600, 3600, 3600]
        expect(column(ends, "attempt")).toEqual(attempts.slice(1))
        column(ends, "longest").forEach((longest, i) => {
          expect(longest).toBeLessThanOrEqual(pauses[i] ?? 0)
          expect(longest).toBeGreaterThan(0.9 * (pauses[i] ?? 0))
        })
        column(ends, "shortest").forEach((shortest, i) => {
          expect(shortest).toBeGreaterThanOrEqual(0.5 * (pauses[i] ?? 0))
          expect(shortest).toBeLessThan(0.6 * (pauses[i] ?? 0))
        })
      })
  )
})
