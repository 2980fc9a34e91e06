/**
 * The storage engine under load and time. Every figure is a ratio within one run, or bytes and counts that a slow machine does
 * not change.
 *
 *     npm run bench:storage -- --only backlog,wal --quick
 *
 * --only      which benchmarks: backlog, mixed, soak, wal, deferred, planner; all of them unless said
 * --seconds   (or --minutes) how long a phase lasts, where phases have a length
 * --size      how many jobs: the backlogs of `backlog`, the jobs of the others ("10k,1M,10M")
 * --seed      of every random choice; 1
 * --url       a superuser's url of a server to use; an embedded server unless said
 * --out       where the results go; .tmp/bench-storage
 * --quick     small and short: to see that it works
 * --profile   pg_stat_statements with the statements inside functions (it costs some per cent)
 */
import { Effect } from "effect"
import { availableParallelism, cpus, loadavg } from "node:os"
import * as Engine from "./engine.js"
import { backlog } from "./storage/backlog.js"
import { deferred } from "./storage/deferred.js"
import { mixed } from "./storage/mixed.js"
import { type Benchmark, readFlags } from "./storage/options.js"
import { planner } from "./storage/planner.js"
import { type Result, resultText, write } from "./storage/report.js"
import { serverUrl } from "./storage/server.js"
import { soak } from "./storage/soak.js"
import { wal } from "./storage/wal.js"

const benchmarks: Readonly<Record<string, Benchmark>> = { wal, planner, deferred, backlog, mixed, soak }

const flags = readFlags(Object.keys(benchmarks))

const environmentOf = (server: string) =>
  Engine.withClient(server, async (client) => ({
    title: "Environment",
    columns: ["what", "value"],
    rows: [
      ["started", new Date().toISOString()],
      ["processors", `${availableParallelism()} × ${cpus()[0]?.model ?? "unknown"}`],
      [
        "load average at the start",
        loadavg()
          .map((load) => load.toFixed(1))
          .join(" ")
      ],
      ["Node", process.version],
      ["PostgreSQL", await Engine.version(client)],
      ["seed", String(flags.seed)],
      ["flags", process.argv.slice(2).join(" ")],
      ...(await Engine.settings(client)).map(([name, value]) => [name, value])
    ]
  }))

const program = Effect.gen(function* () {
  const server = yield* serverUrl(flags.url, flags.profile)
  yield* Effect.promise(async () => {
    const environment = await environmentOf(server)
    const results: Array<Result> = []
    for (const name of flags.only) {
      const started = performance.now()
      console.log(`\n${name} …`)
      const result = await benchmarks[name]?.({ ...flags, server })
      if (result === undefined) continue
      results.push(result)
      await write(flags.out, "The storage engine under load and time", environment, results)
      console.log(`${resultText(result)}\n(${((performance.now() - started) / 1000).toFixed(0)} s)`)
    }
    const checks = results.flatMap((result) => result.checks)
    const missed = checks.filter((check) => !check.met)
    console.log(`\n${checks.length - missed.length} of ${checks.length} checks met; results in ${flags.out}`)
    if (!flags.quick && missed.length > 0) process.exitCode = 1
  })
}).pipe(Effect.scoped)

await Effect.runPromise(program)
