import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import * as Pg from "pg"
import { destroySocket } from "./destroySocket.js"
import { quoteIdentifier } from "./renderSql.js"

/** @internal */
export interface Listener<E> {
  /**
   * Whether a notification that another session sends is heard here. Only that tells: a half-open connection reports no error,
   * and a transaction-mode pooler answers LISTEN and delivers nothing, except what is sent through the same server connection,
   * which a notification from here may well be. Fails when none could be sent.
   */
  readonly probe: Effect.Effect<boolean, E>
  /** Completes when the connection ended. */
  readonly ended: Effect.Effect<void>
}

/** @internal */
export interface ListenerOptions<E> {
  readonly config: Pg.ClientConfig
  readonly channel: string
  readonly onNotification: (payload: string) => void
  readonly onError: (cause: unknown) => E
  /** Sends a notification from another session. */
  readonly notify: (payload: string) => Effect.Effect<unknown, E>
}

/** No queue's name begins so: a name carries no control character. */
const probePrefix = "\u0001probe/"

const probeTimeoutMillis = 5_000

const makeClient = (config: Pg.ClientConfig, end: () => void, notified: (payload: string) => void): Pg.Client => {
  const client = new Pg.Client({
    ...config,
    application_name: `${config.application_name ?? "effect-awa"} listener`,
    query_timeout: probeTimeoutMillis
  })
  client.on("error", end)
  client.on("end", end)
  client.on("notification", ({ payload }) => {
    if (payload !== undefined) notified(payload)
  })
  return client
}

/** @internal */
export const openListener = <E>(options: ListenerOptions<E>): Effect.Effect<Listener<E>, E, Scope.Scope> =>
  Effect.gen(function* () {
    const ended = yield* Deferred.make<void>()
    const end = (): void => Deferred.unsafeDone(ended, Effect.void)
    let awaited: { readonly payload: string; readonly heard: Deferred.Deferred<void> } | undefined
    const notified = (payload: string): void => {
      if (payload === awaited?.payload) Deferred.unsafeDone(awaited.heard, Effect.void)
      else if (!payload.startsWith(probePrefix)) options.onNotification(payload) // not somebody else's probe
    }
    const client = yield* Effect.acquireRelease(
      Effect.sync(() => makeClient(options.config, end, notified)),
      // no goodbye: a half-open connection would not answer it
      (client) =>
        Effect.sync(() => {
          destroySocket(client)
          client.end().catch(() => undefined)
        })
    )
    yield* Effect.tryPromise({
      try: async () => {
        await client.connect()
        await client.query(`listen ${quoteIdentifier(options.channel)}`)
      },
      catch: options.onError
    })
    const probe = Effect.gen(function* () {
      const heard = yield* Deferred.make<void>()
      awaited = { payload: probePrefix + randomUUID(), heard }
      yield* options.notify(awaited.payload)
      return Option.isSome(yield* Effect.timeoutOption(Deferred.await(heard), probeTimeoutMillis))
    })
    return { probe, ended: Deferred.await(ended) }
  })
