/**
 * The randomized, seeded stress test of the snapshot cursor (storage.md, "What must be proven"): producers of every kind,
 * claimers that end attempts in every way, callers that are cut, and two leaders who rotate, drain and prune a small ring
 * all the time. At the end every committed job was completed exactly once, or the run fails.
 *
 *     AWA_TEST_DATABASE_URL=… npx tsx test/stress/cursor.ts --jobs 100000 --seed 1
 *
 * A seed fixes every actor's choices, not the timing of the machine.
 */
import { Effect, Ref } from "effect"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { connect, createDatabase, type Edit, freshName, installText, type PgFault } from "../pg/database.js"
import { account, type Account, completed, expected } from "./account.js"
import { claimer } from "./claimers.js"
import { leader } from "./leaders.js"
import { janitor, producer } from "./producers.js"
import { auditText, untilStopped, type World } from "./world.js"

export interface StressOptions {
  /** A superuser's url. */
  readonly server: string
  readonly jobs: number
  readonly seed: number
  readonly ring?: number
  readonly producers?: number
  readonly claimers?: number
  /** How long nothing may happen before the rest counts as lost. */
  readonly patienceMillis?: number
  readonly edit?: Edit | undefined
}

export interface StressReport extends Account {
  readonly seed: number
  readonly seconds: number
  readonly counts: Readonly<Record<string, number>>
}

export const stress = (options: StressOptions): Effect.Effect<StressReport, PgFault> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { claimers = 5, edit, jobs, patienceMillis = 12_000, producers = 9, ring = 6, seed, server } = options
      const url = yield* createDatabase(server, freshName("stress"))
      const admin = yield* connect(url)
      yield* admin.script(`begin; ${installText({ ring, edit })}; ${auditText(ring)}; commit`)
      const world: World = {
        url,
        seed,
        jobs,
        staleness: "1 s",
        committed: yield* Ref.make(0),
        backlog: yield* Ref.make(0),
        stopped: yield* Ref.make(false),
        prepared: [],
        counts: new Map()
      }
      const started = performance.now()
      const many = <A>(n: number, name: string, actor: (world: World, name: string) => A) =>
        Array.from({ length: n }, (_, i) => actor(world, `${name} ${i}`))

      const watch = yield* connect(url)
      const watching = untilStopped(
        world,
        Effect.flatMap(
          watch.value(
            "select (select count(*) from audit.jobs) - (select count(*) from audit.closures where outcome = 'completed')"
          ),
          (backlog) => Effect.delay(Ref.set(world.backlog, Number(backlog)), "50 millis")
        )
      )
      const settled = Effect.gen(function* () {
        let [seen, since] = [-1, performance.now()]
        while (performance.now() - since < patienceMillis) {
          yield* Effect.sleep("250 millis")
          // Nobody waits for a delay any more.
          yield* admin.script(
            "update awa.deferred_jobs set run_at = clock_timestamp() where run_at > clock_timestamp()"
          )
          const prepared = yield* admin.value(
            "select count(*) from pg_prepared_xacts where database = current_database()"
          )
          const done = yield* completed(admin)
          if (prepared === 0n && done >= (yield* expected(admin))) break
          if (done !== seen) [seen, since] = [done, performance.now()]
        }
        // Time for attempts that nobody closes: the last completed ones may have abandoned twins.
        yield* Effect.sleep("100 millis")
        yield* Ref.set(world.stopped, true)
      })
      yield* Effect.all(
        [
          Effect.andThen(Effect.all(many(producers, "producer", producer), { concurrency: "unbounded" }), settled),
          ...many(claimers, "claimer", claimer),
          ...many(2, "leader", leader),
          janitor(world),
          watching
        ],
        { concurrency: "unbounded", discard: true }
      )
      return {
        seed,
        seconds: Math.round((performance.now() - started) / 100) / 10,
        counts: Object.fromEntries([...world.counts].sort(([a], [b]) => a.localeCompare(b))),
        ...(yield* account(admin))
      }
    })
  )

const main = async () => {
  const { values } = parseArgs({
    options: { jobs: { type: "string", default: "100000" }, seed: { type: "string" }, url: { type: "string" } }
  })
  const server = values.url ?? process.env["AWA_TEST_DATABASE_URL"]
  if (server === undefined) throw new Error("a server: --url, or AWA_TEST_DATABASE_URL")
  const seed = Number(values.seed ?? process.env["AWA_STRESS_SEED"] ?? Math.floor(Math.random() * 2 ** 31))
  process.stdout.write(`seed ${seed}\n`)
  const report = await Effect.runPromise(stress({ server, jobs: Number(values.jobs), seed }))
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`)
  process.exitCode = Object.keys(report.faults).length === 0 ? 0 : 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main()
