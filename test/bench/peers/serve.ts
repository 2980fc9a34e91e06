/**
 * The part that is the same for every peer written in TypeScript: it reads the request, keeps the time, counts, checks that
 * every job ran exactly once, and prints the answer.
 */
import { Schema } from "effect"
import { resourceUsage, cpuUsage } from "node:process"
import { setTimeout as sleep } from "node:timers/promises"
import { quantile } from "../storage/statistics.js"
import { type Description, Request } from "./protocol.js"

/** Where a peer works. */
export interface Place {
  readonly url: string
  readonly redis?: string | undefined
}

export interface Payload {
  readonly n: number
}

export interface Producer {
  /** One call of the peer's public API. */
  readonly enqueue: (queue: string, payloads: ReadonlyArray<Payload>) => Promise<unknown>
  readonly close: () => Promise<unknown>
}

export interface Work {
  readonly queues: ReadonlyArray<string>
  /**
   * Whether a job changes its account and is completed in the same transaction, or as close to that as the peer comes; `grouped`: `groupSize`
   * jobs change their accounts by one statement and are completed, all in one transaction.
   */
  readonly lane: "ordinary" | "owned" | "grouped"
  /** To be called at the start of each job's handler. */
  readonly started: (payload: Payload) => void
  /** Whether jobs come one at a time, rather than from a backlog. */
  readonly trickle: boolean
}

export interface Running {
  /** Resolves when nothing that has started is unfinished any more, durably; where the peer has a way to say so. */
  readonly settled?: () => Promise<unknown>
  readonly close: () => Promise<unknown>
}

export interface Peer {
  readonly describe: Omit<Description, "runtime">
  readonly install: (place: Place) => Promise<unknown>
  /** How many jobs one call takes at its best, and how many calls are under way at once. */
  readonly bulk: { readonly size: number; readonly calls: number }
  readonly producer: (place: Place, queues: ReadonlyArray<string>) => Promise<Producer>
  readonly work: (place: Place, work: Work) => Promise<Running>
  /** Jobs that are not durably complete yet, or at least whether there are any. */
  readonly remaining: (place: Place, queues: ReadonlyArray<string>) => Promise<number>
}

/** The statement of a caller-owned job. */
export const changeAccount = "update bench_accounts set n = n + 1 where id = $1"
/** The statement of a group: its accounts as an array. */
export const changeAccounts =
  "update bench_accounts a set n = a.n + u.times from (select id, count(*) as times from unnest($1::integer[]) as id group by id) u where a.id = u.id"
export const groupSize = 100
export const accountOf = ({ n }: Payload): number => (n % 1000) + 1

const queueNames = (count: number) => Array.from({ length: count }, (_, i) => `bench_${i}`)

const usage = () => {
  const { system, user } = cpuUsage()
  return { cpuSeconds: (system + user) / 1e6, peakBytes: resourceUsage().maxRSS * 1024 }
}

/** Calls with their queues, in order; jobs go round robin over the queues. */
function* calls(from: number, to: number, size: number, queues: ReadonlyArray<string>) {
  const groups = queues.map((queue) => ({ queue, payloads: new Array<Payload>() }))
  for (let n = from; n < to; n += 1) {
    const group = groups[n % groups.length]
    if (group === undefined) continue
    group.payloads.push({ n })
    if (group.payloads.length >= size) {
      yield { queue: group.queue, payloads: group.payloads }
      group.payloads = []
    }
  }
  for (const group of groups) if (group.payloads.length > 0) yield group
}

const enqueueRange = async (
  peer: Peer,
  producer: Producer,
  from: number,
  to: number,
  queues: ReadonlyArray<string>
) => {
  const waiting = calls(from, to, peer.bulk.size, queues)
  const lane = async () => {
    for (const { payloads, queue } of waiting) await producer.enqueue(queue, payloads)
  }
  await Promise.all(Array.from({ length: peer.bulk.calls }, lane))
}

const enqueue = async (peer: Peer, place: Place, jobs: number, queues: ReadonlyArray<string>) => {
  const producer = await peer.producer(place, queues)
  const warm = Math.min(100, Math.floor(jobs / 2))
  await enqueueRange(peer, producer, 0, warm, queues)
  const before = usage()
  const begun = performance.now()
  await enqueueRange(peer, producer, warm, jobs, queues)
  const seconds = (performance.now() - begun) / 1000
  const after = usage()
  await producer.close()
  return { jobs: jobs - warm, seconds, cpuSeconds: after.cpuSeconds - before.cpuSeconds, peakBytes: after.peakBytes }
}

/** Counts by the second. */
const makeTimeline = () => {
  const timeline: Array<number> = []
  const begun = performance.now()
  return {
    timeline,
    count: () => {
      const second = Math.floor((performance.now() - begun) / 1000)
      while (timeline.length <= second) timeline.push(0)
      timeline[second] = (timeline[second] ?? 0) + 1
    }
  }
}

const drain = async (
  peer: Peer,
  place: Place,
  jobs: number,
  queues: ReadonlyArray<string>,
  lane: Work["lane"]
): Promise<unknown> => {
  const before = usage()
  const begun = performance.now()
  const { count, timeline } = makeTimeline()
  const times = new Uint8Array(jobs)
  let handled = 0
  let all = (): void => undefined
  const done = new Promise<void>((resolve) => (all = resolve))
  const started = ({ n }: Payload) => {
    times[n] = (times[n] ?? 0) + 1
    handled += 1
    count()
    if (handled === jobs) all()
  }
  const running = await peer.work(place, { queues, lane, started, trickle: false })
  await done
  if (running.settled !== undefined) await running.settled()
  else while ((await peer.remaining(place, queues)) > 0) await sleep(2)
  const seconds = (performance.now() - begun) / 1000
  const after = usage()
  await running.close()
  const wrong = times.findIndex((ran) => ran !== 1)
  if (wrong !== -1) throw new Error(`job ${wrong} ran ${times[wrong]} times, among ${handled} runs of ${jobs} jobs`)
  const left = await peer.remaining(place, queues)
  if (left > 0) throw new Error(`${left} of ${jobs} jobs are not complete`)
  return { jobs, seconds, cpuSeconds: after.cpuSeconds - before.cpuSeconds, peakBytes: after.peakBytes, timeline }
}

/** As many enqueues may be under way before the rate gives way. */
const maxUnderWay = 200

/** An open loop: what is late is caught up with, so that a stall is seen in the samples. */
export const atRate = async (
  perSecond: number,
  seconds: number,
  one: (n: number) => Promise<unknown>
): Promise<number> => {
  const begun = performance.now()
  const underWay = new Set<Promise<unknown>>()
  let sent = 0
  let failure: unknown
  for (;;) {
    const elapsed = (performance.now() - begun) / 1000
    if (elapsed >= seconds || failure !== undefined) break
    const due = Math.min(Math.floor(elapsed * perSecond) + 1, sent + maxUnderWay - underWay.size)
    while (sent < due) {
      const sending: Promise<unknown> = one(sent)
        .catch((error: unknown) => (failure = error ?? new Error("an enqueue failed")))
        .finally(() => underWay.delete(sending))
      underWay.add(sending)
      sent += 1
    }
    if (underWay.size >= maxUnderWay) await Promise.race(underWay)
    else await sleep(Math.max(0, (sent / perSecond) * 1000 - (performance.now() - begun)))
  }
  await Promise.all(underWay)
  if (failure !== undefined) throw failure instanceof Error ? failure : new Error("an enqueue failed")
  return sent
}

export const quantilesOf = (millis: ReadonlyArray<number>) => ({
  p50: quantile(millis, 0.5),
  p95: quantile(millis, 0.95),
  p99: quantile(millis, 0.99),
  max: quantile(millis, 1)
})

const latency = async (peer: Peer, place: Place, perSecond: number, seconds: number) => {
  const queues = queueNames(1)
  const called = new Map<number, number>()
  const returned = new Map<number, number>()
  const begun = new Map<number, number>()
  const started = ({ n }: Payload) => {
    if (!begun.has(n)) begun.set(n, performance.now())
  }
  const running = await peer.work(place, { queues, lane: "ordinary", started, trickle: true })
  const producer = await peer.producer(place, queues)
  const [queue = ""] = queues
  // The first jobs open connections and warm the code up.
  const warm = 50
  const sent = await atRate(Math.min(perSecond, 200), warm / 200, (n) => producer.enqueue(queue, [{ n }]))
  await sleep(500)
  const measured = await atRate(perSecond, seconds, async (i) => {
    const n = sent + i
    called.set(n, performance.now())
    await producer.enqueue(queue, [{ n }])
    returned.set(n, performance.now())
  })
  const until = performance.now() + 30_000
  while (begun.size < sent + measured && performance.now() < until) await sleep(20)
  if (begun.size < sent + measured) throw new Error(`${sent + measured - begun.size} jobs were not started within 30 s`)
  await running.close()
  await producer.close()
  const since = (from: ReadonlyMap<number, number>) =>
    quantilesOf([...from].map(([n, at]) => Math.max(0, (begun.get(n) ?? Number.NaN) - at)))
  // A worker may well be faster than the answer to the enqueue: then the time since the call says more.
  return { samples: returned.size, ...since(returned), parts: { "since the call": since(called) } }
}

const work = async (peer: Peer, place: Place, seconds: number) => {
  const { count, timeline } = makeTimeline()
  const running = await peer.work(place, { queues: queueNames(1), lane: "ordinary", started: count, trickle: false })
  await sleep(seconds * 1000)
  const whole = Array.from({ length: Math.floor(seconds) }, (_, second) => timeline[second] ?? 0)
  await running.close()
  return { timeline: whole, ...usage() }
}

const idle = async (peer: Peer, place: Place, seconds: number) => {
  const started = () => undefined
  const running = await peer.work(place, { queues: queueNames(1), lane: "ordinary", started, trickle: true })
  await sleep(seconds * 1000)
  await running.close()
  return {}
}

const answer = async (peer: Peer, request: Request): Promise<unknown> => {
  switch (request.do) {
    case "describe":
      return { ...peer.describe, runtime: `Node ${process.versions.node}` }
    case "install":
      await peer.install(request)
      return {}
    case "enqueue":
      return enqueue(peer, request, request.jobs, queueNames(request.queues))
    case "drain":
      return request.processes === 1
        ? drain(peer, request, request.jobs, queueNames(request.queues), "ordinary")
        : { unsupported: "one process is one worker: start several" }
    case "owned":
      return peer.describe.owned === null
        ? { unsupported: "it has no way to complete a job in the application's transaction" }
        : drain(peer, request, request.jobs, queueNames(1), "owned")
    case "grouped":
      return peer.describe.grouped === undefined
        ? { unsupported: "it is not asked to complete many jobs in one transaction" }
        : drain(peer, request, request.jobs, queueNames(1), "grouped")
    case "latency":
      return latency(peer, request, request.perSecond, request.seconds)
    case "work":
      return work(peer, request, request.seconds)
    case "idle":
      return idle(peer, request, request.seconds)
  }
}

/** Answers the request that the process was started with. */
export const answerWith = async (respond: (request: Request) => Promise<unknown>): Promise<void> => {
  const request = Schema.decodeUnknownSync(Schema.parseJson(Request))(process.argv.at(-1))
  // libraries log to the standard output as they please; the answer alone belongs there
  console.log = console.info = console.debug = (...said: ReadonlyArray<unknown>) => console.error(...said)
  const text = JSON.stringify(await respond(request))
  // what a library has left behind must not keep the process alive
  process.stdout.write(`${text}\n`, () => process.exit(0))
}

export const serve = (peer: Peer): Promise<void> => answerWith((request) => answer(peer, request))
