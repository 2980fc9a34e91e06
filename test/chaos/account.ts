/** The account: what the server holds when all is over, read by plain SQL past the library and the proxies. */
import { SqlClient } from "@effect/sql"
import { Effect } from "effect"
import type { Known } from "./producers.js"

/** Each a list of the jobs with which something is wrong; empty when all is well. */
const faults: Readonly<Record<string, string>> = {
  "orders without their effect": `
    select o.job_id, o.id as what from chaos.orders o where o.expects = 'effect' and o.answer = 'inserted'
      and not exists (select from chaos.effects e where e.order_id = o.id)`,
  "effects written more than once": `
    select min(e.job_id) as job_id, e.order_id as what from chaos.effects e group by e.order_id having count(*) > 1`,
  "effects without an order that expects one": `
    select e.job_id, e.order_id as what from chaos.effects e left join chaos.orders o on o.id = e.order_id
    where o.expects is distinct from 'effect' or o.answer is distinct from 'inserted' or o.job_id is distinct from e.job_id`,
  "effects without the completion of their attempt": `
    select e.job_id, e.order_id as what from chaos.effects e
    left join chaos.attempts a using (job_id, run_lease)
    where a.outcome is distinct from 'completed' or a.by_caller is distinct from true`,
  "completions by callers without their effect": `
    select a.job_id, a.run_lease::text as what from chaos.attempts a
    where a.outcome = 'completed' and a.by_caller
      and not exists (select from chaos.effects e where e.job_id = a.job_id and e.run_lease = a.run_lease)`,
  "orders that were never delivered": `
    select o.job_id, o.id as what from chaos.orders o where o.expects = 'delivery'
      and not exists (select from chaos.deliveries d where d.order_id = o.id)`,
  "jobs that did not complete exactly once": `
    select o.job_id, o.id as what from chaos.orders o
    where o.expects <> 'failure' and o.answer = 'inserted' and (
      select count(*) from chaos.attempts a where a.job_id = o.job_id and a.outcome = 'completed') <> 1`,
  "jobs that ought to have failed for good and did not": `
    select o.job_id, o.id as what from chaos.orders o
    where o.expects = 'failure' and not exists (
      select from awa.terminal_jobs t where t.job_id = o.job_id and t.state = 'failed')
       or o.expects = 'failure' and exists (
      select from chaos.attempts a where a.job_id = o.job_id and a.outcome = 'completed')`,
  "jobs that failed for good and ought not to have": `
    select t.job_id, t.kind as what from awa.terminal_jobs t where t.kind <> 'doomed'
    union all select q.job_id, q.reason from awa.quarantined_jobs q
    union all select d.job_id, d.reason from awa.dlq_entries d`,
  "jobs that are not at their end": `
    select j.job_id, j.state as what from awa.jobs j
    where j.state not in ('completed', 'failed', 'discarded', 'cancelled', 'dead_lettered', 'quarantined')`,
  "attempts of jobs that no order knows": `
    select distinct c.job_id, 'no order' as what from chaos.claims c
    where not exists (select from chaos.orders o where o.job_id = c.job_id)`,
  "attempts that are open": `
    select a.job_id, a.run_lease::text as what from chaos.attempts a where a.outcome is null
    union select a.job_id, a.run_lease::text from awa.attempts a where a.outcome is null
    union select l.job_id, l.run_lease::text from awa.leases l`,
  "jobs whose run leases do not rise by one": `
    select job_id, string_agg(run_lease::text, ', ') as what from chaos.claims group by job_id
    having min(run_lease) <> 1 or max(run_lease) <> count(*) or count(distinct run_lease) <> count(*)`,
  "scheduled jobs that ran before their time": `
    select o.job_id, o.id as what from chaos.orders o join chaos.claims c using (job_id) where c.claimed_at < o.due_at`,
  "twins whose job no order of that key has": `
    select o.job_id, o.id as what from chaos.orders o where o.answer = 'existing' and not exists (
      select from chaos.orders f where f.answer = 'inserted' and f.job_id = o.job_id and f.key = o.key)`
}

export interface Complaint {
  readonly what: string
  readonly found: ReadonlyArray<{ readonly jobId: string; readonly what: string }>
}

const complaintsOf = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`analyze chaos.orders, chaos.effects, chaos.deliveries, chaos.claims, chaos.closures, chaos.lease_ends`
  const complaints: Array<Complaint> = []
  for (const [what, text] of Object.entries(faults)) {
    const found = yield* sql.unsafe<{ jobId: string; what: string }>(
      `select f.job_id::text as "jobId", f.what::text as what from (${text}) f order by 1`
    )
    if (found.length > 0) complaints.push({ what, found })
  }
  return complaints
})

/** What producers know against what is there. */
const producersOf = (known: Known) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ id: string; job_id: string }>`select id, job_id::text from chaos.orders`
    const there = new Map(rows.map(({ id, job_id }) => [id, job_id]))
    const lost = known.committed.filter((id) => !there.has(id))
    const undead = known.refused.filter((id) => there.has(id))
    const named = (ids: ReadonlyArray<string>) => ids.map((id) => ({ jobId: there.get(id) ?? "none", what: id }))
    const complaints: ReadonlyArray<Complaint> = [
      { what: "orders whose COMMIT was answered and that are not there", found: named(lost) },
      { what: "orders that were rolled back and are there", found: named(undead) }
    ].filter(({ found }) => found.length > 0)
    const took = known.ambiguous.filter((id) => there.has(id)).length
    return {
      complaints,
      ambiguous: { "took effect": took, "did not": known.ambiguous.length - took }
    }
  })

const totalsOf = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<Record<string, number>>`
    select (select count(*)::integer from chaos.orders where answer = 'inserted') as jobs,
      (select count(*)::integer from chaos.orders where answer = 'existing') as twins,
      (select count(*)::integer from chaos.effects) as effects,
      (select count(*)::integer from chaos.claims) as attempts,
      (select count(*)::integer from chaos.attempts where outcome = 'rescued') as rescued,
      (select count(*)::integer from chaos.attempts where outcome = 'retried') as retried,
      (select count(*)::integer from chaos.lease_ends) as leases,
      (select count(*)::integer from chaos.deliveries) as deliveries,
      (select max(generation)::integer from awa.segments) as segments,
      (select count(*)::integer from chaos.workers where abs(ahead_ms) > 300000) as skewed,
      (select count(*)::integer from chaos.workers where settings <> '{}') as hostile`
).pipe(Effect.map(([row]) => row ?? {}))

export const readAccount = (known: Known) =>
  Effect.gen(function* () {
    const totals = yield* totalsOf
    const { ambiguous, complaints } = yield* producersOf(known)
    return { totals, ambiguous, complaints: [...(yield* complaintsOf), ...complaints] }
  })

/** Jobs that are not at their end yet. */
export const unfinished = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ n: number }>`
      select count(*)::integer as n from chaos.orders o where o.answer = 'inserted'
        and not exists (select from chaos.attempts a where a.job_id = o.job_id and a.outcome = 'completed')
        and not exists (select from awa.terminal_jobs t where t.job_id = o.job_id)
        and not exists (select from awa.quarantined_jobs t where t.job_id = o.job_id)
        and not exists (select from awa.dlq_entries t where t.job_id = o.job_id)`,
    ([row]) => row?.n ?? 0
  )
)

/** A job's attempts, one a line, and where it is now. */
export const chainOf = (jobId: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const attempts = yield* sql<{ line: string }>`
      select format('run lease %s by %s: claimed %s, %s %s', a.run_lease, coalesce(w.name, 'runtime ' || a.runtime_id),
        a.claimed_at, coalesce(a.outcome, 'open'), a.closed_at) as line
      from chaos.attempts a left join (select distinct runtime_id, name from chaos.workers) w using (runtime_id)
      where a.job_id = ${jobId} order by a.run_lease`
    const now = yield* sql<{ line: string }>`
      select format('now %s: run lease %s, attempt %s, run at %s', j.state, j.run_lease, j.attempt, j.run_at) as line
      from awa.jobs j where j.job_id = ${jobId}`
    return [...attempts, ...now].map(({ line }) => line)
  })
