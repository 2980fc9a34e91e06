import * as Schema from "effect/Schema"
import { quoteLiteral } from "../renderSql.js"
import type { Found } from "./finding.js"

/** @internal Who holds a segment that could go; `$1` is how long history is kept, `$2` how old a holder is too old. */
export const blockersSql = (quoted: string): string => `select b.slot, b.reason, b.queue, b.pid, b.gid, b.detail,
  coalesce(extract(epoch from clock_timestamp() - b.since), 0)::integer as seconds,
  coalesce(b.since < clock_timestamp() - $2::text::interval, false) as old
from ${quoted}.ring_blockers($1::text::interval) b where b.reason <> 'history' order by b.slot, b.reason, b.since limit 100`

/** @internal */
export const BlockerRows = Schema.Array(
  Schema.Struct({
    slot: Schema.Int,
    reason: Schema.String,
    queue: Schema.NullOr(Schema.String),
    pid: Schema.NullOr(Schema.Int),
    gid: Schema.NullOr(Schema.String),
    detail: Schema.String,
    seconds: Schema.Int,
    old: Schema.Boolean
  })
)

/** @internal */
export const freeSql = (quoted: string): string =>
  `select count(*) filter (where s.state = 'free')::integer as free, count(*)::integer as "all" from ${quoted}.segments s`

/** @internal */
export const FreeRow = Schema.Tuple(Schema.Struct({ free: Schema.Int, all: Schema.Int }))

type Blocker = (typeof BlockerRows.Type)[number]

const mend = ({ gid, pid }: Blocker): string | undefined =>
  gid !== null
    ? `rollback prepared ${quoteLiteral(gid)};\n`
    : pid !== null
      ? `select pg_terminate_backend(${pid});\n`
      : undefined

const who = ({ gid, pid, queue }: Blocker): string =>
  gid !== null
    ? `prepared ${gid}`
    : pid !== null
      ? `pid ${pid}`
      : queue !== null
        ? `queue ${queue}`
        : "nobody in particular"

/** @internal A transaction that is too old; and, when nothing is free, whatever else holds the oldest segment. */
export const checkRing = (
  blockers: typeof BlockerRows.Type,
  [{ all, free }]: typeof FreeRow.Type
): ReadonlyArray<Found> => {
  const old = blockers.filter((blocker) => blocker.old && mend(blocker) !== undefined)
  const seen = new Set<string>()
  const each = old.filter((blocker) => !seen.has(who(blocker)) && seen.add(who(blocker)))
  const others = blockers.filter((blocker) => !each.includes(blocker) && !seen.has(who(blocker)))
  return [
    ...each.map((blocker): Found => ({
      code: "ring-blocked",
      object: `segment ${blocker.slot}`,
      found: `${blocker.reason}: ${who(blocker)}, for ${blocker.seconds} s: ${blocker.detail}`,
      expected: "segments are drained and pruned within minutes",
      sql: mend(blocker),
      advice: "look at what it does first"
    })),
    ...(free > 0
      ? []
      : [
          {
            code: "ring-full",
            object: "the ring",
            found:
              `none of ${all} segments is free` +
              (others.length === 0
                ? ""
                : `; held by ${others.map((blocker) => `${blocker.reason} (${who(blocker)})`).join(", ")}`),
            expected: "a free segment to rotate to",
            advice: "run a runtime that maintains; `awa storage status` shows each segment"
          } as const
        ])
  ]
}
