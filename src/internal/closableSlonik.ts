import * as Predicate from "effect/Predicate"
import { makeGate } from "./gate.js"
import { guardedNested } from "./guardedNested.js"

/**
 * A transaction of Slonik as it is given to a body, and the way to close it to that body. Of two statements Slonik holds one back
 * until the other is answered, and would send it after ROLLBACK: they wait before the gate instead.
 *
 * @internal
 */
export const closableSlonik = <Tx extends object>(open: Tx): { readonly tx: Tx; readonly close: () => void } => {
  const gate = makeGate()
  let last: Promise<unknown> = Promise.resolve()
  const guard = <Target extends object>(target: Target): Target =>
    new Proxy(target, {
      get: (tx, name): unknown => {
        const value: unknown = Reflect.get(tx, name)
        if (!Predicate.isFunction(value)) return value
        const call = (...args: ReadonlyArray<unknown>): unknown => Reflect.apply(value, tx, args)
        if (name === "transaction") {
          return (...args: ReadonlyArray<unknown>) => guardedNested(gate, guard, call, args)
        }
        return (...args: ReadonlyArray<unknown>): Promise<unknown> => {
          const answered = last.then(() => {
            gate.check()
            return call(...args)
          })
          last = answered.catch(() => undefined)
          return answered
        }
      }
    })
  return { tx: guard(open), close: gate.close }
}
