import * as Predicate from "effect/Predicate"
import { closableClient } from "./closableClient.js"
import { closableSql } from "./closableSql.js"

/** @internal What of node-postgres' `PoolClient` is needed to notice its end, and to bring it about. */
export interface PooledClient {
  readonly on: (event: "error", listener: (error: Error) => void) => unknown
  readonly off: (event: "error", listener: (error: Error) => void) => unknown
  readonly end: () => Promise<void>
}

const hasFunctions = (value: unknown, ...names: ReadonlyArray<string>): boolean =>
  names.every((name) => Predicate.hasProperty(value, name) && Predicate.isFunction(value[name]))

/** A client that no pool has lent is its owner's to end. */
const isPooled = (value: unknown): value is PooledClient => hasFunctions(value, "on", "off", "end", "release")

/** Drizzle's types do not tell of it: where a version keeps it elsewhere, there is none. */
const sessionOf = (tx: unknown): { readonly client: unknown } | undefined =>
  Predicate.hasProperty(tx, "session") && Predicate.hasProperty(tx.session, "client") ? tx.session : undefined

/** @internal The client of a transaction over node-postgres. */
export const pooledClient = (tx: unknown): PooledClient | undefined => {
  const client = sessionOf(tx)?.client
  return isPooled(client) ? client : undefined
}

/** What of a transaction's client a body may use, and the way to close it. Of any other driver nothing is known. */
const closableOf = (client: unknown): { readonly tx: object; readonly close: () => void } | undefined => {
  if (isPooled(client)) return closableClient(client)
  return Predicate.isFunction(client) && hasFunctions(client, "savepoint") ? closableSql(client) : undefined
}

/**
 * A transaction as its body is given it, with the same transaction of Drizzle's over a session that can be closed: the one that
 * Drizzle has commits and rolls back by its own. Over node-postgres the client of a body that was given up is ended, since
 * Drizzle would wait for its answers.
 *
 * @internal
 */
export const closableDrizzle = <Tx extends object>(
  tx: Tx
): { readonly tx: Tx; readonly close: () => void; readonly end?: () => void } | undefined => {
  const session = sessionOf(tx)
  const closable = closableOf(session?.client)
  if (session === undefined || closable === undefined || !Predicate.isFunction(tx.constructor)) return undefined
  const guarded: unknown = Object.create(session, { client: { value: closable.tx } })
  // its queries by relation keep the session that they were made with: they are made again
  const parts = ["dialect", "schema", "nestedIndex"].map((name): unknown => Reflect.get(tx, name))
  const own: unknown = Reflect.construct(tx.constructor, [parts[0], guarded, parts[1], parts[2]])
  if (!Predicate.isObject(own)) return undefined
  const client = pooledClient(tx)
  return {
    tx: new Proxy(tx, { get: (_, name): unknown => Reflect.get(own, name) }),
    close: closable.close,
    ...(client === undefined ? {} : { end: () => void client.end() })
  }
}
