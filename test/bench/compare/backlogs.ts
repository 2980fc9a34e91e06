/** Work on a backlog that does not end: by several processes, from several queues, under a pinned horizon, from a large one. */
import { statfs } from "node:fs/promises"
import * as Protocol from "../peers/protocol.js"
import { median, slope, sum } from "../storage/statistics.js"
import { PeerFailed } from "./ask.js"
import { pin, pins } from "./horizon.js"
import { jobsOf, rateOf } from "./lanes.js"
import type { Measure } from "./measure.js"
import { root } from "./peers.js"
import { type Session, timeoutFor, withPeer } from "./session.js"
import { jobsFor } from "./sizing.js"

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

/**
 * Runs with so many jobs, and again with twice as many when they did not last: a worker that has nothing to do says nothing.
 * It answers how many were done, by the second.
 */
const lasting = async (
  jobs: number,
  most: number,
  run: (jobs: number) => Promise<ReadonlyArray<number>>
): Promise<ReadonlyArray<number>> => {
  const timeline = await run(jobs)
  if (sum(timeline) < jobs) return timeline
  if (jobs >= most) throw new PeerFailed(`${jobs} jobs were too few`)
  return lasting(Math.min(most, jobs * 2), most, run)
}

/** Start and end belong to the processes, not to the work. */
const steady = (timeline: ReadonlyArray<number>): ReadonlyArray<number> =>
  timeline.length < 4 ? timeline.slice(1) : timeline.slice(1, -1)

const processCounts = [1, 2, 4]

export const processes: Measure = {
  name: "processes",
  title: "Drain by 1, 2 and 4 worker processes, jobs a second together",
  once: true,
  run: async (context, peer) => {
    const { maxJobs, quick } = context.options
    const seconds = quick ? 4 : context.options.seconds
    const rate = await rateOf(context, peer, "drain")
    const numbers: Record<string, number> = {}
    for (const count of processCounts) {
      const first = jobsFor(rate, seconds * Math.min(count, 2) * 1.5, 5 * maxJobs)
      const together = await lasting(first, 5 * maxJobs, (jobs) =>
        withPeer(context, peer, async (session) => {
          await fillBacklog(session, jobs)
          const answers = await Promise.all(Array.from({ length: count }, () => working(session, seconds)))
          return Array.from({ length: seconds }, (_, second) =>
            sum(answers.map(({ value }) => value.timeline[second] ?? 0))
          )
        })
      )
      numbers[`processes ${count}`] = median(steady(together))
    }
    return { numbers }
  }
}

const queueCounts = [1, 4, 16, 64]

export const queues: Measure = {
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

export const horizon: Measure = {
  name: "horizon",
  title: "Drain while the horizon is pinned, by windows of ten seconds",
  once: true,
  run: async (context, peer) => {
    const { maxJobs, pinnedSeconds, quick } = context.options
    const rate = await rateOf(context, peer, "drain")
    const numbers: Record<string, number> = {}
    const series: Record<string, ReadonlyArray<number>> = {}
    for (const how of pins) {
      const timeline = await lasting(jobsFor(rate, pinnedSeconds * 1.3, 10 * maxJobs), 10 * maxJobs, (jobs) =>
        withPeer(context, peer, async (session) => {
          await fillBacklog(session, jobs)
          const release = await pin(session.database.url, how)
          const { value } = await working(session, pinnedSeconds).finally(release)
          return value.timeline
        })
      )
      const windows = windowsOf(timeline.slice(quick ? 0 : 1), quick ? 1 : 10)
      const third = Math.max(1, Math.floor(windows.length / 3))
      const [first, last] = [median(windows.slice(0, third)), median(windows.slice(-third))]
      const { estimate } = slope(windows.map((perSecond, at) => [at, perSecond]))
      series[how] = windows
      numbers[`${how}, first window`] = windows[0] ?? Number.NaN
      numbers[`${how}, last third over first`] = last / first
      numbers[`${how}, trend a window`] = estimate / first
    }
    return { numbers, series }
  }
}

export const backlog: Measure = {
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
