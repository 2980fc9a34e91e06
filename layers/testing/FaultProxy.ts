/**
 * A TCP proxy between a PostgreSQL client and its server that breaks a connection at a chosen statement, and proves by
 * the server's own answers what the fault did.
 *
 * Traffic through it is never encrypted: it answers a request for TLS with "no", so clients that insist on TLS cannot
 * connect. Keep it on a loopback address.
 *
 * @since 0.1.0
 */
import type { Socket } from "node:net"
import type { Scope } from "effect"
import { Context, Effect, FiberSet, Layer, Redacted, Schema } from "effect"
import { Connection } from "./internal/connection.js"
import type { FaultCounts, FaultEffect, FaultRule } from "./internal/fault.js"
import { type HalfOpened, type HalfOpenOptions, makeHalfOpen } from "./internal/halfOpen.js"
import { addressOf, dial, listen, readdressed } from "./internal/listen.js"
import { RuleState } from "./internal/rule.js"

export type {
  FaultAction,
  FaultCounts,
  FaultEffect,
  FaultRule,
  ProxiedConnection,
  ProxiedStatement,
  ServerAnswer
} from "./internal/fault.js"
export type { HalfOpened, HalfOpenOptions, LostMessages } from "./internal/halfOpen.js"
export { blackHole, committed, cutAfter, cutBefore, holdAnswer, holdStatement } from "./internal/fault.js"

/**
 * The proxy could not listen, or an address or a connection url makes no sense.
 *
 * @since 0.1.0
 * @category errors
 */
export class FaultProxyError extends Schema.TaggedError<FaultProxyError>()("FaultProxyError", {
  reason: Schema.Literal("Listen", "InvalidPort", "InvalidUrl"),
  message: Schema.String
}) {}

/**
 * A rule that is in force until its scope closes; its counts can be read afterwards too.
 *
 * @since 0.1.0
 * @category models
 */
export interface ActiveRule {
  readonly counts: Effect.Effect<FaultCounts>
  /** The last 1000 faults that took effect: for a lost or held answer, those whose answer the rule accepts. */
  readonly effects: Effect.Effect<ReadonlyArray<FaultEffect>>
  /** The last 1000 faults that were injected without effect, such as a lost answer that was an error anyway. */
  readonly misses: Effect.Effect<ReadonlyArray<FaultEffect>>
  /** Waits until so many faults took effect. */
  readonly awaitEffects: (atLeast: number) => Effect.Effect<void>
}

/**
 * What a proxy has seen. `cut` counts client connections it destroyed on purpose, `refused` those it did not accept
 * during an outage, `unreachable` those whose server could not be reached, `unreadable` those that did not speak
 * protocol 3 in the clear, `statements` all executed statements whose text was known.
 *
 * @since 0.1.0
 * @category models
 */
export interface FaultProxyStats {
  readonly open: number
  readonly accepted: number
  readonly refused: number
  readonly unreachable: number
  readonly unreadable: number
  readonly cut: number
  readonly statements: number
}

/**
 * The address of the server, and optionally of the proxy. A `host` that begins with a slash is the directory of the
 * server's Unix socket.
 *
 * @since 0.1.0
 * @category models
 */
export interface FaultProxyOptions {
  readonly host: string
  readonly port: number
  readonly listen?: { readonly host?: string; readonly port?: number }
}

/**
 * A running proxy.
 *
 * @since 0.1.0
 * @category services
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import * as FaultProxy from "effect-awa/layers/testing/FaultProxy"
 *
 * const loseThreeCommits = Effect.gen(function* () {
 *   const proxy = yield* FaultProxy.FaultProxy
 *   const rule = { match: /^commit$/i, action: FaultProxy.cutAfter(), expect: FaultProxy.committed, limit: 3 }
 *   const lost = yield* proxy.rule(rule)
 *   yield* lost.awaitEffects(3)
 *   return yield* lost.effects // each with the tags the server answered
 * })
 * ```
 */
export class FaultProxy extends Context.Tag("effect-awa/FaultProxy")<
  FaultProxy,
  {
    /** Where the proxy listens. */
    readonly host: string
    readonly port: number
    /** Leads a connection url through the proxy: another host and port, and no TLS. */
    readonly through: (url: Redacted.Redacted) => Effect.Effect<Redacted.Redacted, FaultProxyError>
    /**
     * Installs a rule. When the scope closes it is removed, which delivers what it holds and ends the connections it
     * has made a black hole of.
     */
    readonly rule: (rule: FaultRule) => Effect.Effect<ActiveRule, never, Scope.Scope>
    /**
     * Makes connections that there are now half-open until the scope closes: neither side is told, and nothing arrives. By
     * default those that the server lets LISTEN, and both directions.
     */
    readonly halfOpen: (options?: HalfOpenOptions) => Effect.Effect<HalfOpened, never, Scope.Scope>
    /** Destroys all client connections now. Returns how many. */
    readonly cutAll: Effect.Effect<number>
    /** Destroys all client connections and accepts none until the scope closes. */
    readonly outage: Effect.Effect<void, never, Scope.Scope>
    /** How many client connections there are. */
    readonly connections: Effect.Effect<number>
    readonly stats: Effect.Effect<FaultProxyStats>
  }
>() {}

const invalidUrl = () =>
  // The url holds a password: it is not repeated, nor is the parser's message, which quotes it.
  new FaultProxyError({
    reason: "InvalidUrl",
    message: "not a connection url of the form postgres://user@host:port/db"
  })

const parseUrl = (url: Redacted.Redacted) => Effect.try({ try: () => new URL(Redacted.value(url)), catch: invalidUrl })

const isPort = (port: number) => Number.isInteger(port) && port >= 0 && port <= 65_535

const activeRule = (state: RuleState): ActiveRule => ({
  counts: Effect.sync(() => state.counts),
  effects: Effect.sync(() => [...state.effects]),
  misses: Effect.sync(() => [...state.misses]),
  awaitEffects: (atLeast) =>
    Effect.async<void>((resume) => {
      const giveUp = state.whenEffects(atLeast, () => resume(Effect.void))
      return Effect.sync(giveUp)
    })
})

/**
 * Starts a proxy on a free port of 127.0.0.1 unless told otherwise. It and all its connections end with the scope.
 *
 * @since 0.1.0
 * @category constructors
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import * as FaultProxy from "effect-awa/layers/testing/FaultProxy"
 *
 * const program = Effect.scoped(
 *   Effect.gen(function* () {
 *     const proxy = yield* FaultProxy.make({ host: "localhost", port: 5432 })
 *     yield* proxy.rule({ match: /heartbeat/, action: FaultProxy.blackHole() })
 *   })
 * )
 * ```
 */
export const make = (
  options: FaultProxyOptions
): Effect.Effect<Context.Tag.Service<FaultProxy>, FaultProxyError, Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const connections = new Set<Connection>()
    const rules = new Set<RuleState>()
    const stats = { accepted: 0, refused: 0, unreachable: 0, unreadable: 0, cut: 0, statements: 0 }
    const shared = { rules, stats, closed: (connection: Connection) => void connections.delete(connection) }
    let outages = 0
    let installed = 0

    const accept = (client: Socket) => {
      if (outages === 0) {
        const server = dial(options.host, options.port)
        connections.add(new Connection(++stats.accepted, client, server, shared))
      } else {
        stats.refused++
        client.on("error", () => undefined)
        client.resetAndDestroy()
      }
    }
    const { host = "127.0.0.1", port = 0 } = options.listen ?? {}
    // Sockets throw at a bad port, and they would do so in the middle of accepting a connection.
    if (!isPort(options.port) || !isPort(port)) {
      return yield* new FaultProxyError({ reason: "InvalidPort", message: "a port is a number up to 65535" })
    }
    const hangUp = () => {
      for (const connection of connections) connection.destroy()
    }
    const address = yield* Effect.mapError(
      listen({ host, port, accept, hangUp }),
      (message) => new FaultProxyError({ reason: "Listen", message })
    )

    const cutAll = Effect.sync(() => {
      const before = stats.cut
      for (const connection of connections) connection.cut(false)
      return stats.cut - before
    })
    return FaultProxy.of({
      host: address.address,
      port: address.port,
      through: (url) => Effect.map(parseUrl(url), (parsed) => Redacted.make(readdressed(parsed, address))),
      rule: (rule) =>
        Effect.gen(function* () {
          const fork = yield* FiberSet.makeRuntime()
          const run = (until: Effect.Effect<unknown>, done: () => void) =>
            void fork(Effect.onExit(until, () => Effect.sync(done)))
          const state = yield* Effect.acquireRelease(
            Effect.sync(() => new RuleState(rule, rule.name ?? `rule ${++installed}`, clock, run)),
            (state) =>
              Effect.sync(() => {
                rules.delete(state)
                state.remove()
              })
          )
          rules.add(state)
          return activeRule(state)
        }),
      halfOpen: (options) => makeHalfOpen(connections, options),
      cutAll,
      outage: Effect.acquireRelease(
        Effect.zipRight(
          Effect.sync(() => {
            outages += 1
          }),
          cutAll
        ),
        () =>
          Effect.sync(() => {
            outages -= 1
          })
      ),
      connections: Effect.sync(() => connections.size),
      stats: Effect.sync(() => ({ ...stats, open: connections.size }))
    })
  })

/**
 * Starts a proxy in front of the server that a connection url names.
 *
 * @since 0.1.0
 * @category constructors
 * @example
 * ```ts
 * import { Redacted } from "effect"
 * import * as FaultProxy from "effect-awa/layers/testing/FaultProxy"
 *
 * const proxy = FaultProxy.makeUrl(Redacted.make("postgres://postgres@localhost:5432/postgres"))
 * ```
 */
export const makeUrl = (
  url: Redacted.Redacted
): Effect.Effect<Context.Tag.Service<FaultProxy>, FaultProxyError, Scope.Scope> =>
  Effect.flatMap(parseUrl(url), (parsed) => make(addressOf(parsed)))

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: FaultProxyOptions): Layer.Layer<FaultProxy, FaultProxyError> =>
  Layer.scoped(FaultProxy, make(options))

/**
 * @since 0.1.0
 * @category layers
 */
export const layerUrl = (url: Redacted.Redacted): Layer.Layer<FaultProxy, FaultProxyError> =>
  Layer.scoped(FaultProxy, makeUrl(url))
