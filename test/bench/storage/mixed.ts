/**
 * A mixed load for a long time, clean and while transactions pin the horizon. After each pinned phase a clean one follows: it
 * shows the recovery, and it is the control that stands beside the pinned phase in time.
 */
import * as Engine from "../engine.js"
import type { Benchmark } from "./options.js"
import { couple, now, sleep, start, stopAll, windows } from "./processes.js"
import { forget, profiled } from "./profile.js"
import { plain } from "./protocol.js"
import { atLeast, atMost, type Check, type Result } from "./report.js"
import { log, requireDisk, withDatabase } from "./server.js"
import { median, slope } from "./statistics.js"

const queue = "mixed"
export const mix = { ...plain, retry: 0.1, scheduled: 0.1, unique: 0.05, long: 0.02 }

/** A beat is half a second here, so that three of them are short enough to be many. */
const beatMillis = 500
const longMillis = 1_700

const titles: Readonly<Record<Engine.Pin, string>> = {
  none: "clean",
  reader: "(a) idle REPEATABLE READ reader",
  xid: "(b) idle transaction with an xid",
  scans: "(c) four scanning readers"
}

interface Phase {
  readonly name: string
  readonly pin: Engine.Pin
  readonly from: number
  readonly to: number
  /** Processor time of the server's sessions. */
  readonly serverMicros: number
  readonly tables: ReadonlyArray<Engine.TableState>
  readonly segments: string
}

const hot = (name: string) => /^(ready_entries|claim_batches|closures|ready_tombstones)_N$/.test(name)

export const mixed: Benchmark = async (options) => {
  const seconds = options.seconds ?? (options.quick ? 20 : 180)
  const clearSeconds = Math.max(options.quick ? 10 : 60, seconds / 3)
  const windowMillis = options.quick ? 2_000 : 10_000
  const disk = await requireDisk(options.server, 12e9)
  return withDatabase(options.server, async (database): Promise<Result> => {
    const { url } = database
    const admin = await Engine.connect(url)
    const worker = await start({
      role: "worker",
      url,
      queue,
      concurrency: 4_000,
      beatMillis,
      longMillis,
      againMillis: 2_000,
      pollMillis: 100,
      tickMillis: 100,
      // small segments: the ring turns, and is pruned, many times within each phase
      maintenance: {
        stalenessMillis: 20_000,
        segmentAgeMillis: 600_000,
        segmentEntries: options.quick ? 50_000 : 300_000,
        historyMillis: options.quick ? 5_000 : 30_000
      }
    })
    const producer = await start({
      role: "producer",
      url,
      queue,
      seed: options.seed,
      mix,
      batch: 500,
      waiting: 10_000,
      tickMillis: 200
    })
    couple(producer, worker)
    const phases: Array<Phase> = []
    const phase = async (name: string, pin: Engine.Pin, length: number) => {
      const release = await Engine.pin(url, pin)
      const [from, before] = [now(), await Engine.sessionsCpu(admin)]
      await sleep(length * 1000)
      const [to, after] = [now(), await Engine.sessionsCpu(admin)]
      phases.push({
        name,
        pin,
        from,
        to,
        serverMicros: Engine.cpuBetween(before, after),
        tables: await Engine.tables(admin),
        segments: await Engine.segmentStates(admin)
      })
      await release()
      const [rate] = windows(worker.samples, "completed", from, to, to - from)
      log(`${name}: ${Math.round(rate?.perSecond ?? 0)} jobs/s; segments: ${phases.at(-1)?.segments ?? ""}`)
    }
    try {
      await sleep(options.quick ? 5_000 : 20_000)
      await forget(database, options.profile)
      await phase("clean", "none", seconds)
      for (const pin of ["reader", "xid", "scans"] as const) {
        await phase(titles[pin], pin, seconds)
        await phase(`after ${titles[pin].slice(0, 3)}`, "none", clearSeconds)
      }
    } finally {
      await stopAll([producer, worker])
    }
    const exact = database.extensions.has("pgstattuple") ? await Engine.exactDead(admin) : undefined
    const indexes = database.extensions.has("pgstattuple") ? await Engine.indexes(admin) : []
    const statements = await profiled(database, options.profile, "the whole run")
    await admin.end()

    const samples = worker.samples
    const measured = phases.map((phase) => {
      const all = windows(samples, "completed", phase.from, phase.to, windowMillis)
      const rates = all.map((window) => window.perSecond)
      const centre = median(rates)
      const trend = slope(all.map((window, i) => [((i + 0.5) * windowMillis) / 60_000, window.perSecond]))
      const percent = (value: number) => (100 * value) / centre
      const [whole] = windows(samples, "completed", phase.from, phase.to, phase.to - phase.from)
      const [cpu] = windows(samples, "cpuMicros", phase.from, phase.to, phase.to - phase.from)
      const done = ((whole?.perSecond ?? Number.NaN) * (phase.to - phase.from)) / 1000
      return {
        phase,
        all,
        serverMicros: phase.serverMicros / done,
        workerMicros: (cpu?.perSecond ?? Number.NaN) / (whole?.perSecond ?? Number.NaN),
        centre,
        first: median(rates.slice(0, 3)),
        trend: { estimate: percent(trend.estimate), low: percent(trend.low), high: percent(trend.high) }
      }
    })
    const clean = measured[0]?.centre ?? Number.NaN
    const cleanMicros = measured[0]?.serverMicros ?? Number.NaN
    const beside = (i: number) => {
      const [before, after] = [measured[i - 1], measured[i + 1]]
      return before === undefined || after === undefined ? clean : (before.centre + after.centre) / 2
    }
    const checks: Array<Check> = []
    for (const [i, { centre, first, phase, serverMicros, trend }] of measured.entries()) {
      if (phase.pin !== "none") {
        checks.push(atLeast(`${phase.name}: median / clean`, centre / clean, 0.95))
        checks.push(atLeast(`${phase.name}: median / clean phases beside it`, centre / beside(i), 0.95))
        checks.push(atLeast(`${phase.name}: server CPU a job, clean / now`, cleanMicros / serverMicros, 0.95))
        checks.push(atLeast(`${phase.name}: upper end of the trend, % a minute`, trend.high, 0))
      } else if (i > 0) {
        checks.push(atLeast(`${phase.name}: first three windows / clean`, first / clean, 0.95))
      }
    }
    const deadHot = Math.max(
      ...phases.flatMap(({ tables }) => tables.filter(({ name }) => hot(name)).map(({ dead }) => dead)),
      ...[...(exact ?? [])].filter(([name]) => hot(name)).map(([, dead]) => dead)
    )
    checks.push(atMost("dead rows of hot tables", deadHot, 0))

    const start0 = phases[0]?.from ?? 0
    const names = [...new Set(phases.flatMap(({ tables }) => tables.map(({ name }) => name)))].sort()
    const counters = samples.at(-1)?.counters ?? {}
    return {
      name: "mixed",
      checks,
      tables: [
        {
          title: `Completed jobs a second in windows of ${windowMillis / 1000} s`,
          columns: [
            "phase",
            "windows",
            "median",
            "/ clean",
            "/ beside",
            "trend, % a minute",
            "95 % from",
            "to",
            "server CPU µs a job",
            "worker CPU µs a job"
          ],
          rows: measured.map(({ all, centre, phase, serverMicros, trend, workerMicros }, i) => [
            phase.name,
            all.length,
            centre,
            centre / clean,
            phase.pin === "none" ? "" : centre / beside(i),
            trend.estimate,
            trend.low,
            trend.high,
            serverMicros,
            workerMicros
          ])
        },
        {
          title: "Dead rows at the end of each phase (statistics; the last column counted)",
          columns: ["table", ...phases.map(({ name }) => name.slice(0, 9)), "rows", "MB", "dead at the end"],
          rows: names.map((name) => {
            const last = phases.at(-1)?.tables.find((table) => table.name === name)
            return [
              name,
              ...phases.map(({ tables }) => tables.find((table) => table.name === name)?.dead ?? 0),
              last?.rows ?? 0,
              (last?.bytes ?? 0) / 1e6,
              exact?.get(name) ?? "unknown"
            ]
          })
        },
        {
          title: "Indexes of mutable tables at the end",
          columns: ["index", "MB", "leaf density, %", "empty or deleted pages"],
          rows: indexes.map((index) => [index.name, index.bytes / 1e6, index.density, index.emptyPages])
        },
        ...statements
      ],
      charts: [
        {
          name: "mixed",
          title: "Mixed load: 10 % retried, 10 % scheduled, 5 % unique, 2 % longer than three beats",
          kind: "lines",
          x: "seconds",
          y: "completed jobs per second",
          phases: phases.map((phase) => ({
            name: phase.name.slice(0, 9),
            from: (phase.from - start0) / 1000,
            to: (phase.to - start0) / 1000
          })),
          series: [
            {
              name: "completed",
              points: measured.flatMap(({ all }) =>
                all.map((window): readonly [number, number] => [(window.to - start0) / 1000, window.perSecond])
              )
            }
          ]
        },
        {
          name: "mixed-dead",
          title: "Dead rows at the end of each phase",
          kind: "lines",
          x: "seconds",
          y: "dead rows",
          series: names
            .filter((name) => phases.some(({ tables }) => (tables.find((table) => table.name === name)?.dead ?? 0) > 0))
            .map((name) => ({
              name,
              points: phases.map(({ tables, to }): readonly [number, number] => [
                (to - start0) / 1000,
                tables.find((table) => table.name === name)?.dead ?? 0
              ])
            }))
        }
      ],
      notes: [
        disk,
        `A beat is ${beatMillis} ms, a long job ${longMillis} ms. In all: ${Object.entries(counters)
          .map(([name, n]) => `${name} ${n}`)
          .join(", ")}.`,
        `Segments at the ends of the phases: ${phases.map(({ segments }) => segments).join(" | ")}.`
      ]
    }
  })
}
