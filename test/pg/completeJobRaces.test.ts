import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Session } from "./database.js"
import { at, connect, createDatabase, freshName } from "./database.js"
import {
  type Attempt,
  beat,
  begin,
  blocked,
  claim,
  close,
  column,
  complete,
  enqueue,
  evidence,
  fault,
  fileDatabase,
  only,
  recycle
} from "./support.js"
import { inject } from "vitest"

const database = fileDatabase({ then: "create table public.ledger (job_id bigint);" })

const running = (session: Session, n = 1) => Effect.flatMap(enqueue(session, n), () => claim(session, { limit: n }))

const oneRunning = (session: Session) => Effect.map(running(session), only)

/** The business write that must share the completion's fate. */
const book = (session: Session, attempt: Attempt) =>
  session.rows("insert into public.ledger values ($1)", [attempt.job_id])

const booked = (session: Session) =>
  Effect.map(session.rows("delete from public.ledger returning job_id"), (rows) => column(rows, "job_id"))

const isolations = ["read committed", "repeatable read", "serializable"]

describe("evidence that is not there", () => {
  // C-14: in READ COMMITTED WA001 without DETAIL; outside it a missing claim row always is 40001
  it.scopedLive("because it was pruned is WA001 without DETAIL, and 40001 outside READ COMMITTED", () =>
    Effect.gen(function* () {
      const session = yield* (yield* database).session
      const attempt = yield* oneRunning(session)
      yield* close(session, [attempt])
      for (const reused of [false, true]) {
        yield* recycle(session)
        if (reused)
          for (let n = 0; n < 3; n++)
            yield* Effect.andThen(
              Effect.flatMap(running(session), (a) => close(session, a)),
              recycle(session)
            )
        for (const isolation of isolations) {
          yield* begin(session, isolation)
          const error = yield* fault(complete(session, attempt), isolation === "read committed" ? "WA001" : "40001")
          expect(error.detail).toBeUndefined()
          yield* session.script("rollback")
        }
        yield* Effect.flatMap(running(session), (a) => close(session, a))
      }
    })
  )

  // F-79: the caller's snapshot is older than the claim; the attempt stays open
  it.scopedLive("for the caller's snapshot, which is older than the claim, is 40001; a new transaction succeeds", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      for (const isolation of ["repeatable read", "serializable"]) {
        yield* begin(caller, isolation)
        yield* caller.script("select count(*) from public.ledger")
        const attempt = yield* oneRunning(session)
        yield* fault(complete(caller, attempt), "40001")
        yield* caller.script("rollback")
        expect(yield* evidence(session, [attempt])).toEqual([["open", null]])
        yield* begin(caller, isolation)
        yield* complete(caller, attempt)
        expect(yield* caller.command("commit")).toBe("COMMIT")
      }
    })
  )

  it.scopedLive("for the caller's snapshot, being a closure made after it, is 40001 and then WA001", () =>
    Effect.gen(function* () {
      const db = yield* database
      const [caller, session] = [yield* db.session, yield* db.session]
      for (const isolation of ["repeatable read", "serializable"]) {
        const attempt = yield* oneRunning(session)
        yield* begin(caller, isolation)
        yield* caller.script("select count(*) from public.ledger")
        yield* close(session, [attempt], { outcome: "snoozed", detail: { delay_ms: 60_000 } })
        yield* fault(complete(caller, attempt), "40001")
        yield* caller.script("rollback")
        yield* begin(caller, isolation)
        yield* fault(complete(caller, attempt), "WA001")
        yield* caller.script("rollback")
      }
    })
  )
})

describe("two callers of complete_job for one attempt", () => {
  for (const isolation of isolations) {
    it.scopedLive(`follow one another, in ${isolation}: the second waits, and loses or takes over`, () =>
      Effect.gen(function* () {
        const db = yield* database
        const [first, second, session] = [yield* db.session, yield* db.session, yield* db.session]
        for (const end of ["commit", "rollback"]) {
          const attempt = yield* oneRunning(session)
          yield* begin(first, isolation)
          yield* book(first, attempt)
          yield* complete(first, attempt)
          yield* begin(second, isolation)
          yield* book(second, attempt)
          const waiting = yield* Effect.fork(Effect.either(complete(second, attempt)))
          yield* blocked(session, second)
          yield* first.script(end)
          const answer = yield* waiting
          yield* second.script("commit")
          if (end === "rollback") expect(answer._tag).toBe("Right")
          else {
            const lost = isolation === "read committed" ? "WA001" : "40001"
            expect(answer._tag === "Left" ? answer.left.code : "completed").toBe(lost)
          }
          expect(yield* booked(session)).toEqual([attempt.job_id])
          expect(
            yield* session.value("select count(*) from awa.closures where batch_id = $1", [attempt.batch_id])
          ).toBe(1n)
        }
      })
    )
  }
})

// F-79: SERIALIZABLE callers of one batch have nothing to do with each other
it.scopedLive("neighbours of one claim complete in overlapping SERIALIZABLE transactions", () =>
  Effect.gen(function* () {
    const db = yield* database
    const [session, ...callers] = [yield* db.session, yield* db.session, yield* db.session, yield* db.session]
    const attempts = yield* running(session, 3)
    yield* beat(session, attempts)
    for (const caller of callers) yield* begin(caller, "serializable")
    for (const [i, caller] of callers.entries()) {
      const [attempt] = attempts.slice(i)
      if (attempt === undefined) throw new Error("three attempts")
      yield* enqueue(caller, 1)
      yield* book(caller, attempt)
      yield* complete(caller, attempt)
    }
    for (const caller of callers) expect(yield* caller.command("commit")).toBe("COMMIT")
    expect(yield* booked(session)).toHaveLength(3)
  })
)

// C-34: meta holds the installation id with system identifier and database oid
it.scopedLive("a token from a copied database is refused there, before and after the copy is adopted", () =>
  Effect.gen(function* () {
    const server = inject("postgresUrl")
    const db = yield* database
    const before = yield* Effect.scoped(
      Effect.gen(function* () {
        const session = yield* db.session
        return {
          attempts: yield* running(session, 2),
          fingerprint: yield* session.value("select fingerprint from awa.meta")
        }
      })
    )
    const [attempt, other] = before.attempts
    if (attempt === undefined || other === undefined) throw new Error("two attempts")
    const copy = freshName("copied")
    yield* createDatabase(server, copy, db.name)
    const there = yield* connect(at(server, copy))
    yield* fault(complete(there, attempt), "WA003")
    expect(yield* there.value("select awa.adopt_database()")).toBe("adopted")
    expect(yield* there.value("select awa.adopt_database()")).toBe("ours")
    expect(yield* there.value("select fingerprint from awa.meta")).not.toBe(before.fingerprint)
    yield* fault(complete(there, attempt), "WA003")
    expect(yield* close(there, [attempt])).toEqual(["stale"])
    expect(yield* beat(there, [attempt])).toEqual([[1, null]])
    expect(yield* evidence(there, [attempt])).toEqual([["superseded", null]])
    // The attempts of the original are nobody's in the copy: rescue takes them, and they run there as new attempts.
    yield* there.script("update awa.claim_batches_0 set claimed_at = claimed_at - interval '1 hour'")
    expect(yield* there.value("select awa.rescue_stale('1 min', 10)")).toBe(2)
    yield* complete(there, only((yield* claim(there)).slice(0, 1)))
    // The original is as it was.
    const here = yield* db.session
    expect(yield* here.value("select awa.adopt_database()")).toBe("ours")
    yield* complete(here, attempt)
    yield* fault(complete(there, other), "WA003")
  })
)
