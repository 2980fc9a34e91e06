import { SqlClient } from "@effect/sql"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Either, Fiber, Option, Ref, Schema } from "effect"
import * as Callbacks from "effect-awa/Callbacks"
import type * as JobError from "effect-awa/JobError"
import * as JobOutcome from "effect-awa/JobOutcome"
import { FaultProxy } from "effect-awa/testing"
import { inject } from "vitest"
import { notifyChannel } from "../../src/internal/renderSql.js"
import { commitOf, countRows, eventually, insertRow, protocolEvents, quotedSchema, rescueNow } from "./support.js"
import { Charge, Direct, Notify, type OrdinaryHandler, type Owned, type OwnedHandler, Proxies, run } from "./world.js"

const Charged = Schema.Struct({ amount: Schema.Int })

const withAmount = { timeout: "1 minute", result: Charged } as const

/** Where a job is, wherever that is, with what it has met. */
const stateOf = (id: bigint) =>
  Effect.gen(function* () {
    const sql = yield* Direct
    const rows = yield* sql<{ state: string; run_lease: string }>`
      select state, run_lease::text from ${sql.literal(quotedSchema)}.jobs where job_id = ${String(id)}`
    return rows.map(({ run_lease, state }) => `${state} ${run_lease}`).join(", ")
  })

const isState = (id: bigint, state: string) =>
  eventually(
    `job ${id} ${state}`,
    Effect.map(stateOf(id), (found) => found === state)
  )

const errorsOf = (id: bigint) =>
  Effect.gen(function* () {
    const sql = yield* Direct
    const [row] = yield* sql<{ errors: unknown }>`select errors -> 0 -> 'error' as errors from awa.terminal_jobs
      where job_id = ${String(id)}`
    return row?.errors
  })

/** A handler that tells the test its callback's id. */
const telling =
  (
    tell: Deferred.Deferred<string>,
    then: (
      job: Owned,
      callback: { readonly await: Effect.Effect<{ amount: number }, JobError.CallbackError> }
    ) => ReturnType<OwnedHandler>
  ): OwnedHandler =>
  (job) =>
    Effect.gen(function* () {
      const callback = yield* job.callback(withAmount)
      yield* Deferred.succeed(tell, callback.id)
      return yield* then(job, callback)
    })

const bookAmount = (job: Owned, amount: number) => job.finalize(insertRow(job.payload.tag, String(amount)))

describe("a handler that waits for its callback", () => {
  it.live("goes on with the result at once, and completes in its own transaction with the same token [matrix]", () =>
    // C-13, C-14, ADR-042: sequential wait, resume, caller-owned completion
    Effect.gen(function* () {
      const told = yield* Deferred.make<string>()
      const owned = telling(told, (job, callback) =>
        Effect.flatMap(callback.await, ({ amount }) => bookAmount(job, amount))
      )
      // no beat: in a snapshot that is older than one, a lease cannot be completed
      yield* run({ owned, worker: { beat: "1 minute" } }, (lines) =>
        Effect.gen(function* () {
          const { id } = yield* Charge.enqueue({ tag: "a" })
          const callback = yield* Deferred.await(told)
          yield* isState(id, "waiting 1")
          const startedAt = performance.now()
          assert.strictEqual(yield* Callbacks.resume(callback, { amount: 3 }), "resumed")
          yield* isState(id, "completed 1")
          assert.isBelow(performance.now() - startedAt, 5_000) // told, not found by looking
          assert.strictEqual(yield* Callbacks.resume(callback, { amount: 4 }), "already")
          const sql = yield* SqlClient.SqlClient
          assert.deepStrictEqual(yield* sql`select value from application_rows`, [{ value: "3" }])
          assert.deepStrictEqual(protocolEvents(lines), [])
        })
      )
    })
  )

  it.live("has an answer that came before it waited, and none that its transaction took back", () =>
    Effect.gen(function* () {
      const told = yield* Deferred.make<string>()
      const go = yield* Deferred.make<void>()
      const owned = telling(told, (job, callback) =>
        Effect.zipRight(
          Deferred.await(go),
          Effect.flatMap(callback.await, ({ amount }) => bookAmount(job, amount))
        )
      )
      yield* run({ owned }, () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const { id } = yield* Charge.enqueue({ tag: "a" })
          const callback = yield* Deferred.await(told)
          yield* Effect.ignore(
            sql.withTransaction(Effect.zipRight(Callbacks.resume(callback, { amount: 1 }), Effect.fail("not now")))
          )
          assert.strictEqual(
            yield* sql.withTransaction(
              Effect.zipRight(insertRow("webhook"), Callbacks.resume(callback, { amount: 2 }))
            ),
            "resumed"
          )
          yield* Deferred.succeed(go, undefined)
          yield* isState(id, "completed 1")
          assert.deepStrictEqual(yield* sql`select value from application_rows where tag = 'a'`, [{ value: "2" }])
        })
      )
    })
  )

  it.live("fails typed: a failed callback, a result that is none, a timeout, one that was replaced", () =>
    Effect.gen(function* () {
      const met = yield* Ref.make<ReadonlyArray<string>>([])
      const ids = yield* Ref.make<ReadonlyArray<string>>([])
      const owned: OwnedHandler = (job) =>
        Effect.gen(function* () {
          const one = (timeout: "1 minute" | "200 millis") =>
            Effect.gen(function* () {
              const callback = yield* job.callback({ ...withAmount, timeout })
              yield* Ref.update(ids, (all) => [...all, callback.id])
              const found = yield* Effect.either(callback.await)
              const name = Either.isLeft(found) ? `${found.left._tag} ${found.left.message}` : "none"
              yield* Ref.update(met, (all) => [...all, name.split("\n")[0] ?? ""])
            })
          yield* one("1 minute")
          yield* one("1 minute")
          yield* one("200 millis")
          const replaced = yield* job.callback(withAmount)
          yield* job.callback(withAmount)
          const found = yield* Effect.either(replaced.await)
          yield* Ref.update(met, (all) => [...all, Either.isLeft(found) ? found.left._tag : "none"])
          return yield* job.finalize(Effect.void)
        })
      yield* run({ owned }, () =>
        Effect.gen(function* () {
          const { id } = yield* Charge.enqueue({ tag: "a" })
          const nth = (n: number) =>
            Effect.flatMap(
              eventually(
                `callback ${n}`,
                Effect.map(Ref.get(ids), (all) => all.length > n)
              ),
              () => Effect.map(Ref.get(ids), (all) => all[n] ?? "")
            )
          assert.strictEqual(yield* Callbacks.fail(yield* nth(0), "declined"), "failed")
          assert.strictEqual(yield* Callbacks.resume(yield* nth(1), { amount: "three" }), "resumed")
          const late = yield* nth(2)
          yield* isState(id, "completed 1")
          const [failed, decoded, timedOut, replaced] = yield* Ref.get(met)
          assert.strictEqual(failed, "CallbackFailed The callback failed: declined")
          assert.match(decoded ?? "", /^CallbackFailed The callback failed: the result:/)
          assert.match(timedOut ?? "", /^CallbackTimedOut/)
          assert.strictEqual(replaced, "CallbackFailed")
          assert.strictEqual((yield* Effect.flip(Callbacks.resume(late, { amount: 1 })))._tag, "CallbackUnknown")
        })
      )
    })
  )

  it.live("cannot complete its attempt meanwhile, and can when it gave the wait up", () =>
    // C-14: WA002
    Effect.gen(function* () {
      const seen = yield* Ref.make("")
      const told = yield* Deferred.make<string>()
      const owned = telling(told, (job, callback) =>
        Effect.gen(function* () {
          const waiting = yield* Effect.fork(callback.await)
          yield* eventually(
            "the wait",
            Effect.map(stateOf(job.jobId), (state) => state === "waiting 1")
          ).pipe(Effect.orDie)
          const refused = yield* Effect.either(job.finalize(insertRow(job.payload.tag)))
          yield* Ref.set(seen, Either.isLeft(refused) ? refused.left._tag : "none")
          yield* Fiber.interrupt(waiting)
          return yield* job.finalize(insertRow(job.payload.tag))
        }).pipe(Effect.provideService(Direct, direct))
      )
      let direct: SqlClient.SqlClient
      yield* run({ owned }, () =>
        Effect.gen(function* () {
          direct = yield* Direct
          const { id } = yield* Charge.enqueue({ tag: "a" })
          yield* isState(id, "completed 1")
          assert.strictEqual(yield* Ref.get(seen), "AttemptParked")
          assert.strictEqual(yield* countRows("a"), 1)
        })
      )
    })
  )

  it.live("is stale when the job was completed from outside: nothing of its own is committed", () =>
    // C-17.3
    Effect.gen(function* () {
      const told = yield* Deferred.make<string>()
      const met = yield* Deferred.make<string>()
      const ordinary: OrdinaryHandler = (job) =>
        Effect.gen(function* () {
          const callback = yield* job.callback(withAmount)
          yield* Deferred.succeed(told, callback.id)
          yield* Effect.tapError(callback.await, (error) => Deferred.succeed(met, error._tag))
        })
      yield* run({ ordinary, worker: { queues: { default: { concurrency: 1 } } } }, () =>
        Effect.gen(function* () {
          const { id } = yield* Notify.enqueue({ tag: "a" })
          const callback = yield* Deferred.await(told)
          yield* isState(id, "waiting 1")
          assert.strictEqual(yield* Callbacks.complete(callback, { amount: 1 }), "completed")
          assert.strictEqual(yield* Deferred.await(met), "StaleAttempt")
          yield* isState(id, "completed 1")
          // and its permit is free
          const next = yield* Charge.enqueue({ tag: "b" })
          yield* isState(next.id, "completed 1")
        })
      )
    })
  )
})

describe("a handler that parks its attempt", () => {
  it.live("frees its permit, and its job goes on with the result when the callback is answered [matrix]", () =>
    Effect.gen(function* () {
      const told = yield* Deferred.make<string>()
      const results = yield* Ref.make<ReadonlyArray<unknown>>([])
      const ordinary: OrdinaryHandler = (job) =>
        Effect.gen(function* () {
          yield* Ref.update(results, (all) => [...all, [job.attempt, Option.getOrNull(job.callbackResult)]])
          if (Option.isSome(job.callbackResult)) return undefined
          const callback = yield* job.callback(withAmount)
          yield* job.progress.set({ asked: true })
          yield* Deferred.succeed(told, callback.id)
          return callback.park
        })
      yield* run({ ordinary, worker: { queues: { default: { concurrency: 1 } } } }, (lines) =>
        Effect.gen(function* () {
          const sql = yield* Direct
          const { id } = yield* Notify.enqueue({ tag: "a" })
          const callback = yield* Deferred.await(told)
          yield* isState(id, "parked 1")
          assert.deepStrictEqual(yield* sql`select progress from ${sql.literal(quotedSchema)}.leases`, [
            { progress: { asked: true } }
          ])
          const next = yield* Charge.enqueue({ tag: "b" })
          yield* isState(next.id, "completed 1")
          assert.strictEqual(yield* Callbacks.heartbeat(callback), "extended")
          assert.strictEqual(yield* Callbacks.resume(callback, null), "resumed")
          yield* eventually(
            "the second run",
            Effect.map(Ref.get(results), (all) => all.length === 2)
          )
          assert.deepStrictEqual(yield* Ref.get(results), [
            [1, null],
            [1, null]
          ])
          yield* isState(id, "completed 2")
          assert.deepStrictEqual(protocolEvents(lines), [])
        })
      )
    })
  )

  it.live("says so by a failure when it is caller-owned; also when the database's answer was lost", () =>
    // C-17.2
    Effect.gen(function* () {
      const told = yield* Deferred.make<string>()
      const owned: OwnedHandler = (job) =>
        Option.match(job.callbackResult, {
          onNone: () =>
            Effect.gen(function* () {
              const callback = yield* job.callback(withAmount)
              yield* Deferred.succeed(told, callback.id)
              return yield* JobOutcome.end(callback.park)
            }),
          onSome: (result) =>
            Effect.flatMap(Effect.orDie(Schema.decodeUnknown(Charged)(result)), ({ amount }) => bookAmount(job, amount))
        })
      yield* run({ owned, worker: { queues: { default: { concurrency: 1 } } } }, (lines) =>
        Effect.gen(function* () {
          const { runtime } = yield* Proxies
          const rule = yield* runtime.rule({ match: commitOf(/park_attempt/), action: FaultProxy.cutAfter(), limit: 1 })
          const sql = yield* SqlClient.SqlClient
          const { id } = yield* Charge.enqueue({ tag: "a" })
          const callback = yield* Deferred.await(told)
          yield* isState(id, "parked 1")
          const next = yield* Notify.enqueue({ tag: "b" })
          yield* isState(next.id, "completed 1")
          assert.strictEqual((yield* rule.counts).tookEffect, 1)
          assert.strictEqual(yield* Callbacks.resume(callback, { amount: 5 }), "resumed")
          yield* isState(id, "completed 2")
          assert.deepStrictEqual(yield* sql`select value from application_rows`, [{ value: "5" }])
          assert.deepStrictEqual(protocolEvents(lines), [])
        })
      )
    })
  )

  it.live("keeps its permit until the database has answered that it is parked", () =>
    // C-04
    Effect.gen(function* () {
      const started = yield* Ref.make(0)
      const ordinary: OrdinaryHandler = (job) =>
        Effect.zipRight(
          Ref.update(started, (n) => n + 1),
          Effect.map(job.callback(withAmount), (callback) => callback.park)
        )
      yield* run({ ordinary, worker: { queues: { default: { concurrency: 1 } } } }, () =>
        Effect.gen(function* () {
          const { runtime } = yield* Proxies
          const answer = yield* Deferred.make<void>()
          const rule = yield* runtime.rule({
            match: /park_attempt/,
            action: FaultProxy.holdAnswer(Deferred.await(answer)),
            limit: 1
          })
          yield* Notify.enqueueAll([{ tag: "1" }, { tag: "2" }])
          yield* eventually(
            "the first attempt's question",
            Effect.map(rule.counts, ({ injected }) => injected === 1)
          )
          yield* Effect.sleep("300 millis")
          assert.strictEqual(yield* Ref.get(started), 1)
          yield* Deferred.succeed(answer, undefined)
          yield* eventually(
            "the second attempt",
            Effect.map(Ref.get(started), (n) => n === 2)
          )
        })
      )
    })
  )

  it.live("fails for good on a callback that is not its own", () =>
    Effect.gen(function* () {
      for (const callbackId of ["00000000-0000-4000-8000-000000000000", "no id"]) {
        const park = JobOutcome.park(callbackId)
        yield* run({ owned: () => JobOutcome.end(park), ordinary: () => Effect.succeed(park) }, () =>
          Effect.gen(function* () {
            for (const job of [Charge, Notify]) {
              const { id } = yield* job.enqueue({ tag: "a" })
              yield* isState(id, "failed 1")
              assert.deepInclude(yield* errorsOf(id), { name: "AttemptFailed" })
            }
          })
        )
      }
    })
  )

  it.live("fails with its callback, and its job is retried as its attempts allow", () =>
    Effect.gen(function* () {
      const told = yield* Deferred.make<string>()
      const ordinary: OrdinaryHandler = (job) =>
        Effect.gen(function* () {
          const callback = yield* job.callback(withAmount)
          yield* Deferred.succeed(told, callback.id)
          return callback.park
        })
      yield* run({ ordinary }, () =>
        Effect.gen(function* () {
          const { id } = yield* Notify.enqueue({ tag: "a" }, { maxAttempts: 1 })
          const callback = yield* Deferred.await(told)
          yield* isState(id, "parked 1")
          assert.strictEqual(yield* Callbacks.fail(callback, `x\u0000${"y".repeat(20_000)}`), "failed")
          yield* isState(id, "failed 1")
          const error = yield* errorsOf(id)
          assert.deepInclude(error, { name: "CallbackFailed" })
          assert.isBelow(JSON.stringify(error).length, 8_192)
        })
      )
    })
  )
})

describe("an answer", () => {
  it.live("is refused before any SQL when it cannot be stored, and typed when its callback is unknown", () =>
    run({}, () =>
      Effect.gen(function* () {
        const id = "00000000-0000-4000-8000-000000000000"
        for (const result of ["x".repeat(70_000), "\u0000", undefined, 1n]) {
          assert.strictEqual((yield* Effect.flip(Callbacks.resume(id, result)))._tag, "PayloadRejected")
          assert.strictEqual((yield* Effect.flip(Callbacks.complete(id, result)))._tag, "PayloadRejected")
        }
        for (const unknown of [id, "no id", ""]) {
          assert.strictEqual((yield* Effect.flip(Callbacks.fail(unknown, "")))._tag, "CallbackUnknown")
          assert.strictEqual((yield* Effect.flip(Callbacks.heartbeat(unknown)))._tag, "CallbackUnknown")
        }
      })
    )
  )
})

describe("a cancellation that is announced", () => {
  /** A handler that never ends by itself, and tells when it was interrupted. */
  const endless = Effect.gen(function* () {
    const started = yield* Deferred.make<void>()
    const interrupted = yield* Deferred.make<void>()
    const ordinary: OrdinaryHandler = (job) =>
      job.payload.tag === "a"
        ? Effect.zipRight(
            Deferred.succeed(started, undefined),
            Effect.onInterrupt(Effect.never, () => Deferred.succeed(interrupted, undefined))
          )
        : Effect.void
    return { started, interrupted, ordinary }
  })

  const announce = (subject: string) =>
    Effect.gen(function* () {
      const sql = yield* Direct
      yield* sql`select pg_notify(${notifyChannel("awa")}, chr(1) || ${subject})`
    })

  const worker = { beat: "20 minutes", queues: { default: { concurrency: 1 } } } as const

  // by a notification, which a pooler in transaction mode does not let through: the next beat does it there
  it.live.skipIf(inject("poolMode") === "transaction")("interrupts its handler at once, and frees the permit", () =>
    Effect.gen(function* () {
      const { interrupted, ordinary, started } = yield* endless
      yield* run({ ordinary, worker }, () =>
        Effect.gen(function* () {
          const sql = yield* Direct
          const { id } = yield* Notify.enqueue({ tag: "a" }, { maxAttempts: 1 })
          yield* Deferred.await(started)
          assert.strictEqual(yield* rescueNow(sql), 1)
          yield* announce(`cancel/${id}/1`)
          yield* Deferred.await(interrupted)
          const next = yield* Notify.enqueue({ tag: "b" })
          yield* isState(next.id, "completed 1")
        })
      )
    })
  )

  it.live("is a hint: an attempt that the database still holds goes on", () =>
    Effect.gen(function* () {
      const { interrupted, ordinary, started } = yield* endless
      yield* run({ ordinary, worker: { ...worker, shutdownGrace: "10 millis" } }, () =>
        Effect.gen(function* () {
          const { id } = yield* Notify.enqueue({ tag: "a" })
          yield* Deferred.await(started)
          yield* announce(`cancel/${id}/1`)
          yield* announce("cancel/")
          yield* announce("something/else")
          yield* Effect.sleep("500 millis")
          assert.isFalse(yield* Deferred.isDone(interrupted))
        })
      )
    })
  )
})

describe("maintenance", () => {
  it.live("ends a parked attempt when its callback does not come in time", () =>
    Effect.gen(function* () {
      const ordinary: OrdinaryHandler = (job) =>
        Effect.map(job.callback({ timeout: "300 millis", result: Charged }), (callback) => callback.park)
      yield* run({ ordinary }, () =>
        Effect.gen(function* () {
          const { id } = yield* Notify.enqueue({ tag: "a" }, { maxAttempts: 1 })
          yield* isState(id, "failed 1")
          assert.deepInclude(yield* errorsOf(id), { name: "CallbackTimeout" })
        })
      )
    })
  )
})

describe("a handler that outlives its segment", () => {
  it.live("is beaten for, keeps its progress, and completes with the token that it was given", () =>
    // C-13, C-17.1
    Effect.gen(function* () {
      const started = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      const owned: OwnedHandler = (job) =>
        Effect.gen(function* () {
          yield* Deferred.succeed(started, undefined)
          yield* Deferred.await(go)
          yield* job.progress.set({ step: 1 })
          return yield* bookAmount(job, 9)
        })
      const ordinary: OrdinaryHandler = () => Deferred.await(go)
      yield* run({ owned, ordinary, staleness: "2 seconds" }, (lines) =>
        Effect.gen(function* () {
          const sql = yield* Direct
          const ids = [(yield* Charge.enqueue({ tag: "a" })).id, (yield* Notify.enqueue({ tag: "b" })).id]
          yield* Deferred.await(started)
          /** A step of maintenance, which the worker's own may be at at this moment. */
          const step = (call: string, expected: unknown) =>
            eventually(
              call,
              Effect.map(
                sql.unsafe<{ answer: unknown }>(`select awa.${call} as answer`),
                ([row]) => row?.answer === expected
              )
            )
          yield* step("rotate('0', 1)", "opened")
          yield* eventually(
            "the drained segment",
            sql.unsafe("select awa.rotate('1 hour', 1000000)").pipe(
              Effect.zipRight(sql.unsafe("select awa.drain_segments()")),
              Effect.zipRight(
                sql.unsafe<{ n: number }>("select count(*)::int as n from awa.segments where state = 'drained'")
              ),
              Effect.map(([row]) => row?.n === 1)
            )
          )
          yield* eventually(
            "the leases",
            sql.unsafe("select awa.materialize_long('0', 100)").pipe(
              Effect.zipRight(sql.unsafe<{ n: number }>("select count(*)::int as n from awa.leases")),
              Effect.map(([row]) => row?.n === 2)
            )
          )
          yield* eventually(
            "the pruned segment",
            sql.unsafe("select awa.prune_segment('0')").pipe(
              Effect.zipRight(sql.unsafe<{ n: number }>("select count(*)::int as n from awa.claim_batches")),
              Effect.map(([row]) => row?.n === 0)
            )
          )
          yield* Effect.sleep("2500 millis") // longer than the staleness
          yield* Deferred.succeed(go, undefined)
          for (const id of ids) yield* isState(id, "completed 1")
          assert.deepStrictEqual(yield* sql`select progress from awa.lease_closures order by job_id`, [
            { progress: { step: 1 } },
            { progress: null }
          ])
          assert.deepStrictEqual(protocolEvents(lines), [])
        })
      )
    })
  )
})
