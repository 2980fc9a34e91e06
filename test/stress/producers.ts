import { Effect, Ref } from "effect"
import type { PgFault, Session } from "../pg/database.js"
import { makeRandom, type Random } from "./random.js"
import { count, cut, type Line, line, queues, untilStopped, type World } from "./world.js"

interface Call {
  readonly jobs: number
  readonly notify: boolean
}

const jobsOf = (random: Random, { jobs, notify }: Call): string => {
  const queue = random.pick(queues)
  const mixed = random.chance(0.3)
  const list = Array.from({ length: jobs }, () => ({
    kind: "k",
    queue: mixed ? random.pick(queues) : queue,
    args: { n: random.between(0, 9) },
    opts: {
      priority: random.chance(0.7) ? 2 : random.between(1, 4),
      max_attempts: 32767,
      ...(random.chance(0.08) ? { delay_ms: random.between(1, 300) } : {}),
      ...(notify ? {} : { notify: false })
    }
  }))
  return JSON.stringify(list)
}

/** Enqueues some jobs and notes them as the truth; how many. */
export const enqueue = (session: Session, random: Random, call: Call): Effect.Effect<number, PgFault> =>
  session
    .value(
      `with made as (select job_id as id from awa.insert_jobs($1::text::jsonb)), noted as (insert into audit.jobs select id from made returning 1)
       select count(*)::int from noted`,
      [jobsOf(random, call)]
    )
    .pipe(Effect.map(Number))

const some = (random: Random): number => (random.chance(0.25) ? random.between(1, 200) : random.between(1, 5))

/** One part of a transaction, perhaps inside a savepoint that is rolled back; how many jobs of it stay. */
const part = (world: World, session: Session, random: Random, notify: boolean) =>
  Effect.gen(function* () {
    const inside = random.chance(0.3)
    if (inside) yield* session.script("savepoint part")
    const made = yield* enqueue(session, random, { jobs: some(random), notify })
    if (inside && random.chance(0.5)) {
      count(world, "savepoints rolled back")
      yield* session.script("rollback to savepoint part")
      return 0
    }
    if (inside && random.chance(0.5)) yield* session.script("release savepoint part")
    return made
  })

const pause = (world: World, random: Random) => {
  if (random.chance(0.03)) {
    count(world, "long transactions")
    return Effect.sleep(random.between(300, 2000))
  }
  return random.chance(0.4) ? Effect.sleep(random.between(0, 30)) : Effect.void
}

const transaction = (world: World, connection: Line, killer: Session, random: Random) =>
  Effect.gen(function* () {
    const session = yield* connection.session
    const isolation = random.pick(["read committed", "repeatable read", "serializable"] as const)
    const end = random.weighted({ commit: 70, rollback: 10, prepare: 14, cut: 6 })
    const prepare = end === "prepare" && world.prepared.length < 6
    count(world, isolation)
    yield* session.script(`begin isolation level ${isolation}`)
    // Its id, or its snapshot, is older than what it will enqueue.
    if (random.chance(0.3)) {
      yield* session.script(random.chance(0.5) ? "select pg_current_xact_id()" : "select count(*) from awa.segments")
      count(world, "opened long before their first job")
      yield* Effect.sleep(random.between(0, random.chance(0.4) ? 1500 : 60))
    }
    let made = 0
    for (let n = random.between(1, 3); n > 0; n--) {
      made += yield* part(world, session, random, !prepare)
      yield* pause(world, random)
    }
    if (prepare) {
      const gid = `awa_${world.seed}_${session.pid}_${random.between(0, 1e9)}`
      yield* session.script(`prepare transaction '${gid}'`)
      world.prepared.push([gid, made])
      count(world, "prepared")
      return 0
    }
    if (end === "cut") {
      yield* cut(killer, session)
      yield* connection.renew
      count(world, "producers cut")
      return 0
    }
    if (end === "rollback") {
      yield* session.script("rollback")
      count(world, "rolled back")
      return 0
    }
    yield* session.script("commit")
    return made
  })

/** Enqueues until the run has its jobs. */
export const producer = (world: World, name: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const random = makeRandom(world.seed, name)
      const connection = yield* line(world)
      const killer = yield* Effect.flatMap(line(world), (other) => other.session)
      const round = Effect.gen(function* () {
        // Claimers that keep up: a segment is drained as soon as it can be, a poll is often empty.
        while ((yield* Ref.get(world.backlog)) > 400) yield* Effect.sleep("20 millis")
        const session = yield* connection.session
        const made = yield* random.chance(0.4)
          ? enqueue(session, random, { jobs: some(random), notify: random.chance(0.9) })
          : transaction(world, connection, killer, random).pipe(
              // A serialization failure is the producer's to retry; nothing of it was committed.
              Effect.catchIf(
                (fault) => fault.code === "40001",
                () => Effect.as(session.script("rollback"), 0)
              )
            )
        yield* Ref.update(world.committed, (n) => n + made)
        yield* Effect.sleep(random.between(0, random.chance(0.1) ? 100 : 10))
      })
      yield* Effect.repeat(round, {
        until: () => Effect.map(Ref.get(world.committed), (committed) => committed >= world.jobs)
      })
    })
  )

/** Ends what was prepared, later and from another session, one way or the other. */
export const janitor = (world: World) =>
  Effect.scoped(
    Effect.gen(function* () {
      const random = makeRandom(world.seed, "janitor")
      const session = yield* Effect.flatMap(line(world), (connection) => connection.session)
      yield* untilStopped(
        world,
        Effect.gen(function* () {
          yield* Effect.sleep(random.between(5, random.chance(0.1) ? 700 : 60))
          const [next] = world.prepared.splice(random.between(0, Math.max(0, world.prepared.length - 1)), 1)
          if (next === undefined) return
          const [gid, jobs] = next
          const keep = random.chance(0.75)
          yield* session.script(`${keep ? "commit" : "rollback"} prepared '${gid}'`)
          if (keep) yield* Ref.update(world.committed, (n) => n + jobs)
          count(world, keep ? "prepared, committed" : "prepared, rolled back")
        })
      )
    })
  )
