/**
 * One fault, and the throughput before and after it: `npm run chaos -- --scenario <name>`. Handlers mostly wait, so the permits
 * are what bounds the fleet, not the machine: one permit of sixteen that did not come back shows.
 */
import { SqlClient } from "@effect/sql"
import { Effect, Redacted, type Scope } from "effect"
import { Backends, ServerRestart } from "effect-awa/testing"
import pg from "pg"
import { makeFeeder } from "./feeder.js"
import { type Fleet, makeFleet } from "./fleet.js"
import { say } from "./report.js"
import { settle } from "./run.js"
import { awaitRate, compare, type Comparison, serverNow, windows } from "./throughput.js"
import { judge } from "./verdict.js"
import { makeWorld, type World } from "./world.js"

interface Stage {
  readonly world: World
  readonly fleet: Fleet
  readonly seed: number
}

/** What was seen of a fault: how often it took effect, in words, and what must still be so at the end. */
interface Seen {
  readonly effects: number
  readonly words: string
  readonly still?: Effect.Effect<boolean, unknown, SqlClient.SqlClient>
}

type Scenario = (stage: Stage) => Effect.Effect<Seen, unknown, Scope.Scope | SqlClient.SqlClient>

const serverRestart: Scenario = ({ world }) =>
  Effect.gen(function* () {
    const fast = yield* ServerRestart.restart(world.server, { mode: "fast" })
    const crash = yield* ServerRestart.restart(world.server, { mode: "immediate", downFor: "2 seconds" })
    const effects = [fast, crash].filter(({ tookEffect }) => tookEffect).length
    return { effects: effects === 2 ? 2 : 0, words: "a fast restart, then a crash and two seconds' absence" }
  })

const backendKillStorm: Scenario = ({ seed, world }) =>
  Effect.gen(function* () {
    const storm = yield* Backends.storm({
      url: world.url,
      applicationName: /^(chaos worker|effect-awa runtime)/,
      rate: 5,
      seed
    })
    yield* Effect.sleep("10 seconds")
    const { tookEffect } = yield* storm.counts
    return { effects: tookEffect, words: `${tookEffect} backends of the workers terminated in ten seconds` }
  }).pipe(Effect.scoped)

const idle = 300
const idleName = "chaos idle"

const countIdle = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ n: number }>`select count(*)::integer as n from pg_stat_activity
                       where application_name = ${idleName} and state = 'idle'`,
    ([row]) => row?.n ?? 0
  )
)

const hold = (url: string) =>
  Effect.acquireRelease(
    Effect.tryPromise(async () => {
      const client = new pg.Client({ connectionString: url, application_name: idleName })
      client.on("error", () => undefined)
      await client.connect()
      await client.query("select 1")
      return client
    }),
    (client) => Effect.promise(() => client.end().catch(() => undefined))
  )

const idleConnections: Scenario = ({ world }) =>
  Effect.gen(function* () {
    const url = Redacted.value(world.url)
    yield* Effect.forEach(Array.from({ length: idle }), () => hold(url), { concurrency: 10, discard: true })
    const effects = yield* countIdle
    return {
      effects: effects >= idle ? effects : 0,
      words: `${effects} idle connections held from here to the end`,
      still: Effect.map(countIdle, (n) => n >= idle)
    }
  })

const killOne = (fleet: Fleet, pick: number) =>
  Effect.gen(function* () {
    const members = fleet.running()
    const member = members[pick % Math.max(1, members.length)]
    return member === undefined ? false : yield* fleet.kill(member)
  })

const workerCrash: Scenario = ({ fleet, seed }) =>
  Effect.gen(function* () {
    const killed = yield* killOne(fleet, seed)
    yield* Effect.sleep("3 seconds")
    yield* fleet.start
    yield* fleet.awaitRunning(2)
    return { effects: killed ? 1 : 0, words: "one of two workers killed, and replaced after three seconds" }
  })

const kills = 5

const repeatedKills: Scenario = ({ fleet }) =>
  Effect.gen(function* () {
    let killed = 0
    for (let n = 0; n < kills; n++) {
      if (yield* killOne(fleet, n)) killed++
      yield* fleet.start
      yield* fleet.awaitRunning(2)
      yield* Effect.sleep("2 seconds")
    }
    return { effects: killed === kills ? killed : 0, words: `${killed} workers killed, one after the other` }
  })

const scenarios = {
  "server-restart": serverRestart,
  "backend-kill-storm": backendKillStorm,
  "idle-connections": idleConnections,
  "worker-crash": workerCrash,
  "repeated-kills": repeatedKills
} as const satisfies Readonly<Record<string, Scenario>>

export type ScenarioName = keyof typeof scenarios

export const scenarioNames = [
  "server-restart",
  "backend-kill-storm",
  "idle-connections",
  "worker-crash",
  "repeated-kills"
] as const satisfies ReadonlyArray<ScenarioName>

const baselineWindows = 10
const afterWindows = 12
/** The median after the fault, as a share of the one before it. */
const leastRatio = 0.95
/** A trend counts when all of its 95 % interval is below this, in percent a minute: less is not told from noise. */
const steepest = -3

const ofThroughput = ({ ratio, trend }: Comparison): ReadonlyArray<string> => [
  ...(ratio >= leastRatio ? [] : [`throughput is ${(ratio * 100).toFixed(1)} % of what it was before`]),
  ...(trend.high >= steepest ? [] : [`throughput falls by ${(-trend.estimate).toFixed(1)} % a minute afterwards`])
]

const round = (rates: ReadonlyArray<number>) => rates.map((rate) => rate.toFixed(0)).join(" ")

const measured = (scenario: Scenario, stage: Stage) =>
  Effect.gen(function* () {
    yield* Effect.sleep("6 seconds")
    const baseline = yield* windows(baselineWindows)
    say(`before, jobs/s in windows of 3 s: ${round(baseline)}`)
    const began = yield* serverNow
    const { effects, still, words } = yield* scenario(stage)
    const over = yield* serverNow
    say(words)
    const before = compare(baseline, baseline).before
    const since = yield* Effect.timeoutFail(awaitRate(leastRatio * before), {
      duration: "2 minutes",
      onTimeout: () => new Error("throughput did not come back within two minutes")
    })
    const seconds = (millis: number) => (Math.max(0, millis) / 1000).toFixed(1)
    const recovery = `recovered ${seconds(since - began)} s after it began, ${seconds(since - over)} s after it was over`
    say(recovery)
    yield* Effect.sleep("2 seconds")
    const after = yield* windows(afterWindows)
    say(`after, jobs/s: ${round(after)}`)
    const lasted = still === undefined || (yield* still)
    return { comparison: compare(baseline, after), recovery, seen: lasted ? effects : 0 }
  })

/** What is wrong after a scenario; empty when nothing is. */
export const runScenario = (name: ScenarioName, seed: number) =>
  Effect.gen(function* () {
    const world = yield* makeWorld({ max_connections: "450" })
    const station = Effect.gen(function* () {
      return {
        runtimeUrl: yield* world.runtime.through(world.url),
        applicationUrl: yield* world.application.through(world.url),
        clockSkewMillis: 0
      }
    })
    const fleet = yield* makeFleet({
      station: () => Effect.catchAll(station, () => Effect.dieMessage("the server's url is no url")),
      concurrency: 4,
      work: [400, 400],
      logFile: `.tmp/chaos/${name}-${seed}.log`
    })
    yield* Effect.repeatN(fleet.start, 1)
    yield* fleet.awaitRunning(2)
    const feeder = yield* Effect.provide(makeFeeder, world.producing)
    const program = Effect.gen(function* () {
      const { comparison, recovery, seen } = yield* Effect.scoped(measured(scenarios[name], { world, fleet, seed }))
      yield* feeder.stop
      yield* settle
      const { reasons } = yield* judge(feeder.known, fleet, yield* fleet.drain, 2)
      const { after, before, ratio, trend } = comparison
      const line =
        `chaos, ${name}, seed ${seed}: ${before.toFixed(0)} jobs/s before, ${after.toFixed(0)} after (ratio ${ratio.toFixed(3)}, ` +
        `trend ${trend.estimate.toFixed(1)} % a minute, 95 %: ${trend.low.toFixed(1)} to ${trend.high.toFixed(1)}), ${recovery}`
      const blind = seen > 0 ? [] : ["the fault was not seen to take effect"]
      return { line, reasons: [...blind, ...reasons, ...ofThroughput(comparison)] }
    })
    return yield* Effect.provide(Effect.raceFirst(program, fleet.crash), world.direct)
  }).pipe(Effect.scoped)
