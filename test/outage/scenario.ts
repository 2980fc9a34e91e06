/** Producers, and a worker with jobs of both kinds, from which the database is taken away; and the account at the end. */
import { SqlClient } from "@effect/sql"
import { Duration, Effect, Fiber } from "effect"
import { Worker } from "effect-awa"
import { makeRecorder, type Recorded, type Recorder } from "../runtime/matrix/recorder.js"
import { Gathering, layer, Ordinary, Owned, type WorkerSettings } from "./worker.js"

export interface Plan extends WorkerSettings {
  readonly seconds: number
  /** How many jobs of each kind are enqueued every 100 ms. */
  readonly rate: number
  /** Takes the database away until the scope ends. */
  readonly outage: Effect.Effect<void>
  readonly recovery: Effect.Effect<void>
  readonly say: (line: string) => Effect.Effect<void>
}

export interface Account {
  /** What must not be, with figures. */
  readonly faults: ReadonlyArray<string>
  readonly figures: Readonly<Record<string, number>>
}

const value = (query: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(sql.unsafe<{ n: number }>(`select (${query})::int as n`), ([row]) => row?.n ?? 0)
  )

const until = <E, R>(what: string, limit: Duration.DurationInput, met: Effect.Effect<boolean, E, R>) =>
  met.pipe(
    Effect.delay("50 millis"),
    Effect.repeat({ until: (is) => is }),
    Effect.timeoutFail({ duration: limit, onTimeout: () => new Error(`never came: ${what}`) })
  )

/** What must be zero in the database. */
const books: Readonly<Record<string, string>> = {
  "jobs that are not completed": "select count(*) from awa.jobs where state <> 'completed'",
  "owned jobs without their row": `select count(*) from awa.jobs j where kind = 'owned'
     and not exists (select from application_rows r where r.job_id = j.job_id)`,
  "owned jobs with more than one row":
    "select count(*) from (select from application_rows where kind = 'owned' group by job_id having count(*) > 1) d",
  "rows of owned jobs that are not the completing attempt's": `select count(*) from application_rows r where kind = 'owned'
     and not exists (select from awa.attempts a where a.job_id = r.job_id and a.run_lease = r.run_lease and a.outcome = 'completed')`,
  "ordinary jobs without a row": `select count(*) from awa.jobs j where kind = 'ordinary'
     and not exists (select from application_rows r where r.job_id = j.job_id)`
}

/** Permits that were released before the evidence, or before the budget (at most until rescue) was spent. */
const tooEarly = (recorded: ReadonlyArray<Recorded>, budgetMillis: number, stalenessMillis: number): number => {
  const exits = new Map<string, number>()
  const answered = new Set<string>()
  let early = 0
  for (const { at, detail, of, silentMillis = 0, what } of recorded) {
    if (what === "exit") exits.set(of, at)
    // asked for only after the exit
    if ((what === "evidence" || what === "settle") && detail !== "none") answered.add(of)
    if (what !== "settled") continue
    const waited = at - (exits.get(of) ?? at)
    const spent = waited >= budgetMillis || (waited >= 1_000 && silentMillis >= stalenessMillis)
    if (detail === "unresolved" ? !spent : !answered.has(of)) early++
  }
  return early
}

const count = (recorder: Recorder, how: string): number =>
  recorder.recorded.filter(({ detail, what }) => what === "settled" && detail === how).length

/** Every 100 ms a share of each kind. What is acknowledged must be there in the end; what is not may be. */
const produce = (rate: number) => {
  const state = { next: 0, acknowledged: 0 }
  const share = Effect.gen(function* () {
    const payloads = Array.from({ length: rate }, () => ({ n: state.next++ }))
    yield* Owned.enqueueAll(payloads)
    state.acknowledged += rate
    yield* Ordinary.enqueueAll(payloads)
    state.acknowledged += rate
  })
  const loop = Effect.forever(Effect.delay(Effect.ignore(share), "100 millis"))
  return { state, loop }
}

/** Runs the plan and takes the account. */
export const run = (plan: Plan) =>
  Effect.gen(function* () {
    const recorder = makeRecorder()
    const gathered = { here: 0, all: yield* Effect.makeLatch(false) }
    return yield* Effect.gen(function* () {
      const worker = yield* Worker.Worker
      const { loop, state } = produce(plan.rate)
      const producer = yield* Effect.fork(loop)
      yield* until(
        "work under way",
        "60 seconds",
        // both kinds come alike, so half of what is in flight is in the hands of caller-owned handlers
        Effect.map(worker.inFlight, (n) => n >= plan.concurrency / 2 && count(recorder, "accepted") >= 3 * plan.rate)
      )
      yield* plan.outage
      yield* Effect.sleep(Duration.seconds(plan.seconds))
      const [held, watched] = [yield* worker.inFlight, yield* worker.unresolved]
      yield* plan.say(`after ${plan.seconds} s without a database: ${held} permits held, ${watched} attempts watched`)
      yield* plan.recovery
      const back = performance.now()
      // load goes on while the worker recovers
      yield* Effect.sleep("2 seconds")
      yield* Fiber.interrupt(producer)
      const open = value("select count(*) from awa.jobs where state not in ('completed', 'failed')")
      yield* until(
        "the end of all jobs",
        "4 minutes",
        Effect.map(Effect.all([Effect.orElseSucceed(open, () => 1), worker.inFlight, worker.unresolved]), (left) =>
          left.every((n) => n === 0)
        )
      )
      const recovered = performance.now() - back
      const expected = state.acknowledged
      const faults: Array<string> = []
      const fault = (what: string, n: number) => (n === 0 ? 0 : faults.push(`${n} ${what}`))
      for (const [what, query] of Object.entries(books)) fault(what, yield* value(query))
      const jobs = yield* value("select count(*) from awa.jobs")
      fault("acknowledged jobs that are not there", Math.max(0, expected - jobs))
      const [budget, staleness] = [Duration.toMillis(plan.budget), Duration.toMillis(plan.staleness)]
      fault("permits released too early", tooEarly(recorder.recorded, budget, staleness))
      fault("attempts that are still watched", yield* worker.unresolved)
      const unresolved = count(recorder, "unresolved")
      const later = recorder.told.filter(({ verdict }) => verdict !== undefined)
      fault("unresolved attempts of which nothing was told later", unresolved - later.length)
      // all permits are free again: so many attempts at once
      yield* Gathering.enqueueAll(Array.from({ length: plan.concurrency }, () => ({ n: 0 })))
      yield* Effect.timeoutOption(gathered.all.await, "30 seconds")
      fault("permits that were lost", plan.concurrency - gathered.here)
      const told = Object.fromEntries(
        Array.from(new Set(later.map(({ verdict }) => verdict ?? "")), (verdict) => [
          verdict,
          later.filter((line) => line.verdict === verdict).length
        ])
      )
      const account: Account = {
        faults,
        figures: {
          jobs,
          accepted: count(recorder, "accepted"),
          stale: count(recorder, "stale"),
          closed: count(recorder, "closed"),
          unresolved,
          ...told,
          "ms from the database's return to the end of all jobs": Math.round(recovered)
        }
      }
      return account
    }).pipe(Effect.provide(layer(plan, recorder, gathered)))
  })
