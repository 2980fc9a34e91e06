import * as Schema from "effect/Schema"
import { quoteLiteral } from "../renderSql.js"
import type { Found } from "./finding.js"

/** @internal Of this database only: what is open in another one holds back nothing here. `$1`: how old is too old. */
export const sessionsSql = `select
  coalesce((select jsonb_agg(jsonb_build_object('gid', p.gid, 'owner', p.owner, 'seconds', extract(epoch from clock_timestamp() - p.prepared)::bigint))
    from pg_prepared_xacts p where p.database = current_database() and p.prepared < clock_timestamp() - $1::text::interval), '[]') as prepared,
  coalesce((select jsonb_agg(jsonb_build_object('pid', a.pid, 'role', coalesce(a.usename, '-'), 'application', a.application_name,
      'state', coalesce(a.state, a.backend_type), 'xmin', coalesce(a.backend_xmin, a.backend_xid)::text,
      'seconds', extract(epoch from clock_timestamp() - a.xact_start)::bigint))
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type <> 'autovacuum worker'
      and coalesce(a.backend_xmin, a.backend_xid) is not null and a.xact_start < clock_timestamp() - $1::text::interval), '[]') as holders`

/** @internal */
export const SessionsRow = Schema.Tuple(
  Schema.Struct({
    prepared: Schema.Array(Schema.Struct({ gid: Schema.String, owner: Schema.String, seconds: Schema.Int })),
    holders: Schema.Array(
      Schema.Struct({
        pid: Schema.Int,
        role: Schema.String,
        application: Schema.String,
        state: Schema.String,
        xmin: Schema.String,
        seconds: Schema.Int
      })
    )
  })
)

/** @internal What blocks the ring is said there. */
export const checkSessions = (
  [{ holders, prepared }]: typeof SessionsRow.Type,
  said: { readonly pids: ReadonlySet<number>; readonly gids: ReadonlySet<string> }
): ReadonlyArray<Found> => [
  ...prepared
    .filter(({ gid }) => !said.gids.has(gid))
    .map(({ gid, owner, seconds }): Found => ({
      code: "prepared-transaction",
      object: gid,
      found: `prepared ${seconds} s ago by ${owner}`,
      expected: "prepared transactions end at once",
      sql: `rollback prepared ${quoteLiteral(gid)};\n`,
      advice: "ask whoever prepared it: COMMIT PREPARED may be what was meant"
    })),
  ...holders
    .filter(({ pid }) => !said.pids.has(pid))
    .map(({ application, pid, role, seconds, state, xmin }): Found => ({
      code: "xmin-held",
      object: `pid ${pid}`,
      found: `${role} (${application === "" ? "no name" : application}), ${state}, holds xmin ${xmin} for ${seconds} s`,
      expected: "transactions end in minutes",
      sql: `select pg_terminate_backend(${pid});\n`,
      advice: "look at what it does first"
    }))
]
