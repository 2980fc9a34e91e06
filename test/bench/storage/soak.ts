/**
 * Hours in minutes: seventy per cent of what the machine can do, with everything that may happen to a job, while the ring turns
 * and is pruned every few seconds.
 */
import * as Engine from "../engine.js"
import type { Benchmark } from "./options.js"
import { couple, now, type Running, sleep, start, stopAll, windows } from "./processes.js"
import { forget, profiled } from "./profile.js"
import { type Mix, plain } from "./protocol.js"
import { atLeast, atMost, type Result } from "./report.js"
import { log, requireDisk, withDatabase } from "./server.js"
import { histogramQuantile, median, slope, sum } from "./statistics.js"

const queue = "soak"
const mix: Mix = {
  ...plain,
  retry: 0.05,
  scheduled: 0.05,
  unique: 0.05,
  long: 0.01,
  snooze: 0.05,
  cancel: 0.02,
  callback: 0.01
}

interface Reading {
  readonly at: number
  readonly bytes: number
  readonly tables: ReadonlyArray<Engine.TableState>
  readonly segments: string
}

export const soak: Benchmark = async (options) => {
  const seconds = options.seconds ?? (options.quick ? 60 : 600)
  const windowMillis = options.quick ? 5_000 : 10_000
  const historyMillis = options.quick ? 10_000 : 60_000
  const disk = await requireDisk(options.server, 12e9)
  return withDatabase(options.server, async (database): Promise<Result> => {
    const { url } = database
    const admin = await Engine.connect(url)
    const worker = await start({
      role: "worker",
      url,
      queue,
      concurrency: 4_000,
      beatMillis: 500,
      longMillis: 1_700,
      againMillis: 2_000,
      pollMillis: 100,
      tickMillis: 200,
      maintenance: {
        stalenessMillis: 20_000,
        segmentAgeMillis: options.quick ? 3_000 : 15_000,
        segmentEntries: 1_000_000,
        historyMillis,
        // what is kept for thirty days would grow all the while, and hide whether anything else does
        terminalMillis: historyMillis
      }
    })
    const produce = (rate: number | undefined, seed: number) =>
      start({ role: "producer", url, queue, seed, mix, batch: 500, rate, waiting: 10_000, tickMillis: 200 })
    const running: Array<Running> = []
    try {
      const full = await produce(undefined, options.seed)
      running.push(full)
      couple(full, worker)
      await sleep(options.quick ? 4_000 : 15_000)
      const measuring = now()
      await sleep(options.quick ? 10_000 : 30_000)
      const capacity = median(
        windows(worker.samples, "completed", measuring, now(), options.quick ? 1_000 : 5_000).map((w) => w.perSecond)
      )
      await full.stop()
      // what waits of the full load is worked off first
      const fresh = (running: Running) => running.samples.at(-1)?.counters["fresh"] ?? 0
      for (const until = now() + 120_000; fresh(worker) < fresh(full) && now() < until;) await sleep(100)
      const rate = Math.floor(0.7 * capacity)
      log(`capacity ${Math.round(capacity)} jobs/s; soaking at ${rate}`)
      const producer = await produce(rate, options.seed + 1)
      running.push(producer)
      await sleep(windowMillis)
      await forget(database, options.profile)
      const [from, before] = [now(), producer.samples.at(-1)?.counters["enqueued"] ?? 0]
      const completedBefore = worker.samples.at(-1)?.counters["completed"] ?? 0
      const readings: Array<Reading> = []
      while (now() - from < seconds * 1000) {
        await sleep(Math.max(0, from + (readings.length + 1) * windowMillis - now()))
        readings.push({
          at: (now() - from) / 1000,
          bytes: await Engine.databaseBytes(admin),
          tables: await Engine.tables(admin),
          segments: await Engine.segmentStates(admin)
        })
      }
      const to = now()
      const enqueued = (producer.samples.at(-1)?.counters["enqueued"] ?? 0) - before
      const completed = (worker.samples.at(-1)?.counters["completed"] ?? 0) - completedBefore
      const statements = await profiled(database, options.profile, "the soak")

      const all = windows(worker.samples, "completed", from, to, windowMillis)
      const latency = (q: number) => all.map((window) => histogramQuantile(window.latency, q))
      const [p50, p99] = [latency(0.5), latency(0.99)]
      const dead = readings.map(({ tables }) => sum(tables.map((table) => table.dead)))
      const minutes = (i: number) => ((i + 0.5) * windowMillis) / 60_000
      const trend = (values: ReadonlyArray<number>) => {
        const { estimate, high, low } = slope(values.map((value, i) => [minutes(i), value]))
        const centre = Math.max(1e-9, median(values))
        return { estimate: (100 * estimate) / centre, low: (100 * low) / centre, high: (100 * high) / centre }
      }
      const [trend99, trendDead] = [trend(p99), trend(dead)]
      /** The largest of the last third over the largest of the second: the first fills the ring. */
      const growth = (values: ReadonlyArray<number>) => {
        const third = Math.floor(values.length / 3)
        return Math.max(...values.slice(2 * third)) / Math.max(1, ...values.slice(third, 2 * third))
      }
      const line = (name: string, values: ReadonlyArray<number>) => ({
        name,
        points: values.map((value, i): readonly [number, number] => [((i + 1) * windowMillis) / 1000, value])
      })
      const names = [...new Set(readings.flatMap(({ tables }) => tables.map(({ name }) => name)))].sort()
      return {
        name: "soak",
        checks: [
          atMost("p99 from enqueue to start: lower end of the trend, % a minute", trend99.low, 0),
          atMost("disk: last third / second third", growth(readings.map(({ bytes }) => bytes)), 1.1),
          atMost("dead rows: last third / second third", growth(dead), 1.25),
          atMost("dead rows: lower end of the trend, % a minute", trendDead.low, 0),
          atLeast("completed / enqueued", completed / enqueued, 0.95)
        ],
        tables: [
          {
            title: `At ${rate} jobs/s (capacity ${Math.round(capacity)}), windows of ${windowMillis / 1000} s`,
            columns: ["s", "jobs/s", "p50 ms", "p99 ms", "database MB", "dead rows", "segments"],
            rows: all.map((window, i) => [
              Math.round((window.to - from) / 1000),
              window.perSecond,
              p50[i] ?? Number.NaN,
              p99[i] ?? Number.NaN,
              (readings[i]?.bytes ?? 0) / 1e6,
              dead[i] ?? 0,
              readings[i]?.segments ?? ""
            ])
          },
          {
            title: "Dead rows by table",
            columns: ["table", "at a third", "at two thirds", "at the end", "most"],
            rows: names
              .map((name) => ({
                name,
                dead: readings.map(({ tables }) => tables.find((table) => table.name === name)?.dead ?? 0)
              }))
              .map(({ dead, name }) => [
                name,
                dead[Math.floor(dead.length / 3)] ?? 0,
                dead[Math.floor((2 * dead.length) / 3)] ?? 0,
                dead.at(-1) ?? 0,
                Math.max(...dead)
              ])
          },
          ...statements
        ],
        charts: [
          {
            name: "soak-latency",
            title: `Soak at 70 % (${rate} jobs/s): enqueue to start`,
            kind: "lines",
            x: "seconds",
            y: "milliseconds",
            series: [line("p50", p50), line("p99", p99)]
          },
          {
            name: "soak-disk",
            title: `Soak at 70 % (${rate} jobs/s): size of the database`,
            kind: "lines",
            x: "seconds",
            y: "MB",
            series: [
              line(
                "database",
                readings.map(({ bytes }) => bytes / 1e6)
              )
            ]
          },
          {
            name: "soak-dead",
            title: `Soak at 70 % (${rate} jobs/s): dead rows`,
            kind: "lines",
            x: "seconds",
            y: "dead rows",
            series: [
              line("all tables", dead),
              ...names
                .map((name) =>
                  line(
                    name,
                    readings.map(({ tables }) => tables.find((table) => table.name === name)?.dead ?? 0)
                  )
                )
                .filter(({ points }) => points.some(([, y]) => y > 0))
                .slice(0, 6)
            ]
          }
        ],
        notes: [
          disk,
          `Segments turn after ${options.quick ? 3 : 15} s, completed history and cancelled jobs are kept for ${historyMillis / 1000} s.`,
          `Trend of p99: ${trend99.estimate.toFixed(2)} % a minute (95 %: ${trend99.low.toFixed(2)} to ${trend99.high.toFixed(2)}).`,
          `Of the worker: ${Object.entries(worker.samples.at(-1)?.counters ?? {})
            .map(([name, n]) => `${name} ${n}`)
            .join(", ")}.`,
          `Of the producer: ${Object.entries(producer.samples.at(-1)?.counters ?? {})
            .map(([name, n]) => `${name} ${n}`)
            .join(", ")}.`
        ]
      }
    } finally {
      await admin.end()
      await stopAll([...running, worker])
    }
  })
}
