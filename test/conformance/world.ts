/** A database in which attempts are made for the cases, and looked at afterwards, by plain SQL. */
import { Effect, Redacted, type Scope } from "effect"
import { Migrations } from "effect-awa"
import { type Attempt, claim, close, column, enqueue, only } from "../pg/engine.js"
import { at, connect, createDatabase, freshName, type PgFault, type Session } from "../pg/database.js"
import type { Case, Field } from "./cases.js"
import type { TokenText } from "./program.js"

export const tokenOf = (attempt: Attempt): Readonly<Record<Field, string>> => ({
  job_id: String(attempt.job_id),
  run_lease: String(attempt.run_lease),
  claim_slot: String(attempt.claim_slot),
  receipt_id: String(attempt.receipt_id),
  batch_id: String(attempt.batch_id),
  batch_index: String(attempt.batch_index)
})

const changed = (token: Readonly<Record<Field, string>>, { token: changes }: Case): TokenText => ({
  ...token,
  ...Object.fromEntries(
    Object.entries(changes).map(([field, value]) => {
      const own: string | undefined = Object.entries(token).find(([name]) => name === field)?.[1]
      return [field, value?.startsWith("+") === true ? String(BigInt(own ?? "") + BigInt(value)) : value]
    })
  )
})

export interface Found {
  readonly state: unknown
  readonly progress: unknown
  readonly rows: number
  readonly enqueued: number
}

export interface World {
  readonly url: string
  /** An attempt as the case wants it, and its token as the program is told it. */
  readonly attempt: (of: Case) => Effect.Effect<{ readonly jobId: bigint; readonly token: TokenText }, PgFault>
  /** So many running attempts. */
  readonly attempts: (count: number) => Effect.Effect<ReadonlyArray<TokenText>, PgFault>
  /** Rescue ends whatever runs. */
  readonly rescue: Effect.Effect<void, PgFault>
  readonly look: (jobId: bigint, tag: string) => Effect.Effect<Found, PgFault>
}

const arguments_ = ({ batch_id, batch_index, claim_slot, job_id, receipt_id, run_lease }: Attempt) => [
  claim_slot,
  batch_id,
  batch_index,
  job_id,
  run_lease,
  receipt_id
]

const wait = (session: Session, attempt: Attempt, how: "parked" | "waiting") =>
  Effect.gen(function* () {
    const token = arguments_(attempt)
    const registered = "select callback_id from awa.register_callback($1, $2, $3, $4, $5, $6, '1 hour')"
    const id = yield* session.value(registered, token)
    yield* how === "parked"
      ? session.value("select awa.park_attempt($1, $2, $3, $4, $5, $6, $7, null)", [...token, id])
      : session.value("select awa.wait_callback($1, $2, $3, $4, $5, $6, $7)", [...token, id])
  })

export const makeWorld = (server: string, driver: string): Effect.Effect<World, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const url = yield* createDatabase(server, freshName(driver.replaceAll(/\W/g, "_")))
    yield* Migrations.migrate({ url: Redacted.make(url) })
    const session = yield* connect(url)
    yield* session.script("create table application_rows (tag text not null)")
    // what is looked at after each case is a wide view over a few rows: compiling it took ten times as long as running it
    yield* session.script("set jit = off")
    let made = 0
    const rescue = Effect.asVoid(session.value("select awa.rescue_stale('0 seconds', 1000)"))
    const claimOne = (queue: string) => Effect.map(claim(session, { queue }), only)

    const attempt: World["attempt"] = (of) =>
      Effect.gen(function* () {
        const queue = `case-${++made}`
        const jobId = only(yield* enqueue(session, 1, { queue }))
        const running = yield* claimOne(queue)
        switch (of.given) {
          case "running":
            break
          case "rescued":
            yield* rescue
            break
          case "claimed again":
            yield* rescue
            yield* claimOne(queue)
            break
          case "completed":
            yield* close(session, [running])
            break
          case "cancelled":
            yield* session.value("select awa.cancel_jobs(array[$1::bigint])", [jobId])
            break
          case "under lease":
            yield* session.value("select awa.materialize_long('0', 1000)")
            break
          case "disabled":
            yield* session.value("select awa.disable_caller_owned($1)", [queue])
            break
          case "parked":
          case "waiting":
            yield* wait(session, running, of.given)
        }
        return { jobId, token: changed(tokenOf(running), of) }
      })

    const attempts: World["attempts"] = (count) =>
      Effect.gen(function* () {
        const queue = `bench-${++made}`
        yield* enqueue(session, count, { queue })
        return (yield* claim(session, { queue, limit: count })).map(tokenOf)
      })

    const look: World["look"] = (jobId, tag) =>
      Effect.gen(function* () {
        const job = only(yield* session.rows("select state, progress from awa.job($1)", [jobId]))
        const rows = yield* session.rows("select from application_rows where tag = $1", [tag])
        const follow = yield* session.rows("select job_id from awa.jobs where kind = 'conformance-follow-up'")
        yield* session.value("select awa.delete_jobs($1::bigint[])", [column(follow, "job_id")])
        return { state: job["state"], progress: job["progress"], rows: rows.length, enqueued: follow.length }
      })

    return { url, attempt, attempts, rescue, look }
  })

export { at }
