import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { MigrationFailed } from "../../MigrationError.js"
import { quoteIdentifier } from "../renderSql.js"
import type { Found } from "./finding.js"
import { checkFleet, fleetSql, FleetRow, liveRuntimes, type LiveRuntime } from "./fleet.js"
import { BlockerRows, blockersSql, checkRing, FreeRow, freeSql } from "./ring.js"
import { checkSessions, SessionsRow, sessionsSql } from "./sessions.js"
import type { Ask, Guard } from "./session.js"
import { skipped } from "./skipped.js"
import * as Storage from "./storage.js"
import type { Subject } from "./subject.js"

const May = Schema.Tuple(
  Schema.Struct({
    me: Schema.String,
    meta: Schema.Boolean,
    runtimes: Schema.Boolean,
    segments: Schema.Boolean,
    fault: Schema.Boolean,
    stats: Schema.Boolean
  })
)

/** `$1` is the schema's name. Without USAGE of the schema nothing in it can be named. */
const maySql = `select current_user::text as me,
  coalesce(bool_or(c.relname = 'meta' and n.may and has_table_privilege(c.oid, 'select')), false) as meta,
  coalesce(bool_or(c.relname = 'runtimes' and n.may and has_table_privilege(c.oid, 'select')), false) as runtimes,
  coalesce(bool_or(c.relname = 'segments' and n.may and has_table_privilege(c.oid, 'select')), false)
    and exists (select from pg_proc p where p.pronamespace = n.oid and p.proname = 'ring_held' and n.may and has_function_privilege(p.oid, 'execute'))
    and exists (select from pg_proc p where p.pronamespace = n.oid and p.proname = 'ring_blockers' and n.may and has_function_privilege(p.oid, 'execute')) as segments,
  exists (select from pg_proc p where p.pronamespace = n.oid and p.proname = 'storage_fault' and n.may and has_function_privilege(p.oid, 'execute')) as fault,
  pg_has_role('pg_read_all_stats', 'usage') as stats
from (select n.oid, has_schema_privilege(n.oid, 'usage') as may from pg_namespace n where n.nspname = $1) n
left join pg_class c on c.relnamespace = n.oid and c.relkind = 'r' group by n.oid, n.may`

const Fault = Schema.Tuple(Schema.Struct({ fault: Schema.NullOr(Schema.String) }))

type May = (typeof May.Type)[0]

const lacks = (may: May, isAllowed: boolean, check: string, needs: string): ReadonlyArray<Found> =>
  isAllowed ? [] : [skipped(check, `${may.me} ${needs}`)]

const identityOf = (ask: Ask, quoted: string, may: May) =>
  Effect.gen(function* () {
    const fault = may.fault
      ? (yield* ask("look for a fault of the storage", `select ${quoted}.storage_fault() as fault`, [], Fault))[0].fault
      : null
    const identity = may.meta
      ? Storage.checkIdentity(
          quoted,
          yield* ask("look at the database", Storage.identitySql(quoted), [], Storage.IdentityRow),
          fault
        )
      : []
    return [
      ...identity,
      ...lacks(may, may.meta && may.fault, "whose database this is", "may not read meta, or call storage_fault")
    ]
  })

/** Who blocks the ring is no finding of its own among the sessions. */
const ringAndSessions = (ask: Ask, quoted: string, may: May, patience: string) =>
  Effect.gen(function* () {
    const blockers = may.segments
      ? yield* ask("look at the ring", blockersSql(quoted), ["1 hour", patience], BlockerRows)
      : []
    const old = blockers.filter((blocker) => blocker.old)
    return [
      ...(may.segments ? checkRing(blockers, yield* ask("look for free segments", freeSql(quoted), [], FreeRow)) : []),
      ...lacks(may, may.segments, "the ring", "may not read segments, or call ring_blockers"),
      ...checkSessions(yield* ask("look at the sessions", sessionsSql, [patience], SessionsRow), {
        pids: new Set(old.flatMap(({ pid }) => (pid === null ? [] : [pid]))),
        gids: new Set(old.flatMap(({ gid }) => (gid === null ? [] : [gid])))
      }),
      ...lacks(may, may.stats, "other roles' sessions", "has not the privileges of pg_read_all_stats")
    ]
  })

/** @internal */
export interface Surroundings {
  readonly found: ReadonlyArray<Found>
  /** Undefined: not to be read by who asks. */
  readonly runtimes: ReadonlyArray<LiveRuntime> | undefined
}

/** @internal What surrounds the installation, as far as who asks may see it; what it may not is a finding (C-53). */
export const checkEnvironment = (
  ask: Ask,
  guard: Guard,
  subject: Subject,
  patienceMillis: number
): Effect.Effect<Surroundings, MigrationFailed> =>
  Effect.gen(function* () {
    const { schema } = subject
    const quoted = quoteIdentifier(schema)
    const [may] = yield* ask("look at the privileges", maySql, [schema], May)
    let runtimes: ReadonlyArray<LiveRuntime> | undefined = undefined
    const fleet = Effect.map(ask("look at the runtimes", fleetSql(quoted), [], FleetRow), (row) => {
      runtimes = liveRuntimes(row)
      return checkFleet(row)
    })
    const parts = [
      guard("whose database this is", identityOf(ask, quoted, may)),
      guard("the ring, and sessions", ringAndSessions(ask, quoted, may, `${patienceMillis} milliseconds`)),
      guard(
        "the sequences",
        Effect.map(ask("look at the sequences", Storage.sequencesSql, [schema], Storage.SequenceRows), (sequences) => [
          ...Storage.checkSequences(subject, sequences),
          ...lacks(
            may,
            sequences.length > 0 && sequences.every(({ last }) => last !== null),
            "how far sequences are",
            "may not read every sequence"
          )
        ])
      ),
      guard(
        "the publications",
        Effect.map(
          ask("look at the publications", Storage.publicationsSql, [schema], Storage.PublicationRows),
          Storage.checkPublications
        )
      ),
      guard(
        "the statistics",
        Effect.map(
          ask("look at the statistics", Storage.statisticsSql, [schema], Storage.StatisticsRows),
          Storage.checkStatistics
        )
      ),
      may.runtimes
        ? guard("the runtimes", fleet)
        : Effect.succeed(lacks(may, false, "the runtimes", "may not read runtimes"))
    ]
    const found = (yield* Effect.all(parts)).flat()
    return { found, runtimes }
  })
