/** The public functions as a worker in another language calls them. */
import { Effect } from "effect"
import type { PgFault, Row, Session } from "./database.js"
import { enqueue, only } from "./engine.js"

export const json = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => (typeof inner === "bigint" ? String(inner) : inner))

const single = (effect: Effect.Effect<ReadonlyArray<Row>, PgFault>) => Effect.map(effect, only)

export const register = (session: Session) => session.value("select awa.worker_register('w')")

export const take = (session: Session, worker: unknown, most = 100) =>
  session.rows("select * from awa.worker_claim($1, 'q', $2)", [worker, most])

/** A job that is claimed by a worker of its own: the row as the claim answered it, by whose id it is handed back. */
export const claimed = (session: Session) =>
  Effect.gen(function* () {
    yield* enqueue(session)
    const worker = yield* register(session)
    return { worker, attempt: yield* single(take(session, worker)) }
  })

export const tokenOf = (attempt: Row): ReadonlyArray<unknown> =>
  ["job_id", "run_lease", "claim_slot", "receipt_id", "batch_id", "batch_index"].map((name) => attempt[name])

const six = "$1, $2, $3, $4, $5, $6"

export const completeJob = (session: Session, attempt: Row, token: Row = {}) =>
  session.rows(`select * from awa.complete_job(${six})`, [...tokenOf({ ...attempt, ...token })])

/** The attempt, alone in the six arrays. */
export const completeJobs = (session: Session, attempt: Row, token: Row = {}) =>
  session.rows(
    `select * from awa.complete_jobs(array[$1::bigint], array[$2::bigint], array[$3::int], array[$4::bigint], array[$5::bigint], array[$6::int])`,
    [...tokenOf({ ...attempt, ...token })]
  )

export const expectIt = (session: Session, attempt: Row, token: Row = {}) =>
  session.rows(`select awa.expect_completion(${six})`, [...tokenOf({ ...attempt, ...token })])

export const beatWorker = (session: Session, worker: unknown, attempts: unknown) =>
  session.rows("select * from awa.worker_beat($1, $2::text::jsonb)", [worker, json(attempts)])

export const ask = (session: Session, attempts: unknown) =>
  session.rows("select * from awa.worker_evidence($1::text::jsonb)", [json(attempts)])

export const settleIt = (session: Session, attempt: unknown, outcome: string | null, detail: unknown = {}) =>
  session.value("select awa.worker_settle($1::text::jsonb, $2, $3::text::jsonb)", [
    json(attempt),
    outcome,
    json(detail)
  ])

export const closeAll = (session: Session, attempts: unknown, flush: number | null = 7) =>
  session.rows("select * from awa.worker_close($1::text::jsonb, $2)", [json(attempts), flush])

export const insertOne = (session: Session, opts: unknown, args: unknown = {}) =>
  session.value("select awa.insert_job('k', $1::text::jsonb, 'q', $2::text::jsonb)", [json(args), json(opts)])

export const insertAlike = (session: Session, opts: unknown) =>
  session.value("select awa.insert_batch('k', '[1]', 'q', $1::text::jsonb)", [json(opts)])

export const insertMany = (session: Session, jobs: unknown) =>
  session.rows("select * from awa.insert_jobs($1::text::jsonb)", [json(jobs)])

export const registerKinds = (session: Session, kinds: unknown) =>
  session.rows("select * from awa.register_kinds($1::text::jsonb)", [json(kinds)])
