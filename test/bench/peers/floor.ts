/**
 * What the server and the driver allow without any queue: the same transaction, a multi-row insert into a narrow table, and a
 * notification with one durable claim.
 */
import { Schema } from "effect"
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { cpuUsage, resourceUsage } from "node:process"
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import type { Request } from "./protocol.js"
import { accountOf, answerWith, atRate, changeAccount, changeAccounts, groupSize, quantilesOf } from "./serve.js"

const { version } = Schema.decodeUnknownSync(Schema.parseJson(Schema.Struct({ version: Schema.String })))(
  readFileSync(createRequire(import.meta.url).resolve("pg/package.json"), "utf8")
)

/** As many as effect-awa's caller-owned lane has. */
const connections = 20
const rowsPerInsert = 1000

/** Does it with all connections open. */
const timed = async (url: string, max: number, jobs: number, run: (pool: pg.Pool) => Promise<unknown>) => {
  const pool = new pg.Pool({ connectionString: url, max })
  const clients = await Promise.all(Array.from({ length: max }, () => pool.connect()))
  for (const client of clients) client.release()
  const before = cpuUsage()
  const begun = performance.now()
  await run(pool)
  const seconds = (performance.now() - begun) / 1000
  const { system, user } = cpuUsage(before)
  await pool.end()
  return { jobs, seconds, cpuSeconds: (system + user) / 1e6, peakBytes: resourceUsage().maxRSS * 1024 }
}

const enqueue = (url: string, jobs: number) =>
  timed(url, 2, jobs, async (pool) => {
    let next = 0
    const lane = async () => {
      while (next < jobs) {
        const from = next
        next = Math.min(jobs, next + rowsPerInsert)
        const payloads = Array.from({ length: next - from }, (_, i) => JSON.stringify({ n: from + i }))
        await pool.query("insert into bench_narrow (payload) select * from unnest($1::text[])", [payloads])
      }
    }
    await Promise.all([lane(), lane()])
  })

const owned = (url: string, jobs: number) =>
  timed(url, connections, jobs, async (pool) => {
    let next = 0
    const lane = async () => {
      for (let n = next++; n < jobs; n = next++) {
        const client = await pool.connect()
        await client.query("begin")
        await client.query(changeAccount, [accountOf({ n })])
        await client.query("commit")
        client.release()
      }
    }
    await Promise.all(Array.from({ length: connections }, lane))
  })

/** The transactions of the grouped lane. */
const grouped = (url: string, jobs: number) =>
  timed(url, 4, jobs, async (pool) => {
    let next = 0
    const lane = async () => {
      while (next < jobs) {
        const from = next
        const to = (next = Math.min(jobs, from + groupSize)) // others go on with `next` meanwhile
        const client = await pool.connect()
        await client.query("begin")
        await client.query(changeAccounts, [Array.from({ length: to - from }, (_, i) => accountOf({ n: from + i }))])
        await client.query("commit")
        client.release()
      }
    }
    await Promise.all([lane(), lane(), lane(), lane()])
  })

/** From a NOTIFY to the answer of a durable claim that its arrival set off. */
const latency = async (url: string, perSecond: number, seconds: number) => {
  const listener = new pg.Client({ connectionString: url })
  const pool = new pg.Pool({ connectionString: url, max: connections })
  await listener.connect()
  await listener.query("listen bench_floor")
  await pool.query("insert into bench_claims select n, false from generate_series(0, $1::integer) n", [
    Math.ceil(perSecond * seconds) + 100
  ])
  const called = new Map<number, number>()
  const samples: Array<{ notify: number; claim: number }> = []
  listener.on("notification", ({ payload }) => {
    const n = Number(payload)
    const heard = performance.now()
    void pool.query("update bench_claims set claimed = true where n = $1 and not claimed returning n", [n]).then(() => {
      const at = called.get(n)
      if (at !== undefined) samples.push({ notify: heard - at, claim: performance.now() - heard })
    })
  })
  const sent = await atRate(perSecond, seconds, (n) => {
    called.set(n, performance.now())
    return pool.query("select pg_notify('bench_floor', $1)", [String(n)])
  })
  const until = performance.now() + 30_000
  while (samples.length < sent && performance.now() < until) await sleep(20)
  await listener.end()
  await pool.end()
  const all = quantilesOf(samples.map(({ claim, notify }) => notify + claim))
  return {
    samples: samples.length,
    ...all,
    parts: {
      "since the call": all,
      "LISTEN/NOTIFY round trip": quantilesOf(samples.map(({ notify }) => notify)),
      "durable claim": quantilesOf(samples.map(({ claim }) => claim))
    }
  }
}

const install = async (url: string) => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(
    "create table bench_narrow (id bigint generated always as identity primary key, payload text not null)"
  )
  await client.query("create table bench_claims (n integer primary key, claimed boolean not null)")
  await client.end()
  return {}
}

const answer = async (request: Request): Promise<unknown> => {
  switch (request.do) {
    case "describe":
      return {
        name: "floor: no queue",
        version: `pg ${version}`,
        runtime: `Node ${process.versions.node}`,
        configuration: `BEGIN, UPDATE, COMMIT on ${connections} connections; inserts of ${rowsPerInsert} rows on 2; NOTIFY and one update`,
        guarantee: "none: nothing is queued",
        owned: "the transaction without a queue",
        grouped: "the transaction of a hundred, on four connections"
      }
    case "install":
      return install(request.url)
    case "enqueue":
      return enqueue(request.url, request.jobs)
    case "owned":
      return owned(request.url, request.jobs)
    case "grouped":
      return grouped(request.url, request.jobs)
    case "latency":
      return latency(request.url, request.perSecond, request.seconds)
    case "drain":
    case "work":
    case "idle":
      return { unsupported: "there is no queue" }
  }
}

await answerWith(answer)
