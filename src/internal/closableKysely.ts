import type { CompiledQuery, ConnectionProvider, DatabaseConnection, Transaction } from "kysely"
import { type Gate, makeGate } from "./gate.js"

const guardedConnection = (connection: DatabaseConnection, gate: Gate): DatabaseConnection => ({
  executeQuery: async (query) => {
    gate.check()
    return connection.executeQuery(query)
  },
  streamQuery: async function* <Row>(query: CompiledQuery, chunkSize?: number) {
    gate.check()
    for await (const chunk of connection.streamQuery<Row>(query, chunkSize)) {
      gate.check() // leaving the loop closes the cursor, which ROLLBACK waits for
      yield chunk
    }
  }
})

/**
 * A transaction of Kysely as it is given to a body, and the way to close it to that body. Between COMMIT or ROLLBACK and its
 * answer Kysely would still send what the body asks for. The gate is at the connection: a compiled query passes every plugin, and
 * a statement may have waited for one before it.
 *
 * @internal
 */
export const closableKysely = <DB>(
  open: Transaction<DB>
): { readonly tx: Transaction<DB>; readonly close: () => void } => {
  const gate = makeGate()
  const executor = open.getExecutor()
  const provider: ConnectionProvider = {
    provideConnection: (consumer) =>
      executor.provideConnection((connection) => consumer(guardedConnection(connection, gate)))
  }
  const guarded = executor.withConnectionProvider(provider)
  // the only way to the same transaction with another executor: what it would have added a plugin to
  const made = Object.defineProperty(executor, "withPlugin", { configurable: true, value: () => guarded })
  try {
    return {
      tx: open.withPlugin({
        transformQuery: ({ node }) => node,
        transformResult: ({ result }) => Promise.resolve(result)
      }),
      close: gate.close
    }
  } finally {
    Reflect.deleteProperty(made, "withPlugin")
  }
}
