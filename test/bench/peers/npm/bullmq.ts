/** BullMQ, on Redis or on PostgreSQL: the first argument says which. */
import { createPostgresBackend, isPgPool, Queue, runMigrations, Worker } from "bullmq"
import { Redis } from "ioredis"
import pg from "pg"
import { accountOf, changeAccount, type Payload, type Place, serve, type Work } from "../serve.js"
import { versionOf } from "./versions.js"

const onRedis = process.argv[2] === "redis"
const concurrency = 100
const connections = 20

const redisOf = ({ redis }: Place) => {
  if (redis === undefined) throw new Error("it needs a Redis server")
  return new Redis(redis, { maxRetriesPerRequest: null })
}

const poolOf = ({ url }: Place, max = connections, options?: string) =>
  new pg.Pool({ connectionString: url, max, ...(options === undefined ? {} : { options }) })

/** A pool that finds BullMQ's schema, as it asks of a pool which it has not made itself. */
const bullPoolOf = (place: Place, max?: number) => {
  const pool: unknown = poolOf(place, max, "-c search_path=bullmq")
  if (!isPgPool(pool)) throw new Error("BullMQ does not know a pool of node-postgres")
  return pool
}

const opened = (place: Place, names: ReadonlyArray<string>) => {
  if (onRedis) {
    const connection = redisOf(place)
    const queues = names.map((name) => new Queue<Payload>(name, { connection }))
    return { queues, end: () => connection.quit() }
  }
  const connection = bullPoolOf(place)
  const queues = names.map((name) => new Queue(name, { connection }, createPostgresBackend))
  return { queues, end: () => connection.end() }
}

const workerOf = (place: Place, name: string, work: Work, run: (job: { data: Payload }) => Promise<void>) => {
  const each = Math.max(5, Math.ceil(concurrency / work.queues.length))
  if (onRedis) return new Worker<Payload>(name, run, { connection: redisOf(place), concurrency: each })
  const connection = bullPoolOf(place, Math.max(3, Math.floor(connections / work.queues.length)))
  return new Worker(name, run, { connection, concurrency: each }, createPostgresBackend)
}

await serve({
  describe: {
    name: onRedis ? "BullMQ on Redis" : "BullMQ on PostgreSQL",
    version: versionOf("bullmq"),
    configuration:
      `concurrency ${concurrency}, addBulk of 1,000, completed jobs kept` +
      (onRedis ? "; Redis with appendonly yes, appendfsync everysec" : `; a pool of ${connections} for each worker`),
    guarantee:
      "at least once; a dead worker's jobs are found stalled after 30 s" +
      (onRedis ? "; Redis may lose the last second when it dies" : ""),
    owned: `not atomic: the update commits by itself, the job is completed ${onRedis ? "in Redis" : ""} afterwards`
  },
  bulk: { size: 1000, calls: 2 },
  install: async (place) => {
    if (onRedis) return
    const client = new pg.Client({ connectionString: place.url })
    await client.connect()
    await runMigrations(client)
    await client.end()
  },
  producer: async (place, names) => {
    const { end, queues } = opened(place, names)
    await Promise.all(queues.map((queue) => queue.waitUntilReady()))
    const byName = new Map(queues.map((queue) => [queue.name, queue]))
    return {
      enqueue: (name, payloads) => {
        const queue = byName.get(name)
        const [first] = payloads
        if (queue === undefined) throw new Error(`no queue ${name}`)
        return payloads.length === 1 && first !== undefined
          ? queue.add("bench", first)
          : queue.addBulk(payloads.map((data) => ({ name: "bench", data })))
      },
      close: async () => {
        await Promise.all(queues.map((queue) => queue.close()))
        await end()
      }
    }
  },
  work: async (place, work) => {
    const accounts = work.lane === "owned" ? poolOf(place) : undefined
    const run = async ({ data }: { data: Payload }) => {
      work.started(data)
      await accounts?.query(changeAccount, [accountOf(data)])
    }
    const workers = work.queues.map((name) => workerOf(place, name, work, run))
    for (const worker of workers) worker.on("error", (error) => console.error(error))
    await Promise.all(workers.map((worker) => worker.waitUntilReady()))
    return { close: () => Promise.all(workers.map((worker) => worker.close())) }
  },
  remaining: async (place, names) => {
    const { end, queues } = opened(place, names)
    const counts = await Promise.all(
      queues.map((queue) => queue.getJobCounts("wait", "active", "delayed", "prioritized", "failed"))
    )
    await Promise.all(queues.map((queue) => queue.close()))
    await end()
    return counts.flatMap((count) => Object.values(count)).reduce((sum, n) => sum + n, 0)
  }
})
