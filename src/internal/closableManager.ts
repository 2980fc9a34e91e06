import * as Predicate from "effect/Predicate"
import type { EntityManager } from "typeorm"
import { guardedClient } from "./closableClient.js"
import { makeGate } from "./gate.js"

/**
 * An entity manager of TypeORM as it is given to a body, and the way to close it to that body: it has the same query runner with
 * a client that can be closed. What TypeORM notes of nested transactions is the body's own, so that one which it left behind is
 * not taken for the outer one's COMMIT. The client of a body that was given up is ended, since TypeORM would wait for its answers.
 *
 * @internal
 */
export const closableManager = (
  open: EntityManager
): { readonly tx: EntityManager; readonly close: () => void; readonly end: () => void } | undefined => {
  const runner = open.queryRunner
  if (runner === undefined) return undefined
  const gate = makeGate()
  const connect = async (): Promise<unknown> => {
    const client: unknown = await runner.connect()
    return Predicate.isObject(client) ? guardedClient(client, gate) : client
  }
  const own: unknown = Object.create(runner, { connect: { value: connect } })
  if (!Predicate.isObject(own)) return undefined
  const guarded = new Proxy(runner, {
    get: (_, name): unknown => Reflect.get(own, name),
    set: (_, name, value): boolean => Reflect.set(own, name, value)
  })
  const tx = open.dataSource.createEntityManager(guarded)
  Reflect.set(own, "manager", tx)
  return {
    tx,
    close: gate.close,
    end: () => {
      runner.connect().then(
        (client: unknown) => {
          if (Predicate.hasProperty(client, "end") && Predicate.isFunction(client.end))
            Reflect.apply(client.end, client, [])
        },
        () => undefined // there is no connection (any more)
      )
    }
  }
}
