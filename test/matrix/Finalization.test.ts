/** `complete_job` and `expect_completion` in a transaction that begins with the cell's own isolation. */
import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { Session } from "../pg/database.js"
import {
  type Attempt,
  claim,
  close,
  column,
  complete,
  enqueue,
  evidence,
  expectCompletion,
  fault,
  only
} from "../pg/support.js"
import { database } from "../runtime/support.js"
import { keepsSnapshot } from "./cell.js"
import { age, millis, sessions } from "./sessions.js"

const decodeDetail = Schema.decodeUnknownSync(
  Schema.parseJson(Schema.Struct({ outcome: Schema.String, closed_at: Schema.String }))
)

/** The business write that must share the completion's fate. */
const book = (application: Session, attempt: Attempt) =>
  application.rows("insert into public.application_rows (tag) values ($1)", [String(attempt.job_id)])

const booked = (observer: Session, attempt: Attempt) =>
  Effect.map(
    observer.rows("select tag from public.application_rows where tag = $1", [String(attempt.job_id)]),
    ({ length }) => length
  )

const running = (queue: string) =>
  Effect.gen(function* () {
    const all = yield* sessions
    yield* enqueue(all.application, 1, { queue })
    return { ...all, attempt: only(yield* claim(all.runtime, { queue })) }
  })

layer(database(), { excludeTestServices: true })("complete_job", (it) => {
  it.scoped("commits with the caller's rows, or not at all [matrix]", () =>
    // C-12, C-13, C-15, C-16
    Effect.gen(function* () {
      const { application, attempt, observer, runtime } = yield* running("commits")
      yield* application.script("begin")
      yield* book(application, attempt)
      yield* complete(application, attempt)
      yield* application.script("rollback")
      assert.deepStrictEqual(yield* evidence(runtime, [attempt]), [["open", null]])
      assert.strictEqual(yield* booked(observer, attempt), 0)

      const now = `select ${millis("clock_timestamp()")}`
      const before = Number(yield* observer.value(now))
      yield* application.script("begin")
      yield* book(application, attempt)
      const receipt = yield* complete(application, attempt, { progress: { done: 1 } })
      assert.strictEqual(yield* application.command("commit"), "COMMIT")
      const after = Number(yield* observer.value(now))
      const { batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease } = attempt
      const fields = { job_id, run_lease, claim_slot, receipt_id, batch_id, batch_index }
      assert.deepInclude(receipt, { contract_version: 1, outcome: "completed", ...fields })
      assert.deepStrictEqual(yield* evidence(runtime, [attempt]), [["closed", "completed"]])
      assert.strictEqual(yield* booked(observer, attempt), 1)
      // its time, read in the zone that it was written in, and from the row itself
      const [row] = yield* observer.rows(
        `select ${millis("$1::timestamptz")} as receipt, ${millis("closed_at")} as closed, xid, progress
         from ${observer.schema}.closures where batch_id = $2`,
        [receipt["finalized_at"], batch_id]
      )
      assert.deepInclude(row, { xid: receipt["finalized_xid"], progress: { done: 1 } })
      assert.strictEqual(row?.["receipt"], row?.["closed"])
      assert.isAtLeast(Number(row?.["closed"]), before)
      assert.isAtMost(Number(row?.["closed"]), after)
    })
  )

  it.scoped("raises on an attempt that ended otherwise, and the caller's rows are gone [matrix]", () =>
    // C-14
    Effect.gen(function* () {
      const { application, attempt, observer, runtime } = yield* running("stale")
      yield* close(runtime, [attempt], { outcome: "failed", detail: { error: "E" } })
      yield* application.script("begin")
      yield* book(application, attempt)
      const stale = yield* fault(complete(application, attempt), "WA001")
      assert.strictEqual(yield* application.command("commit"), "ROLLBACK")
      const closedAt = yield* observer.value(
        `select to_json(closed_at) from ${observer.schema}.closures where batch_id = $1`,
        [attempt.batch_id]
      )
      const detail = decodeDetail(stale.detail)
      assert.strictEqual(detail.outcome, "failed")
      assert.strictEqual(new Date(detail.closed_at).getTime(), new Date(String(closedAt)).getTime())
      assert.strictEqual(yield* booked(observer, attempt), 0)
    })
  )

  it.scoped("completes once, in one transaction and in two [matrix]", () =>
    // C-14
    Effect.gen(function* () {
      const { application, attempt, observer } = yield* running("twice")
      yield* application.script("begin")
      yield* complete(application, attempt)
      yield* application.script("savepoint a")
      yield* fault(complete(application, attempt), "WA001")
      yield* application.script("rollback to a; commit")
      yield* fault(complete(application, attempt), "WA001")
      assert.strictEqual(
        yield* observer.value(`select count(*) from ${observer.schema}.closures where batch_id = $1`, [
          attempt.batch_id
        ]),
        1n
      )
    })
  )

  it.scoped("asks for the transaction again when its snapshot is older than the claim [matrix]", () =>
    // C-14: 40001 outside READ COMMITTED, where the caller begins again; in READ COMMITTED there is nothing to ask for
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const queue = "snapshots"
      yield* enqueue(application, 1, { queue })
      yield* application.script("begin")
      yield* application.rows("select from public.application_rows")
      const attempt = only(yield* claim(runtime, { queue }))
      yield* book(application, attempt)
      if (keepsSnapshot) {
        yield* fault(complete(application, attempt), "40001")
        yield* application.script("rollback")
        assert.strictEqual(yield* booked(observer, attempt), 0)
        yield* application.script("begin")
        yield* book(application, attempt)
      }
      yield* complete(application, attempt)
      assert.strictEqual(yield* application.command("commit"), "COMMIT")
      assert.deepStrictEqual(yield* evidence(runtime, [attempt]), [["closed", "completed"]])
      assert.strictEqual(yield* booked(observer, attempt), 1)
    })
  )

  it.scoped("never commits over an end that its snapshot cannot see [matrix]", () =>
    // C-14
    Effect.gen(function* () {
      const { application, attempt, observer, runtime } = yield* running("unseen")
      yield* application.script("begin")
      yield* application.rows("select from public.application_rows")
      yield* age(observer, [attempt])
      assert.strictEqual(yield* runtime.value(`select ${runtime.schema}.rescue_stale('1 min', 100)`), 1)
      yield* book(application, attempt)
      yield* fault(complete(application, attempt), keepsSnapshot ? "40001" : "WA001")
      yield* application.script("rollback")
      const again = only(yield* claim(runtime, { queue: "unseen" }))
      yield* fault(complete(application, attempt), "WA001")
      yield* complete(application, again)
      assert.strictEqual(yield* booked(observer, attempt), 0)
    })
  )

  it.scoped("refuses a token that was forged [matrix]", () =>
    // C-11, C-14
    Effect.gen(function* () {
      const { application, attempt, runtime } = yield* running("forged")
      const refused = (code: string, token: Readonly<Record<string, unknown>>) =>
        fault(complete(application, attempt, { token }), code)
      yield* refused("WA001", { receipt_id: attempt.receipt_id + 1n })
      yield* refused("WA001", { run_lease: 2n })
      yield* refused("WA003", { claim_slot: attempt.claim_slot ^ (1 << 12) })
      yield* refused("WA004", { claim_slot: attempt.claim_slot ^ (3 << 8) })
      yield* refused("WA003", { batch_id: null })
      assert.deepStrictEqual(yield* evidence(runtime, [attempt]), [["open", null]])
      yield* complete(application, attempt)
    })
  )
})

layer(database(), { excludeTestServices: true })("expect_completion", (it) => {
  it.scoped(
    "makes COMMIT fail when a savepoint took the completion back, and lets it be when it is there [matrix]",
    () =>
      // C-41
      Effect.gen(function* () {
        const { application, attempt, observer, runtime } = yield* running("expected")
        yield* application.script("begin")
        yield* expectCompletion(application, attempt)
        yield* book(application, attempt)
        yield* application.script("savepoint a")
        yield* complete(application, attempt)
        yield* application.script("rollback to a")
        yield* fault(application.command("commit"), "WA007")
        yield* application.script("rollback")
        assert.strictEqual(yield* booked(observer, attempt), 0)
        assert.deepStrictEqual(yield* evidence(runtime, [attempt]), [["open", null]])

        yield* application.script("begin")
        yield* expectCompletion(application, attempt)
        yield* book(application, attempt)
        yield* complete(application, attempt)
        assert.strictEqual(yield* application.command("commit"), "COMMIT")
        assert.strictEqual(yield* booked(observer, attempt), 1)
        assert.deepStrictEqual(
          column(
            yield* observer.rows(`select state from ${observer.schema}.jobs where job_id = $1`, [attempt.job_id]),
            "state"
          ),
          ["completed"]
        )
      })
  )
})
