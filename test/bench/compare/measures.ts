/** What is measured. */
import { statfs } from "node:fs/promises"
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import * as Protocol from "../peers/protocol.js"
import { median, slope, sum } from "../storage/statistics.js"
import { PeerCannot, PeerFailed } from "./ask.js"
import { pin, pins } from "./horizon.js"
import type { Values } from "./journal.js"
import { type Peer, root } from "./peers.js"
import { redisCommand } from "./server.js"
import { type Context, costed, type Session, timeoutFor, withPeer } from "./session.js"
import { findRate, findSustained, jobsFor } from "./sizing.js"

export interface Measure {
  readonly name: string
  readonly title: string
  /** What takes long and compares a peer with itself is done in the first round only. */
  readonly once: boolean
  readonly run: (context: Context, peer: Peer) => Promise<Values>
}

type Lane = "enqueue" | "drain" | "owned"

const laneWish = (lane: Lane, jobs: number) =>
  lane === "enqueue"
    ? { do: lane, jobs, queues: 1 }
    : lane === "drain"
      ? { do: lane, jobs, queues: 1, processes: 1 }
      : { do: lane, jobs }

/** The floor has nothing to fill. */
const fillFor = async (peer: Peer, session: Session, lane: Lane, jobs: number): Promise<void> => {
  if (lane !== "enqueue" && peer.name !== "floor") await session.fill(jobs, 1)
}

const rateOf = (context: Context, peer: Peer, lane: Lane): Promise<number> =>
  context.rate(peer, lane, () =>
    findRate(context.options.quick ? 0.3 : 1.5, context.options.maxJobs, (jobs) =>
      withPeer(context, peer, async (session) => {
        await fillFor(peer, session, lane, jobs)
        return (await session.ask(laneWish(lane, jobs), Protocol.Count, timeoutFor(jobs))).value
      })
    )
  )

const jobsOf = async (context: Context, peer: Peer, lane: Lane): Promise<number> =>
  jobsFor(await rateOf(context, peer, lane), context.options.seconds, context.options.maxJobs)

const accountsOf = async (url: string): Promise<number> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query<{ n: string }>("select sum(n) as n from bench_accounts")
  await client.end()
  return Number(rows[0]?.n)
}

const lane = (name: Lane, title: string): Measure => ({
  name,
  title,
  once: false,
  run: async (context, peer) => {
    const jobs = await jobsOf(context, peer, name)
    return withPeer(context, peer, async (session) => {
      await fillFor(peer, session, name, jobs)
      const { count, numbers } = await costed(context, peer, session, laneWish(name, jobs))
      if (name === "owned") {
        const changed = await accountsOf(session.database.url)
        if (changed !== jobs) throw new PeerFailed(`${jobs} jobs made ${changed} changes`)
      }
      return { numbers, ...(count.timeline === undefined ? {} : { series: { timeline: count.timeline } }) }
    })
  }
})

const latencyNumbers = ({ max, p50, p95, p99, parts, samples }: Protocol.Latency): Values => ({
  numbers: {
    ...{ p50, p95, p99, max, samples },
    ...Object.fromEntries(
      Object.entries(parts ?? {}).flatMap(([name, part]) => [
        [`${name}, p50`, part.p50],
        [`${name}, p95`, part.p95],
        [`${name}, p99`, part.p99]
      ])
    )
  }
})

const askLatency = async (context: Context, peer: Peer, perSecond: number, seconds: number) =>
  withPeer(context, peer, async (session) => {
    const { value } = await session.ask({ do: "latency", perSecond, seconds }, Protocol.Latency, seconds * 5 + 120)
    return value
  })

const latency: Measure = {
  name: "latency",
  title: "Enqueue to start at 200 jobs a second",
  once: false,
  run: async (context, peer) => latencyNumbers(await askLatency(context, peer, 200, context.options.seconds))
}

/** A rate is kept up when no more than one in twenty is late, and none is left out. */
const half: Measure = {
  name: "half",
  title: "Enqueue to start at half of the rate that one process keeps up, singly",
  once: false,
  run: async (context, peer) => {
    const seconds = context.options.quick ? 1 : 3
    const capacity = await context.rate(peer, "latency", () =>
      findSustained(100, 12_800, async (perSecond) => {
        const { p95, samples } = await askLatency(context, peer, perSecond, seconds)
        return samples >= 0.95 * perSecond * seconds && p95 < 250
      })
    )
    if (capacity === 0) throw new PeerFailed("not even 100 jobs a second were kept up")
    const { numbers } = latencyNumbers(await askLatency(context, peer, capacity / 2, context.options.seconds))
    return { numbers: { perSecond: capacity / 2, ...numbers } }
  }
}

const readCalls = async ({ admin, redis }: Context, peer: Peer, database: string): Promise<number> => {
  if (peer.redis === true && redis !== undefined) {
    const said = await redisCommand(redis, "INFO stats")
    return Number(/total_commands_processed:(\d+)/.exec(said)?.[1])
  }
  const [row] = await admin.query(
    "select coalesce(sum(calls), 0) as calls from pg_stat_statements where dbid = (select oid from pg_database where datname = $1)",
    [database]
  )
  return Number(row?.["calls"])
}

const tracking = async <A>({ admin }: Context, use: () => Promise<A>): Promise<A> => {
  const [loaded] = await admin.query("select 1 where current_setting('pg_stat_statements.track', true) is not null")
  if (loaded === undefined) throw new PeerCannot("pg_stat_statements is not loaded in this server")
  await admin.query("create extension if not exists pg_stat_statements")
  const set = async (value: string) => {
    await admin.query(`alter system set pg_stat_statements.track = '${value}'`)
    await admin.query("select pg_reload_conf()")
  }
  await set("top")
  try {
    return await use()
  } finally {
    await set("none")
  }
}

const idle: Measure = {
  name: "idle",
  title: "Statements of an idle worker a minute",
  once: true,
  run: (context, peer) =>
    tracking(context, () =>
      withPeer(context, peer, async (session) => {
        const seconds = context.options.idleSeconds
        const settling = context.options.quick ? 3 : 10
        await session.fill(200, 1)
        await session.ask(laneWish("drain", 200), Protocol.Count, 120)
        const idling = session.ask({ do: "idle", seconds: seconds + settling + 2 }, Protocol.Nothing, seconds + 120)
        // it is awaited below; until then its failure must not be taken for nobody's
        idling.catch(() => undefined)
        await sleep(settling * 1000)
        const before = await readCalls(context, peer, session.database.name)
        await sleep(seconds * 1000)
        const after = await readCalls(context, peer, session.database.name)
        await idling
        return { numbers: { perMinute: ((after - before) / seconds) * 60 } }
      })
    )
}

/** Of a job with its history and its WAL; generous. */
const bytesPerJob = 2000

const requireDisk = async (jobs: number): Promise<void> => {
  const disk = await statfs(root)
  const free = disk.bavail * disk.bsize
  const needed = jobs * bytesPerJob + 10e9
  if (free < needed) {
    throw new PeerFailed(`${(needed / 1e9).toFixed(0)} GB of disk are needed, ${(free / 1e9).toFixed(0)} GB are free`)
  }
}

const fillBacklog = async (session: Session, jobs: number): Promise<void> => {
  await requireDisk(jobs)
  await session.fill(jobs, 1)
}

const working = (session: Session, seconds: number) =>
  session.ask({ do: "work", seconds, concurrencyHint: null }, Protocol.Timeline, seconds * 2 + 180)

/** Start and end belong to the processes, not to the work. */
const steady = (timeline: ReadonlyArray<number>): ReadonlyArray<number> =>
  timeline.length < 4 ? timeline.slice(1) : timeline.slice(1, -1)

const processCounts = [1, 2, 4]

const processes: Measure = {
  name: "processes",
  title: "Drain by 1, 2 and 4 worker processes, jobs a second together",
  once: true,
  run: async (context, peer) => {
    const { maxJobs, quick } = context.options
    const seconds = quick ? 4 : context.options.seconds
    const rate = await rateOf(context, peer, "drain")
    const numbers: Record<string, number> = {}
    for (const count of processCounts) {
      await withPeer(context, peer, async (session) => {
        const jobs = jobsFor(rate, seconds * Math.min(count, 2) * 1.5, 5 * maxJobs)
        await fillBacklog(session, jobs)
        const answers = await Promise.all(Array.from({ length: count }, () => working(session, seconds)))
        const together = Array.from({ length: seconds }, (_, second) =>
          sum(answers.map(({ value }) => value.timeline[second] ?? 0))
        )
        if (sum(together) >= jobs) throw new PeerFailed(`${jobs} jobs were too few for ${count} processes`)
        numbers[`processes ${count}`] = median(steady(together))
      })
    }
    return { numbers }
  }
}

const queueCounts = [1, 4, 16, 64]

const queues: Measure = {
  name: "queues",
  title: "Drain of 1, 4, 16 and 64 queues by one process, jobs a second",
  once: true,
  run: async (context, peer) => {
    const jobs = await jobsOf(context, peer, "drain")
    const numbers: Record<string, number> = {}
    for (const count of queueCounts) {
      await withPeer(context, peer, async (session) => {
        await session.fill(jobs, count)
        const wish = { do: "drain" as const, jobs, queues: count, processes: 1 }
        const { value } = await session.ask(wish, Protocol.Count, timeoutFor(jobs))
        numbers[`queues ${count}`] = value.jobs / value.seconds
      })
    }
    return { numbers }
  }
}

/** Sums of ten seconds, as rates. */
const windowsOf = (timeline: ReadonlyArray<number>, size: number): ReadonlyArray<number> =>
  Array.from(
    { length: Math.floor(timeline.length / size) },
    (_, at) => sum(timeline.slice(at * size, (at + 1) * size)) / size
  )

const horizon: Measure = {
  name: "horizon",
  title: "Drain while the horizon is pinned, by windows of ten seconds",
  once: true,
  run: async (context, peer) => {
    const { maxJobs, pinnedSeconds, quick } = context.options
    const rate = await rateOf(context, peer, "drain")
    const numbers: Record<string, number> = {}
    const series: Record<string, ReadonlyArray<number>> = {}
    for (const how of pins) {
      await withPeer(context, peer, async (session) => {
        const jobs = jobsFor(rate, pinnedSeconds * 1.3, 10 * maxJobs)
        await fillBacklog(session, jobs)
        const release = await pin(session.database.url, how)
        const { value } = await working(session, pinnedSeconds).finally(release)
        const windows = windowsOf(value.timeline.slice(quick ? 0 : 1), quick ? 1 : 10)
        if (sum(value.timeline) >= jobs) throw new PeerFailed(`${jobs} jobs were too few for ${pinnedSeconds} s`)
        const third = Math.max(1, Math.floor(windows.length / 3))
        const [first, last] = [median(windows.slice(0, third)), median(windows.slice(-third))]
        const { estimate } = slope(windows.map((perSecond, at) => [at, perSecond]))
        series[how] = windows
        numbers[`${how}, first window`] = windows[0] ?? Number.NaN
        numbers[`${how}, last third over first`] = last / first
        numbers[`${how}, trend a window`] = estimate / first
      })
    }
    return { numbers, series }
  }
}

const backlog: Measure = {
  name: "backlog",
  title: "Drain from a large backlog",
  once: true,
  run: (context, peer) =>
    withPeer(context, peer, async (session) => {
      const { backlog: sizes, seconds } = context.options
      const jobs = peer.name === "effect-awa" ? sizes.ours : sizes.peers
      await fillBacklog(session, jobs)
      const { used, value } = await working(session, Math.max(4, seconds))
      return {
        numbers: {
          jobs,
          perSecond: median(steady(value.timeline)),
          ...(used === undefined ? {} : { peakBytes: used.peakBytes })
        }
      }
    })
}

export const measures: ReadonlyArray<Measure> = [
  lane("enqueue", "Bulk enqueue"),
  lane("drain", "Drain of jobs that do nothing"),
  lane("owned", "Drain of jobs that change a row and complete in the same transaction"),
  latency,
  half,
  idle,
  processes,
  queues,
  horizon,
  backlog
]

export const measureNames: ReadonlyArray<string> = measures.map(({ name }) => name)
