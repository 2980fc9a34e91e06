/**
 * Ends server sessions as an administrator or a failover does: `pg_terminate_backend`, once or in a storm.
 *
 * @since 0.1.0
 */
import type { Scope } from "effect"
import { DateTime, Effect, type Redacted, Schema, Utils } from "effect"
import { type AdminQuery, makeAdminQuery } from "./internal/admin.js"

/**
 * The sessions could not be looked at or ended.
 *
 * @since 0.1.0
 * @category errors
 */
export class BackendsError extends Schema.TaggedError<BackendsError>("effect-awa/BackendsError")("BackendsError", {
  cause: Schema.Defect
}) {
  override get message(): string {
    return "The server's sessions could not be ended"
  }
}

/**
 * A session that the server says it has ended.
 *
 * @since 0.1.0
 * @category models
 */
export interface Terminated {
  readonly at: DateTime.Utc
  readonly pid: number
  readonly applicationName: string
  /** What it was at: `active`, `idle`, `idle in transaction`, … */
  readonly state: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface TerminateOptions {
  /** A url to the database whose sessions are meant, of a role that may end them. */
  readonly url: Redacted.Redacted
  /** Sessions whose `application_name` matches; all client sessions unless said otherwise. */
  readonly applicationName?: RegExp
}

/**
 * @since 0.1.0
 * @category models
 */
export interface StormOptions extends TerminateOptions {
  /** Terminations in a second, on average. */
  readonly rate: number
  /** Who is hit, and when: the same seed makes the same choices among the same sessions. */
  readonly seed: number
  /** No more than this many; no bound unless said otherwise. */
  readonly limit?: number
}

/**
 * A storm that lasts as long as its scope. `attempted` counts rounds that found a victim, `tookEffect` those whose victim the
 * server says is gone, `failed` those to which the server gave no answer.
 *
 * @since 0.1.0
 * @category models
 */
export interface Storm {
  readonly counts: Effect.Effect<{ readonly attempted: number; readonly tookEffect: number; readonly failed: number }>
  /** The last 1000. */
  readonly terminated: Effect.Effect<ReadonlyArray<Terminated>>
}

interface Victim {
  readonly pid: number
  readonly since: string
  readonly applicationName: string
  readonly state: string
}

const maxRecords = 1_000

/** How long the server waits for the end of a session, in milliseconds, before it answers that it goes on. */
const patienceMillis = 2_000

const sessions = (query: AdminQuery, applicationName: RegExp | undefined) => {
  // A global or sticky expression remembers where it stopped and would skip sessions.
  const chosen =
    applicationName === undefined
      ? undefined
      : new RegExp(applicationName.source, applicationName.flags.replace(/[gy]/g, ""))
  return Effect.map(
    query(
      `select pid, backend_start::text, application_name, coalesce(state, '') from pg_catalog.pg_stat_activity
       where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid() order by backend_start, pid`
    ),
    (rows) =>
      rows
        .map(([pid, since, name, state]): Victim => ({
          pid: Number(pid),
          since: String(since),
          applicationName: String(name),
          state: String(state)
        }))
        .filter(({ applicationName }) => chosen?.test(applicationName) ?? true)
  )
}

/** A pid may be another session's by now: the start of the session tells. */
const end = (query: AdminQuery, { applicationName, pid, since, state }: Victim) =>
  Effect.gen(function* () {
    const rows = yield* query(
      `select pg_catalog.pg_terminate_backend(pid, ${patienceMillis}) from pg_catalog.pg_stat_activity
       where pid = $1 and backend_start = $2::text::timestamptz`,
      [pid, since]
    )
    const terminated: Terminated = { at: yield* DateTime.now, pid, applicationName, state }
    return rows[0]?.[0] === true ? [terminated] : []
  })

/**
 * Ends all sessions that match, now. Answers those that the server says are gone.
 *
 * @example
 * ```ts
 * import { Redacted } from "effect"
 * import { Backends } from "effect-awa/testing"
 *
 * const url = Redacted.make("postgres://postgres@localhost:5432/app")
 * export const ended = Backends.terminate({ url, applicationName: /^billing/ })
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const terminate = (options: TerminateOptions): Effect.Effect<ReadonlyArray<Terminated>, BackendsError> =>
  Effect.gen(function* () {
    const query = yield* makeAdminQuery(options.url)
    const victims = yield* sessions(query, options.applicationName)
    return (yield* Effect.forEach(victims, (victim) => end(query, victim))).flat()
  }).pipe(
    Effect.mapError((cause) => new BackendsError({ cause })),
    Effect.scoped
  )

/**
 * Ends one matching session after the other, at random times, until the scope closes. It goes on when the server is away.
 *
 * @example
 * ```ts
 * import { Effect, Redacted } from "effect"
 * import { Backends } from "effect-awa/testing"
 *
 * const url = Redacted.make("postgres://postgres@localhost:5432/app")
 * export const tenSeconds = Effect.gen(function* () {
 *   const storm = yield* Backends.storm({ url, applicationName: /^billing/, rate: 5, seed: 42 })
 *   yield* Effect.sleep("10 seconds")
 *   return yield* storm.terminated
 * }).pipe(Effect.scoped)
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const storm = (options: StormOptions): Effect.Effect<Storm, never, Scope.Scope> =>
  Effect.gen(function* () {
    const query = yield* makeAdminQuery(options.url)
    const random = new Utils.PCGRandom(options.seed)
    const counts = { attempted: 0, tookEffect: 0, failed: 0 }
    const terminated: Array<Terminated> = []
    const strike = Effect.gen(function* () {
      const all = yield* sessions(query, options.applicationName)
      const victim = all[random.integer(Math.max(1, all.length))]
      if (victim === undefined) return
      counts.attempted++
      const gone = yield* end(query, victim)
      counts.tookEffect += gone.length
      terminated.push(...gone)
      if (terminated.length > maxRecords) terminated.shift()
    }).pipe(
      Effect.catchAll(() =>
        Effect.sync(() => {
          counts.failed++
        })
      )
    )
    const pause = Effect.suspend(() => Effect.sleep(((0.5 + random.number()) * 1_000) / options.rate))
    yield* Effect.forkScoped(
      Effect.repeat(Effect.zipRight(pause, strike), { until: () => counts.tookEffect >= (options.limit ?? Infinity) })
    )
    return { counts: Effect.sync(() => ({ ...counts })), terminated: Effect.sync(() => [...terminated]) }
  })
