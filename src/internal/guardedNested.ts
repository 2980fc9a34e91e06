import * as Predicate from "effect/Predicate"
import type { Gate } from "./gate.js"

const never = new Promise<never>(() => {})

/**
 * A nested transaction of a body. It ends by a statement of the driver's own, which must not follow once the outer one is closed:
 * the driver never hears of its end then, and the body of its refusal. `guard` makes of the inner transaction what the body is given.
 *
 * @internal
 */
export const guardedNested = (
  gate: Gate,
  guard: (inner: object) => object,
  run: (...args: ReadonlyArray<unknown>) => unknown,
  args: ReadonlyArray<unknown>
): Promise<unknown> =>
  new Promise<unknown>((resolve, reject) => {
    if (gate.isClosed()) {
      reject(gate.refusal())
      return
    }
    const unlessClosed = <A>(settle: () => A): A | Promise<never> => {
      if (!gate.isClosed()) return settle()
      reject(gate.refusal())
      return never
    }
    const guardedBody = (body: unknown): unknown =>
      Predicate.isFunction(body)
        ? (inner: object): Promise<unknown> =>
            Promise.resolve()
              .then((): unknown => Reflect.apply(body, undefined, [guard(inner)]))
              .then(
                (value) => unlessClosed(() => value),
                (error: unknown) =>
                  unlessClosed(() => {
                    throw error
                  })
              )
        : body
    Promise.resolve(run(...args.map(guardedBody))).then(resolve, reject)
  })
