/** Every path that takes locks, as a call on a field: all of it where the call takes many, in an order of its own. */
import { Effect } from "effect"
import type { PgFault, Session } from "../../pg/database.js"
import * as Engine from "../../pg/engine.js"
import type { Random } from "../random.js"
import type { Field } from "./field.js"

type Attempt = Engine.Attempt

export interface Call {
  readonly session: Session
  readonly field: Field
  readonly random: Random
}

export type Path = (call: Call) => Effect.Effect<unknown, PgFault>

const shuffled = <A>(random: Random, items: ReadonlyArray<A>): ReadonlyArray<A> =>
  items
    .map((item) => [random.next(), item] as const)
    .sort(([a], [b]) => a - b)
    .map(([, item]) => item)

const one = <A>(random: Random, items: ReadonlyArray<A>): A => {
  const [item] = shuffled(random, items)
  if (item === undefined) throw new Error("nothing to choose from")
  return item
}

const token = (attempt: Attempt) => [
  attempt.claim_slot,
  attempt.batch_id,
  attempt.batch_index,
  attempt.job_id,
  attempt.run_lease,
  attempt.receipt_id
]

const outcomes = [
  "completed",
  "completed",
  "retried",
  "failed",
  "released",
  "snoozed",
  "dead_lettered",
  "gated"
] as const

/** Everything, or the attempts of one authority only. */
const some = ({ field, random }: Call): ReadonlyArray<Attempt> => {
  const kind = random.weighted({ all: 4, ring: 3, leased: 3 })
  return shuffled(
    random,
    field.attempts.filter(({ job_id }) => kind === "all" || field.callbacks.has(job_id) === (kind === "leased"))
  )
}

const flush: Path = (call) => {
  const { random, session } = call
  const attempts = some(call)
  return Engine.close(session, attempts, {
    closer: random.between(1, 2 ** 40),
    outcome: attempts.map(() => random.pick(outcomes)),
    hasState: true
  })
}

const flushCompleted: Path = (call) => Engine.closeCompleted(call.session, some(call), call.random.between(1, 2 ** 40))

const beat: Path = (call) => Engine.beat(call.session, some(call), { 1: { at: call.random.next() } })

const leased = ({ field, random }: Call): readonly [Attempt, string] => {
  const attempt = one(
    random,
    field.attempts.filter(({ job_id }) => field.callbacks.has(job_id))
  )
  return [attempt, field.callbacks.get(attempt.job_id) ?? ""]
}

const callback =
  (name: string, more = ""): Path =>
  (call) => {
    const [attempt, id] = leased(call)
    return call.session.rows(`select * from awa.${name}($1, $2, $3, $4, $5, $6, $7${more})`, [...token(attempt), id])
  }

const answer =
  (name: string, more = ""): Path =>
  (call) =>
    call.session.value(`select awa.${name}($1${more})`, [leased(call)[1]])

const idsOf = ({ field, random }: Call) =>
  shuffled(random, [...field.attempts.map(({ job_id }) => job_id), ...field.others])

const verb =
  (text: string): Path =>
  (call) =>
    call.session.rows(`select * from awa.${text}`, [idsOf(call)])

/** A step of maintenance; the leader's lock excludes the others. */
const step =
  (text: string): Path =>
  ({ session }) =>
    session.rows(`select awa.${text}`)

/** What maintenance does with the oldest segment when it is due, for whichever segment the field is in. */
const inSegment =
  (text: (slot: number) => string): Path =>
  ({ field, random, session }) =>
    session.rows(`select case when awa.lead() then awa.${text(one(random, field.attempts).claim_slot & 255)} end`)

/** Several keys in one call: new ones, held ones, and those of a window that is over. */
const enqueue: Path = ({ field, random, session }) =>
  session.rows("select * from awa.insert_jobs($1::text::jsonb)", [
    JSON.stringify(
      shuffled(random, ["d1", "d2", "d3", "x", "n1", "n2", "a2", "b2", "b4"]).map((name) => ({
        kind: "k",
        queue: "q",
        args: {},
        opts: {
          delay_ms: random.between(0, 2),
          priority: random.between(1, 4),
          unique: { key: field.key + name, on_conflict: random.pick(["replace", "skip"] as const) }
        }
      }))
    )
  ])

const complete: Path = (call) => {
  const attempt = one(call.random, some(call))
  const promise = call.session.rows("select awa.expect_completion($4, $5, $1, $6, $2, $3)", token(attempt))
  const completion = Engine.complete(call.session, attempt)
  return call.random.chance(0.3) ? Effect.zipRight(promise, completion) : completion
}

const completeMany: Path = (call) => Engine.completeMany(call.session, some(call))

/** What an application may call in a transaction of its own. */
export const applications = {
  complete_job: complete,
  complete_jobs: completeMany,
  enqueue,
  resume_callback: answer("resume_callback", ", '{}'"),
  complete_callback: answer("complete_callback"),
  fail_callback: answer("fail_callback", ", 'no'"),
  heartbeat_callback: answer("heartbeat_callback")
} satisfies Readonly<Record<string, Path>>

/** What the runtime and operators call, each call in a transaction of its own. */
export const runtimes = {
  close_attempts: flush,
  close_completed: flushCompleted,
  settle_attempt: ({ field, random, session }) =>
    Engine.settle(session, one(random, field.attempts), random.pick(outcomes), {}, random.between(1, 2 ** 40)),
  heartbeat: beat,
  claim: ({ session }) => Engine.claimRows(session, { limit: 4 }),
  register_callback: ({ field, random, session }) =>
    session.rows(
      "select * from awa.register_callback($1, $2, $3, $4, $5, $6, '1 hour')",
      token(one(random, field.attempts))
    ),
  wait_callback: callback("wait_callback"),
  stop_waiting: callback("stop_waiting"),
  park_attempt: callback("park_attempt", ", null"),
  rescue_stale: step("rescue_stale('0', 100)"),
  rescue_leases: step("rescue_leases('0', 100)"),
  materialize: inSegment((slot) => `materialize_segment_${slot}(awa.claim_slot_base() | ${slot}, 0, 100)`),
  spill: inSegment((slot) => `spill_lanes_${slot}(100)`),
  promote_due: step("promote_due(100)"),
  rotate: step("rotate('0', 1)"),
  drain_segments: step("drain_segments()"),
  prune_segment: step("prune_segment('0')"),
  sweep: step("sweep('1 day', '0', '0', '0', 100)"),
  cancel_jobs: verb("cancel_jobs($1)"),
  delete_jobs: verb("delete_jobs($1)"),
  reprioritize_jobs: (call) =>
    call.session.rows("select * from awa.reprioritize_jobs($1, $2)", [idsOf(call), call.random.between(1, 4)]),
  redrive_jobs: verb("redrive_jobs($1)"),
  pause_queue: ({ random, session }) =>
    session.rows(random.chance(0.5) ? "select awa.pause_queue('q')" : "select awa.resume_queue('q')"),
  set_queue: ({ random, session }) =>
    session.rows("select awa.set_queue('q', $1::text::jsonb)", [`{"aging_ms": ${random.between(0, 1000)}}`]),
  queue_running: step("queue_running('q')"),
  enable_caller_owned: step("enable_caller_owned('q')"),
  disable_caller_owned: step("disable_caller_owned('q')")
} satisfies Readonly<Record<string, Path>>

export const paths: Readonly<Record<string, Path>> = { ...applications, ...runtimes }

/**
 * A transaction of an application that does several things in the documented order: what it enqueues, then what it ends, sorted
 * by segment and claim.
 */
export const chain: Path = (call) =>
  Effect.gen(function* () {
    const { field, random, session } = call
    if (random.chance(0.7)) yield* enqueue(call)
    const sorted = [...shuffled(random, field.attempts).slice(0, 3)].sort(
      (a, b) =>
        (a.claim_slot & 255) - (b.claim_slot & 255) || Number(a.batch_id - b.batch_id) || a.batch_index - b.batch_index
    )
    for (const attempt of sorted) {
      const id = field.callbacks.get(attempt.job_id)
      yield* session.script("savepoint one") // stale: the others are completed all the same
      const ended = yield* Effect.either(
        id !== undefined && random.chance(0.5)
          ? session.value("select awa.complete_callback($1)", [id])
          : Engine.complete(session, attempt)
      )
      if (ended._tag === "Left") {
        if (!["WA001", "WA002", "WA006"].includes(ended.left.code)) return yield* ended.left
        yield* session.script("rollback to savepoint one")
      }
    }
  })
