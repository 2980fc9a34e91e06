/** Numbers of jobs: enqueued, drained, and completed by their own transactions. */
import pg from "pg"
import * as Protocol from "../peers/protocol.js"
import { PeerCannot, PeerFailed } from "./ask.js"
import type { Measure } from "./measure.js"
import type { Peer } from "./peers.js"
import { analyzed, type Context, costed, type Session, timeoutFor, withPeer } from "./session.js"
import { findRate, jobsFor } from "./sizing.js"

type Lane = "enqueue" | "drain" | "owned" | "grouped"

export const laneWish = (lane: Lane, jobs: number) =>
  lane === "enqueue"
    ? { do: lane, jobs, queues: 1 }
    : lane === "drain"
      ? { do: lane, jobs, queues: 1, processes: 1 }
      : { do: lane, jobs }

/** The floor has nothing to fill. */
const fillFor = async (peer: Peer, session: Session, lane: Lane, jobs: number): Promise<void> => {
  if (lane !== "enqueue" && peer.name !== "floor") await session.fill(jobs, 1)
  await analyzed(session.database.url)
}

export const rateOf = (context: Context, peer: Peer, lane: Lane): Promise<number> =>
  context.rate(peer, lane, () =>
    findRate(context.options.quick ? 0.3 : 3, context.options.maxJobs, (jobs) =>
      withPeer(context, peer, async (session) => {
        await fillFor(peer, session, lane, jobs)
        return (await session.ask(laneWish(lane, jobs), Protocol.Count, timeoutFor(jobs))).value
      })
    )
  )

export const jobsOf = async (context: Context, peer: Peer, lane: Lane): Promise<number> =>
  jobsFor(await rateOf(context, peer, lane), context.options.seconds, context.options.maxJobs)

const accountsOf = async (url: string): Promise<number> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query<{ n: string }>("select sum(n) as n from bench_accounts")
  await client.end()
  return Number(rows[0]?.n)
}

export const lane = (name: Lane, title: string): Measure => ({
  name,
  title,
  once: false,
  run: async (context, peer) => {
    if (name === "grouped" && peer.description.grouped === undefined) {
      throw new PeerCannot("it is not asked to complete many jobs in one transaction")
    }
    const jobs = await jobsOf(context, peer, name)
    return withPeer(context, peer, async (session) => {
      await fillFor(peer, session, name, jobs)
      const { count, numbers } = await costed(context, peer, session, laneWish(name, jobs))
      if (name === "owned" || name === "grouped") {
        const changed = await accountsOf(session.database.url)
        if (changed !== jobs) throw new PeerFailed(`${jobs} jobs made ${changed} changes`)
      }
      return { numbers, ...(count.timeline === undefined ? {} : { series: { timeline: count.timeline } }) }
    })
  }
})
