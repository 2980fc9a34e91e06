/**
 * One bound of connections for a program and its runtime (contract C-32).
 *
 * @since 0.1.0
 */
import type { SqlClient } from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { runtimePoolFault } from "./internal/poolOptions.js"
import type { OptionFault } from "./internal/optionRules.js"
import { PoolMisconfigured } from "./PoolError.js"
import type { RuntimePoolOptions } from "./RuntimePool.js"

/**
 * What is shared is the bound, not the connections: the application's part, the runtime's reserve and the one connection that
 * listens never mix (contract C-30). On one connection an interrupted statement of the application would cancel what the
 * runtime is doing there by then, a transaction that was left open would swallow the runtime's, and a session's settings would
 * be everybody's.
 *
 * @since 0.1.0
 * @category services
 */
export class SharedPool extends Context.Tag("effect-awa/SharedPool")<
  SharedPool,
  {
    /** The program's own client, which holds the application's part. */
    readonly client: PgClient.PgClient
    /** Where and how the runtime opens its part. */
    readonly runtime: RuntimePoolOptions
    /** How many application transactions are open at once, as configured. */
    readonly callerOwned: number | undefined
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface SharedPoolOptions {
  /** Where the database is. */
  readonly url: Redacted.Redacted
  /** Where to listen, when `url` leads through a transaction-mode pooler. */
  readonly listenUrl?: Redacted.Redacted | undefined
  /** How many connections the program and its runtime take at most, all in all. */
  readonly connections: number
  /** How many of them are kept for the runtime's statements, from 2; 3 unless said otherwise. One more is the one that listens. */
  readonly reserve?: number | undefined
  /**
   * How many caller-owned attempts are in their transaction at once; the others wait for their turn. At most as many as are
   * left beside the reserve. Unless it is said, a worker whose concurrency is higher than that is refused.
   */
  readonly callerOwned?: number | undefined
  /** The schema that effect-awa is installed in; `awa` unless said otherwise. */
  readonly schema?: string | undefined
  /** How the program's own client is made, besides. */
  readonly application?: Omit<PgClient.PgClientConfig, "url" | "maxConnections" | "minConnections"> | undefined
}

const defaultReserve = 3

/** The one that listens is no part of the runtime's pool. */
const listening = 1

const integerFrom = (least: number, value: number): boolean => Number.isInteger(value) && value >= least

const faultOf = (options: SharedPoolOptions): OptionFault | undefined => {
  const { callerOwned, connections, reserve = defaultReserve } = options
  if (!integerFrom(2, reserve)) {
    return { option: "reserve", rule: "an integer from 2: a beat must not wait for a long step of maintenance" }
  }
  const application = connections - reserve - listening
  if (!integerFrom(1, application)) {
    return {
      option: "connections",
      rule: `an integer from ${reserve + listening + 1}: ${reserve} for the runtime, ${listening} that listens, and the application's`
    }
  }
  if (callerOwned !== undefined && !(integerFrom(1, callerOwned) && callerOwned <= application)) {
    return {
      option: "callerOwned",
      rule: `an integer from 1 to ${application}: of ${connections} connections ${reserve} are the runtime's reserve, and ${listening} listens`
    }
  }
  const { listenUrl, schema, url } = options
  return runtimePoolFault({ url, listenUrl, schema })
}

/**
 * Opens the application's part of the bound as the program's `PgClient`; `layerShared` of the worker's layer opens the
 * runtime's. Refuses, before any connection is opened, what does not leave the runtime its reserve.
 *
 * @example
 * ```ts
 * import { Layer, Redacted, Schema } from "effect"
 * import { Job, SharedPool } from "effect-awa"
 * import * as Worker from "effect-awa/layers/Worker"
 *
 * const Greet = Job.make("greet", { payload: Schema.Struct({ name: Schema.String }) })
 * const GreetLive = Greet.toLayerCallerOwned((job) => job.finalize(job.progress.set("greeted")))
 *
 * // 12 connections: 3 for the runtime, 1 that listens, 8 for the application; at most 6 of those in caller-owned transactions
 * const Pool = SharedPool.layer({ url: Redacted.make("postgres://localhost/app"), connections: 12, callerOwned: 6 })
 *
 * export const Main = Worker.layerShared({ jobs: [Greet], queues: { default: { concurrency: 50 } } }).pipe(
 *   Layer.provide(GreetLive),
 *   Layer.provide(Pool)
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: SharedPoolOptions
): Layer.Layer<SharedPool | PgClient.PgClient | SqlClient, SqlError | PoolMisconfigured> => {
  const fault = faultOf(options)
  if (fault !== undefined) return Layer.fail(new PoolMisconfigured(fault))
  const { application, callerOwned, connections, listenUrl, reserve = defaultReserve, schema, url } = options
  const client = PgClient.layer({ ...application, url, maxConnections: connections - reserve - listening })
  const shared = Effect.map(PgClient.PgClient, (client) => ({
    client,
    callerOwned,
    runtime: { url, listenUrl, schema, maxConnections: reserve }
  }))
  return Layer.provideMerge(Layer.effect(SharedPool, shared), client)
}
