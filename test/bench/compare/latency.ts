/** How long a single job takes from its enqueue to its start. */
import * as Protocol from "../peers/protocol.js"
import { PeerFailed } from "./ask.js"
import type { Values } from "./journal.js"
import type { Measure } from "./measure.js"
import type { Peer } from "./peers.js"
import { type Context, withPeer } from "./session.js"
import { findSustained } from "./sizing.js"

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

export const latency: Measure = {
  name: "latency",
  title: "Enqueue to start at 200 jobs a second",
  once: false,
  run: async (context, peer) => latencyNumbers(await askLatency(context, peer, 200, context.options.seconds))
}

/** A rate is kept up when 95 of a hundred jobs come, and 95 of a hundred of them within a quarter of a second. */
export const half: Measure = {
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
