/**
 * Every pair of paths against the same attempts, in both orders, by two sessions, and now and then a third: nobody waits in a
 * circle (schema/README.md, "Lock order"; storage.md, "Guard and locks").
 *
 *     npm run locks -- --rounds 10000 --seed 1
 *
 * A seed fixes the choices, not the timing of the machine. The server looks for circles after milliseconds here, and whoever
 * would give up before (a flush, an operator's verb) does not: a circle that a timeout hides elsewhere is one here.
 */
import { Effect, Either, Ref } from "effect"
import {
  connect,
  createDatabase,
  type Edit,
  freshName,
  installText,
  type PgFault,
  type Session
} from "../../pg/database.js"
import { makeRandom, type Random } from "../random.js"
import { type Field, fieldText, makeField } from "./field.js"
import { applications, chain, type Path, paths } from "./paths.js"

export interface LocksOptions {
  /** A superuser's url. */
  readonly server: string
  readonly seed: number
  /** At least one for each pair. */
  readonly rounds: number
  /** Only these pairs, again and again; all, and some chains of calls, unless said otherwise. */
  readonly pairs?: ReadonlyArray<readonly [string, string]> | undefined
  /** Every so many-th of the rounds, beginning with this one: the shares can run side by side, each in a database of its own. */
  readonly share?: { readonly first: number; readonly of: number } | undefined
  readonly edit?: Edit | undefined
  readonly progress?: (round: number) => void
}

export interface LocksReport {
  readonly seed: number
  readonly rounds: number
  /** Pairs of paths, with and without the order of the two. */
  readonly pairs: number
  readonly ordered: number
  /** As pg_stat_database counts them, also those that somebody caught. */
  readonly deadlocks: number
  readonly faults: ReadonlyArray<string>
  /** How often somebody was seen to wait for a lock. */
  readonly waits: number
  /** What the calls ended with. */
  readonly ends: Readonly<Record<string, number>>
}

interface Actor {
  readonly name: string
  readonly path: Path
}

interface Meeting {
  readonly actors: ReadonlyArray<Actor>
  /** Whether a runtime gives way before the server looks for circles, as it does in production. */
  readonly patient: boolean
}

/** What a call may end with besides success: it lost, or (prune) it gave up. */
const allowed = (name: string, code: string): boolean =>
  ["WA001", "WA002", "WA006"].includes(code) ||
  (code === "55P03" && ["prune_segment", "close_attempts", "close_completed"].includes(name))

const reset = 20

/** How many seconds a transaction rests before a write, at most: the quick one comes to everything before the slow one. */
const paces = ["0.0005", "0.002", "0.008"] as const

const actorOf = (name: string): Actor => {
  const path = paths[name]
  if (path === undefined) throw new Error(`no path is called ${name}`)
  return { name, path }
}

const meetings = (random: Random, options: LocksOptions): ReadonlyArray<Meeting> => {
  const { pairs: chosen, rounds } = options
  if (chosen !== undefined) {
    return Array.from({ length: rounds }, (_, n) => {
      const pair = (chosen[n % chosen.length] ?? []).map(actorOf)
      return { actors: random.chance(0.5) ? pair : pair.reverse(), patient: false }
    })
  }
  const actors = Object.keys(paths).map(actorOf)
  const pairs = actors.flatMap((a, i) =>
    actors.slice(i).map((b): Meeting => ({ actors: random.chance(0.5) ? [a, b] : [b, a], patient: false }))
  )
  const swapped = pairs.map(({ actors: [a, b] }): Meeting => ({
    actors: a === undefined || b === undefined ? [] : [b, a],
    patient: false
  }))
  const chains = actors.map((other): Meeting => ({
    actors: [
      { name: "chain", path: chain },
      Object.hasOwn(applications, other.name) ? { name: "chain", path: chain } : other
    ],
    patient: true
  }))
  const all = [...pairs, ...chains, ...swapped]
  return Array.from({ length: rounds }, (_, n) => {
    const meeting = all[n % all.length] ?? { actors: [], patient: false }
    const third = actors[random.between(0, actors.length - 1)]
    return n >= pairs.length && !meeting.patient && third !== undefined && random.chance(0.3)
      ? { ...meeting, actors: [...meeting.actors, third] }
      : meeting
  })
}

const limits = (patient: boolean, name: string) =>
  patient
    ? `set deadlock_timeout = '1s'; set lock_timeout = '${name.startsWith("close_") ? "100ms" : "5s"}'`
    : "set deadlock_timeout = '10ms'; set lock_timeout = '5s'"

const act = (
  session: Session,
  meeting: Meeting,
  { name, path }: Actor,
  field: Field,
  random: Random,
  expected: string,
  late: boolean
) =>
  Effect.gen(function* () {
    yield* session.script(
      `${limits(meeting.patient, name)}; set stretch.expected = '${expected}'; set stretch.pace = '${random.pick(paces)}'`
    )
    if (late && random.chance(0.5)) yield* Effect.sleep(random.between(0, 6))
    yield* session.script("begin isolation level read committed")
    const ended = yield* Effect.either(path({ session, field, random }))
    if (Either.isLeft(ended)) {
      yield* session.script("rollback")
      return [name, ended.left] as const
    }
    yield* Effect.sleep(random.between(0, 2))
    yield* session.script("commit")
    return [name, undefined] as const
  })

const told = (round: number, actors: ReadonlyArray<Actor>, name: string, { code, detail, message }: PgFault) =>
  `round ${round}, ${actors.map((actor) => actor.name).join(" against ")}: ${name} ended with ${code} ${message}` +
  (detail === undefined ? "" : ` (${detail})`)

/** Looks, again and again, whether anybody waits. */
const watch = (session: Session, waits: Ref.Ref<number>) =>
  session
    .value(
      `select count(*) from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and pid <> pg_backend_pid()`
    )
    .pipe(
      Effect.flatMap((n) => Ref.update(waits, (before) => before + Number(n))),
      Effect.delay("5 millis"),
      Effect.forever,
      Effect.ignore
    )

/** A session tells what it counted when it ends, at the latest: first it is waited for. */
const deadlocksOf = (session: Session, others: number) =>
  session
    .value(
      "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    )
    .pipe(
      Effect.delay("10 millis"),
      Effect.repeat({ until: (left) => left === BigInt(1 + others) }),
      Effect.zipRight(session.value("select pg_stat_force_next_flush()")),
      Effect.zipRight(session.value("select deadlocks from pg_stat_database where datname = current_database()")),
      Effect.map(Number)
    )

export const locks = (options: LocksOptions): Effect.Effect<LocksReport, PgFault> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { edit, rounds, seed, server } = options
      const random = makeRandom(seed, "locks")
      const url = yield* createDatabase(server, freshName("locks"))
      const owner = yield* connect(url)
      yield* owner.script(`begin; ${installText({ ring: 4, edit })}; ${fieldText}; commit`)
      const waits = yield* Ref.make(0)
      yield* Effect.forkScoped(watch(yield* connect(url), waits))
      const ends = new Map<string, number>()
      const faults: Array<string> = []
      const ordered = new Set<string>()
      const run = (sessions: ReadonlyArray<Session>, meeting: Meeting, round: number) =>
        Effect.gen(function* () {
          if (round % reset < (options.share?.of ?? 1)) yield* owner.value("select stretch.empty()")
          const field = yield* makeField(owner, random, `${round}/`)
          const before = yield* owner.value("select nextval('stretch.arrivals')")
          const expected = String(Number(before) + meeting.actors.length)
          const answers = yield* Effect.all(
            meeting.actors.flatMap((actor, i) => {
              const session = sessions[i]
              const own = makeRandom(seed, `${round}/${i}`)
              return session === undefined ? [] : [act(session, meeting, actor, field, own, expected, i > 0)]
            }),
            { concurrency: "unbounded" }
          )
          ordered.add(
            meeting.actors
              .slice(0, 2)
              .map(({ name }) => name)
              .join(" against ")
          )
          for (const [name, fault] of answers) {
            const end = fault?.code ?? "done"
            ends.set(end, (ends.get(end) ?? 0) + 1)
            if (fault !== undefined && !allowed(name, fault.code)) faults.push(told(round, meeting.actors, name, fault))
          }
          options.progress?.(round)
        })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sessions = yield* Effect.all([connect(url), connect(url), connect(url)])
          for (const [round, meeting] of meetings(random, options).entries()) {
            if (options.share !== undefined && round % options.share.of !== options.share.first) continue
            yield* run(sessions, meeting, round)
            if (faults.length > 9) break // enough to look at
          }
        })
      )
      return {
        seed,
        rounds,
        pairs: new Set([...ordered].map((pair) => pair.split(" against ").sort().join())).size,
        ordered: ordered.size,
        deadlocks: yield* deadlocksOf(owner, 1),
        faults,
        waits: yield* Ref.get(waits),
        ends: Object.fromEntries([...ends].sort(([a], [b]) => a.localeCompare(b)))
      }
    })
  )

/** How many rounds it takes that every pair has met, once. */
export const allPairs = (Object.keys(paths).length * (Object.keys(paths).length + 1)) / 2
