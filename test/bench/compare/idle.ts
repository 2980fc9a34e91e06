/** What a worker asks of the server while there is nothing to do. */
import { setTimeout as sleep } from "node:timers/promises"
import * as Protocol from "../peers/protocol.js"
import { PeerCannot } from "./ask.js"
import { laneWish } from "./lanes.js"
import type { Measure } from "./measure.js"
import type { Peer } from "./peers.js"
import { redisCommand } from "./server.js"
import { type Context, withPeer } from "./session.js"

/** Asking Redis how many commands there were takes two: the question, and the good-bye. */
const commandsOfAsking = (peer: Peer): number => (peer.redis === true ? 2 : 0)

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

/** A program takes a while to be there: what it does before is not idling. */
const firstCall = async (context: Context, peer: Peer, database: string): Promise<void> => {
  const before = await readCalls(context, peer, database)
  const asking = commandsOfAsking(peer)
  for (let tries = 1; tries < 300; tries += 1) {
    await sleep(100)
    if ((await readCalls(context, peer, database)) > before + asking * tries) return
  }
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

export const idle: Measure = {
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
        await firstCall(context, peer, session.database.name)
        await sleep(settling * 1000)
        const before = await readCalls(context, peer, session.database.name)
        await sleep(seconds * 1000)
        const after = await readCalls(context, peer, session.database.name)
        await idling
        return { numbers: { perMinute: ((after - before - commandsOfAsking(peer)) / seconds) * 60 } }
      })
    )
}
