import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { randomBytes } from "node:crypto"
import type { Connection } from "../migrateConnection.js"
import type { Found } from "./finding.js"
import { asking } from "./session.js"
import { skipped } from "./skipped.js"

const Kept = Schema.Tuple(
  Schema.Struct({ listening: Schema.Boolean, locked: Schema.Boolean, prepared: Schema.Boolean })
)

const millis = 5_000

/**
 * What a session keeps from one transaction to the next: LISTEN, a lock, a prepared statement. A pooler in transaction mode gives
 * back the server's connection in between; another transaction that is begun then takes it, so that it cannot come back by chance.
 *
 * @internal
 */
export const checkPooler = (
  connection: Connection,
  another: Effect.Effect<Connection, { readonly message: string }, Scope.Scope>
): Effect.Effect<ReadonlyArray<Found>> =>
  Effect.gen(function* () {
    const other = yield* another
    const name = `awa_doctor_${randomBytes(8).toString("hex")}`
    const key = randomBytes(6).readUIntBE(0, 6)
    yield* connection.execute(
      "begin a session",
      `listen ${name}; prepare ${name} as select 1; select pg_advisory_lock(${key})`,
      millis
    )
    yield* other.execute("take a connection", "begin; select 1", millis)
    const [kept] = yield* asking(connection)(
      "look at the session",
      `select exists (select from pg_listening_channels() c where c = $1) as listening,
         exists (select from pg_locks l where l.locktype = 'advisory' and l.pid = pg_backend_pid()
                   and (l.classid::bigint << 32 | l.objid::bigint) = $2::text::bigint) as locked,
         exists (select from pg_prepared_statements s where s.name = $1) as prepared`,
      [name, String(key)],
      Kept
    )
    // whoever is on the connection that the session began with
    const end = `unlisten ${name}; select pg_advisory_unlock(${key}) from pg_locks l where l.locktype = 'advisory' and l.pid = pg_backend_pid() and (l.classid::bigint << 32 | l.objid::bigint) = ${key}`
    yield* connection.execute("end the session", kept.prepared ? `${end}; deallocate ${name}` : end, millis)
    yield* other.execute("end the other session", `${end}; rollback`, millis)
    const lost = [
      kept.listening ? undefined : "LISTEN",
      kept.locked ? undefined : "a session's lock",
      kept.prepared ? undefined : "a prepared statement"
    ].filter((what) => what !== undefined)
    const found: ReadonlyArray<Found> =
      lost.length === 0
        ? []
        : [
            {
              code: "pooler-transaction-mode",
              object: "the connection",
              found: `not kept from one transaction to the next: ${lost.join(", ")}`,
              expected: "a session of its own, at least for LISTEN",
              advice:
                "nothing here needs one; with a `listenUrl` that leads past the pooler, work is heard of and not polled for"
            }
          ]
    return found
  }).pipe(
    Effect.scoped,
    Effect.catchAll((error) => Effect.succeed([skipped("whether a pooler keeps sessions", error.message)]))
  )
