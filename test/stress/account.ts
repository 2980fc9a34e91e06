import { Effect } from "effect"
import type { PgFault, Session } from "../pg/database.js"

/** What must be nothing at the end, each a number of rows. */
const faults: Readonly<Record<string, string>> = {
  "jobs that were never completed": `
    select count(*) from audit.jobs j where not exists (
      select from audit.claims k join audit.closures c using (batch_id, batch_index)
      where k.job_id = j.job_id and c.outcome = 'completed')`,
  "jobs that were completed more than once": `
    select count(*) from (select k.job_id from audit.claims k join audit.closures c using (batch_id, batch_index)
      where c.outcome = 'completed' group by k.job_id having count(*) > 1) d`,
  "claims of jobs that were never committed": `
    select count(*) from audit.claims k where not exists (select from audit.jobs j where j.job_id = k.job_id)`,
  "jobs whose leases do not rise by one with each claim": `
    select count(*) from (select job_id from audit.claims group by job_id
      having min(run_lease) <> 1 or max(run_lease) <> count(*) or count(distinct run_lease) <> count(*)) d`,
  "attempts that were never closed": `
    select count(*) from audit.claims k where not exists (
      select from audit.closures c where c.batch_id = k.batch_id and c.batch_index = k.batch_index)`,
  "attempts that were closed twice": `
    select count(*) from (select from audit.closures group by batch_id, batch_index having count(*) > 1) d`,
  "closures without a claim": `
    select count(*) from audit.closures c where not exists (
      select from audit.claims k where c.batch_id = k.batch_id and c.batch_index = k.batch_index)`,
  "books that differ from the callers' completions": `
    select count(*) from audit.ledger l full join (
      select k.job_id, k.run_lease from audit.claims k join audit.closures c using (batch_id, batch_index)
      where c.outcome = 'completed' and c.closer is null) c using (job_id, run_lease)
    where l.ctid is null or c.job_id is null`,
  "jobs booked twice": "select count(*) from (select job_id from audit.ledger group by job_id having count(*) > 1) d",
  "jobs left in deferred_jobs": "select count(*) from awa.deferred_jobs",
  "jobs left in terminal_jobs": "select count(*) from awa.terminal_jobs",
  "transactions left prepared": "select count(*) from pg_prepared_xacts where database = current_database()"
}

export interface Account {
  readonly faults: Readonly<Record<string, number>>
  readonly totals: Readonly<Record<string, number>>
}

export const completed = (session: Session): Effect.Effect<number, PgFault> =>
  Effect.map(session.value("select count(*) from audit.closures where outcome = 'completed'"), Number)

export const expected = (session: Session): Effect.Effect<number, PgFault> =>
  Effect.map(session.value("select count(*) from audit.jobs"), Number)

export const account = (session: Session): Effect.Effect<Account, PgFault> =>
  Effect.gen(function* () {
    yield* session.script("analyze audit.jobs, audit.claims, audit.closures, audit.ledger")
    const found: Array<readonly [string, number]> = []
    for (const [what, sql] of Object.entries(faults)) found.push([what, Number(yield* session.value(sql))])
    const [totals = {}] = yield* session.rows(
      `select (select count(*) from audit.jobs) as jobs, (select count(*) from audit.claims) as attempts,
         (select count(distinct batch_id) from audit.claims) as batches,
         (select count(distinct batch_id) from audit.claims where pending > 0) as "batches with pending transactions",
         (select coalesce(max(pending), 0) from audit.claims) as "most pending transactions",
         (select count(*) from audit.claims where behind) as "attempts from behind a cursor",
         (select count(*) from audit.ledger) as "completed by callers",
         (select max(generation) from awa.segments) as segments`
    )
    return {
      faults: Object.fromEntries(found.filter(([, n]) => n > 0)),
      totals: Object.fromEntries(Object.entries(totals).map(([what, n]) => [what, Number(n)]))
    }
  })
