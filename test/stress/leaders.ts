import { Effect } from "effect"
import type { PgFault, Session } from "../pg/database.js"
import { makeRandom } from "./random.js"
import { count, inTransaction, line, untilStopped, type World } from "./world.js"

const step = (world: World, session: Session, name: string, sql: string, values: ReadonlyArray<unknown> = []) =>
  inTransaction(session, session.value(`select ${sql}`, values)).pipe(
    Effect.tap((answer) =>
      Effect.sync(() => {
        if (answer === null) return
        if (typeof answer === "string") count(world, `rotate: ${answer}`)
        else if (name === "prune") count(world, "segments pruned")
        else if (typeof answer === "number") count(world, name, answer)
      })
    ),
    // Prune gives up when anything holds a lock.
    Effect.catchIf(
      (fault: PgFault) => name === "prune" && fault.code === "55P03",
      () => Effect.sync(() => count(world, "prunes given up"))
    ),
    Effect.asVoid
  )

/** Promotes by a mark of its own, which it believes only when its transaction has committed. */
const makePromote = (world: World, session: Session) => {
  let mark: unknown = null
  return (limit: number) =>
    inTransaction(
      session,
      session.rows("select promoted, mark::text as mark from awa.promote_due($1, $2::text::jsonb)", [limit, mark])
    ).pipe(
      Effect.tap(([row]) =>
        Effect.sync(() => {
          mark = row?.["mark"]
          if (typeof row?.["promoted"] === "number") count(world, "promoted", row["promoted"])
        })
      )
    )
}

/** One of two who both believe that they lead. */
export const leader = (world: World, name: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const random = makeRandom(world.seed, name)
      const session = yield* Effect.flatMap(line(world), (connection) => connection.session)
      const call = (label: string, sql: string, values?: ReadonlyArray<unknown>) =>
        step(world, session, label, sql, values)
      const promote = makePromote(world, session)
      yield* untilStopped(
        world,
        Effect.gen(function* () {
          yield* promote(random.between(1, 500))
          yield* call("rescued", "awa.rescue_stale($1, $2, $3)", [
            world.staleness,
            random.between(1, 200),
            random.chance(0.5)
          ])
          yield* call("rotate", "awa.rotate($1, 3000)", [`${random.between(100, 400)} ms`])
          yield* call("drained", "awa.drain_segments()")
          yield* call("prune", "awa.prune_segment('0')")
          if (random.chance(0.1)) yield* call("swept", "awa.sweep('1 day')")
          yield* Effect.sleep(random.between(5, 60))
        })
      )
    })
  )
