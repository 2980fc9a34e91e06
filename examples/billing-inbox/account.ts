/**
 * The account: what the server holds when all is over, read by plain SQL over a connection of its own, past the library
 * and past the proxy.
 */
import { SqlClient } from "@effect/sql/SqlClient"
import { Effect } from "effect"
import { Database } from "./database.js"
import type { Said } from "./fleet.js"
import type { Kill } from "./storm.js"

/** Invoices against the ledger and the follow-up jobs. */
const books = Effect.gen(function* () {
  const sql = yield* SqlClient
  const { awa } = yield* Database
  const [row] = yield* sql<{
    invoices: number
    paid: number
    receiptsSent: number
    ledgerRows: number
    charges: number
    once: number
    missing: number
    doubled: number
    rightAmount: number
    receiptJobs: number
    receiptOnce: number
  }>`
    select count(*)::integer as invoices,
           (count(*) filter (where i.state = 'paid'))::integer as paid,
           (count(*) filter (where i.receipt_sent))::integer as "receiptsSent",
           (select count(*)::integer from ledger) as "ledgerRows",
           (select count(distinct charge_id)::integer from ledger) as charges,
           (count(*) filter (where l.rows = 1))::integer as once,
           (count(*) filter (where l.rows is null))::integer as missing,
           (count(*) filter (where l.rows > 1))::integer as doubled,
           (count(*) filter (where l.amount_cents = i.amount_cents))::integer as "rightAmount",
           (select count(*)::integer from ${sql(awa)}.jobs where kind = 'send-receipt') as "receiptJobs",
           (count(*) filter (where r.jobs = 1))::integer as "receiptOnce"
    from invoices i
    left join (select invoice_id, count(*) as rows, sum(amount_cents) as amount_cents from ledger group by 1) l
      on l.invoice_id = i.id
    left join (select (args ->> 'invoiceId')::integer as invoice_id, count(*) as jobs
               from ${sql(awa)}.jobs where kind = 'send-receipt' group by 1) r
      on r.invoice_id = i.id`
  return row ?? (yield* Effect.dieMessage("a query without a condition answered no row"))
})

/** Jobs by their state, and the charges' attempts by how they ended. */
const work = Effect.gen(function* () {
  const sql = yield* SqlClient
  const { awa } = yield* Database
  const jobs = yield* sql<{ kind: string; state: string; n: number }>`
    select kind, state, count(*)::integer as n from ${sql(awa)}.jobs group by 1, 2`
  const attempts = yield* sql<{ queue: string; outcome: string; callerOwned: boolean; n: number }>`
    select queue, coalesce(outcome::text, 'open') as outcome, caller_owned as "callerOwned", count(*)::integer as n
    from ${sql(awa)}.attempts group by 1, 2, 3`
  const sum = (rows: ReadonlyArray<{ readonly n: number }>) => rows.reduce((total, { n }) => total + n, 0)
  const charges = attempts.filter(({ queue }) => queue === "billing")
  const ended = (...outcomes: ReadonlyArray<string>) => charges.filter(({ outcome }) => outcomes.includes(outcome))
  return {
    chargeJobs: sum(jobs.filter(({ kind }) => kind === "charge")),
    chargesCompleted: sum(jobs.filter(({ kind, state }) => kind === "charge" && state === "completed")),
    unfinishedJobs: sum(jobs.filter(({ state }) => state !== "completed")),
    executions: sum(charges),
    completed: sum(ended("completed")),
    callerOwned: sum(ended("completed").filter(({ callerOwned }) => callerOwned)),
    retried: sum(ended("retried")),
    rescued: sum(ended("rescued")),
    open: sum(attempts.filter(({ outcome }) => outcome === "open"))
  }
})

/** For each killed worker, how many of the charges it was running the server had to close as abandoned. */
const abandoned = (kills: ReadonlyArray<Kill>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient
    const { awa } = yield* Database
    return yield* Effect.forEach(kills, ({ at, worker }) =>
      Effect.map(
        sql<{ n: number }>`
          select count(*)::integer as n from ${sql(awa)}.attempts a join ${sql(awa)}.runtimes r using (runtime_id)
          where r.name = ${worker} and a.queue = 'billing' and a.outcome = 'rescued'
            and a.claimed_at < ${at}::timestamptz and a.closed_at > ${at}::timestamptz`,
        ([row]) => row?.n ?? 0
      )
    )
  })

/** The attempts whose handlers failed and which workers say they accepted as done: how many the server has as done. */
const reconciled = (said: ReadonlyArray<Said>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient
    const { awa } = yield* Database
    const accepted = said.filter(
      ({ message }) => typeof message === "string" && /^Protocol event: .*accepted$/.test(message)
    )
    const attempts = accepted.map(({ annotations }) => ({
      job_id: annotations["jobId"],
      run_lease: annotations["runLease"]
    }))
    const [row] = yield* sql<{ n: number }>`
      select count(*)::integer as n
      from (select distinct job_id, run_lease
            from json_to_recordset(${JSON.stringify(attempts)}::json) as s(job_id bigint, run_lease bigint)) s
      join ${sql(awa)}.attempts a using (job_id, run_lease)
      where a.outcome = 'completed' and a.caller_owned`
    return row?.n ?? 0
  })

/** Invoices that are in the ledger more than once. */
const doubledInvoices = Effect.flatMap(
  SqlClient,
  (sql) => sql<{ invoiceId: number; rows: string }>`
    select invoice_id as "invoiceId",
           string_agg(format('%s by attempt %s (%s)', to_char(amount_cents / 100.0, 'FM999990.00'), attempt, charge_id),
                      ' and ' order by booked_at) as rows
    from ledger group by 1 having count(*) > 1 order by 1 limit 4`
)

export const readAccount = (kills: ReadonlyArray<Kill>, said: ReadonlyArray<Said>) =>
  Effect.all({
    books,
    work,
    abandoned: abandoned(kills),
    reconciled: reconciled(said),
    doubledInvoices
  })

export type Account = Effect.Effect.Success<ReturnType<typeof readAccount>>
