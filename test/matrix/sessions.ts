/** Sessions as the programs of a cell have them: each as its own role, through the cell's pooler. */
import { Effect, Redacted } from "effect"
import { TestDatabase } from "effect-awa/testing"
import { quoteIdentifier } from "../../src/internal/renderSql.js"
import { connect, type Session } from "../pg/database.js"
import type { Attempt } from "../pg/engine.js"
import { throughPooler } from "../tools/throughPooler.js"

/**
 * As a runtime calls the engine: every statement in a READ COMMITTED transaction of its own, whatever the database's default is.
 * Sent as statements of their own: a pooler in transaction mode gives the connection away only after COMMIT.
 */
const inReadCommitted = (session: Session): Session => {
  const within = <A, E>(statement: Effect.Effect<A, E>) =>
    Effect.acquireUseRelease(
      Effect.orDie(session.script("begin isolation level read committed")),
      () => statement,
      (_, exit) => Effect.orDie(session.script(exit._tag === "Success" ? "commit" : "rollback"))
    )
  return {
    ...session,
    rows: (sql, values) => within(session.rows(sql, values)),
    value: (sql, values) => within(session.value(sql, values)),
    script: (sql) => within(session.script(sql))
  }
}

/**
 * - `application`: with the cell's own isolation and zone, inside and outside transactions
 * - `runtime`: one call, one READ COMMITTED transaction
 * - `observer`: a superuser past the pooler, who sees and does what a test needs and no program may
 */
export const sessions = Effect.gen(function* () {
  const { applicationUrl, runtimeUrl, schema, url } = yield* TestDatabase.TestDatabase
  const quoted = quoteIdentifier(schema)
  const through = (own: Redacted.Redacted) => connect(throughPooler(Redacted.value(own)), quoted)
  return {
    application: yield* through(applicationUrl),
    runtime: inReadCommitted(yield* through(runtimeUrl)),
    observer: inReadCommitted(yield* connect(Redacted.value(url), quoted))
  }
})

/** As if these attempts had been claimed, and beaten for, an hour earlier. */
export const age = (observer: Session, attempts: ReadonlyArray<Attempt>) =>
  Effect.gen(function* () {
    const batches = attempts.map(({ batch_id }) => batch_id)
    for (const segment of [0, 1, 2, 3]) {
      yield* observer.rows(
        `update ${observer.schema}.claim_batches_${segment} set claimed_at = claimed_at - interval '1 h'
         where batch_id = any ($1::bigint[])`,
        [batches]
      )
    }
    yield* observer.rows(
      `update ${observer.schema}.attempt_state set heartbeat_at = heartbeat_at - interval '1 h' where job_id = any ($1::bigint[])`,
      [attempts.map(({ job_id }) => job_id)]
    )
  })

/** Milliseconds since 1970, from a time as the server has it: the same in every zone. */
export const millis = (expression: string): string => `(extract(epoch from ${expression}) * 1000)::float8`
