/**
 * Jobs that wait for their time. A million of them must not slow a claim; many due at one instant must be in the ring soon and in
 * order; and since their table is mutable, neither may decay while a transaction pins the horizon and dead rows pile up.
 */
import { Maintenance, RuntimePool } from "effect-awa"
import { Effect, Layer, ManagedRuntime, Redacted } from "effect"
import * as Engine from "../engine.js"
import type { Benchmark } from "./options.js"
import { sleep } from "./processes.js"
import { forget, profiled } from "./profile.js"
import { atLeast, atMost, type Result } from "./report.js"
import { log, withDatabases } from "./server.js"
import { median } from "./statistics.js"

const queue = "deferred"
const targetMillis = 2_000

interface Promotion {
  readonly name: string
  readonly millis: number
  readonly promoted: number
  readonly outOfOrder: number
  /** Processor time of the server for each. */
  readonly cpuMicros: number
  /** Of a tick with nothing to do, afterwards. */
  readonly idleMillis: number
  readonly idleCpuMicros: number
}

export const deferred: Benchmark = async (options) =>
  withDatabases(options.server, 2, async ([empty, full]): Promise<Result> => {
    if (empty === undefined || full === undefined) throw new Error("no database")
    const future = options.sizes?.[0] ?? (options.quick ? 100_000 : 1_000_000)
    const due = options.quick ? 5_000 : 50_000
    const rounds = options.quick ? 5 : 15
    const clients = [await Engine.connect(empty.url), await Engine.connect(full.url)] as const
    const [, client] = clients
    const runtime = ManagedRuntime.make(
      Maintenance.layer({ segmentEntries: 1e9, segmentAge: "1 hour" }).pipe(
        Layer.provide(RuntimePool.layer({ url: Redacted.make(full.url) }))
      )
    )
    const tick = () => runtime.runPromise(Effect.flatMap(Maintenance.Maintenance, (maintenance) => maintenance.tick))
    try {
      await Engine.fill(client, { jobs: future, queue, opts: { delay_ms: 6 * 3600 * 1000 } })
      for (const each of clients) await Engine.analyze(each)
      log(`${future} future jobs stored`)

      const claims = async () => {
        const micros = clients.map((): Array<number> => [])
        const cpu = clients.map((): Array<number> => [])
        for (let n = -1; n < rounds; n++) {
          for (const [i, each] of clients.entries()) {
            await Engine.fill(each, { jobs: 5_000, queue: "claims" })
            const { claimMicros, cpuMicros } = await Engine.drain(each, "claims", 5_000)
            if (n < 0) continue
            micros[i]?.push(median(claimMicros))
            cpu[i]?.push(cpuMicros)
          }
        }
        const ratio = ([without, beside]: ReadonlyArray<ReadonlyArray<number>>) =>
          median((without ?? []).map((value, n) => value / (beside?.[n] ?? Number.NaN)))
        return {
          without: median(micros[0] ?? []),
          with: median(micros[1] ?? []),
          ratio: ratio(micros),
          cpuRatio: ratio(cpu)
        }
      }

      let groups = 0
      const promote = async (name: string): Promise<Promotion> => {
        const group = `due ${groups++}`
        const instant = await Engine.instantFromNow(client, options.quick ? 2 : 8)
        await Engine.fill(client, { jobs: due, queue: group, opts: { run_at: instant } })
        const early = await Engine.dueIn(client, instant)
        if (early < 0) throw new Error("the jobs were due before they were all stored")
        await tick() // a runtime has been at work before
        await sleep(Math.max(0, await Engine.dueIn(client, instant)))
        const cpu = await Engine.sessionsCpu(client)
        const started = performance.now()
        let promoted = 0
        while (promoted < due && performance.now() - started < 120_000) promoted += (await tick()).promoted
        const millis = performance.now() - started
        const promotedCpu = await Engine.sessionsCpu(client)
        const idle: Array<number> = []
        for (let n = 0; n < 20; n++) {
          const before = performance.now()
          await tick()
          idle.push(performance.now() - before)
        }
        const idleCpu = await Engine.sessionsCpu(client)
        const outOfOrder = await Engine.outOfOrder(client, group)
        log(`${name}: ${promoted} in ${millis.toFixed(0)} ms, then a tick takes ${median(idle).toFixed(1)} ms`)
        return {
          name,
          millis,
          promoted,
          outOfOrder,
          cpuMicros: Engine.cpuBetween(cpu, promotedCpu) / promoted,
          idleMillis: median(idle),
          idleCpuMicros: Engine.cpuBetween(promotedCpu, idleCpu) / idle.length
        }
      }

      const clean = await claims()
      await forget(full, options.profile)
      const promotions = [await promote("clean, first"), await promote("clean, second")]
      const cleanStatements = await profiled(full, options.profile, "clean")
      const release = await Engine.pin(full.url, "reader")
      await forget(full, options.profile)
      for (const n of [1, 2, 3, 4]) promotions.push(await promote(`pinned, after ${(n - 1) * due} promoted`))
      promotions.push(await promote(`pinned, after ${4 * due} promoted`))
      const pinned = await claims()
      const pinnedStatements = await profiled(full, options.profile, "pinned")
      const dead = (await Engine.tables(client)).find(({ name }) => name === "deferred_jobs")?.dead ?? 0
      await release()

      const last = promotions.at(-1)
      const [first, second] = promotions
      const clean2 = [first, second].flatMap((promotion) => promotion ?? [])
      return {
        name: "deferred",
        checks: [
          atLeast("claims beside none / beside future jobs", clean.ratio, 0.95),
          atLeast("the same, CPU of claim and close", clean.cpuRatio, 0.95),
          atLeast("the same while the horizon is pinned", pinned.ratio, 0.95),
          atLeast("the same while the horizon is pinned, CPU of claim and close", pinned.cpuRatio, 0.95),
          ...promotions.map(({ millis, name }) =>
            atMost(`${due} due at one instant, ms: ${name}`, millis, targetMillis)
          ),
          atMost("entries out of order", Math.max(...promotions.map(({ outOfOrder }) => outOfOrder)), 0),
          atLeast(
            "promotion clean / last pinned",
            median(clean2.map((p) => p.millis)) / (last?.millis ?? Number.NaN),
            0.95
          ),
          atLeast(
            "promotion clean / last pinned, CPU",
            median(clean2.map((p) => p.cpuMicros)) / (last?.cpuMicros ?? Number.NaN),
            0.95
          ),
          atLeast(
            "idle tick clean / last pinned, CPU",
            median(clean2.map((p) => p.idleCpuMicros)) / (last?.idleCpuMicros ?? Number.NaN),
            0.8
          )
        ],
        tables: [
          {
            title: `Claims of 500 beside ${future} future jobs (median µs of a call, ${rounds} rounds)`,
            columns: ["", "none", "future jobs", "ratio", "ratio of CPU"],
            rows: [
              ["clean", clean.without, clean.with, clean.ratio, clean.cpuRatio],
              ["horizon pinned", pinned.without, pinned.with, pinned.ratio, pinned.cpuRatio]
            ]
          },
          {
            title: `${due} due at one instant, beside ${future} future jobs`,
            columns: ["", "ms", "promoted", "out of order", "CPU µs a job", "idle tick, ms", "idle tick, CPU µs"],
            rows: promotions.map((p) => [
              p.name,
              p.millis,
              p.promoted,
              p.outOfOrder,
              p.cpuMicros,
              p.idleMillis,
              p.idleCpuMicros
            ])
          },
          ...cleanStatements,
          ...pinnedStatements
        ],
        charts: [
          {
            name: "deferred",
            title: `Promotion of ${due} due at one instant`,
            kind: "bars",
            x: "",
            y: "milliseconds",
            categories: promotions.map(({ name }) => name.replace(/promoted|after /g, "")),
            series: [{ name: "until all are in the ring", points: promotions.map(({ millis }, i) => [i, millis]) }],
            target: targetMillis
          }
        ],
        notes: [`Dead rows of deferred_jobs at the end of the pinned stretch: ${dead}.`]
      }
    } finally {
      await runtime.dispose()
      for (const each of clients) await each.end()
    }
  })
