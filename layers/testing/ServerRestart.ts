/**
 * Stops a server of one's own and starts it again, with the proof that it was away and what the end did to it.
 *
 * @since 0.1.0
 */
import { readFile, stat } from "node:fs/promises"
import { type Duration, Effect, Schema } from "effect"
import type { EmbeddedPostgres, EmbeddedPostgresError, ShutdownMode } from "../EmbeddedPostgres.js"
import { type AdminQuery, makeAdminQuery } from "./internal/admin.js"

/**
 * The server gave no answer before it was stopped, or after it had been started again.
 *
 * @since 0.1.0
 * @category errors
 */
export class ServerRestartError extends Schema.TaggedError<ServerRestartError>("effect-awa/ServerRestartError")(
  "ServerRestartError",
  { when: Schema.Literal("before", "after"), cause: Schema.Defect }
) {
  override get message(): string {
    return `The server gave no answer ${this.when} its restart`
  }
}

/**
 * What a restart needs of a server: an `EmbeddedPostgres` has it.
 *
 * @since 0.1.0
 * @category models
 */
export type RestartableServer = Pick<EmbeddedPostgres["Type"], "url" | "stop" | "start" | "logFile">

/**
 * @since 0.1.0
 * @category models
 */
export interface RestartOptions {
  /** `fast` ends sessions and writes a checkpoint, `immediate` is a crash that the next start recovers from. */
  readonly mode: ShutdownMode
  /** How long the server stays away; no longer than it takes unless said otherwise. */
  readonly downFor?: Duration.DurationInput
}

/**
 * What the server itself says of its restart.
 *
 * @since 0.1.0
 * @category models
 */
export interface RestartEvidence {
  readonly mode: ShutdownMode
  /** `pg_postmaster_start_time()` before and after. */
  readonly startedBefore: string
  readonly startedAfter: string
  /** Whether a connection was refused while it was away. */
  readonly refused: boolean
  /** Whether it had to recover from a crash, by its own log. */
  readonly recovered: boolean
  /** From the stop to the first answer. */
  readonly away: Duration.Duration
  /** Another server process answers, none did meanwhile, and it recovered if and only if the mode was `immediate`. */
  readonly tookEffect: boolean
}

const startedAt = (query: AdminQuery, when: "before" | "after") =>
  query("select pg_catalog.pg_postmaster_start_time()::text").pipe(
    Effect.map((rows) => String(rows[0]?.[0])),
    Effect.mapError((cause) => new ServerRestartError({ when, cause }))
  )

const logSize = (server: RestartableServer) =>
  Effect.promise(() =>
    stat(server.logFile).then(
      ({ size }) => size,
      () => 0
    )
  )

const saidSince = (server: RestartableServer, offset: number) =>
  Effect.promise(() =>
    readFile(server.logFile).then(
      (log) => log.subarray(offset).toString("utf8"),
      () => ""
    )
  )

/**
 * Stops the server and starts it again, also when it is interrupted meanwhile.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import * as EmbeddedPostgres from "effect-awa/layers/EmbeddedPostgres"
 * import { ServerRestart } from "effect-awa/testing"
 *
 * export const crash = Effect.gen(function* () {
 *   const server = yield* EmbeddedPostgres.make()
 *   return yield* ServerRestart.restart(server, { mode: "immediate", downFor: "5 seconds" })
 * }).pipe(Effect.scoped)
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const restart = (
  server: RestartableServer,
  options: RestartOptions
): Effect.Effect<RestartEvidence, EmbeddedPostgresError | ServerRestartError> =>
  Effect.gen(function* () {
    const { downFor = 0, mode } = options
    const query = yield* makeAdminQuery(server.url("postgres"))
    const startedBefore = yield* startedAt(query, "before")
    const offset = yield* logSize(server)
    const [away, { refused, startedAfter }] = yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        yield* server.stop(mode)
        const refused = yield* Effect.isFailure(query("select 1"))
        const waited = yield* Effect.exit(restore(Effect.sleep(downFor)))
        yield* server.start
        yield* waited
        return { refused, startedAfter: yield* startedAt(query, "after") }
      })
    ).pipe(Effect.timed)
    const recovered = (yield* saidSince(server, offset)).includes("automatic recovery in progress")
    const tookEffect = refused && startedAfter !== startedBefore && recovered === (mode === "immediate")
    return { mode, startedBefore, startedAfter, refused, recovered, away, tookEffect }
  }).pipe(Effect.scoped)
