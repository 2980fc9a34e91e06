/**
 * What a job writes: bytes of WAL and commits, of a no-op job whose payload is 120 bytes, enqueued and drained at full speed.
 * Full-page images depend on how often checkpoints come and not on the engine alone, so they are told apart: a stretch that
 * begins with a checkpoint pays for every page that existed before and is touched again; the next one does not.
 */
import * as Engine from "../engine.js"
import type { Benchmark } from "./options.js"
import { sleep, start } from "./processes.js"
import { plain } from "./protocol.js"
import { atMost, type Check, type Result, type Table } from "./report.js"
import { log, withDatabase } from "./server.js"

const queue = "wal"

interface Stretch {
  readonly name: string
  readonly afterCheckpoint: boolean
  readonly jobs: number
  readonly from: Engine.WalMark
  readonly to: Engine.WalMark
  readonly kinds: ReadonlyArray<Engine.WalKind>
}

export const wal: Benchmark = (options) =>
  withDatabase(options.server, async (database): Promise<Result> => {
    const jobs = options.sizes?.[0] ?? (options.quick ? 30_000 : 300_000)
    const { extensions, url } = database
    const admin = await Engine.connect(url)
    const stretches: Array<Stretch> = []
    const stretch = async (name: string, run: () => Promise<unknown>) => {
      const from = await Engine.walMark(admin)
      await run()
      await sleep(1_500) // sessions report what they did within a second
      const to = await Engine.walMark(admin)
      const kinds = extensions.has("pg_walinspect") ? await Engine.walKinds(admin, from, to) : []
      stretches.push({ name, afterCheckpoint: name.endsWith("after a checkpoint"), jobs, from, to, kinds })
      log(`${name}: ${((to.bytes - from.bytes) / jobs).toFixed(0)} bytes a job`)
    }
    const enqueue = async () => {
      const producer = await start({
        role: "producer",
        url,
        queue,
        seed: options.seed,
        mix: plain,
        batch: 1_000,
        waiting: jobs + 1_000,
        jobs,
        tickMillis: 50
      })
      while ((producer.samples.at(-1)?.counters["enqueued"] ?? 0) < jobs) await sleep(20)
      await producer.stop()
    }
    const drain = async () => {
      const worker = await start({
        role: "worker",
        url,
        queue,
        concurrency: 2_000,
        beatMillis: 15_000,
        longMillis: 0,
        againMillis: 1_000,
        pollMillis: 100,
        tickMillis: 50,
        maintenance: {
          stalenessMillis: 60_000,
          segmentAgeMillis: 3_600_000,
          segmentEntries: 1e9,
          historyMillis: 3_600_000
        }
      })
      while ((worker.samples.at(-1)?.counters["completed"] ?? 0) < jobs) await sleep(20)
      await worker.stop()
    }
    try {
      await Engine.checkpoint(admin)
      await stretch("enqueue, empty ring", enqueue)
      await stretch("claim + close, empty ring", drain)
      await Engine.checkpoint(admin)
      await stretch("enqueue, after a checkpoint", enqueue)
      await Engine.checkpoint(admin)
      await stretch("claim + close, after a checkpoint", drain)
      await stretch("enqueue, no checkpoint", enqueue)
      await stretch("claim + close, no checkpoint", drain)
    } finally {
      await admin.end()
    }
    const bytes = ({ from, jobs, to }: Stretch) => (to.bytes - from.bytes) / jobs
    const images = ({ jobs, kinds }: Stretch) => kinds.reduce((sum, kind) => sum + kind.imageBytes, 0) / jobs
    const commits = ({ from, jobs, to }: Stretch) => (to.commits - from.commits) / jobs
    const checks = stretches.flatMap((stretch): ReadonlyArray<Check> => {
      const bound = stretch.name.startsWith("enqueue") ? 450 : 300
      const wal = stretch.afterCheckpoint
        ? atMost(`WAL bytes a job without images: ${stretch.name}`, bytes(stretch) - images(stretch), bound)
        : atMost(`WAL bytes a job: ${stretch.name}`, bytes(stretch), bound)
      return bound === 450 ? [wal] : [wal, atMost(`commits a job: ${stretch.name}`, commits(stretch), 0.01)]
    })
    return {
      name: "wal",
      checks,
      tables: [
        {
          title: `${jobs} no-op jobs with payloads of ${Engine.payloadBytes} bytes; per job`,
          columns: [
            "stretch",
            "WAL bytes",
            "of them full-page images",
            "without images",
            "records",
            "images",
            "commits"
          ],
          rows: stretches.map((stretch) => [
            stretch.name,
            bytes(stretch),
            images(stretch),
            bytes(stretch) - images(stretch),
            (stretch.to.records - stretch.from.records) / stretch.jobs,
            (stretch.to.images - stretch.from.images) / stretch.jobs,
            commits(stretch)
          ])
        },
        ...stretches.slice(-3).map(kindsOf)
      ],
      charts: [
        {
          name: "wal",
          title: `WAL per job (payload of ${Engine.payloadBytes} bytes)`,
          kind: "bars",
          x: "",
          y: "bytes",
          categories: stretches.map(({ name }) => name.replace("claim + close", "drain").replace(/, (after )?/, ": ")),
          series: [
            { name: "records", points: stretches.map((stretch, i) => [i, bytes(stretch) - images(stretch)]) },
            { name: "full-page images", points: stretches.map((stretch, i) => [i, images(stretch)]) }
          ]
        }
      ],
      notes: [
        "WAL is counted for the whole server, so nothing else may run on it; the runtime's own rows and statistics are included.",
        extensions.has("pg_walinspect")
          ? "Images are from pg_walinspect."
          : "Without pg_walinspect images are not told apart.",
        "Jobs that were enqueued before a checkpoint and claimed after it: where data checksums (or wal_log_hints) are on, the claim is the first to set their pages' hint bits, and each such page is logged once (XLOG/FPI_FOR_HINT)."
      ]
    }
  })

const kindsOf = ({ jobs, kinds, name }: Stretch): Table => ({
  title: `Records of “${name}”, per job`,
  columns: ["record", "count", "bytes", "bytes of images"],
  rows: kinds
    .filter((kind) => kind.recordBytes + kind.imageBytes > 0.5 * jobs)
    .map((kind) => [kind.kind, kind.count / jobs, kind.recordBytes / jobs, kind.imageBytes / jobs])
})
