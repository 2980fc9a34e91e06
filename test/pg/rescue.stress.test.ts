import { expect, it } from "@effect/vitest"
import { Effect, Either, Ref } from "effect"
import { inject } from "vitest"
import { makeRandom, type Random } from "../stress/random.js"
import { connect, createDatabase, freshName, installText, PgFault, type Session } from "./database.js"
import { type Attempt, beat, begin, claim, close, column, complete, edit, enqueue, settle } from "./support.js"

const seed = Number(process.env["AWA_STRESS_SEED"] ?? Math.floor(Math.random() * 2 ** 31))

const jobs = 400

/** What the actors share: every attempt that was ever handed out, and what happened how often. */
interface World {
  readonly startedAt: number
  readonly known: Array<Attempt>
  readonly counts: Map<string, number>
  /** From then on what is claimed is completed, and nobody beats for what was abandoned. */
  readonly calm: Ref.Ref<boolean>
  readonly stopped: Ref.Ref<boolean>
}

const count = ({ counts }: World, what: string) => counts.set(what, (counts.get(what) ?? 0) + 1)

const token = (attempt: Attempt) => [
  attempt.claim_slot,
  attempt.batch_id,
  attempt.batch_index,
  attempt.job_id,
  attempt.run_lease,
  attempt.receipt_id
]

/** The attempt's end in a caller's transaction, beside its row in the ledger. */
const finalize = (world: World, session: Session, attempt: Attempt, random: Random) =>
  Effect.gen(function* () {
    yield* begin(session, random.pick(["read committed", "repeatable read"]))
    yield* session.rows("insert into public.ledger values ($1, $2)", [attempt.job_id, attempt.run_lease])
    const done = yield* Effect.either(complete(session, attempt))
    if (random.chance(0.4)) yield* Effect.sleep(random.between(1, 120)) // rescue comes by
    const end = Either.isRight(done) && random.chance(0.85) ? "commit" : "rollback"
    yield* session.script(end)
    if (Either.isRight(done)) count(world, `complete_job: ${end}`)
    else if (["WA001", "WA002", "40001"].includes(done.left.code)) count(world, `complete_job: ${done.left.code}`)
    else return yield* done.left
  })

const call = (world: World, session: Session, attempt: Attempt, random: Random) =>
  Effect.gen(function* () {
    const [row] = yield* session.rows(
      "select answer, callback_id from awa.register_callback($1, $2, $3, $4, $5, $6, '200 ms')",
      token(attempt)
    )
    count(world, `register_callback: ${String(row?.["answer"])}`)
    if (row?.["answer"] !== "registered") return
    const id = row["callback_id"]
    if (random.chance(0.4)) {
      yield* session.value("select awa.park_attempt($1, $2, $3, $4, $5, $6, $7, null)", [...token(attempt), id])
    }
    if (random.chance(0.5)) yield* Effect.sleep(random.between(1, 250))
    const name = random.pick(["resume_callback($1)", "complete_callback($1)", "fail_callback($1, 'no')"])
    count(world, `${name}: ${String(yield* session.value(`select awa.${name}`, [id]))}`)
    if (random.chance(0.5)) yield* finalize(world, session, attempt, random)
  })

const run = (world: World, session: Session, attempt: Attempt, random: Random) =>
  Effect.gen(function* () {
    const how = random.weighted({ flush: 30, caller: 25, call: 15, cancel: 2, abandon: 13, settle: 15 })
    if (random.chance(0.4)) yield* beat(session, [attempt], { 1: { at: random.next() } })
    if (random.chance(0.3)) yield* Effect.sleep(random.between(1, 150))
    if (how === "flush") {
      const outcome = random.pick(["completed", "completed", "retried", "released"])
      const [answer] = yield* close(session, [attempt], { closer: random.between(1, 2 ** 40), outcome, hasState: true })
      count(world, `flush: ${String(answer)}`)
    } else if (how === "caller") yield* finalize(world, session, attempt, random)
    else if (how === "call") yield* call(world, session, attempt, random)
    else if (how === "settle") count(world, `settle: ${String(yield* settle(session, attempt, "retried"))}`)
    else if (how === "cancel") {
      const answer = yield* session.value("select answer from awa.cancel_jobs(array[$1::bigint])", [attempt.job_id])
      count(world, `cancel: ${String(answer)}`)
    } else count(world, "abandoned")
  })

const worker = (world: World, session: Session, random: Random) =>
  Effect.gen(function* () {
    if (yield* Ref.get(world.calm)) {
      const rest = yield* claim(session)
      if (rest.length > 0) yield* close(session, rest, { closer: random.between(1, 2 ** 40) })
      return yield* Effect.sleep("20 millis")
    }
    const attempts = yield* claim(session, { limit: random.between(1, 8) })
    world.known.push(...attempts)
    for (const attempt of attempts) yield* run(world, session, attempt, random)
    if (attempts.length === 0) yield* Effect.sleep(random.between(1, 20))
  })

const seen = ["rescued", "leases rescued", "complete_job: commit", "complete_job: WA001", "flush: stale", "abandoned"]

/** After three seconds, when everything has been seen that the run is about; after half a minute in any case. */
const stormIsOver = (world: World): boolean => {
  const lasted = performance.now() - world.startedAt
  return lasted > 30_000 || (lasted > 3_000 && seen.every((what) => world.counts.has(what)))
}

/** Beats for anything that anybody ever ran. */
const beating = (world: World, session: Session, random: Random) =>
  Effect.gen(function* () {
    yield* Effect.sleep(random.between(1, 30))
    if (world.known.length === 0 || (yield* Ref.get(world.calm))) return
    const some = Array.from(
      { length: random.between(1, 8) },
      () => world.known[random.between(0, world.known.length - 1)]
    )
    yield* beat(
      session,
      [...new Set(some)].flatMap((attempt) => attempt ?? [])
    )
  })

const maintain = (world: World, session: Session, random: Random, staleness: string) =>
  Effect.gen(function* () {
    const step = (name: string, text: string, values: ReadonlyArray<unknown> = []) =>
      Effect.map(session.value(`select awa.${text}`, values), (n) => {
        if (typeof n === "number" && n > 0) count(world, name)
      })
    yield* step("rescued", "rescue_stale($1, $2, $3)", [staleness, random.between(1, 20), random.chance(0.7)])
    yield* step("leases rescued", "rescue_leases($1, $2)", [staleness, random.between(1, 20)])
    yield* session.script("update awa.deferred_jobs set run_at = clock_timestamp() where run_at > clock_timestamp()")
    yield* step("promoted", "promote_due(100)")
    if (random.chance(0.2)) yield* step("swept", "sweep('1 day')")
    if (random.chance(0.1)) {
      yield* session.rows("select case when awa.lead() then awa.materialize_segment_0(awa.claim_slot_base(), 0, 3) end")
    }
    yield* Effect.sleep(random.between(1, 25))
  })

// C-02, C-03, F-1, F-3: rescue against heartbeats, completions, cancellations and callbacks, one winner each time
it.live(
  `whoever races with rescue, each attempt ends once and nothing is lost (AWA_STRESS_SEED=${seed})`,
  () =>
    Effect.scoped(
      Effect.gen(function* () {
        const server = inject("postgresUrl")
        const url = yield* createDatabase(server, freshName("rescue"))
        const owner = yield* connect(url)
        yield* owner.script(
          `begin; ${installText({ ring: 4, edit })}; create table public.ledger (job_id bigint, run_lease bigint); commit`
        )
        const ids = yield* enqueue(owner, jobs, { opts: { max_attempts: 32_767 } })
        const world: World = {
          startedAt: performance.now(),
          known: [],
          counts: new Map(),
          calm: yield* Ref.make(false),
          stopped: yield* Ref.make(false)
        }
        const actor = (name: string, round: (session: Session, random: Random) => Effect.Effect<unknown, PgFault>) =>
          Effect.flatMap(connect(url), (session) =>
            Effect.repeat(round(session, makeRandom(seed, name)), { until: () => Ref.get(world.stopped) })
          )
        const left = "select count(*) from awa.jobs where state not in ('completed', 'cancelled')"
        const storm = Effect.repeat(Effect.sleep("50 millis"), {
          until: () => stormIsOver(world)
        })
        const settled = Ref.set(world.calm, true).pipe(
          Effect.zipRight(Effect.repeat(Effect.delay(owner.value(left), "50 millis"), { until: (n) => n === 0n })),
          Effect.timeoutFail({
            duration: "90 seconds",
            onTimeout: () => new PgFault({ code: "", message: "jobs are stuck", detail: undefined })
          }),
          Effect.ensuring(Ref.set(world.stopped, true))
        )
        yield* Effect.all(
          [
            ...["a", "b", "c"].map((name) => actor(name, (session, random) => worker(world, session, random))),
            ...["d", "e"].map((name) => actor(name, (session, random) => beating(world, session, random))),
            ...["f", "g"].map((name) => actor(name, (session, random) => maintain(world, session, random, "100 ms"))),
            Effect.zipRight(storm, settled)
          ],
          { concurrency: "unbounded", discard: true }
        )
        const told = JSON.stringify(Object.fromEntries(world.counts), null, 1)
        expect(
          yield* owner.rows(`
            select job_id, run_lease, array_agg(outcome::text) as outcomes from awa.attempts
            group by job_id, run_lease having count(*) > 1 or bool_or(outcome is null)`),
          told
        ).toEqual([])
        // a job that was cancelled between two attempts has none that says so
        const ended = yield* owner.rows(`
          select j.job_id, j.state, count(*) filter (where a.outcome = 'completed') as completed,
                 count(*) filter (where a.outcome = 'cancelled') as cancelled, count(a.job_id) as attempts,
                 coalesce(max(a.run_lease), 0) as last
          from awa.jobs j left join awa.attempts a on a.job_id = j.job_id group by j.job_id, j.state order by j.job_id`)
        expect(column(ended, "job_id"), told).toEqual(ids)
        for (const { attempts, cancelled, completed, last, state } of ended) {
          expect([completed, attempts], told).toEqual([state === "completed" ? 1n : 0n, last])
          expect(state === "completed" ? [0n] : [0n, 1n], told).toContain(cancelled)
        }
        expect(
          yield* owner.rows(`
            select l.* from public.ledger l
            where not exists (select from awa.attempts a
                              where a.job_id = l.job_id and a.run_lease = l.run_lease and a.outcome = 'completed')`),
          told
        ).toEqual([])
        expect(yield* owner.value("select count(*) from awa.leases"), told).toBe(0n)
        for (const what of seen) {
          expect(world.counts.get(what) ?? 0, `${what} in ${told}`).toBeGreaterThan(0)
        }
      })
    ),
  180_000
)
