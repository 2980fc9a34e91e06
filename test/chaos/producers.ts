/**
 * Producers: each round writes an order and enqueues its job in one transaction. What a producer knows afterwards it notes: the
 * order is there, it is not, or nobody told.
 */
import { SqlClient } from "@effect/sql"
import { Effect, Exit, Ref } from "effect"
import type { Enqueue, Job } from "effect-awa"
import { makeRandom, type Random } from "../stress/random.js"
import {
  Charge,
  type Declined,
  Doomed,
  type Expectation,
  Flaky,
  Notify,
  Snoozer,
  Stubborn,
  Sync,
  Timed
} from "./jobs.js"

/** What producers know of their orders. */
export interface Known {
  /** COMMIT was answered. */
  readonly committed: Array<string>
  /** The transaction failed before its COMMIT was sent. */
  readonly refused: Array<string>
  /** COMMIT was sent, and its answer was lost: the order's own row tells. */
  readonly ambiguous: Array<string>
}

interface Placed {
  readonly id: bigint
  readonly answer: string
}

type Kind = Pick<Job.Job<string, { readonly order: string; readonly times: number }, Declined>, "kind" | "enqueue">

const write = (order: string, kind: string, expects: Expectation, placed: Placed, key?: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`insert into chaos.orders (id, kind, expects, job_id, answer, key)
                 values (${order}, ${kind}, ${expects}, ${String(placed.id)}, ${placed.answer}, ${key ?? null})`
  )

const enqueued = (job: Kind, expects: Expectation, order: string, times = 0, options?: Enqueue.EnqueueOptions<never>) =>
  Effect.flatMap(job.enqueue({ order, times }, options), (placed) => write(order, job.kind, expects, placed))

/** As a producer in another language does it. */
const bySql = (order: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const args = JSON.stringify({ order, times: 0 })
    const [row] = yield* sql<{
      id: string
    }>`select awa.insert_job('charge', ${args}::text::jsonb, 'billing')::text as id`
    yield* write(order, "charge", "effect", { id: BigInt(row?.id ?? -1), answer: "inserted" })
  })

/** Not before a time by the database's clock, which is noted before the job is enqueued. */
const scheduled = (order: string, random: Random) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const millis = random.between(500, 6_000)
    const [now] = yield* sql<{ due: string }>`
      select (clock_timestamp() + ${millis} * interval '1 millisecond')::text as due`
    yield* enqueued(Timed, "effect", order, 0, { delay: millis })
    yield* sql`update chaos.orders set due_at = ${now?.due ?? ""}::timestamptz where id = ${order}`
  })

const unique = (order: string, random: Random) =>
  Effect.gen(function* () {
    const key = `account ${random.between(1, 12)}`
    const placed = yield* Sync.enqueue({ order, times: 0 }, { unique: { key, by: ["kind"], states: "incomplete" } })
    yield* write(order, "sync", "effect", placed, key)
  })

const orderOf = (order: string, random: Random) => {
  const times = random.between(1, 3)
  switch (
    random.weighted({
      charge: 30,
      sql: 15,
      timed: 12,
      unique: 12,
      notify: 12,
      flaky: 6,
      snoozer: 6,
      stubborn: 5,
      doomed: 2
    })
  ) {
    case "charge":
      return enqueued(Charge, "effect", order)
    case "sql":
      return bySql(order)
    case "timed":
      return scheduled(order, random)
    case "unique":
      return unique(order, random)
    case "notify":
      return enqueued(Notify, "delivery", order)
    case "flaky":
      return enqueued(Flaky, "effect", order, times)
    case "snoozer":
      return enqueued(Snoozer, "effect", order, times)
    case "stubborn":
      return enqueued(Stubborn, "delivery", order, times)
    case "doomed":
      return enqueued(Doomed, "failure", order)
  }
}

/** One producer, until it is told to stop. `rate` is in orders a second. */
const produce = (name: string, seed: number, rate: number, known: Known, stopped: Ref.Ref<boolean>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = makeRandom(seed, name)
    let n = 0
    const round = Effect.gen(function* () {
      const order = `${name}-${++n}`
      const state = { written: false }
      const body = Effect.tap(orderOf(order, random), () => Effect.sync(() => (state.written = true)))
      // A COMMIT that failed is a defect here, as any other is; what counts is whether the body had come to its end.
      const exit = yield* Effect.exit(sql.withTransaction(body))
      if (Exit.isSuccess(exit)) known.committed.push(order)
      else if (state.written) known.ambiguous.push(order)
      else known.refused.push(order)
      const pause = (1_000 / rate) * (0.5 + random.next())
      yield* Effect.sleep(Exit.isSuccess(exit) ? pause : 4 * pause)
    })
    yield* Effect.repeat(round, { until: () => Ref.get(stopped) })
  })

/** Starts producers that share a rate. `stop` lets each finish its round. */
export const makeProducers = (seed: number, count: number, rate: number) =>
  Effect.gen(function* () {
    const known: Known = { committed: [], refused: [], ambiguous: [] }
    const stopped = yield* Ref.make(false)
    const fibers = yield* Effect.forEach(
      Array.from({ length: count }, (_, i) => `p${i + 1}`),
      (name) => Effect.forkScoped(produce(name, seed, rate / count, known, stopped))
    )
    return {
      known,
      stop: Effect.zipRight(
        Ref.set(stopped, true),
        Effect.forEach(fibers, (fiber) => fiber.await, { discard: true })
      )
    }
  })
