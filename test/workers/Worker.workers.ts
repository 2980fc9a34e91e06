/**
 * The workers of examples/workers, run for real: what the contract says of a worker in another language is what they do. What
 * maintenance does is done here by hand, so that each step has its time.
 */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { FaultProxy } from "effect-awa/testing"
import { connect } from "../migrations/support.js"
import { until, type WorkerProcess, workers, world, type World } from "./support.js"

const says = (worker: WorkerProcess, text: string) =>
  until(
    () => `${text} in ${worker.output()}`,
    Effect.sync(() => worker.output().includes(text))
  )

const blocked = ({ admin }: World) =>
  until(
    () => "a handler that waits for its account",
    Effect.map(
      admin.rows(
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'update accounts%'"
      ),
      (rows) => rows.length > 0
    )
  )

/** Another transaction of the application that holds the account: its handler waits. */
const held = ({ url }: World, account: number) =>
  Effect.gen(function* () {
    const session = yield* connect(url)
    yield* session.rows("begin")
    yield* session.rows("select from accounts where id = $1 for update", [account])
    return session
  })

const errors = ({ admin }: World, job: string) =>
  Effect.map(
    admin.rows(
      "select errors -> -1 -> 'error' as error, errors -> -1 ->> 'outcome' as outcome from awa.job($1::bigint)",
      [job]
    ),
    ([row]) => row
  )

/** As a leader would, once they are due. */
const promote = ({ admin }: World) =>
  until(
    () => "a job that is due again",
    Effect.map(admin.rows("select (awa.promote_due(10)).promoted as n"), ([row]) => row?.["n"] === 1)
  )

for (const [language, command] of Object.entries(workers())) {
  describe.skipIf(command === undefined)(`a worker in ${language}`, () => {
    const start = ({ start }: World) => start(command ?? [])

    // C-13, C-17
    it.scopedLive("completes its job with its own rows, and stops when it is told to", () =>
      Effect.gen(function* () {
        const here = yield* world
        const worker = yield* start(here)
        const jobs = yield* Effect.forEach([1, 2, 1], (account) => here.enqueue({ account, amount: 5 }))
        for (const job of jobs) yield* says(worker, `job ${job} attempt 1: accepted`)
        expect(yield* here.booked).toEqual({ entries: 15, balance: 15 })
        expect(yield* Effect.forEach(jobs, here.state)).toEqual(["completed", "completed", "completed"])
        expect(yield* worker.kill("SIGTERM")).toBe(0)
        expect(yield* here.admin.rows("select from awa.runtimes")).toEqual([])
      })
    )

    it.scopedLive(
      "takes back what a handler wrote that failed, retries it with its error, and goes on with the next",
      () =>
        Effect.gen(function* () {
          const here = yield* world
          const worker = yield* start(here)
          const nobody = yield* here.enqueue({ account: 7, amount: 5 })
          const nothing = yield* here.enqueue({ account: 1, amount: 0 })
          const last = yield* here.enqueue({ account: 8, amount: 5 }, { max_attempts: 1 })
          yield* says(worker, `job ${nobody} attempt 1: retried`)
          yield* says(worker, `job ${nothing} attempt 1: discarded`)
          yield* says(worker, `job ${last} attempt 1: retried`)
          expect(yield* here.booked).toEqual({ entries: null, balance: 0 })
          expect(yield* Effect.forEach([nobody, nothing, last], here.state)).toEqual([
            "retryable",
            "discarded",
            "failed"
          ])
          expect(yield* errors(here, nobody)).toMatchObject({
            outcome: "retried",
            error: { message: "there is no account 7" }
          })
          yield* here.admin.rows("insert into accounts values (7, 0)")
          yield* promote(here)
          yield* says(worker, `job ${nobody} attempt 2: accepted`)
          expect(yield* here.booked).toEqual({ entries: 5, balance: 5 })
        })
    )

    // C-14: the winner is not touched, and nothing of the loser is there
    it.scopedLive("commits nothing of an attempt that went stale while its handler was at work", () =>
      Effect.gen(function* () {
        const here = yield* world
        const lock = yield* held(here, 1)
        const worker = yield* start(here)
        const job = yield* here.enqueue({ account: 1, amount: 5 })
        yield* blocked(here)
        expect(yield* here.admin.rows(`select answer from awa.cancel_jobs('{${job}}')`)).toEqual([
          { answer: "cancelled" }
        ])
        yield* lock.rows("rollback")
        yield* says(worker, `job ${job} attempt 1: stale`)
        expect(yield* here.booked).toEqual({ entries: null, balance: 0 })
        expect(yield* here.state(job)).toBe("cancelled")
      })
    )

    // C-02
    it.scopedLive("beats for what it runs, and hears that it has lost it", () =>
      Effect.gen(function* () {
        const here = yield* world
        yield* held(here, 1)
        const worker = yield* start(here)
        const job = yield* here.enqueue({ account: 1, amount: 5 })
        yield* blocked(here)
        yield* Effect.sleep("2 seconds")
        expect(yield* here.admin.rows("select awa.rescue_stale('1.5 seconds', 10) as n")).toEqual([{ n: 0 }])
        yield* here.admin.rows(`select awa.cancel_jobs('{${job}}')`)
        yield* says(worker, "not ours any more")
      })
    )

    it.scopedLive("asks the evidence, and not its driver, when the answer to COMMIT was lost", () =>
      Effect.gen(function* () {
        const here = yield* world
        const lost = yield* here.proxy.rule({
          match: /^\s*commit/i,
          action: FaultProxy.cutAfter(),
          expect: FaultProxy.committed,
          limit: 1
        })
        const worker = yield* start(here)
        const job = yield* here.enqueue({ account: 1, amount: 5 })
        yield* says(worker, `job ${job} attempt 1: accepted`)
        expect(yield* lost.effects).toHaveLength(1)
        expect(yield* here.booked).toEqual({ entries: 5, balance: 5 })
      })
    )

    it.scopedLive("has neither rows nor a completion when COMMIT never arrived, and retries", () =>
      Effect.gen(function* () {
        const here = yield* world
        const lost = yield* here.proxy.rule({ match: /^\s*commit/i, action: FaultProxy.cutBefore(), limit: 1 })
        const worker = yield* start(here)
        const job = yield* here.enqueue({ account: 1, amount: 5 })
        yield* says(worker, `job ${job} attempt 1: retried`)
        expect((yield* lost.counts).injected).toBe(1)
        expect(yield* here.booked).toEqual({ entries: null, balance: 0 })
        expect(yield* here.state(job)).toBe("retryable")
      })
    )

    it.scopedLive("asks again for evidence that does not come, before it takes another job", () =>
      Effect.gen(function* () {
        const here = yield* world
        const lost = yield* here.proxy.rule({ match: /worker_evidence/, action: FaultProxy.cutAfter(), limit: 3 })
        const worker = yield* start(here)
        const jobs = yield* Effect.forEach([1, 2], (account) => here.enqueue({ account, amount: 5 }))
        for (const job of jobs) yield* says(worker, `job ${job} attempt 1: accepted`)
        expect((yield* lost.counts).injected).toBe(3)
        expect(yield* here.booked).toEqual({ entries: 10, balance: 10 })
      })
    )

    it.scopedLive("that is killed between its commit and the evidence has done its job, once", () =>
      Effect.gen(function* () {
        const here = yield* world
        yield* Effect.scoped(
          Effect.gen(function* () {
            const rule = { match: /worker_evidence/, action: FaultProxy.holdStatement(Effect.never) }
            const asking = yield* here.proxy.rule(rule)
            const worker = yield* start(here)
            const job = yield* here.enqueue({ account: 1, amount: 5 })
            yield* until(
              () => "the question for the evidence",
              Effect.map(asking.counts, ({ injected }) => injected > 0)
            )
            expect(yield* here.state(job)).toBe("completed")
            yield* worker.kill("SIGKILL")
            expect(worker.output()).not.toContain("accepted")
          })
        )
        expect(yield* here.admin.rows("select awa.rescue_stale('0', 10) as n")).toEqual([{ n: 0 }])
        const heir = yield* start(here)
        const next = yield* here.enqueue({ account: 2, amount: 7 })
        yield* says(heir, `job ${next} attempt 1: accepted`)
        expect(heir.output()).not.toContain("attempt 2")
        expect(yield* here.booked).toEqual({ entries: 12, balance: 12 })
      })
    )

    it.scopedLive("that is killed before its commit has done nothing, and its job is another's", () =>
      Effect.gen(function* () {
        const here = yield* world
        const lock = yield* held(here, 1)
        const worker = yield* start(here)
        const job = yield* here.enqueue({ account: 1, amount: 5 })
        yield* blocked(here)
        yield* worker.kill("SIGKILL")
        yield* lock.rows("rollback")
        expect(yield* here.admin.rows("select awa.rescue_stale('0', 10) as n")).toEqual([{ n: 1 }])
        expect(yield* here.booked).toEqual({ entries: null, balance: 0 })
        const heir = yield* start(here)
        yield* says(heir, `job ${job} attempt 2: accepted`)
        expect(yield* here.booked).toEqual({ entries: 5, balance: 5 })
      })
    )
  })
}
