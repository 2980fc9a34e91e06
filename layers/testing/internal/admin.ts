/**
 * A connection from which faults are caused and seen.
 *
 * @since 0.1.0
 */
import type { Scope } from "effect"
import { Effect, Redacted } from "effect"
import * as Pg from "pg"

/**
 * Runs one statement with a time limit, on a connection that is opened when it is needed: a fault may have ended the last one.
 *
 * @since 0.1.0
 * @category models
 */
export type AdminQuery = (
  text: string,
  values?: ReadonlyArray<unknown>
) => Effect.Effect<ReadonlyArray<ReadonlyArray<unknown>>, unknown>

const limitMillis = 10_000

/**
 * @since 0.1.0
 * @category constructors
 */
export const makeAdminQuery = (url: Redacted.Redacted): Effect.Effect<AdminQuery, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const pool = new Pg.Pool({
        connectionString: Redacted.value(url),
        application_name: "effect-awa fault kit",
        max: 1,
        connectionTimeoutMillis: limitMillis,
        query_timeout: limitMillis,
        idleTimeoutMillis: 1_000,
        allowExitOnIdle: true
      })
      pool.on("error", () => undefined) // an idle connection's end; the next statement opens another
      return pool
    }),
    (pool) => Effect.promise(() => pool.end().catch(() => undefined))
  ).pipe(
    Effect.map(
      (pool): AdminQuery =>
        (text, values = []) =>
          Effect.map(
            Effect.tryPromise({
              try: () => pool.query<Array<unknown>>({ text, values: [...values], rowMode: "array" }),
              catch: (cause) => cause
            }),
            ({ rows }) => rows
          )
    )
  )
