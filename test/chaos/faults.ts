/** The faults of the storm. Each answers how often it was seen to take effect: by the server, the proxy or the system. */
import { SqlClient } from "@effect/sql"
import { Effect, type Scope } from "effect"
import { Backends, FaultProxy, ServerRestart } from "effect-awa/testing"
import type { Random } from "../stress/random.js"
import type { Fleet, Member } from "./fleet.js"
import type { World } from "./world.js"

export interface Fault {
  readonly name: string
  /** Takes the server, or all connections of a kind, away: not two at a time. */
  readonly exclusive?: boolean
  readonly inject: Effect.Effect<number, unknown, Scope.Scope>
}

export interface Stage {
  readonly world: World
  readonly fleet: Fleet
  readonly random: Random
}

/** How long a rule waits for a statement to befall. */
const patience = "6 seconds"

/** A rule in force until it took effect so often, and so much longer. */
const ruleFault = (
  proxy: FaultProxy.FaultProxy["Type"],
  rule: FaultProxy.FaultRule & { readonly name: string; readonly limit: number },
  lasting: "0 seconds" | "4 seconds" = "0 seconds"
): Fault => ({
  name: rule.name,
  inject: Effect.gen(function* () {
    const active = yield* proxy.rule(rule)
    yield* Effect.timeoutOption(active.awaitEffects(rule.limit), patience)
    yield* Effect.sleep(lasting)
    return (yield* active.counts).tookEffect
  })
})

const commit = /^(do [^]*; |select [^]*complete_job\([^]*; )?commit$/i

const statementFaults = ({ world: { application, producers, runtime } }: Stage): ReadonlyArray<Fault> => [
  ruleFault(application, {
    name: "application: cut before COMMIT",
    match: commit,
    action: FaultProxy.cutBefore(),
    limit: 3
  }),
  ruleFault(application, {
    name: "application: answer to COMMIT lost",
    match: commit,
    action: FaultProxy.cutAfter(),
    expect: FaultProxy.committed,
    limit: 4
  }),
  ruleFault(application, {
    name: "application: answer to complete_job lost",
    match: /\.complete_job\(/,
    action: FaultProxy.cutAfter({ reset: true }),
    limit: 3
  }),
  // Longer than the deadline of the charges' queue: rescue comes first, and the completion is stale.
  ruleFault(
    application,
    {
      name: "application: transaction held",
      match: /^insert into chaos\.effects/,
      action: FaultProxy.holdStatement("5 seconds"),
      limit: 3
    },
    "4 seconds"
  ),
  ruleFault(
    application,
    { name: "application: answer to COMMIT held", match: commit, action: FaultProxy.holdAnswer("3 seconds"), limit: 4 },
    "4 seconds"
  ),
  ruleFault(
    application,
    {
      name: "application: black hole to the server",
      match: /\.complete_job\(/,
      action: FaultProxy.blackHole("to-server"),
      limit: 2
    },
    "4 seconds"
  ),
  ruleFault(
    application,
    {
      name: "application: black hole to the client",
      match: commit,
      action: FaultProxy.blackHole("to-client"),
      expect: FaultProxy.committed,
      limit: 2
    },
    "4 seconds"
  ),
  ruleFault(
    runtime,
    { name: "runtime: black hole at a claim", match: /\.claim\(/, action: FaultProxy.blackHole("both"), limit: 2 },
    "4 seconds"
  ),
  ruleFault(runtime, {
    name: "runtime: answer to a flush lost",
    match: /\.close_(attempts|completed)\(/,
    action: FaultProxy.cutAfter(),
    limit: 3
  }),
  ruleFault(runtime, {
    name: "runtime: answer to a claim lost",
    match: /\.claim\(/,
    action: FaultProxy.cutAfter(),
    limit: 2
  }),
  ruleFault(runtime, {
    name: "runtime: answer to the evidence lost",
    match: /\.attempt_evidence\(/,
    action: FaultProxy.cutAfter(),
    limit: 3
  }),
  ruleFault(producers, {
    name: "producers: cut before COMMIT",
    match: commit,
    action: FaultProxy.cutBefore(),
    limit: 3
  }),
  ruleFault(producers, {
    name: "producers: answer to COMMIT lost",
    match: commit,
    action: FaultProxy.cutAfter(),
    expect: FaultProxy.committed,
    limit: 3
  })
]

const outage = (name: string, proxy: FaultProxy.FaultProxy["Type"], millis: number): Fault => ({
  name,
  exclusive: true,
  inject: Effect.gen(function* () {
    const before = yield* proxy.stats
    yield* Effect.scoped(Effect.zipRight(proxy.outage, Effect.sleep(millis)))
    const { cut, refused } = yield* proxy.stats
    return refused > before.refused ? cut - before.cut : 0
  })
})

const connectionFaults = ({ random, world }: Stage): ReadonlyArray<Fault> => [
  {
    name: "LISTEN half-open",
    inject: Effect.gen(function* () {
      const half = yield* world.runtime.halfOpen()
      yield* Effect.sleep("8 seconds")
      const { notifications } = yield* half.lost
      return notifications > 0 ? half.connections.length : 0
    })
  },
  {
    name: "backends terminated",
    inject: Effect.gen(function* () {
      const storm = yield* Backends.storm({
        url: world.url,
        applicationName: /^(chaos (worker|producers)|effect-awa runtime)/,
        rate: 5,
        seed: random.between(1, 1_000_000)
      })
      yield* Effect.sleep("4 seconds")
      return (yield* storm.counts).tookEffect
    })
  },
  outage("runtime: outage", world.runtime, 3_000),
  outage("application: outage", world.application, 3_000)
]

const restart = ({ world }: Stage, name: string, options: ServerRestart.RestartOptions): Fault => ({
  name,
  exclusive: true,
  inject: Effect.map(ServerRestart.restart(world.server, options), ({ tookEffect }) => (tookEffect ? 1 : 0))
})

const serverFaults = (stage: Stage): ReadonlyArray<Fault> => [
  restart(stage, "server restarted (fast)", { mode: "fast" }),
  restart(stage, "server crashed (immediate)", { mode: "immediate" }),
  restart(stage, "server away for seconds", { mode: "fast", downFor: `${stage.random.between(3, 6)} seconds` })
]

/** How many attempts of a worker were taken from it since a time. */
const takenFrom = (member: Member, since: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ n: number }>`
        select count(*)::integer as n from chaos.attempts a join chaos.workers w using (runtime_id)
        where w.name = ${member.name} and a.outcome = 'rescued' and a.closed_at > ${since}::timestamptz`,
      ([row]) => row?.n ?? 0
    )
  )

const now = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(sql<{ at: string }>`select clock_timestamp()::text as at`, ([row]) => row?.at ?? "")
)

const processFaults = ({ fleet, random, world }: Stage): ReadonlyArray<Fault> => {
  const victim = Effect.sync(() => {
    const members = fleet.running()
    return members[random.between(0, Math.max(0, members.length - 1))]
  })
  return [
    {
      name: "worker killed",
      inject: Effect.gen(function* () {
        const member = yield* victim
        if (member === undefined) return 0
        const killed = yield* fleet.kill(member)
        yield* Effect.sleep("1 second")
        yield* fleet.start
        return killed ? 1 : 0
      })
    },
    {
      // Longer than the staleness: its attempts are rescued, and it goes on as if nothing had been.
      name: "worker frozen",
      inject: Effect.gen(function* () {
        const member = yield* victim
        if (member === undefined) return 0
        const since = yield* now
        yield* Effect.acquireUseRelease(
          member.process.signal("SIGSTOP"),
          () => Effect.sleep("7 seconds"),
          () => member.process.signal("SIGCONT")
        )
        return yield* takenFrom(member, since)
      }).pipe(Effect.provide(world.direct))
    }
  ]
}

export const faultsOf = (stage: Stage): ReadonlyArray<Fault> => [
  ...statementFaults(stage),
  ...connectionFaults(stage),
  ...serverFaults(stage),
  ...processFaults(stage)
]
