/**
 * Statistics must not matter. Three databases hold the same jobs: one was analyzed when it was empty, one never, one when it was
 * full; they are drained in turn, also by a session whose plans were made while the tables were empty.
 */
import * as Engine from "../engine.js"
import type { Benchmark } from "./options.js"
import { atLeast, type Result } from "./report.js"
import { log, withDatabases } from "./server.js"
import { median } from "./statistics.js"

const queue = "planner"

export const planner: Benchmark = (options) =>
  withDatabases(options.server, 3, async (databases): Promise<Result> => {
    const jobs = options.sizes?.[0] ?? (options.quick ? 100_000 : 1_000_000)
    const rounds = options.quick ? 5 : 20
    const clients: Array<Engine.Client> = []
    const connect = async (i: number) => {
      const client = await Engine.connect(databases[i]?.url ?? "")
      clients.push(client)
      return client
    }
    try {
      const early = await connect(0)
      const never = await connect(1)
      const late = await connect(2)
      for (const client of clients) await Engine.noAutovacuum(client)
      await Engine.analyze(early)
      await Engine.fill(early, { jobs: 10, queue: "first" })
      await Engine.drain(early, "first", 10) // its plans are made now
      for (const client of clients) await Engine.fill(client, { jobs, queue })
      await Engine.analyze(late)
      log(`three times ${jobs} jobs stored`)
      const sessions = [
        { name: "analyzed when full", client: late },
        { name: "analyzed when empty, plans of then", client: early },
        { name: "analyzed when empty, new session", client: await connect(0) },
        { name: "never analyzed", client: never }
      ]
      const measured = sessions.map(({ name }) => {
        const [claim, close, cpu]: [Array<number>, Array<number>, Array<number>] = [[], [], []]
        return { name, claim, close, cpu }
      })
      for (let n = -1; n < rounds; n++) {
        for (const i of sessions.keys()) {
          const at = (i + n + 1) % sessions.length
          const [session, into] = [sessions[at], measured[at]]
          if (session === undefined || into === undefined) continue
          const { claimMicros, closeMicros, cpuMicros } = await Engine.drain(session.client, queue, 5_000)
          if (n < 0) continue
          into.claim.push(median(claimMicros))
          into.close.push(median(closeMicros))
          into.cpu.push(cpuMicros)
        }
      }
      const [exact] = measured
      const ratio = (own: ReadonlyArray<number>, base: ReadonlyArray<number> | undefined) =>
        median(own.map((value, n) => (base?.[n] ?? Number.NaN) / value))
      return {
        name: "planner",
        checks: measured
          .slice(1)
          .flatMap(({ claim, close, cpu, name }) => [
            atLeast(`claim, accurate statistics / ${name}`, ratio(claim, exact?.claim), 0.95),
            atLeast(`close, accurate statistics / ${name}`, ratio(close, exact?.close), 0.95),
            atLeast(`processor time, accurate statistics / ${name}`, ratio(cpu, exact?.cpu), 0.95)
          ]),
        tables: [
          {
            title: `Claim and close of 500 with ${jobs} jobs waiting (median µs, ${rounds} rounds)`,
            columns: ["statistics", "claim", "ratio", "close", "ratio", "CPU µs a job", "ratio"],
            rows: measured.map(({ claim, close, cpu, name }) => [
              name,
              median(claim),
              ratio(claim, exact?.claim),
              median(close),
              ratio(close, exact?.close),
              median(cpu),
              ratio(cpu, exact?.cpu)
            ])
          }
        ],
        charts: [
          {
            name: "planner",
            title: "Claim and close of 500 by the state of the statistics",
            kind: "bars",
            x: "",
            y: "µs a call",
            categories: measured.map(({ name }) => name),
            series: [
              { name: "claim", points: measured.map(({ claim }, i) => [i, median(claim)]) },
              { name: "close", points: measured.map(({ close }, i) => [i, median(close)]) }
            ]
          }
        ],
        notes: []
      }
    } finally {
      for (const client of clients) await client.end()
    }
  })
