/**
 * Looks at the server again and again, directly: how far the work is, and which attempts are open.
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { Effect, Fiber, Option, Schedule, Stream, SubscriptionRef } from "effect"
import { Database } from "./database.js"
import { invoiceCount } from "./inbox.js"

export interface Sample {
  /** The server's clock, in milliseconds. */
  readonly now: number
  readonly paid: number
  /** When the oldest of the charges that are open now was claimed. */
  readonly oldestOpen: number | null
  /** How many charges each worker has open. */
  readonly open: Readonly<Record<string, number>>
  /** Every job, follow-ups included, has come to an end. */
  readonly finished: boolean
}

const look = Effect.gen(function* () {
  const sql = yield* SqlClient
  const { awa } = yield* Database
  const [row] = yield* sql<Omit<Sample, "finished">>`
    with open as materialized (
      select r.name, a.claimed_at from ${sql(awa)}.attempts a left join ${sql(awa)}.runtimes r using (runtime_id)
      where a.queue = 'billing' and a.outcome is null
    )
    select extract(epoch from clock_timestamp())::float8 * 1000 as now,
           (select count(*)::integer from invoices where state = 'paid') as paid,
           (select extract(epoch from min(claimed_at))::float8 * 1000 from open) as "oldestOpen",
           (select coalesce(json_object_agg(name, n), '{}') from
             (select name, count(*)::integer as n from open where name is not null group by name) per_worker) as open`
  if (row === undefined) return yield* Effect.dieMessage("a query without a condition answered no row")
  if (row.paid < invoiceCount || row.oldestOpen !== null) return { ...row, finished: false }
  const unfinished =
    yield* sql`select from ${sql(awa)}.jobs where state in ('available', 'running', 'scheduled', 'retryable') limit 1`
  return { ...row, finished: unfinished.length === 0 }
})

const nothing: Sample = { now: 0, paid: 0, oldestOpen: null, open: {}, finished: false }

/** Samples for as long as the scope lasts. */
export const makeWatch = Effect.gen(function* () {
  const latest = yield* SubscriptionRef.make(nothing)
  const sampling = look.pipe(
    Effect.flatMap((sample) => SubscriptionRef.set(latest, sample)),
    Effect.repeat(Schedule.spaced("250 millis"))
  )
  const fiber = yield* Effect.forkScoped(sampling)

  /** Waits for a sample of which this is true, not counting the one that is under way and may have begun before. */
  const until = (predicate: (sample: Sample) => boolean) =>
    latest.changes.pipe(
      Stream.drop(2),
      Stream.filter(predicate),
      Stream.runHead,
      Effect.map(Option.getOrElse(() => nothing))
    )
  return { latest: SubscriptionRef.get(latest), until, failure: Effect.zipRight(Fiber.join(fiber), Effect.never) }
})

export type Watch = Effect.Effect.Success<typeof makeWatch>
