/** Attempts, from their claim to their end, as an executor of any language calls the engine. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import type { Session } from "../pg/database.js"
import {
  type Attempt,
  beat,
  claim,
  close,
  column,
  complete,
  enqueue,
  evidence,
  fault,
  only,
  settle
} from "../pg/support.js"
import { database } from "../runtime/support.js"
import { age, millis, sessions } from "./sessions.js"

const isString = Schema.is(Schema.String)

const token = ({ batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease }: Attempt) => [
  claim_slot,
  batch_id,
  batch_index,
  job_id,
  run_lease,
  receipt_id
]

const rescue = (runtime: Session) => runtime.value(`select ${runtime.schema}.rescue_stale('1 min', 100)`)

const stateOf = (observer: Session, id: bigint) =>
  Effect.map(
    observer.rows(`select state, run_lease, attempt from ${observer.schema}.jobs where job_id = $1`, [id]),
    only
  )

layer(database(), { excludeTestServices: true })("an attempt", (it) => {
  it.scoped("is claimed once, with a lease that rises and a receipt of its own [matrix]", () =>
    // C-01
    Effect.gen(function* () {
      const { application, runtime } = yield* sessions
      const queue = "claims"
      const ids = yield* enqueue(application, 3, { queue, args: { text: 'Ørsted\'s \\ "of"' } })
      const first = yield* claim(runtime, { queue, limit: 2 })
      const rest = yield* claim(runtime, { queue })
      assert.deepStrictEqual(column([...first, ...rest], "job_id"), ids)
      assert.lengthOf(yield* claim(runtime, { queue }), 0)
      for (const { args, attempt, run_lease } of [...first, ...rest]) {
        assert.deepStrictEqual([run_lease, attempt], [1n, 1])
        assert.deepStrictEqual(args, { text: 'Ørsted\'s \\ "of"' })
      }
      assert.strictEqual(new Set([...first, ...rest].map(({ receipt_id }) => receipt_id)).size, 3)
    })
  )

  it.scoped("is rescued when it is not beaten for, and then nothing of it counts any more [matrix]", () =>
    // C-01, C-02, C-14
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const queue = "rescues"
      yield* enqueue(application, 2, { queue })
      const [lost, kept] = yield* claim(runtime, { queue })
      if (lost === undefined || kept === undefined) throw new Error("two attempts")
      assert.strictEqual(yield* rescue(runtime), 0) // young, whatever hour it is in the session's zone
      yield* age(observer, [lost, kept])
      assert.deepStrictEqual(yield* beat(runtime, [kept], { 1: { step: 1 } }), [])
      assert.strictEqual(yield* rescue(runtime), 1)
      assert.deepStrictEqual(yield* evidence(runtime, [lost, kept]), [
        ["closed", "rescued"],
        ["open", null]
      ])
      const again = only(yield* claim(runtime, { queue }))
      assert.deepStrictEqual([again.job_id, again.run_lease], [lost.job_id, 2n])
      assert.deepStrictEqual(yield* beat(runtime, [lost, kept, again]), [[1, "rescued"]])
      assert.deepStrictEqual(yield* close(runtime, [lost]), ["stale"])
      const stale = yield* fault(complete(application, lost), "WA001")
      assert.deepInclude(JSON.parse(stale.detail ?? ""), { outcome: "rescued" })
      yield* fault(complete(application, lost, { token: { run_lease: 2n } }), "WA001") // the receipt is another one
      assert.deepStrictEqual(yield* evidence(runtime, [again]), [["open", null]])
      assert.deepStrictEqual(yield* close(runtime, [kept, again], { hasState: true }), ["closed", "closed"])
      assert.deepStrictEqual(
        yield* observer.value(`select progress from ${observer.schema}.attempts where job_id = $1`, [kept.job_id]),
        { step: 1 }
      )
    })
  )

  it.scoped("ends as its runtime says: completed, retried, snoozed, failed [matrix]", () =>
    // C-02, C-17.2
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const queue = "ends"
      const outcomes = ["completed", "retried", "snoozed", "failed"]
      yield* enqueue(application, outcomes.length, { queue })
      const attempts = yield* claim(runtime, { queue })
      const delay_ms = 90_000
      const answers = yield* close(runtime, attempts, { outcome: outcomes, detail: { delay_ms, error: { name: "E" } } })
      assert.deepStrictEqual(answers, ["closed", "closed", "closed", "closed"])
      const states = yield* Effect.forEach(attempts, ({ job_id }) => stateOf(observer, job_id))
      assert.deepStrictEqual(states, [
        { state: "completed", run_lease: 1n, attempt: 1 },
        { state: "retryable", run_lease: 1n, attempt: 1 },
        { state: "snoozed", run_lease: 1n, attempt: 0 },
        { state: "failed", run_lease: 1n, attempt: 1 }
      ])
      const waits = yield* observer.rows(
        `select ${millis("d.run_at - clock_timestamp()")} as left from ${observer.schema}.deferred_jobs d where queue = $1`,
        [queue]
      )
      assert.lengthOf(waits, 2)
      for (const left of column(waits, "left").map(Number)) {
        assert.isAtMost(left, delay_ms)
        assert.isAbove(left, delay_ms - 60_000)
      }
      assert.lengthOf(yield* claim(runtime, { queue }), 0)
    })
  )

  it.scoped("is settled alone, and the second word about it is stale [matrix]", () =>
    // C-02, C-17.2
    Effect.gen(function* () {
      const { application, observer, runtime } = yield* sessions
      const queue = "settled"
      yield* enqueue(application, 1, { queue })
      const attempt = only(yield* claim(runtime, { queue }))
      assert.strictEqual(yield* settle(runtime, attempt, "cancelled"), "closed")
      assert.strictEqual(yield* settle(runtime, attempt, "failed", {}, 2), "stale")
      assert.deepInclude(yield* stateOf(observer, attempt.job_id), { state: "cancelled" })
    })
  )

  describe("with a callback", () => {
    it.scoped("waits, cannot complete meanwhile, and goes on with the answer [matrix]", () =>
      // C-02, C-14 (WA002)
      Effect.gen(function* () {
        const { application, observer, runtime } = yield* sessions
        const { schema } = runtime
        const queue = "callbacks"
        yield* enqueue(application, 1, { queue })
        const attempt = only(yield* claim(runtime, { queue }))
        const registered = only(
          yield* runtime.rows(
            `select * from ${schema}.register_callback($1, $2, $3, $4, $5, $6, '1 hour')`,
            token(attempt)
          )
        )
        const id = registered["callback_id"]
        if (!isString(id)) throw new Error(`no id: ${JSON.stringify(registered)}`)
        const left = yield* observer.value(
          `select ${millis("callback_deadline - clock_timestamp()")} from ${schema}.leases where job_id = $1`,
          [attempt.job_id]
        )
        assert.isAtMost(Number(left), 3_600_000)
        assert.isAbove(Number(left), 3_500_000)
        const wait = Effect.map(
          runtime.rows(`select answer, result from ${schema}.wait_callback($1, $2, $3, $4, $5, $6, $7)`, [
            ...token(attempt),
            id
          ]),
          only
        )
        assert.deepInclude(yield* wait, { answer: "waiting" })
        yield* fault(complete(application, attempt), "WA002")
        const resume = application.value(`select ${schema}.resume_callback($1, $2::text::jsonb)`, [
          id,
          '{"paid": true}'
        ])
        yield* application.script("begin")
        assert.strictEqual(yield* resume, "resumed")
        yield* application.script("rollback") // the answer goes with its transaction
        assert.deepInclude(yield* wait, { answer: "waiting" })
        assert.strictEqual(yield* resume, "resumed")
        assert.strictEqual(yield* resume, "already")
        assert.deepStrictEqual(yield* wait, { answer: "answered", result: { paid: true } })
        yield* complete(application, attempt)
        assert.deepInclude(yield* stateOf(observer, attempt.job_id), { state: "completed", run_lease: 1n })
      })
    )
  })
})
