import * as Predicate from "effect/Predicate"
import { type Gate, makeGate } from "./gate.js"

/** As node-postgres itself refuses on a client that has ended: by whichever way the statement would have been answered. */
const refuse = (error: Error, args: ReadonlyArray<unknown>): unknown => {
  const callback = args.at(-1)
  const [statement] = args
  if (Predicate.isFunction(callback)) {
    queueMicrotask(() => void Reflect.apply(callback, undefined, [error]))
    return undefined
  }
  if (Predicate.hasProperty(statement, "submit")) throw error // a cursor or a stream has no other way that all versions share
  return Promise.reject(error)
}

/**
 * A client of node-postgres that sends nothing once the gate is closed. Only the body is given it: who has the client itself
 * can still complete and end the transaction.
 *
 * @internal
 */
export const guardedClient = <Client extends object>(client: Client, gate: Gate): Client =>
  new Proxy(client, {
    get: (target, name): unknown => {
      const value: unknown = Reflect.get(target, name)
      if (name !== "query" || !Predicate.isFunction(value)) return value
      return (...args: ReadonlyArray<unknown>): unknown =>
        gate.isClosed() ? refuse(gate.refusal(), args) : Reflect.apply(value, target, args)
    }
  })

/** @internal A client as a body is given it, and the way to close it to that body. */
export const closableClient = <Client extends object>(
  open: Client
): { readonly tx: Client; readonly close: () => void } => {
  const gate = makeGate()
  return { tx: guardedClient(open, gate), close: gate.close }
}
