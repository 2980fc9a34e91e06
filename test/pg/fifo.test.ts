import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { begin, blocked, claimIds, currentSlot, enqueue, fileDatabase, rotate } from "./support.js"

const database = fileDatabase()

// storage.md, "FIFO, exactly": if A committed before B's transaction obtained its xid, A is claimed first. Both races were
// counterexamples of test/model/cursor.
describe("the order of a lane across a rotation", () => {
  it.scopedLive(
    "is kept when a late committer ends between a claim's look at its segment and the reading of the next",
    () =>
      Effect.gen(function* () {
        const db = yield* database
        const [late, later, claimer, holder] = [
          yield* db.session,
          yield* db.session,
          yield* db.session,
          yield* db.session
        ]
        yield* begin(late)
        const [a] = yield* enqueue(late, 1)
        yield* rotate(later)
        const [first] = yield* enqueue(later, 1)
        yield* holder.script("begin; lock table awa.spill_heads in access exclusive mode") // what a claim reads after its look
        const claiming = yield* Effect.fork(claimIds(claimer))
        yield* blocked(later, claimer)
        yield* late.script("commit")
        const [b] = yield* enqueue(later, 1)
        yield* holder.script("rollback")
        expect(yield* Fiber.join(claiming)).toEqual([first])
        expect(yield* claimIds(claimer)).toEqual([a, b])
      })
  )

  it.scopedLive("is not lost between a writer's choice of its segment and its transaction id", () =>
    Effect.gen(function* () {
      const { session } = yield* database
      const writer = yield* session
      yield* begin(writer)
      expect(yield* writer.value("select awa.hold_current_segment()")).toBe(yield* currentSlot(writer))
      expect(yield* writer.value("select pg_current_xact_id_if_assigned() is not null")).toBe(true)
      yield* writer.script("rollback")
    })
  )
})
