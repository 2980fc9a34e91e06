/** Claims against a model of a queue: random lanes, tombstones, late transactions, rotations, spills and drains. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { begin, claimRows, column, drain, enqueue, fileDatabase, isBigint, rotate } from "./support.js"

const database = fileDatabase({ ring: 4 })

const sequences = Number(process.env["AWA_LANE_SEQUENCES"] ?? 12)
const steps = 40

/** mulberry32: small, seeded, good enough to choose steps. */
const random = (seed: number) => {
  let state = seed
  return (below: number): number => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % below
  }
}

describe("a claim of a queue's lanes", () => {
  // storage.md: FIFO, exactly; busy is not empty, and what is not full is empty
  it.scopedLive(
    "takes each lane in its order, and less than asked for only when nothing is left",
    () =>
      Effect.gen(function* () {
        const first = Number(process.env["AWA_LANE_SEED"] ?? Date.now() % 1_000_000)
        for (let seed = first; seed < first + sequences; seed++) {
          const pick = random(seed)
          yield* Effect.scoped(
            Effect.gen(function* () {
              const db = yield* database
              const session = yield* db.session
              const late = yield* db.session
              yield* session.rows("insert into awa.queues (queue, aging) values ('q', $1) returning 1", [
                ["0", "1 millisecond", "20 milliseconds", "1 hour"][pick(4)]
              ])
              // by lane, in the order that must hold; what committed late may come anywhere
              const lanes: Array<Array<bigint>> = [[], [], [], [], []]
              const anywhere = new Set<bigint>()
              let open: ReadonlyArray<bigint> | undefined
              const waiting = () => [...lanes.flat(), ...anywhere]
              const forget = (id: bigint) => {
                anywhere.delete(id)
                lanes.forEach((lane, p) => (lanes[p] = lane.filter((other) => other !== id)))
              }
              const what = (step: string) => `seed ${seed}: ${step}`
              const some = () => {
                const all = waiting()
                const from = pick(Math.max(1, all.length))
                return all.slice(from, from + 1 + pick(15))
              }
              const take = (limit: number) =>
                Effect.gen(function* () {
                  const rows = (yield* claimRows(session, { limit })).filter((row) => row["job_id"] !== null)
                  for (const { job_id: id, priority } of rows) {
                    if (!isBigint(id)) throw new Error(what("an id that is none"))
                    if (anywhere.delete(id)) continue
                    const lane = lanes[Number(priority)] ?? []
                    expect(lane[0], what(`claim ${limit} of lane ${String(priority)}`)).toBe(id)
                    lane.shift()
                  }
                  if (rows.length < limit) expect(waiting(), what(`claim ${limit} answered ${rows.length}`)).toEqual([])
                })
              for (let n = 0; n < steps; n++) {
                switch (pick(12)) {
                  case 0:
                  case 1:
                  case 2: {
                    const priority = 1 + pick(4)
                    lanes[priority]?.push(...(yield* enqueue(session, 1 + pick(12), { opts: { priority } })))
                    break
                  }
                  case 3:
                  case 4:
                    yield* take(1 + pick(30))
                    break
                  case 5: {
                    const ids = some()
                    const rows = yield* session.rows("select * from awa.cancel_jobs($1)", [ids])
                    expect(column(rows, "answer"), what("cancel")).toEqual(ids.map(() => "cancelled"))
                    ids.forEach(forget)
                    break
                  }
                  case 6: {
                    const priority = 1 + pick(4)
                    const rows = yield* session.rows("select * from awa.reprioritize_jobs($1, $2)", [some(), priority])
                    for (const { answer, job_id: id } of rows) {
                      if (answer === "unchanged" || !isBigint(id)) continue
                      expect(answer, what("reprioritize")).toBe("reprioritized")
                      forget(id)
                      anywhere.add(id)
                    }
                    break
                  }
                  case 7:
                    if (open === undefined) {
                      yield* begin(late)
                      open = yield* enqueue(late, 1 + pick(5), { opts: { priority: 1 + pick(4) } })
                    } else {
                      yield* late.script("commit")
                      open.forEach((id) => anywhere.add(id))
                      open = undefined
                    }
                    break
                  case 8:
                    if ((yield* session.value("select count(*) from awa.segments where state = 'free'")) !== 0n) {
                      yield* rotate(session)
                    }
                    break
                  case 9:
                    yield* session.value("select awa.spill_oldest($1)", [1 + pick(20)])
                    break
                  case 10:
                    yield* drain(session)
                    break
                  default:
                    yield* session.value("select awa.prune_segment('0')")
                }
              }
              if (open !== undefined) {
                yield* late.script("commit")
                open.forEach((id) => anywhere.add(id))
              }
              for (let n = 0; n < 100 && waiting().length > 0; n++) yield* take(1 + pick(40))
              expect(waiting(), what("the rest")).toEqual([])
              yield* take(5)
            })
          )
        }
      }),
    120_000
  )
})
