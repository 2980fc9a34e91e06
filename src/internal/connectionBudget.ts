import * as Effect from "effect/Effect"
import type { Connections } from "../ApplicationPool.js"
import { ConnectionBudgetExceeded, type DatabaseError } from "../PoolError.js"
import type { RuntimePool } from "../RuntimePool.js"
import * as Column from "./column.js"

/** What a server gives, in connections. */
export interface ServerLimits {
  readonly maximum: number
  /** For superusers, and from PostgreSQL 16 on for whoever may use `reserved_connections`. */
  readonly reserved: number
  /** Of the database, if it has one. */
  readonly database: number | undefined
}

/** @internal */
export interface Budget {
  readonly needed: number
  readonly available: number
  readonly detail: string
}

/**
 * Both pools of every process, beside what the server gives to roles without privileges.
 *
 * @internal
 */
export const budgetOf = (connections: Connections, processes: number, server: ServerLimits): Budget => {
  const { application, runtime } = connections
  const { database, maximum, reserved } = server
  const needed = processes * (application + runtime)
  const available = Math.min(maximum - reserved, database ?? maximum)
  const limits =
    `max_connections ${maximum}, ${reserved} reserved` +
    (database === undefined ? "" : `, the database's own ${database}`)
  return {
    needed,
    available,
    detail:
      `${processes} ${processes === 1 ? "process" : "processes"} × (${application} application + ${runtime} runtime) = ` +
      `${needed} of ${available} connections (${limits})`
  }
}

const limitsText =
  "select current_setting('max_connections')::integer, current_setting('superuser_reserved_connections')::integer + " +
  "coalesce(current_setting('reserved_connections', true)::integer, 0), nullif(d.datconnlimit, -1) " +
  "from pg_database d where d.datname = current_database()"

/**
 * Says at the start what the pools may take of what there is; too much is a warning, or the end of the start (contract C-33).
 *
 * @internal
 */
export const checkBudget = (
  runtime: RuntimePool["Type"],
  connections: Connections,
  processes: number,
  strict: boolean
): Effect.Effect<void, DatabaseError | ConnectionBudgetExceeded> =>
  Effect.gen(function* () {
    const [row] = yield* runtime.call({ name: "connection-limits", text: limitsText, values: [] })
    const { available, detail, needed } = budgetOf(connections, processes, {
      maximum: Column.number(row?.[0]),
      reserved: Column.number(row?.[1]),
      database: Column.nullable(Column.number)(row?.[2])
    })
    if (needed <= available) return yield* Effect.logInfo(`Connection budget: ${detail}`)
    if (strict) {
      return yield* new ConnectionBudgetExceeded({ needed, available, detail: `connection budget exceeded: ${detail}` })
    }
    yield* Effect.logWarning(
      `Connection budget exceeded: ${detail}; make the pools smaller or the server's limit larger`
    )
  })
