import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeRandom } from "../stress/random.js"
import type { PgFault, Session } from "./database.js"
import { bigints, column, enqueue, fileDatabase, only } from "./support.js"

const database = fileDatabase()
const seed = Number(process.env["AWA_STRESS_SEED"] ?? Math.floor(Math.random() * 2 ** 31))
const rounds = Number(process.env["AWA_STRESS_ROUNDS"] ?? 10)
const writers = 5
const promoters = 3

interface World {
  /** Committed jobs, and which of them were cancelled. */
  readonly jobs: Set<bigint>
  readonly cancelled: Set<bigint>
  readonly counts: Record<string, number>
  until: number
}

const running = (world: World) => Effect.sync(() => performance.now() < world.until)

const count = (world: World, what: string, by = 1) => {
  world.counts[what] = (world.counts[what] ?? 0) + by
}

/** Transactions that insert, replace and cancel, hold what they wrote for a while, and end in one way or the other. */
const writer = (world: World, session: Session, name: string) => {
  const random = makeRandom(seed, name)
  const pause = Effect.suspend(() => Effect.sleep(random.between(0, random.chance(0.1) ? 120 : 15)))
  const one = Effect.gen(function* () {
    const inserted: Array<bigint> = []
    const cancelled: Array<bigint> = []
    yield* session.script("begin")
    for (let n = random.between(1, 3); n > 0; n--) {
      const deed = random.weighted({ insert: 5, replace: 4, cancel: 1, look: 1 })
      count(world, deed)
      const some = `select job_id from awa.deferred_jobs where job_id % $1 = 0 order by job_id limit $2 for update skip locked`
      const which = [random.between(1, 7), random.between(1, 4)]
      if (deed === "insert") {
        inserted.push(
          ...(yield* enqueue(session, random.between(1, 6), {
            opts: { delay_ms: random.between(1, 40), notify: false }
          }))
        )
      } else if (deed === "replace") {
        yield* session.rows(
          `update awa.deferred_jobs d set xid = pg_current_xact_id(), run_at = clock_timestamp() + $3 * interval '1 ms'
           where d.job_id = any (array(${some}))`,
          [...which, random.between(-60, 30)]
        )
      } else if (deed === "cancel") {
        const rows = yield* session.rows(
          `delete from awa.deferred_jobs d where d.job_id = any (array(${some})) returning job_id`,
          which
        )
        cancelled.push(...bigints(column(rows, "job_id")))
      } else {
        yield* session.rows(some, which) // holds them, and changes nothing
      }
      yield* pause
    }
    if (random.chance(0.8)) {
      yield* session.script("commit")
      for (const id of inserted) world.jobs.add(id)
      for (const id of cancelled) world.cancelled.add(id)
    } else {
      yield* session.script("rollback")
      count(world, "rolled back")
    }
    yield* pause
  })
  return Effect.repeat(one, { while: () => running(world) })
}

/** Promotes with its own mark, which it forgets only with its transaction. */
const makePromoter = (world: World, session: Session, name: string) => {
  const random = makeRandom(seed, name)
  let mark: string | null = null
  const once = (limit: number, commit: boolean): Effect.Effect<number | null, PgFault> =>
    Effect.gen(function* () {
      yield* session.script("begin isolation level read committed")
      const row = only(
        yield* session.rows("select promoted, mark::text as mark from awa.promote_due($1, $2::text::jsonb)", [
          limit,
          mark
        ])
      )
      yield* session.script(commit ? "commit" : "rollback")
      if (row["promoted"] === null) return null
      if (commit) {
        if (mark !== null) count(world, "with a mark")
        mark = String(row["mark"])
        if (!mark.includes(`"skipped": []`)) count(world, "with skipped jobs")
      }
      return Number(row["promoted"])
    })
  return {
    once,
    keepOn: Effect.repeat(
      Effect.suspend(() => once(random.between(1, 12), random.chance(0.9))).pipe(
        Effect.tap((promoted) =>
          Effect.sync(() => count(world, promoted === null ? "not the leader" : "promoted", promoted ?? 1))
        ),
        Effect.zipRight(Effect.suspend(() => Effect.sleep(random.between(0, random.chance(0.1) ? 150 : 8))))
      ),
      { while: () => running(world) }
    )
  }
}

// What the marks hide must not get lost, and what two promoters find must not be doubled. AWA_STRESS_ROUNDS makes it longer.
it.scopedLive(
  `promoters with marks of their own lose and double nothing (AWA_STRESS_SEED=${seed})`,
  () =>
    Effect.gen(function* () {
      const db = yield* database
      const world: World = { jobs: new Set(), cancelled: new Set(), counts: {}, until: 0 }
      const session = yield* db.session
      const lines = yield* Effect.all(Array.from({ length: writers }, () => db.session))
      const actors = yield* Effect.forEach(Array.from({ length: promoters }), (_, n) =>
        Effect.map(db.session, (line) => makePromoter(world, line, `promoter ${n}`))
      )
      for (let round = 0; round < rounds; round++) {
        world.until = performance.now() + 450
        yield* Effect.all(
          [
            ...lines.map((line, n) => writer(world, line, `writer ${n} of round ${round}`)),
            ...actors.map(({ keepOn }) => keepOn)
          ],
          { concurrency: "unbounded" }
        )
        // Every transaction has ended and everything is due: one promoter, by its own mark, must find all of it.
        yield* Effect.sleep("60 millis")
        const last = actors[round % promoters]
        if (last === undefined) throw new Error("a promoter")
        for (let promoted: number | null = 1; promoted !== 0;) promoted = yield* last.once(50, true)
        const lost = yield* session.rows("select job_id, run_at, xid::text from awa.deferred_jobs")
        expect(lost, `round ${round}`).toEqual([])
      }
      const told = JSON.stringify(world.counts)
      const ready = bigints(column(yield* session.rows("select job_id from awa.ready_entries order by 1"), "job_id"))
      const expected = Array.from(world.jobs)
        .filter((id) => !world.cancelled.has(id))
        .sort((a, b) => (a < b ? -1 : 1))
      expect(ready, told).toEqual(expected)
      for (const what of [
        "insert",
        "replace",
        "cancel",
        "look",
        "rolled back",
        "promoted",
        "with a mark",
        "with skipped jobs"
      ]) {
        expect(world.counts[what] ?? 0, `${what} in ${told}`).toBeGreaterThan(0)
      }
    }),
  60_000 + rounds * 1000
)
