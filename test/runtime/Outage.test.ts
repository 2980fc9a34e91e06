/** The bounded outage (contract C-17.4, C-04): permits, the watcher, its bound, and what rescue does meanwhile. */
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Metric, Ref, Scope } from "effect"
import { Metrics, Worker } from "effect-awa"
import type * as Reconciliation from "effect-awa/Reconciliation"
import { FaultProxy, TestDatabase, Testing } from "effect-awa/testing"
import { vi } from "vitest"
import { run as runPlan } from "../outage/scenario.js"
import { countRows, eventually, insertRow, protocolEvents, server } from "./support.js"
import { Charge, Declined, Direct, Proxies, run, world } from "./world.js"

const hasty: Reconciliation.ReconciliationOptions = { budget: "300 millis" }

const noEvidence = { match: /attempt_evidence/, action: FaultProxy.cutBefore() }

const unresolved = (n: number) =>
  Effect.flatMap(Worker.Worker, (worker) =>
    eventually(
      `${n} unresolved attempts`,
      Effect.map(worker.unresolved, (found) => found === n)
    )
  )

const eventsOf = (lines: Parameters<typeof protocolEvents>[0]) =>
  protocolEvents(lines).map(({ annotations }) => annotations["event"])

describe("an attempt of which no evidence comes within the budget", () => {
  it.live("is beaten for no more: rescue takes it, and the job runs again", () =>
    // C-17.4
    Effect.gen(function* () {
      const leases = yield* Ref.make<ReadonlyArray<bigint>>([])
      yield* run(
        {
          owned: (job) =>
            Effect.gen(function* () {
              yield* Ref.update(leases, (all) => [...all, job.runLease])
              if (job.runLease > 1n) return yield* job.finalize(Effect.void)
              yield* Effect.sleep("200 millis") // so that it has been beaten for
              return yield* new Declined()
            }),
          staleness: "1500 millis",
          worker: { reconciliation: hasty, queues: { default: { concurrency: 1 } } }
        },
        (lines) =>
          Effect.gen(function* () {
            const { runtime } = yield* Proxies
            const sql = yield* Direct
            const { id } = yield* Charge.enqueue({ tag: "a" })
            yield* Effect.scoped(
              Effect.gen(function* () {
                yield* runtime.rule(noEvidence)
                yield* eventually(
                  "the second attempt, while beats and maintenance go on and no evidence comes",
                  Effect.map(Ref.get(leases), (all) => all.includes(2n))
                )
              })
            )
            yield* unresolved(0)
            yield* (yield* Testing.Testing).drain()
            const attempts = yield* sql`select run_lease::int as lease, outcome::text as outcome from awa.attempts
              where job_id = ${String(id)} order by 1`
            assert.deepStrictEqual(attempts[0], { lease: 1, outcome: "rescued" })
            assert.include(eventsOf(lines), "unresolved")
          })
      )
    })
  )

  it.live("keeps its permit at the watchers' bound, and the worker claims no more, until evidence comes", () =>
    // C-17.4
    Effect.gen(function* () {
      const started = yield* Ref.make(0)
      const kept = Effect.map(Metric.value(Metrics.permitsKept), ({ value }) => value)
      yield* run(
        {
          owned: (job) =>
            Effect.zipRight(
              Ref.update(started, (n) => n + 1),
              job.finalize(insertRow(job.payload.tag))
            ),
          worker: { reconciliation: { ...hasty, watchers: 1 }, queues: { default: { concurrency: 3 } } }
        },
        (lines) =>
          Effect.gen(function* () {
            const { runtime } = yield* Proxies
            const before = yield* kept
            yield* Effect.scoped(
              Effect.gen(function* () {
                yield* runtime.rule(noEvidence)
                yield* Charge.enqueueAll(Array.from({ length: 10 }, () => ({ tag: "a" })))
                yield* unresolved(1)
                // one permit came back by the watcher, and was used again; then all three are kept
                yield* eventually(
                  "three kept permits",
                  Effect.map(kept, (n) => n - before === 3)
                )
                yield* Effect.sleep("500 millis")
                assert.strictEqual(yield* Ref.get(started), 4)
                assert.strictEqual(yield* (yield* Worker.Worker).inFlight, 3)
                // once, however many are kept; when evidence comes again there may be room for one, and then none again
                assert.strictEqual(eventsOf(lines).filter((event) => event === "watchers-full").length, 1)
              })
            )
            yield* (yield* Testing.Testing).drain()
            yield* unresolved(0)
            assert.strictEqual(yield* countRows("a"), 10)
            assert.strictEqual(yield* kept, before)
          })
      )
    })
  )

  it.live("is given up by time that passed, not by a clock that was set", () =>
    // C-17.4: monotonic; F-67
    run(
      {
        owned: (job) => (job.runLease === 1n ? new Declined() : job.finalize(insertRow(job.payload.tag))),
        worker: { reconciliation: { budget: "1 minute" } }
      },
      (lines) =>
        Effect.gen(function* () {
          const { runtime } = yield* Proxies
          yield* Effect.scoped(
            Effect.gen(function* () {
              // open, and not to be ended: what is left of the budget is looked at again with every try
              const rule = yield* runtime.rule({ match: /settle_attempt/, action: FaultProxy.cutBefore() })
              const tries = Effect.map(rule.counts, ({ injected }) => injected)
              yield* Effect.acquireRelease(
                Effect.sync(() => vi.useFakeTimers({ toFake: ["Date"], now: Date.now() })),
                () => Effect.sync(() => vi.useRealTimers())
              )
              yield* Charge.enqueue({ tag: "a" })
              for (const hours of [0, 1, -2]) {
                vi.setSystemTime(Date.now() + hours * 3_600_000)
                const before = yield* tries
                yield* eventually(
                  "two more tries",
                  Effect.map(tries, (now) => now >= before + 2)
                )
              }
            })
          )
          yield* (yield* Testing.Testing).drain({ scheduled: true })
          assert.deepStrictEqual(eventsOf(lines), [])
          assert.strictEqual(yield* countRows("a"), 1)
        })
    )
  )

  it.live("is watched for no longer than its worker lives", () =>
    // C-17.4, C-05
    Effect.gen(function* () {
      const setting = world({
        owned: (job) => job.finalize(insertRow(job.payload.tag)),
        worker: { reconciliation: hasty }
      })
      const watched = Effect.map(Metric.value(Metrics.unresolved), ({ value }) => value)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const before = yield* watched
          const scope = yield* Scope.make()
          const context = yield* Layer.buildWithScope(setting.worker, scope)
          const { runtime } = yield* Proxies
          yield* runtime.rule(noEvidence)
          yield* Charge.enqueue({ tag: "a" })
          yield* Effect.provide(unresolved(1), context)
          assert.strictEqual((yield* watched) - before, 1)
          yield* Scope.close(scope, Exit.void)
          assert.strictEqual(yield* watched, before)
          assert.isTrue(setting.lines.some(({ message }) => message.includes("1 attempts were still watched")))
        })
      ).pipe(Effect.provide(setting.clients))
    })
  )
})

describe("a worker under load", () => {
  it.scopedLive("loses no permit and no job when the database is away for longer than the budget", () =>
    // C-04, C-17.4; the long form is `npm run outage`
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.make({ server })
      const proxy = yield* FaultProxy.makeUrl(url)
      const through = yield* proxy.through(url)
      const away = yield* Scope.make()
      const account = yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`create table application_rows (kind text not null, job_id bigint not null, run_lease bigint not null)`
        return yield* runPlan({
          runtime: through,
          application: through,
          concurrency: 10,
          budget: "1 second",
          staleness: "3 seconds",
          beat: "500 millis",
          seconds: 5,
          rate: 2,
          outage: Scope.extend(proxy.outage, away),
          recovery: Scope.close(away, Exit.void),
          say: Effect.log
        })
      }).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 4 })))
      assert.deepStrictEqual(account.faults, [])
      assert.isAbove(account.figures["unresolved"] ?? 0, 0)
    })
  )
})
