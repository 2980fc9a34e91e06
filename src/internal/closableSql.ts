import * as Predicate from "effect/Predicate"
import { type Gate, makeGate } from "./gate.js"
import { guardedNested } from "./guardedNested.js"

/** What of a transaction makes a query, beside calling it. */
const makers: ReadonlyArray<string | symbol> = ["unsafe", "file"]

/**
 * A query of postgres.js is sent when it is awaited, or asked for its rows in any other way, all of which end in its handler:
 * one that was made before the transaction was closed is refused there.
 */
const guardedQuery = (query: unknown, gate: Gate): unknown => {
  if (!Predicate.hasProperty(query, "handler") || !Predicate.hasProperty(query, "reject")) return query
  const { handler, reject } = query
  if (!Predicate.isFunction(handler) || !Predicate.isFunction(reject)) return query
  Reflect.set(query, "handler", (sent: unknown): void => {
    if (gate.isClosed()) Reflect.apply(reject, query, [gate.refusal()])
    else Reflect.apply(handler, query, [sent])
  })
  return query
}

/**
 * A transaction of postgres.js as it is given to a body, and the way to close it to that body. postgres.js itself would send what
 * comes after COMMIT or ROLLBACK to the same connection, which may be another's by then; and a statement to a connection that the
 * server has just ended ends the process, so that it is better rolled back before.
 *
 * @internal
 */
export const closableSql = <Sql extends object>(open: Sql): { readonly tx: Sql; readonly close: () => void } => {
  const gate = makeGate()
  const guard = <Target extends object>(target: Target): Target =>
    new Proxy(target, {
      apply: (sql, self: unknown, args: ReadonlyArray<unknown>): unknown =>
        Predicate.isFunction(sql) ? guardedQuery(Reflect.apply(sql, self, args), gate) : undefined,
      get: (sql, name): unknown => {
        const value: unknown = Reflect.get(sql, name)
        if (!Predicate.isFunction(value)) return value
        if (makers.includes(name)) {
          return (...args: ReadonlyArray<unknown>): unknown => guardedQuery(Reflect.apply(value, sql, args), gate)
        }
        if (name !== "savepoint" && name !== "notify") return value
        const call = (...args: ReadonlyArray<unknown>): unknown => Reflect.apply(value, sql, args)
        return (...args: ReadonlyArray<unknown>): unknown => {
          if (gate.isClosed()) return Promise.reject(gate.refusal())
          return name === "savepoint" ? guardedNested(gate, guard, call, args) : call(...args)
        }
      }
    })
  return { tx: guard(open), close: gate.close }
}
