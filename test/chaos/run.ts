/** `npm run chaos`: minutes of storm, then the account. */
import { Effect, Redacted } from "effect"
import { SqlClient } from "@effect/sql"
import { makeRandom } from "../stress/random.js"
import { unfinished } from "./account.js"
import { faultsOf } from "./faults.js"
import { makeFleet, type Station } from "./fleet.js"
import { makeProducers } from "./producers.js"
import { number, say, table } from "./report.js"
import { storm, type Tally } from "./storm.js"
import { judge } from "./verdict.js"
import { makeWorld, type World } from "./world.js"

export interface RunOptions {
  readonly seed: number
  readonly minutes: number
}

const workers = 3
/** Orders a second; what three workers keep up with on two cores that also carry the server and the proxies. */
const rate = 30
const skews = [0, 600_000, -600_000]
const rolesInTurn = ["plain", "everything", "west", "serializable", "impatient"]

/** The n-th worker: whose clock is wrong, and as which role, by the seed; the first three differ in any case. */
const stationOf =
  (world: World, seed: number) =>
  (n: number): Effect.Effect<Station> =>
    Effect.gen(function* () {
      const random = makeRandom(seed, `worker ${n}`)
      const turn = n <= workers ? n - 1 : random.between(0, 14)
      const role = world.roles[rolesInTurn[turn % rolesInTurn.length] ?? "plain"] ?? world.url
      return {
        runtimeUrl: yield* world.runtime.through(role),
        applicationUrl: yield* world.application.through(role),
        clockSkewMillis: skews[turn % skews.length] ?? 0
      }
    }).pipe(Effect.catchAll(() => Effect.dieMessage(`${Redacted.value(world.url)} is no url`)))

/** How long the workers may take to bring everything to its end when the storm is over. */
export const settling = "4 minutes"

/** A job that met many crashes waits for minutes by now: that it comes back is what counts, not that it waited. */
const hurry = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    update awa.deferred_jobs set run_at = clock_timestamp(), xid = pg_current_xact_id()
    where state = 'retryable' and run_at > clock_timestamp() + interval '5 seconds'`
)

/** Waits until every job is at its end, or that takes too long: the account tells which are not. */
export const settle = Effect.zipRight(hurry, unfinished).pipe(
  Effect.delay("1 second"),
  Effect.repeat({ until: (n) => n === 0 }),
  Effect.timeoutOption(settling),
  Effect.asVoid
)

const evidenceOfStations = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ what: string; started: number; seen: number }>`
    select what, count(*)::integer as started, (count(*) filter (where seen))::integer as seen from chaos.workers w
    cross join lateral (values ('worker started ten minutes ahead', ahead_ms > 300000),
      ('worker started ten minutes behind', ahead_ms < -300000),
      ('worker started as a hostile role', settings <> '{}')) as s(what, seen) group by what`
  return new Map<string, Tally>(rows.map(({ seen, what }) => [what, { injected: seen, tookEffect: seen, failed: 0 }]))
})

const showTallies = (tallies: ReadonlyMap<string, Tally>) =>
  table([
    ["fault", "injected", "took effect"],
    ...Array.from(tallies, ([name, { injected, tookEffect }]) => [name, number(injected), number(tookEffect)])
  ])

/** What is wrong with a run; empty when nothing is. The last line is the account in short. */
export const run = ({ minutes, seed }: RunOptions) =>
  Effect.gen(function* () {
    const world = yield* makeWorld()
    const fleet = yield* makeFleet({
      station: stationOf(world, seed),
      concurrency: 8,
      work: [5, 60],
      logFile: `.tmp/chaos/${seed}.log`
    })
    say(`PostgreSQL ${world.server.version}, ${workers} workers; what they say is in .tmp/chaos/${seed}.log`)
    yield* Effect.repeatN(fleet.start, workers - 1)
    yield* fleet.awaitRunning(workers)
    const producers = yield* Effect.provide(makeProducers(seed, 3, rate), world.producing)
    const random = makeRandom(seed, "storm")
    const weather = Effect.gen(function* () {
      const tallies = yield* storm(faultsOf({ world, fleet, random }), random, minutes * 60_000)
      say("the storm is over")
      yield* producers.stop
      yield* fleet.awaitRunning(workers)
      yield* settle
      for (const [name, tally] of yield* evidenceOfStations) tallies.set(name, tally)
      return { tallies, drained: yield* fleet.drain }
    })
    const { drained, tallies } = yield* Effect.provide(Effect.raceFirst(weather, fleet.crash), world.direct)
    console.log(`\n${showTallies(tallies)}`)
    const { reasons, totals } = yield* Effect.provide(judge(producers.known, fleet, drained, workers), world.direct)
    const never = Array.from(tallies, ([name, { tookEffect }]) => (tookEffect === 0 ? [name] : [])).flat()
    const { killed } = yield* fleet.counts
    const effects = Array.from(tallies.values()).reduce((sum, { tookEffect }) => sum + tookEffect, 0)
    const line =
      `chaos, seed ${seed}: ${number(totals["jobs"] ?? 0)} jobs in ${number(totals["attempts"] ?? 0)} attempts, ` +
      `${number(totals["rescued"] ?? 0)} rescued, ${killed} workers killed, ${number(effects)} faults of ` +
      `${tallies.size - never.length} kinds took effect`
    return { line, reasons: [...reasons, ...never.map((name) => `a fault that never took effect: ${name}`)] }
  }).pipe(Effect.scoped)
