import { Effect, Either } from "effect"
import type { PgFault, Session } from "../pg/database.js"
import * as Engine from "../pg/engine.js"
import { enqueue } from "./producers.js"
import { makeRandom, type Random } from "./random.js"
import { count, cut, inTransaction, type Line, line, queues, untilStopped, type World } from "./world.js"

type Attempt = Engine.Attempt

interface Claimer {
  readonly world: World
  readonly random: Random
  readonly session: Session
  readonly killer: Session
  readonly caller: Line
  /** Attempts that were left without a word, and when. */
  readonly abandoned: Array<readonly [number, Attempt]>
}

const claim = ({ random, session, world }: Claimer): Effect.Effect<ReadonlyArray<Attempt>, PgFault> => {
  const options = {
    queue: random.pick(queues),
    limit: random.chance(0.4) ? random.between(1, 3) : random.between(1, 150)
  }
  const taking = Effect.map(Engine.claimRows(session, options), (rows) => {
    if (rows.some((row) => row["lane_busy"] === true)) count(world, "busy lanes")
    return Engine.attemptsOf(rows)
  })
  const how = random.weighted({ alone: 80, undone: 6, chained: 8, closed: 6 })
  if (how === "alone") return taking
  if (how === "undone") {
    return session.script("begin").pipe(
      Effect.andThen(taking),
      Effect.tap((attempts) => Effect.sync(() => count(world, "claims rolled back", attempts.length))),
      Effect.andThen(session.script("rollback")),
      Effect.as([])
    )
  }
  return inTransaction(
    session,
    Effect.gen(function* () {
      const attempts = yield* taking
      if (attempts.length === 0) return attempts
      if (how === "chained") {
        yield* enqueue(session, random, { jobs: random.between(1, 3), notify: true })
        count(world, "enqueued after the claim")
        return attempts
      }
      const half = attempts.slice(0, Math.ceil(attempts.length / 2))
      yield* Engine.close(session, half, { closer: random.between(1, 2 ** 40), outcome: "released" })
      count(world, "released in the claim's transaction", half.length)
      return attempts.slice(half.length)
    })
  )
}

/** Ends an attempt that is still open by itself, once nobody holds its lock. */
const settle = ({ random, session, world }: Claimer, attempt: Attempt): Effect.Effect<void, PgFault> =>
  Engine.settle(session, attempt, "retried", { error: "not committed", delay_ms: 0 }, random.between(1, 2 ** 40)).pipe(
    Effect.tap((answer) => Effect.sync(() => answer === "busy" && count(world, "settles that were busy"))),
    Effect.repeat({ while: (answer) => answer === "busy" }),
    Effect.asVoid
  )

/** A caller's transaction: books and completes, and ends in one of many ways. */
const finalize = (claimer: Claimer, attempt: Attempt): Effect.Effect<void, PgFault> =>
  Effect.gen(function* () {
    const { caller, killer, random, world } = claimer
    const session = yield* caller.session
    const end = random.weighted({
      commit: 58,
      rollback: 14,
      savepoint: 8,
      "cut before commit": 10,
      "cut at commit": 10
    })
    const isolation = random.pick(["read committed", "repeatable read", "serializable"] as const)
    yield* session.script(`begin isolation level ${isolation}`)
    if (end === "savepoint") yield* session.script("savepoint completion")
    yield* session.rows("insert into audit.ledger values ($1, $2)", [attempt.job_id, attempt.run_lease])
    const completed = yield* Effect.either(Engine.complete(session, attempt))
    if (Either.isLeft(completed)) {
      if (!["WA001", "40001"].includes(completed.left.code)) return yield* completed.left
      yield* session.script("rollback")
      count(world, `complete_job: ${completed.left.code}`)
    } else {
      if (random.chance(0.1)) yield* Effect.sleep(random.between(1, 60))
      count(world, `callers: ${end}`)
      if (end === "commit") {
        yield* session.script("commit")
        return
      }
      if (end === "rollback") yield* session.script("rollback")
      else if (end === "savepoint") yield* session.script("rollback to savepoint completion; commit")
      else {
        if (end === "cut at commit") yield* Effect.forkDaemon(Effect.ignore(session.script("commit")))
        yield* cut(killer, session)
        yield* caller.renew
      }
    }
    // Whatever happened, the database knows; open is the one case in which something is left to do.
    const [[status] = []] = yield* Engine.evidence(claimer.session, [attempt])
    count(world, `evidence: ${String(status)}`)
    if (status === "open") yield* settle(claimer, attempt)
  })

/** What has completed and nothing else, as a runtime flushes it: in one number, and by the other statement when that is short. */
const flushCompleted = ({ random, session, world }: Claimer, attempts: ReadonlyArray<Attempt>) =>
  Effect.gen(function* () {
    const closer = random.between(1, 2 ** 40)
    const closed = Number(yield* Engine.closeCompleted(session, attempts, closer))
    count(world, "flush: closed", closed)
    if (closed < attempts.length) {
      const answers = yield* Engine.close(session, attempts, { closer })
      const own = answers.filter((answer) => answer === "repeated").length
      if (own < closed) return yield* Effect.dieMessage(`a flush closed ${closed} and knows ${own} of them`)
      for (const answer of answers) count(world, `flush completed by the other statement: ${String(answer)}`)
    }
    if (random.chance(0.15)) {
      const again = Number(yield* Engine.closeCompleted(session, attempts, closer))
      if (again > 0) return yield* Effect.dieMessage(`a repeated flush closed ${again} once more`)
    }
  })

const flush = (claimer: Claimer, all: ReadonlyArray<Attempt>, hasState: boolean) =>
  Effect.gen(function* () {
    const { random, session, world } = claimer
    const plain = hasState || random.chance(0.5) ? [] : all.filter(() => random.chance(0.8))
    if (plain.length > 0) yield* flushCompleted(claimer, plain)
    const attempts = all.filter((attempt) => !plain.includes(attempt))
    if (attempts.length === 0) return
    const outcome = attempts.map(() => random.weighted({ completed: 82, retried: 8, snoozed: 5, released: 5 }))
    const detail = { error: { message: "again" }, delay_ms: random.chance(0.6) ? 0 : random.between(1, 400) }
    const options = { closer: random.between(1, 2 ** 40), outcome, detail, hasState }
    const answers = yield* Engine.close(session, attempts, options)
    for (const answer of answers) count(world, `flush: ${String(answer)}`)
    if (random.chance(0.15)) {
      // Its answer was lost.
      const again = yield* Engine.close(session, attempts, options)
      for (const [i, answer] of again.entries()) {
        count(world, `flush again: ${String(answer)}`)
        // A segment may be pruned in between; then nobody knows any more.
        if (answer === "closed" || (answer === "repeated") > (answers[i] === "closed")) {
          return yield* Effect.dieMessage(`a repeated flush answered ${String(answer)} after ${String(answers[i])}`)
        }
      }
    }
  })

const finish = (claimer: Claimer, attempts: ReadonlyArray<Attempt>) =>
  Effect.gen(function* () {
    const { abandoned, random, session, world } = claimer
    const rest: Array<Attempt> = []
    const callers: Array<Attempt> = []
    const dies = random.chance(0.01) // with everything that it claimed
    for (const attempt of attempts) {
      const how = random.weighted({ ordinary: 965, caller: callers.length < 3 ? 40 : 0, abandoned: 1 })
      if (dies || how === "abandoned") {
        count(world, "abandoned")
        abandoned.push([performance.now(), attempt])
      } else (how === "caller" ? callers : rest).push(attempt)
    }
    const beaten = rest.length > 0 && random.chance(0.25)
    if (beaten) yield* Engine.beat(session, rest, Object.fromEntries(rest.map((_, i) => [String(i + 1), { at: i }])))
    if (random.chance(0.3)) yield* Effect.sleep(random.between(0, 40))
    for (const attempt of callers) yield* finalize(claimer, attempt)
    while (rest.length > 0) yield* flush(claimer, rest.splice(0, random.between(1, 200)), beaten)
    // The words of those that come back after they were given up.
    const [first] = abandoned
    if (first !== undefined && performance.now() - first[0] > 2500) {
      const back = abandoned.splice(0, random.between(1, 20)).map(([, attempt]) => attempt)
      count(world, "words of the abandoned", back.length)
      if (random.chance(0.5)) yield* finalize(claimer, first[1])
      yield* flush(claimer, back, true)
    }
  })

export const claimer = (world: World, name: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const random = makeRandom(world.seed, name)
      const [own, killer, caller] = [yield* line(world), yield* line(world), yield* line(world)]
      const self: Claimer = {
        world,
        random,
        session: yield* own.session,
        killer: yield* killer.session,
        caller,
        abandoned: []
      }
      yield* untilStopped(
        world,
        Effect.gen(function* () {
          const attempts = yield* claim(self)
          count(world, attempts.length === 0 ? "empty claims" : "claims")
          yield* attempts.length === 0 ? Effect.sleep(random.between(1, 15)) : finish(self, attempts)
        })
      )
    })
  )
