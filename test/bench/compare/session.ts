/** A peer with a fresh database of its own. */
import type { Schema } from "effect"
import pg from "pg"
import * as Protocol from "../peers/protocol.js"
import { type Answered, ask, PeerCannot } from "./ask.js"
import type { Options } from "./options.js"
import { type Peer, root } from "./peers.js"
import { type Admin, type Database, mark, type Redis, redisCommand, withDatabase } from "./server.js"

export interface Context {
  readonly server: string
  readonly admin: Admin
  readonly redis: Redis | undefined
  readonly options: Options
  /** Aborted when the run is interrupted. */
  readonly signal: AbortSignal
  /** In jobs per second, from a trial that is made once in a run. */
  readonly rate: (peer: Peer, lane: string, find: () => Promise<number>) => Promise<number>
}

/** A request without what the session knows. */
type Without<R> = R extends unknown ? Omit<R, "url" | "redis"> : never
export type Wish = Without<Exclude<Protocol.Request, { readonly do: "describe" }>>

export interface Session {
  readonly database: Database
  readonly ask: <A, I>(wish: Wish, schema: Schema.Schema<A, I>, timeoutSeconds: number) => Promise<Answered<A>>
  readonly fill: (jobs: number, queues: number) => Promise<Protocol.Count>
}

/** However slow a peer is, this is too slow. */
const slowest = 50

export const timeoutFor = (jobs: number): number => 120 + jobs / slowest

export const withPeer = <A>(context: Context, peer: Peer, use: (session: Session) => Promise<A>): Promise<A> => {
  const redis = peer.redis === true ? context.redis : undefined
  if (peer.redis === true && redis === undefined) throw new PeerCannot("redis-server is not installed here")
  return withDatabase(context.server, context.admin, async (database) => {
    if (redis !== undefined) await redisCommand(redis, "FLUSHALL")
    const where = { url: database.url, ...(redis === undefined ? {} : { redis: redis.url }) }
    const asking: Session["ask"] = (wish, schema, timeoutSeconds) =>
      ask({ command: peer.command, cwd: root, request: { ...wish, ...where }, timeoutSeconds }, schema)
    await asking({ do: "install" }, Protocol.Nothing, 120)
    return use({
      database,
      ask: asking,
      fill: async (jobs, queues) =>
        (await asking({ do: "enqueue", jobs, queues }, Protocol.Count, timeoutFor(jobs))).value
    })
  })
}

/** A database minutes old has no statistics yet, which is nobody's normal state: some plan by them. */
export const analyzed = async (url: string): Promise<void> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query("analyze")
  await client.end()
}

/** Does it, and says what it cost: of the worker, and of the server, a job. */
export const costed = async (
  { admin, redis }: Context,
  peer: Peer,
  session: Session,
  wish: Extract<Wish, { readonly jobs: number }>
): Promise<{ readonly count: Protocol.Count; readonly numbers: Readonly<Record<string, number>> }> => {
  const ofPeer = peer.redis === true ? redis : undefined
  // every run begins with the same debt of full page images
  await admin.query("checkpoint")
  const before = await mark(admin, session.database.name, ofPeer)
  const { used, value: count } = await session.ask(wish, Protocol.Count, timeoutFor(wish.jobs))
  const after = await mark(admin, session.database.name, ofPeer)
  const cpu = count.cpuSeconds ?? used?.cpuSeconds
  const peak = Math.max(count.peakBytes ?? 0, used?.peakBytes ?? 0)
  const server = before.serverCpu === undefined ? undefined : (after.serverCpu ?? 0) - before.serverCpu
  return {
    count,
    numbers: {
      perSecond: count.jobs / count.seconds,
      jobs: wish.jobs,
      seconds: count.seconds,
      // of a queue that is not in PostgreSQL they say nothing
      ...(ofPeer === undefined ? { walBytes: (after.walBytes - before.walBytes) / wish.jobs } : {}),
      ...(ofPeer === undefined ? { commits: (after.commits - before.commits) / wish.jobs } : {}),
      ...(cpu === undefined ? {} : { workerMicros: (cpu / count.jobs) * 1e6 }),
      ...(server === undefined ? {} : { serverMicros: (server / wish.jobs) * 1e6 }),
      ...(peak === 0 ? {} : { peakBytes: peak })
    }
  }
}
