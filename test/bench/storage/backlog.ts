/**
 * Does a backlog slow the work? The same number of jobs is claimed and closed at several backlogs, by a session on the server and
 * by a worker. The databases take turns within each round, so that what the machine does meanwhile meets them all; a ratio
 * is that of one round.
 */
import * as Engine from "../engine.js"
import type { Benchmark } from "./options.js"
import { now, type Running, sleep, start, stopAll } from "./processes.js"
import { forget, profiled } from "./profile.js"
import { atLeast, type Result } from "./report.js"
import { type Database, log, requireDisk, withDatabases } from "./server.js"
import { mean, median, meanInterval } from "./statistics.js"

const queue = "backlog"
/** What one round takes: all of the smallest backlog. */
const roundJobs = 10_000

interface Backlog {
  readonly size: number
  readonly database: Database
  readonly client: Engine.Client
  readonly worker: Running
}

interface Round {
  readonly server: number
  readonly claimMicros: number
  readonly closeMicros: number
  readonly cpuMicros: number
  readonly runtime: number
}

const startWorker = (url: string) =>
  start({
    role: "worker",
    url,
    queue,
    concurrency: 1000,
    beatMillis: 15_000,
    longMillis: 0,
    againMillis: 1000,
    pollMillis: 100,
    tickMillis: 10,
    maintenance: { stalenessMillis: 60_000, segmentAgeMillis: 3_600_000, segmentEntries: 1e9, historyMillis: 3_600_000 }
  })

/** Lets the worker take a round's jobs; the rate between the first and the last tenth, which are its coming and going. */
const throughWorker = async ({ client, worker }: Backlog): Promise<number> => {
  const completed = (index: number) => worker.samples[index]?.counters["completed"] ?? 0
  const from = worker.samples.length - 1
  const before = completed(from)
  const deadline = now() + 120_000
  await Engine.pause(client, queue, false)
  while (completed(worker.samples.length - 1) - before < roundJobs) {
    if (now() > deadline) throw new Error("the worker does not come to its end")
    await sleep(5)
  }
  await Engine.pause(client, queue, true)
  const passed = (share: number) =>
    worker.samples.find((sample, i) => i > from && (sample.counters["completed"] ?? 0) - before >= share * roundJobs)
  const [first, last] = [passed(0.1), passed(0.9)]
  if (first === undefined || last === undefined || last.at === first.at) return Number.NaN
  await sleep(300) // what it claimed beyond the round is closed before anything else is measured
  return (((last.counters["completed"] ?? 0) - (first.counters["completed"] ?? 0)) / (last.at - first.at)) * 1000
}

const round = async (backlog: Backlog): Promise<Round> => {
  const { client } = backlog
  const top = () => Engine.fill(client, { jobs: roundJobs, queue })
  await top()
  await Engine.pause(client, queue, false)
  const drained = await Engine.drain(client, queue, roundJobs)
  await Engine.pause(client, queue, true)
  await top()
  return {
    server: (drained.jobs / (drained.claimMicros.concat(drained.closeMicros).reduce((a, b) => a + b, 0) || 1)) * 1e6,
    claimMicros: mean(drained.claimMicros),
    closeMicros: mean(drained.closeMicros),
    cpuMicros: drained.cpuMicros,
    runtime: await throughWorker(backlog)
  }
}

export const backlog: Benchmark = async (options) => {
  const sizes = options.sizes ?? (options.quick ? [1e4, 1e5, 3e5] : [1e4, 1e6, 1e7])
  const rounds = options.quick ? 5 : 15
  const rotateEvery = options.quick ? 3e4 : 1e6
  const total = sizes.reduce((a, b) => a + b, 0)
  const disk = await requireDisk(options.server, total * 550 + Math.min(9e9, total * 900))
  return withDatabases(options.server, sizes.length, async (databases): Promise<Result> => {
    const backlogs: Array<Backlog> = []
    try {
      for (const [i, size] of sizes.entries()) {
        const database = databases[i]
        if (database === undefined) throw new Error("no database")
        const client = await Engine.connect(database.url)
        const started = performance.now()
        await Engine.pause(client, queue, true)
        // A round brings its own jobs; the rest is the backlog behind and before them.
        if (size > roundJobs) await Engine.fill(client, { jobs: size - roundJobs, queue, rotateEvery })
        await Engine.analyze(client)
        log(`${size} jobs stored in ${((performance.now() - started) / 1000).toFixed(0)} s`)
        backlogs.push({ size, database, client, worker: await startWorker(database.url) })
      }
      await Engine.withClient(options.server, Engine.checkpoint)
      const measured = backlogs.map((): Array<Round> => [])
      for (let n = -1; n < rounds; n++) {
        for (const i of backlogs.keys()) {
          const at = (i + n + 1) % backlogs.length // each is first in turn
          const backlog = backlogs[at]
          if (backlog === undefined) continue
          if (n === 0) await forget(backlog.database, options.profile)
          const result = await round(backlog)
          if (n >= 0) measured[at]?.push(result) // the round before the first warms up
        }
      }
      const series = (pick: (round: Round) => number) => measured.map((all) => all.map(pick))
      const [server, runtime] = [series((r) => r.server), series((r) => r.runtime)]
      const perCpu = series((r) => 1e6 / r.cpuMicros)
      const ratios = (all: ReadonlyArray<ReadonlyArray<number>>, i: number) =>
        (all[i] ?? []).map((value, n) => value / (all[0]?.[n] ?? Number.NaN)).filter(Number.isFinite)
      const last = sizes.length - 1
      const name = (size: number) => (size >= 1e6 ? `${size / 1e6}M` : `${size / 1e3}k`)
      return {
        name: "backlog",
        checks: [
          atLeast(
            `server-side, ${name(sizes[last] ?? 0)} / ${name(sizes[0] ?? 0)}`,
            median(ratios(server, last)),
            0.95
          ),
          atLeast(
            `server-side, jobs per second of processor time, ${name(sizes[last] ?? 0)} / ${name(sizes[0] ?? 0)}`,
            median(ratios(perCpu, last)),
            0.95
          ),
          atLeast(
            `through the runtime, ${name(sizes[last] ?? 0)} / ${name(sizes[0] ?? 0)}`,
            median(ratios(runtime, last)),
            0.95
          )
        ],
        tables: [
          {
            title: `Claim and close, 500 a call, ${rounds} rounds of ${roundJobs} jobs (medians)`,
            columns: [
              "backlog",
              "server-side jobs/s",
              "ratio",
              "± 95 %",
              "claim ms a call",
              "close ms a call",
              "CPU µs a job",
              "ratio",
              "runtime jobs/s",
              "ratio",
              "± 95 %"
            ],
            rows: sizes.map((size, i) => {
              const [s, r] = [meanInterval(ratios(server, i)), meanInterval(ratios(runtime, i))]
              const of = (pick: (round: Round) => number) => median((measured[i] ?? []).map(pick))
              return [
                name(size),
                of((x) => x.server),
                median(ratios(server, i)),
                s.high - s.estimate,
                of((x) => x.claimMicros) / 1000,
                of((x) => x.closeMicros) / 1000,
                of((x) => x.cpuMicros),
                median(ratios(perCpu, i)),
                of((x) => x.runtime),
                median(ratios(runtime, i)),
                r.high - r.estimate
              ]
            })
          },
          ...(
            await Promise.all(backlogs.map(({ database, size }) => profiled(database, options.profile, name(size))))
          ).flat()
        ],
        charts: [
          {
            name: "backlog",
            title: "Claim and close by backlog",
            kind: "bars",
            x: "jobs waiting",
            y: "jobs per second",
            categories: sizes.map(name),
            series: [
              { name: "server-side session", points: server.map((all, i) => [i, median(all)]) },
              { name: "through the runtime", points: runtime.map((all, i) => [i, median(all)]) }
            ]
          }
        ],
        notes: [
          disk,
          `The ring turned at every ${name(rotateEvery)}: ${name(sizes[last] ?? 0)} stand in ${Math.ceil((sizes[last] ?? 0) / rotateEvery)} segments.`
        ]
      }
    } finally {
      for (const { client } of backlogs) await client.end()
      await stopAll(backlogs.map(({ worker }) => worker))
    }
  })
}
