/**
 * The storm: three kinds of faults, from a seed. What counts is not what is intended here but what took effect, as the
 * proxy saw it in the server's answers and as the server has it in its tables (account.ts).
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { Effect, Fiber, Utils } from "effect"
import * as FaultProxy from "effect-awa/layers/testing/FaultProxy"
import type { Fleet } from "./fleet.js"
import { invoiceCount } from "./inbox.js"
import type { Sample, Watch } from "./watch.js"

/** How many faults of each kind must have taken effect. */
export const atLeast = 3

/** A worker was killed, at this time of the server. */
export interface Kill {
  readonly worker: string
  readonly at: string
}

/** At these shares of the work a worker is killed; a little later by the seed. */
const killAt = [0.12, 0.34, 0.56, 0.74]

/** SIGKILL for the worker with most charges in flight, once there are enough of them, and a new one in its place. */
const killing = (fleet: Fleet, watch: Watch, random: Utils.PCGRandom, kills: Array<Kill>) =>
  Effect.forEach(killAt, (share) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient
      const threshold = invoiceCount * (share + random.number() * 0.06)
      const busiest = ({ open }: Sample) =>
        fleet.running().toSorted((one, other) => (open[other.name] ?? 0) - (open[one.name] ?? 0))[0]
      const sample = yield* watch.until((sample) => {
        const worker = busiest(sample)
        return sample.paid >= threshold && worker !== undefined && (sample.open[worker.name] ?? 0) >= 5
      })
      const victim = busiest(sample)
      const [clock] = yield* sql<{ at: string }>`select clock_timestamp()::text as at`
      if (victim === undefined || clock === undefined) return
      yield* fleet.kill(victim)
      kills.push({ worker: victim.name, at: clock.at })
      yield* fleet.start
    })
  )

/** The answer to the COMMIT of a charge is lost: the server has committed, and the worker cannot know. */
const lostAnswers = (random: Utils.PCGRandom): FaultProxy.FaultRule => ({
  name: "commit answers lost",
  match: /\bcommit$/i,
  action: FaultProxy.cutAfter(),
  expect: FaultProxy.committed,
  skip: 20 + random.integer(60),
  every: 130,
  limit: 12
})

/**
 * A transaction hangs in its middle until the server has taken its attempt back, and then goes on as if nothing had
 * been. The second rule injects nothing: it holds the answer to the finalization that follows for no time, and counts
 * refusals.
 */
const heldTransactions = (random: Utils.PCGRandom, watch: Watch) => {
  const every = 100
  const first = 10 + random.integer(40)
  const held = new Set<number | undefined>()
  let updates = 0
  const hold: FaultProxy.FaultRule = {
    name: "transactions held",
    match: ({ connection, sql }) => {
      if (!sql.startsWith("update invoices set state = 'paid'") || ++updates % every !== first) return false
      held.add(connection.backendPid)
      return true
    },
    action: FaultProxy.holdStatement(
      Effect.gen(function* () {
        const { now } = yield* watch.until(() => true)
        // The attempt that is held was claimed before, so it is closed when all those are; it cannot close itself.
        yield* watch.until(({ oldestOpen }) => oldestOpen === null || oldestOpen > now)
      })
    )
  }
  const finalization: FaultProxy.FaultRule = {
    name: "finalizations after a hold",
    match: ({ connection, sql }) => sql.includes(".complete_job(") && held.delete(connection.backendPid),
    action: FaultProxy.holdAnswer(Effect.void),
    expect: ({ sqlStates }) => sqlStates.includes("WA001")
  }
  return { hold, finalization }
}

/** Lets the storm loose for as long as the scope lasts, and answers with what it has done so far. */
export const storm = (seed: number, proxy: FaultProxy.FaultProxy["Type"], fleet: Fleet, watch: Watch) =>
  Effect.gen(function* () {
    const random = new Utils.PCGRandom(seed)
    const kills: Array<Kill> = []
    const rules = heldTransactions(random, watch)
    const lost = yield* proxy.rule(lostAnswers(random))
    const held = yield* proxy.rule(rules.hold)
    const refused = yield* proxy.rule(rules.finalization)
    const killer = yield* Effect.forkScoped(killing(fleet, watch, random, kills))
    const tookEffect = (rule: FaultProxy.ActiveRule) => Effect.map(rule.counts, (counts) => counts.tookEffect)
    return {
      /** Fails when a kill could not be done. */
      failure: Effect.zipRight(Fiber.join(killer), Effect.never),
      damage: Effect.all({
        kills: Effect.sync((): ReadonlyArray<Kill> => [...kills]),
        lostAnswers: tookEffect(lost),
        held: tookEffect(held),
        refused: tookEffect(refused)
      })
    }
  })

export type Storm = Effect.Effect.Success<ReturnType<typeof storm>>
export type Damage = Effect.Effect.Success<Storm["damage"]>
