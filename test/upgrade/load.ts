/** The load of a rehearsal, and the account of it: what was asked for, and what the ledger says was done. */
import { SqlClient } from "@effect/sql"
import { Effect, Ref, Schedule } from "effect"

export const tables = `
create table ledger (tag text not null, generation text not null, run_lease bigint not null, at timestamptz not null default clock_timestamp());
create table asked (job_id bigint primary key, kind text not null, tag text not null, at timestamptz not null default clock_timestamp())`

/** Enqueues two ordinary jobs and a caller-owned one, again and again, until it is interrupted. Answers how often. */
export const feed = (rounds: Ref.Ref<number>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const round = yield* Ref.getAndUpdate(rounds, (n) => n + 1)
    yield* sql`
      with jobs as (
        select i, case when i < 2 then 'work' else 'pay' end as kind, ${`${round} `} || i as tag from generate_series(0, 2) i
      ), made as (
        select m.* from awa.insert_jobs((
          select jsonb_agg(jsonb_build_object('kind', kind, 'queue', 'default', 'args', jsonb_build_object('tag', tag)) order by i)
          from jobs)) with ordinality as m(job_id, answer, index)
      )
      insert into asked (job_id, kind, tag) select made.job_id, jobs.kind, jobs.tag from made join jobs on jobs.i = made.index - 1`
  }).pipe(
    Effect.uninterruptible,
    // a migration holds the tables for a moment
    Effect.retry(Schedule.spaced("50 millis").pipe(Schedule.upTo("10 seconds"))),
    Effect.repeat(Schedule.spaced("60 millis"))
  )

/** A span of the database's own time. */
export interface Span {
  readonly from: string
  readonly to: string
}

export const now = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(sql<{ at: string }>`select clock_timestamp()::text as at`, ([row]) => row?.at ?? "")
)

/** How many jobs of a kind were done in a span, by whom. */
export const done = (kind: string, generation: string, { from, to }: Span) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ n: number }>`
        select count(*)::int as n from ledger l join asked a using (tag)
        where a.kind = ${kind} and l.generation like ${generation} and l.at between ${from}::timestamptz and ${to}::timestamptz`,
      ([row]) => row?.n ?? 0
    )
  )

/** The longest time of a span without an ordinary job that was done, in milliseconds. */
export const longestPause = ({ from, to }: Span) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ ms: number }>`
      select coalesce(max(extract(epoch from g.gap) * 1000), 0)::int as ms from (
        select l.at - lag(l.at) over (order by l.at) as gap from ledger l join asked a using (tag)
        where a.kind = 'work' and l.at between ${from}::timestamptz and ${to}::timestamptz) g`,
      ([row]) => row?.ms ?? 0
    )
  )

/** What is wrong with the account of everything that was asked for. */
export const faultsOfLedger = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const unfinished = yield* sql<{ job_id: string; kind: string; state: string | null }>`
    select a.job_id, a.kind, j.state from asked a left join awa.jobs j using (job_id) where j.state is distinct from 'completed'`
  const unpaid = yield* sql<{ tag: string; n: number }>`
    select a.tag, count(l.tag)::int as n from asked a left join ledger l using (tag) where a.kind = 'pay' group by a.tag
    having count(l.tag) <> 1`
  const undone = yield* sql<{ tag: string }>`
    select a.tag from asked a where a.kind = 'work' and not exists (select from ledger l where l.tag = a.tag)`
  const twice = yield* sql<{ job_id: string }>`
    select job_id from awa.attempts where outcome = 'completed' group by job_id having count(*) > 1`
  const failed = yield* sql<{ job_id: string; errors: unknown }>`
    select j.job_id, j.errors from awa.jobs j, jsonb_array_elements(j.errors) e
    where e -> 'error' ->> 'name' not in ('AttemptAbandoned') limit 5`
  return [
    ...unfinished.map(({ job_id, kind, state }) => `job ${job_id} (${kind}) is ${state ?? "lost"}`),
    ...unpaid.map(({ n, tag }) => `the payment ${tag} was booked ${n} times`),
    ...undone.map(({ tag }) => `the work ${tag} was never done`),
    ...twice.map(({ job_id }) => `job ${job_id} completed twice`),
    ...failed.map(({ errors, job_id }) => `job ${job_id} met ${JSON.stringify(errors)}`)
  ]
})

/** Until everything that was asked for has completed. */
export const drained = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ n: number }>`
    select count(*)::int as n from asked a left join awa.jobs j using (job_id) where j.state is distinct from 'completed'`
).pipe(
  Effect.delay("100 millis"),
  Effect.repeat({ until: ([row]) => row?.n === 0 }),
  Effect.timeoutOption("40 seconds")
)
