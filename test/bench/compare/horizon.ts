/** Transactions that keep the server from removing what is dead. */
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"

export const pins = ["snapshot", "xid", "scans"] as const
export type Pin = (typeof pins)[number]

const connected = async (url: string): Promise<pg.Client> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return client
}

/** Of one snapshot that reads slowly; two of them take turns, so that there is always one. */
const scanSeconds = 10

const scanning = async (url: string, startSeconds: number, stopped: AbortSignal): Promise<void> => {
  const client = await connected(url)
  const rest = (millis: number) => sleep(millis, undefined, { signal: stopped }).catch(() => undefined)
  const isStopped = () => stopped.aborted
  await rest(startSeconds * 1000)
  while (!isStopped()) {
    await client.query("begin isolation level repeatable read")
    const until = performance.now() + scanSeconds * 1000
    while (!isStopped() && performance.now() < until) {
      await client.query("select sum(n) from bench_accounts")
      await rest(200)
    }
    await client.query("commit")
  }
  await client.end()
}

/** Pins the horizon until the answer is called. */
export const pin = async (url: string, how: Pin): Promise<() => Promise<void>> => {
  if (how === "scans") {
    const stopped = new AbortController()
    const readers = [0, scanSeconds / 2].map((start) => scanning(url, start, stopped.signal))
    return async () => {
      stopped.abort()
      await Promise.all(readers)
    }
  }
  const client = await connected(url)
  await client.query(how === "snapshot" ? "begin isolation level repeatable read" : "begin")
  await client.query(how === "snapshot" ? "select count(*) from bench_accounts" : "select pg_current_xact_id()")
  return () => client.end()
}
