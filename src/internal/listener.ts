import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Pg from "pg"
import { destroySocket } from "./destroySocket.js"
import { notifyChannel, quoteIdentifier } from "./renderSql.js"

/** @internal */
export interface Listener {
  /** Sends itself a notification and waits for it: a half-open connection reports no error, it is only silent. */
  readonly probe: Effect.Effect<boolean>
  /** Completes when the connection ended. */
  readonly ended: Effect.Effect<void>
}

/** No queue has this name: a name carries no control character. */
const probePayload = "\u0001probe"

const probeTimeoutMillis = 5_000

/** @internal */
export const openListener = <E>(
  config: Pg.ClientConfig,
  schema: string,
  onNotification: (queue: string) => void,
  onError: (cause: unknown) => E
): Effect.Effect<Listener, E, Scope.Scope> =>
  Effect.gen(function* () {
    const ended = yield* Deferred.make<void>()
    const end = (): void => Deferred.unsafeDone(ended, Effect.void)
    const channel = notifyChannel(schema)
    let onProbe: (() => void) | undefined
    const client = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const client = new Pg.Client({
          ...config,
          application_name: `${config.application_name ?? "effect-awa"} listener`,
          query_timeout: probeTimeoutMillis
        })
        client.on("error", end)
        client.on("end", end)
        client.on("notification", (message) => {
          if (message.payload === probePayload) onProbe?.()
          else if (message.payload !== undefined) onNotification(message.payload)
        })
        return client
      }),
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
        await client.query(`listen ${quoteIdentifier(channel)}`)
      },
      catch: onError
    })
    const probe = Effect.async<boolean>((resume) => {
      const answer = (alive: boolean): void => {
        clearTimeout(timer)
        onProbe = undefined
        resume(Effect.succeed(alive))
      }
      const timer = setTimeout(() => answer(false), probeTimeoutMillis)
      onProbe = () => answer(true)
      client.query("select pg_notify($1, $2)", [channel, probePayload]).catch(() => answer(false))
    })
    return { probe, ended: Deferred.await(ended) }
  })
