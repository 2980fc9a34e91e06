import * as Schema from "effect/Schema"
import { budgetOf } from "../connectionBudget.js"
import type { Found } from "./finding.js"

/** @internal The runtimes whose last beat is no older than a minute, and what the server has for them. */
export const fleetSql = (quoted: string): string => `select
  coalesce((select jsonb_agg(jsonb_build_object('id', r.runtime_id::text, 'name', r.name, 'contract', r.contract,
      'callerOwned', coalesce(r.capabilities -> 'callerOwned' = 'true'::jsonb, false), 'mode', r.capabilities -> 'connections' ->> 'mode',
      'application', coalesce((r.capabilities -> 'connections' ->> 'application')::float8::integer, 0),
      'wakeup', r.capabilities -> 'wakeup', 'runtime', coalesce((r.capabilities -> 'connections' ->> 'runtime')::float8::integer, 0)) order by r.runtime_id)
    from ${quoted}.runtimes r where r.beat_at > clock_timestamp() - interval '1 minute'), '[]') as runtimes,
  current_setting('max_connections')::integer as maximum,
  current_setting('superuser_reserved_connections')::integer + coalesce(current_setting('reserved_connections', true)::integer, 0) as reserved,
  (select nullif(d.datconnlimit, -1) from pg_database d where d.datname = current_database()) as database`

/** @internal */
export const FleetRow = Schema.Tuple(
  Schema.Struct({
    runtimes: Schema.Array(
      Schema.Struct({
        id: Schema.String,
        name: Schema.String,
        contract: Schema.Int,
        callerOwned: Schema.Boolean,
        mode: Schema.NullOr(Schema.String),
        application: Schema.Int,
        runtime: Schema.Int,
        wakeup: Schema.Unknown
      })
    ),
    maximum: Schema.Int,
    reserved: Schema.Int,
    database: Schema.NullOr(Schema.Int)
  })
)

/** A live runtime, as it says of itself (contract C-22). */
export interface LiveRuntime {
  readonly id: string
  readonly name: string
  readonly contract: number
  /** Whether it can complete jobs in the transactions of their callers. */
  readonly callerOwned: boolean
  /** `separate` or `shared`; null where it does not say. */
  readonly poolMode: string | null
  /** How many connections each of its pools may open. */
  readonly connections: { readonly application: number; readonly runtime: number }
  /** How it learns of work; null where it does not say. */
  readonly wakeup: string | null
}

/** @internal */
export const liveRuntimes = ([{ runtimes }]: typeof FleetRow.Type): ReadonlyArray<LiveRuntime> =>
  runtimes.map(({ application, callerOwned, contract, id, mode, name, runtime, wakeup }) => ({
    id,
    name,
    contract,
    callerOwned,
    poolMode: mode,
    connections: { application, runtime },
    wakeup: typeof wakeup === "string" ? wakeup : null
  }))

/** @internal What the fleet is, as far as its runtimes say (C-22, C-33). */
export const checkFleet = ([{ database, maximum, reserved, runtimes }]: typeof FleetRow.Type): ReadonlyArray<Found> => {
  const kinds = new Map<string, Array<string>>()
  for (const { callerOwned, contract, id, name } of runtimes) {
    const kind = `contract ${contract}${callerOwned ? "" : ", ordinary completion only"}`
    kinds.set(kind, [...(kinds.get(kind) ?? []), `${name} (${id})`])
  }
  const total = (of: "application" | "runtime") => runtimes.reduce((sum, runtime) => sum + runtime[of], 0)
  const { available, needed } = budgetOf(
    { mode: "separate", application: total("application"), runtime: total("runtime") },
    1,
    { maximum, reserved, database: database ?? undefined }
  )
  return [
    ...(kinds.size <= 1
      ? []
      : [
          {
            code: "runtimes-mixed",
            object: "the runtimes",
            found: [...kinds].map(([kind, names]) => `${kind}: ${names.join(", ")}`).join("; "),
            expected: "one generation, but for an upgrade under way",
            advice: "end the upgrade: replace those that are behind"
          } as const
        ]),
    ...(needed <= available
      ? []
      : [
          {
            code: "connection-budget",
            object: "the runtimes' pools",
            found: `${runtimes.length} live runtimes may open ${needed} connections`,
            expected: `no more than ${available}: max_connections ${maximum}, ${reserved} reserved${database === null ? "" : `, the database's own ${database}`}`,
            advice: "make the pools smaller, the fleet smaller, or the server's limit larger"
          } as const
        ])
  ]
}
