/** pg-boss: batches for ordinary jobs; for caller-owned ones, `complete` within the transaction that did the work. */
import pg from "pg"
import { PgBoss } from "pg-boss"
import { counted } from "../counted.js"
import {
  accountOf,
  changeAccount,
  changeAccounts,
  groupSize,
  type Payload,
  type Place,
  serve,
  type Work
} from "../serve.js"
import { versionOf } from "./versions.js"

const batchSize = 1000
const workers = 4
const connections = 20

const start = async ({ url }: Place, queues: ReadonlyArray<string>) => {
  const boss = new PgBoss({ connectionString: url, max: connections, useListenNotify: true })
  boss.on("error", (error) => console.error(error))
  await boss.start()
  for (const queue of queues) await boss.createQueue(queue, { notify: true })
  return boss
}

const stop = (boss: PgBoss) => boss.stop({ graceful: true, timeout: 30_000 })

const ordinary = async (boss: PgBoss, { queues, started }: Work) => {
  const options = {
    batchSize,
    localConcurrency: Math.max(1, Math.floor(workers / queues.length)),
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 2
  }
  for (const queue of queues) {
    await boss.work<Payload>(queue, options, (jobs) => {
      for (const job of jobs) started(job.data)
      return Promise.resolve()
    })
  }
  // waits for the batches under way, and their completion
  const settled = () => Promise.all(queues.map((queue) => boss.offWork(queue, { wait: true })))
  return { settled, close: () => stop(boss) }
}

/** Two loops that fetch a hundred jobs each, and give every job a transaction of its own on one of ten connections. */
const owned = (boss: PgBoss, { url }: Place, { queues: [queue = ""], started }: Work) => {
  const pool = new pg.Pool({ connectionString: url, max: connections })
  let stopped = false
  const one = async (id: string, payload: Payload) => {
    const client = await pool.connect()
    await client.query("begin")
    started(payload)
    await client.query(changeAccount, [accountOf(payload)])
    await boss.complete(queue, id, null, { db: { executeSql: (text, values) => client.query(text, values) } })
    await client.query("commit")
    client.release()
  }
  const loop = async () => {
    while (!stopped) {
      const jobs = await boss.fetch<Payload>(queue, { batchSize: 100 })
      const waiting = jobs.values()
      const lane = async () => {
        for (const job of waiting) await one(job.id, job.data)
      }
      await Promise.all(Array.from({ length: connections / 2 }, lane))
      if (jobs.length === 0) await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  const loops = [loop(), loop()]
  const close = async () => {
    stopped = true
    await Promise.all(loops)
    await pool.end()
    await stop(boss)
  }
  return { close }
}

/** Four loops that fetch a hundred jobs each, and give each hundred one transaction. */
const grouped = (boss: PgBoss, { url }: Place, { queues: [queue = ""], started }: Work) => {
  const pool = new pg.Pool({ connectionString: url, max: connections })
  let stopped = false
  const loop = async () => {
    while (!stopped) {
      const jobs = await boss.fetch<Payload>(queue, { batchSize: groupSize })
      if (jobs.length === 0) {
        await new Promise((resolve) => setTimeout(resolve, 50))
        continue
      }
      const client = await pool.connect()
      await client.query("begin")
      for (const job of jobs) started(job.data)
      await client.query(changeAccounts, [jobs.map((job) => accountOf(job.data))])
      const ids = jobs.map(({ id }) => id)
      await boss.complete(queue, ids, null, { db: { executeSql: (text, values) => client.query(text, values) } })
      await client.query("commit")
      client.release()
    }
  }
  const loops = Array.from({ length: 4 }, loop)
  const close = async () => {
    stopped = true
    await Promise.all(loops)
    await pool.end()
    await stop(boss)
  }
  return { close }
}

await serve({
  describe: {
    name: "pg-boss",
    version: versionOf("pg-boss"),
    configuration: `work() in batches of ${batchSize}, ${workers} at a time, burstWhenBatchFull, LISTEN/NOTIFY on; insert() of 1,000`,
    guarantee: "at least once; a dead worker's batch runs again when it expires, after 15 minutes",
    owned: "one transaction: the update, then complete() with that transaction as its db; fetched by the hundred",
    atomic: true,
    grouped: "complete() of a hundred ids with that transaction as its db, four loops"
  },
  bulk: { size: 1000, calls: 2 },
  install: async (place) => stop(await start(place, [])),
  producer: async (place, queues) => {
    const boss = await start(place, queues)
    return {
      enqueue: (queue, payloads) => {
        const [first] = payloads
        return payloads.length === 1 && first !== undefined
          ? boss.send(queue, first)
          : boss.insert(
              queue,
              payloads.map((data) => ({ data }))
            )
      },
      close: () => stop(boss)
    }
  },
  work: async (place, work) => {
    const boss = await start(place, work.queues)
    if (work.lane === "grouped") return grouped(boss, place, work)
    return work.lane === "ordinary" ? ordinary(boss, work) : owned(boss, place, work)
  },
  remaining: ({ url }) =>
    counted(url, "select count(*)::int as left from pgboss.job where name like 'bench%' and state < 'completed'")
})
