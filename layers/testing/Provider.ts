/**
 * A controllable stand-in for an outside provider.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"

/**
 * A provider that is idempotent by key, as real ones are, and that a test can hold and make fail.
 *
 * @since 0.1.0
 * @category models
 */
export interface Provider<Request, Response, E> {
  /** One call. The same key gets the same response, whatever the request. */
  readonly call: (key: string, request: Request) => Effect.Effect<Response, E>
  /** Every call that came, in order, repeated ones too. */
  readonly calls: Effect.Effect<ReadonlyArray<{ readonly key: string; readonly request: Request }>>
  /** How many keys were served. */
  readonly served: Effect.Effect<number>
  /** The next calls fail with these, one each. */
  readonly failNext: (...errors: ReadonlyArray<E>) => Effect.Effect<void>
  /** Calls wait from now on. */
  readonly hold: Effect.Effect<void>
  /** Waiting calls go on, and new ones no longer wait. */
  readonly release: Effect.Effect<void>
}

/**
 * @example
 * ```ts
 * import { Provider } from "effect-awa/testing"
 *
 * export const cards = Provider.make((request: { readonly cents: number }) => `charge of ${request.cents}`)
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <Request, Response, E = never>(
  respond: (request: Request, key: string) => Response
): Effect.Effect<Provider<Request, Response, E>> =>
  Effect.sync(() => {
    const responses = new Map<string, Response>()
    const calls: Array<{ readonly key: string; readonly request: Request }> = []
    const failures: Array<E> = []
    const gate = Effect.unsafeMakeLatch(true)
    return {
      call: (key, request) =>
        Effect.suspend(() => {
          calls.push({ key, request })
          return Effect.zipRight(
            gate.await,
            Effect.suspend((): Effect.Effect<Response, E> => {
              const [failure] = failures.splice(0, 1)
              if (failure !== undefined) return Effect.fail(failure)
              const known = responses.get(key)
              if (known !== undefined) return Effect.succeed(known)
              const response = respond(request, key)
              responses.set(key, response)
              return Effect.succeed(response)
            })
          )
        }),
      calls: Effect.sync(() => [...calls]),
      served: Effect.sync(() => responses.size),
      failNext: (...errors) => Effect.sync(() => void failures.push(...errors)),
      hold: Effect.asVoid(gate.close),
      release: Effect.asVoid(gate.open)
    }
  })
