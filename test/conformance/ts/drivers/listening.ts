import type { Driver } from "effect-awa"
import * as Pg from "pg"

const borrowed = new WeakMap<Pg.Pool, Pg.PoolClient>()

/** Statements of the client that such a pool lent last, whoever has it. */
export const pastAdapter =
  (pool: Pg.Pool): Driver.Query =>
  async (text, values) => {
    const client = borrowed.get(pool)
    if (client === undefined) throw new Error("no client was borrowed")
    return (await client.query<Record<string, unknown>>(text, [...values])).rows
  }

/** A pool of one connection whose end is heard: unheard, it would be the process's. */
export const listeningPool = (connectionString: string): Pg.Pool => {
  const pool = new Pg.default.Pool({ connectionString, max: 1 })
  pool.on("connect", (client) => client.on("error", () => undefined))
  pool.on("acquire", (client) => borrowed.set(pool, client))
  pool.on("error", () => undefined)
  return pool
}
