/**
 * Half-open connections: both ends believe that they are connected, and nothing arrives any more.
 *
 * @since 0.1.0
 */
import type { Scope } from "effect"
import { Effect } from "effect"
import type { Connection } from "./connection.js"
import type { FaultAction, ProxiedConnection } from "./fault.js"
import { Backend } from "./messages.js"

/**
 * Which connections become half-open, and in which direction nothing arrives.
 *
 * @since 0.1.0
 * @category models
 */
export interface HalfOpenOptions {
  /** Those that the server lets LISTEN, unless said otherwise. */
  readonly match?: (connection: ProxiedConnection) => boolean
  /** `both` unless said otherwise. */
  readonly direction?: Extract<FaultAction, { readonly _tag: "BlackHole" }>["direction"]
}

/**
 * The messages that one side sent and the other never saw. `notifications` counts the server's NotificationResponse: what a
 * half-open LISTEN connection missed. One from the server proves that the server, too, took the connection for open.
 *
 * @since 0.1.0
 * @category models
 */
export interface LostMessages {
  readonly fromServer: number
  readonly fromClient: number
  readonly notifications: number
}

/**
 * Connections that are half-open until their scope closes.
 *
 * @since 0.1.0
 * @category models
 */
export interface HalfOpened {
  readonly connections: ReadonlyArray<ProxiedConnection>
  readonly lost: Effect.Effect<LostMessages>
  /** Waits until so many messages of either side were lost. */
  readonly awaitLost: (atLeast: number) => Effect.Effect<void>
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const makeHalfOpen = (
  connections: Iterable<Connection>,
  options: HalfOpenOptions = {}
): Effect.Effect<HalfOpened, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { direction = "both", match = ({ listening }) => listening } = options
    const lost = { fromServer: 0, fromClient: 0, notifications: 0 }
    const waiting = new Set<{ readonly atLeast: number; readonly resume: () => void }>()
    const note = (from: "client" | "server", type: number) => {
      if (from === "client") lost.fromClient++
      else lost.fromServer++
      if (from === "server" && type === Backend.notificationResponse) lost.notifications++
      for (const { atLeast, resume } of waiting) if (lost.fromServer + lost.fromClient >= atLeast) resume()
    }
    const chosen = yield* Effect.acquireRelease(
      Effect.sync(() =>
        Array.from(connections)
          .filter((connection) => match(connection.info))
          .map((connection) => ({ info: connection.info, end: connection.silence(direction, note) }))
      ),
      (all) => Effect.sync(() => all.forEach(({ end }) => end()))
    )
    return {
      connections: chosen.map(({ info }) => info),
      lost: Effect.sync(() => ({ ...lost })),
      awaitLost: (atLeast) =>
        Effect.async<void>((resume) => {
          if (lost.fromServer + lost.fromClient >= atLeast) return resume(Effect.void)
          const waiter = {
            atLeast,
            resume: () => {
              waiting.delete(waiter)
              resume(Effect.void)
            }
          }
          waiting.add(waiter)
          return Effect.sync(() => void waiting.delete(waiter))
        })
    }
  })
