/** The guard for drivers that can swallow a stale completion: COMMIT itself fails (contract C-41). */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import {
  type Attempt,
  begin,
  claim,
  close,
  column,
  complete,
  drain,
  enqueue,
  evidence,
  expectCompletion,
  fault,
  fileDatabase,
  only,
  prune,
  rotate
} from "./support.js"

const database = fileDatabase({ ring: 4, then: "create table public.ledger (job_id bigint);" })

const oneRunning = (session: Session) =>
  Effect.map(
    Effect.flatMap(enqueue(session, 1), () => claim(session, { limit: 1 })),
    only
  )

const book = (session: Session, attempt: Attempt) =>
  session.rows("insert into public.ledger values ($1)", [attempt.job_id])

const booked = (session: Session) =>
  Effect.map(session.rows("delete from public.ledger returning job_id"), (rows) => column(rows, "job_id"))

/** The attempt under a lease: its segment is due while it runs. */
const leased = (session: Session) =>
  Effect.gen(function* () {
    const attempt = yield* oneRunning(session)
    yield* rotate(session)
    yield* drain(session)
    expect(yield* session.value("select awa.materialize_long('0', 100)")).toBe(1)
    expect(yield* prune(session)).not.toBeNull()
    return attempt
  })

const isolations = ["read committed", "repeatable read", "serializable"]

for (const [authority, attemptOf] of [
  ["a receipt claim", oneRunning],
  ["a lease", leased]
] as const) {
  describe(`expect_completion of ${authority}`, () => {
    it.scopedLive("lets the transaction commit that completes the attempt, in every isolation level", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        for (const isolation of isolations) {
          const attempt = yield* attemptOf(session)
          yield* begin(session, isolation)
          yield* expectCompletion(session, attempt)
          yield* book(session, attempt)
          yield* session.script("savepoint nested")
          yield* complete(session, attempt)
          yield* session.script("release nested")
          expect(yield* session.command("commit")).toBe("COMMIT")
          expect(yield* booked(session)).toEqual([attempt.job_id])
          expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
        }
      })
    )

    it.scopedLive("makes COMMIT fail when a savepoint swallowed the stale failure", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        for (const isolation of isolations) {
          for (const outcome of ["completed", "failed"]) {
            const attempt = yield* attemptOf(session)
            yield* close(session, [attempt], { outcome })
            yield* begin(session, isolation)
            yield* expectCompletion(session, attempt)
            yield* book(session, attempt)
            yield* session.script("savepoint nested")
            yield* fault(complete(session, attempt), "WA001")
            yield* session.script("rollback to nested")
            const lost = yield* fault(session.script("commit"), "WA007")
            expect(lost.detail).toBe(`job ${attempt.job_id}, run lease ${attempt.run_lease}`)
            expect(yield* booked(session)).toEqual([])
          }
        }
      })
    )

    it.scopedLive("makes COMMIT fail when the completion was rolled back with a savepoint, or never made", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const attempt = yield* attemptOf(session)
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        yield* book(session, attempt)
        yield* session.script("savepoint nested")
        yield* complete(session, attempt)
        yield* session.script("rollback to nested")
        yield* fault(session.script("commit"), "WA007")
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        yield* book(session, attempt)
        yield* fault(session.script("commit"), "WA007")
        expect(yield* booked(session)).toEqual([])
        expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
        // a transaction that rolls back promised nothing
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        yield* session.script("rollback")
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        yield* complete(session, attempt)
        yield* session.script("commit")
        expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
      })
    )

    it.scopedLive("accepts no other end of the attempt in this transaction, and no completion of another one", () =>
      Effect.gen(function* () {
        const session = yield* (yield* database).session
        const [attempt, other] = [yield* attemptOf(session), yield* oneRunning(session)]
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        expect(yield* close(session, [attempt], { outcome: "failed" })).toEqual(["closed"])
        yield* fault(session.script("commit"), "WA007")
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        yield* complete(session, other)
        yield* fault(session.script("commit"), "WA007")
        expect(yield* evidence(session, [attempt, other])).toEqual([
          ["open", null],
          ["open", null]
        ])
        // after a lossy failover two attempts may differ in nothing but their receipts (C-01)
        yield* begin(session)
        yield* expectCompletion(session, attempt, { receipt_id: attempt.receipt_id + 1n })
        yield* complete(session, attempt)
        yield* fault(session.script("commit"), "WA007")
      })
    )
  })
}

describe("expect_completion", () => {
  it.scopedLive("is refused inside a savepoint, whose rollback would take it back", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* begin(session)
      yield* session.script("savepoint a; savepoint b; release b")
      yield* fault(expectCompletion(session, attempt), "3B001")
      yield* session.script("rollback to a; release a")
      yield* expectCompletion(session, attempt) // they have ended
      yield* fault(session.script("commit"), "WA007")
      // also where the savepoint comes first, and the transaction's own id with it
      yield* begin(session)
      yield* session.script("savepoint a")
      yield* book(session, attempt)
      yield* fault(expectCompletion(session, attempt), "3B001")
      yield* session.script("rollback")
    })
  )

  it.scopedLive("is early when constraints are made immediate, and armed again by a rollback to before that", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* begin(session)
      yield* expectCompletion(session, attempt)
      yield* fault(session.script("set constraints all immediate"), "WA007")
      yield* session.script("rollback")
      yield* begin(session)
      yield* session.script("set constraints all immediate")
      yield* fault(expectCompletion(session, attempt), "WA007")
      yield* session.script("rollback")
      yield* begin(session)
      yield* expectCompletion(session, attempt)
      yield* session.script("savepoint nested")
      yield* complete(session, attempt)
      yield* session.script("set constraints all immediate")
      yield* session.script("rollback to nested")
      yield* fault(session.script("commit"), "WA007")
      yield* begin(session)
      yield* expectCompletion(session, attempt)
      yield* complete(session, attempt)
      yield* session.script("set constraints all immediate")
      expect(yield* session.command("commit")).toBe("COMMIT")
    })
  )

  it.scopedLive("is kept whatever session_replication_role says, and by a prepared transaction", () =>
    Effect.gen(function* () {
      const db = yield* database
      const session = yield* db.session
      const attempt = yield* oneRunning(session)
      yield* begin(session)
      yield* session.script("set local session_replication_role = replica")
      yield* expectCompletion(session, attempt)
      yield* fault(session.script("commit"), "WA007")
      yield* begin(session)
      yield* expectCompletion(session, attempt)
      yield* fault(session.script(`prepare transaction '${db.name}'`), "WA007")
      yield* begin(session)
      yield* expectCompletion(session, attempt)
      yield* complete(session, attempt)
      yield* session.script(`prepare transaction '${db.name}'`)
      yield* session.script(`commit prepared '${db.name}'`)
      expect(yield* evidence(session, [attempt])).toEqual([["closed", "completed"]])
    })
  )

  // a copy brings rows of other transactions, in whatever order its tables come
  it.scopedLive("asks nothing of rows that a copy brought", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      yield* session.script("insert into awa.expected_completions_1 values ('1', 1, 1, 1, 1, 1)")
      expect(yield* session.value("select count(*) from awa.expected_completions_1")).toBe(1n)
    })
  )

  // C-14: as complete_job
  it.scopedLive("refuses what cannot be a token", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      for (const [token, code] of [
        [{ run_lease: null }, "WA003"],
        [{ receipt_id: 0n }, "WA003"],
        [{ claim_slot: attempt.claim_slot | 255 }, "WA003"],
        [{ claim_slot: attempt.claim_slot ^ (1 << 12) }, "WA003"],
        [{ claim_slot: attempt.claim_slot ^ (1 << 9) }, "WA004"],
        [{ batch_id: attempt.batch_id + 1_000_000n }, "WA003"]
      ] as const) {
        yield* fault(expectCompletion(session, attempt, token), code)
      }
    })
  )

  // storage.md: intents live in the ring too (no deletes)
  it.scopedLive("leaves nothing dead behind, and its rows go with their segment", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const counted = Effect.flatMap(session.script("select pg_stat_force_next_flush()"), () =>
        session.rows(
          "select n_tup_del, n_tup_upd, n_dead_tup from pg_stat_all_tables where relid = 'awa.expected_completions_0'::regclass"
        )
      )
      const before = yield* counted
      for (let i = 0; i < 3; i++) {
        const attempt = yield* oneRunning(session)
        yield* begin(session)
        yield* expectCompletion(session, attempt)
        yield* complete(session, attempt)
        yield* session.script("commit")
      }
      expect(yield* session.value("select count(*) from awa.expected_completions_0")).toBe(3n)
      expect(yield* counted).toEqual(before)
      yield* rotate(session)
      expect(yield* drain(session)).toBe(1)
      expect(yield* prune(session)).toBe(0)
      expect(yield* session.value("select count(*) from awa.expected_completions_0")).toBe(0n)
    })
  )

  it.scopedLive("keeps its segment from being truncated until its transaction has ended", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      const attempt = yield* oneRunning(session)
      yield* close(session, [attempt])
      yield* begin(caller)
      yield* expectCompletion(caller, attempt)
      yield* rotate(session)
      expect(yield* drain(session)).toBe(1)
      yield* session.script("set lock_timeout = '20ms'")
      yield* fault(prune(session), "55P03")
      yield* session.script("reset lock_timeout")
      yield* fault(caller.script("commit"), "WA007")
      expect(yield* prune(session)).toBe(0)
    })
  )
})
