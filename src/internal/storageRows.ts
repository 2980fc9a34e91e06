import * as Duration from "effect/Duration"
import * as Schema from "effect/Schema"
import type { Blocker, Retention } from "../StorageStatus.js"

const Age = Schema.NullOr(Schema.BigIntFromSelf)

/** @internal */
export const SegmentRow = Schema.Struct({
  slot: Schema.Int,
  generation: Schema.BigIntFromSelf,
  state: Schema.Literal("free", "open", "sealed", "drained"),
  current: Schema.Boolean,
  opened: Age,
  sealed: Age,
  drained: Age,
  bytes: Schema.BigIntFromSelf
})

const age = (at: string): string => `(extract(epoch from clock_timestamp() - ${at}) * 1000)::bigint`

/** @internal */
export const duration = (millis: bigint | null): Duration.Duration | undefined =>
  millis === null ? undefined : Duration.millis(Math.max(0, Number(millis)))

/** @internal */
export const segmentsOf = (schema: string): string => `
select s.slot, s.generation, s.state, s.state = 'open' and c.last_value % m.ring_size = s.slot as current,
       case when s.state <> 'free' then ${age("s.opened_at")} end as opened, ${age("s.sealed_at")} as sealed,
       ${age("s.drained_at")} as drained,
       (select coalesce(sum(pg_total_relation_size(r.oid)), 0)::bigint from pg_class r
        where r.relnamespace = $1::text::regnamespace
          and r.relname in ('ready_entries_' || s.slot, 'claim_batches_' || s.slot, 'closures_' || s.slot,
                            'ready_tombstones_' || s.slot, 'expected_completions_' || s.slot)) as bytes
from ${schema}.segments s, ${schema}.segment_cursor c, ${schema}.meta m order by s.slot`

/** @internal */
export const identityOf = (schema: string): string => `
select ${schema}.storage_fault() as fault, m.system_identifier = c.system_identifier and m.database_oid = d.oid as ours
from ${schema}.meta m, pg_control_system() c, pg_database d where d.datname = current_database()`

/** @internal */
export const Identity = Schema.Tuple(Schema.Struct({ fault: Schema.NullOr(Schema.String), ours: Schema.Boolean }))

/** @internal */
export const retentionOf = (schema: string): string => `
select count(*)::int as runtimes, min((s.v ->> 'completedHistoryMillis')::float8::bigint) as completed_history,
       min((s.v ->> 'segmentAgeMillis')::float8::bigint) * (select m.ring_size - 1 from ${schema}.meta m) as ring_span,
       min((s.v ->> 'terminalRetentionMillis')::float8::bigint) as terminal,
       min((s.v ->> 'deadLetterRetentionMillis')::float8::bigint) as dead_letter
from ${schema}.runtimes r cross join lateral (select r.capabilities -> 'maintenance' as v) s
where r.beat_at > clock_timestamp() - interval '5 minutes' and s.v is not null`

const Millis = Age

/** @internal */
export const RetentionRow = Schema.Tuple(
  Schema.Struct({
    runtimes: Schema.Int,
    completed_history: Millis,
    ring_span: Millis,
    terminal: Millis,
    dead_letter: Millis
  })
)

/** What is kept for ever is stored as null. */
const orForever = (millis: bigint | null): Duration.Duration =>
  millis === null ? Duration.infinity : Duration.millis(Number(millis))

/** @internal */
export const retention = (row: (typeof RetentionRow.Type)[0]): Retention | undefined =>
  row.runtimes === 0
    ? undefined
    : {
        runtimes: row.runtimes,
        completedHistory: orForever(row.completed_history),
        ringSpan: orForever(row.ring_span),
        terminal: orForever(row.terminal),
        deadLetter: orForever(row.dead_letter)
      }

/** @internal */
export const blockersOf = (schema: string): string => `
select b.slot, b.reason, b.queue, b.priority, b.pid, b.gid, ${age("b.since")} as since, b.detail
from ${schema}.ring_blockers($1::interval) b order by b.reason, b.since limit 100`

/** @internal */
export const BlockerRow = Schema.Struct({
  slot: Schema.Int,
  reason: Schema.Literal("writer", "unclaimed", "running", "finalization", "history", "lock"),
  queue: Schema.NullOr(Schema.String),
  priority: Schema.NullOr(Schema.Int),
  pid: Schema.NullOr(Schema.Int),
  gid: Schema.NullOr(Schema.String),
  since: Age,
  detail: Schema.String
})

/** @internal */
export const blocker = (row: typeof BlockerRow.Type): Blocker => ({
  segment: row.slot,
  reason: row.reason,
  queue: row.queue ?? undefined,
  priority: row.priority ?? undefined,
  pid: row.pid ?? undefined,
  gid: row.gid ?? undefined,
  age: duration(row.since),
  detail: row.detail
})
