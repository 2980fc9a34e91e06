/** The parts of the benchmark that compute: sizes, spreads, the rule about noise, tables and plots. */
import { describe, expect, it } from "vitest"
import { isNoisy } from "./calibration.js"
import { charts } from "./charts.js"
import type { Entry } from "./journal.js"
import { replaceSection } from "./publish.js"
import { findRate, findSustained, jobsFor, marginalRate, nextTrial } from "./sizing.js"
import { ratiosOf, roundStates, rowsOf, spreadOf } from "./summary.js"
import { markdown, measureTable, short } from "./tables.js"

describe("sizing", () => {
  /** A peer that needs a second to start, and then does a thousand jobs a second. */
  const peer = (jobs: number) => ({ jobs, seconds: 1 + jobs / 1000 })

  it("leaves start-up out of a rate", async () => {
    const tried: Array<number> = []
    const rate = await findRate(1.5, 1e6, (jobs) => {
      tried.push(jobs)
      return Promise.resolve(peer(jobs))
    })
    expect(rate).toBeCloseTo(1000)
    expect(tried).toEqual([200, 400, 2250])
  })

  it("takes what one trial says when there is nothing to compare it with", async () => {
    expect(await findRate(1.5, 200, (jobs) => Promise.resolve(peer(jobs)))).toBeCloseTo(200 / 1.2)
    expect(marginalRate({ jobs: 200, seconds: 2 }, { jobs: 400, seconds: 1 })).toBe(400)
  })

  it("gives up on a peer that is never slow enough", async () => {
    let trials = 0
    await findRate(1.5, 1e12, (jobs) => {
      trials += 1
      return Promise.resolve({ jobs, seconds: 0.001 * trials })
    })
    expect(trials).toBe(5)
  })

  it("does not grow by more than twenty times at once", () => {
    const trial = { jobs: 200, seconds: 0.001 }
    expect(nextTrial(trial, trial, 1.5, 1e9)).toBe(4000)
    expect(nextTrial(trial, trial, 1.5, 1000)).toBe(1000)
  })

  it("keeps runs within bounds", () => {
    expect(jobsFor(1234.5, 20, 1e6)).toBe(24_700)
    expect(jobsFor(1, 20, 1e6)).toBe(200)
    expect(jobsFor(1e6, 20, 1e6)).toBe(1e6)
  })

  it("finds the rate that is kept up", async () => {
    expect(await findSustained(100, 12_800, (rate) => Promise.resolve(rate <= 900))).toBe(800)
    expect(await findSustained(100, 12_800, () => Promise.resolve(true))).toBe(12_800)
    expect(await findSustained(100, 12_800, () => Promise.resolve(false))).toBe(0)
  })
})

const place = (round: number, attempt = 0) => ({ measure: "drain", round, attempt })
const calibration = (round: number, cpu: number, attempt = 0): Entry => ({
  entry: "calibration",
  ...place(round, attempt),
  cpu,
  fsync: 100
})
const result = (peer: string, round: number, perSecond: number, attempt = 0): Entry => ({
  entry: "result",
  ...place(round, attempt),
  peer,
  values: { numbers: { perSecond, walBytes: 500, peakBytes: 2e8 } }
})
const peer = (name: string): Entry => ({
  entry: "peer",
  peer: name,
  typescript: true,
  description: {
    ...{ name, version: "1.0.0", runtime: "Node 24", configuration: "a | b" },
    ...{ guarantee: "at least once", owned: null }
  }
})

const entries: ReadonlyArray<Entry> = [
  {
    entry: "run",
    ...{ at: "2026-12-01T08:00:00Z", commit: "abc", machine: "2 × cores", server: "18.4" },
    ...{ settings: "fsync on", command: "npm run bench" }
  },
  ...["effect-awa", "other", "slow"].map(peer),
  { entry: "skipped", peer: "absent", why: "not installed here: go" },
  calibration(0, 100),
  result("effect-awa", 0, 1000),
  result("other", 0, 500),
  calibration(1, 50),
  result("effect-awa", 1, 10),
  result("other", 1, 5),
  calibration(2, 101),
  result("effect-awa", 2, 1200),
  result("other", 2, 400),
  calibration(1, 102, 1),
  result("effect-awa", 1, 1100, 1),
  result("other", 1, 550, 1),
  { entry: "none", ...place(0), peer: "slow", kind: "failed", why: "no answer\nwithin a minute" }
]

describe("the rule about noise", () => {
  it("is that of fifteen per cent", () => {
    const all = [{ cpu: 100, fsync: 100 }]
    expect(isNoisy({ cpu: 114, fsync: 86 }, all)).toBe(false)
    expect(isNoisy({ cpu: 116, fsync: 100 }, all)).toBe(true)
    expect(isNoisy({ cpu: 100, fsync: 84 }, all)).toBe(true)
  })

  it("looks at the last attempt of a round", () => {
    expect(roundStates(entries).every(({ noisy }) => !noisy)).toBe(true)
    const before = roundStates(entries.filter((entry) => !("attempt" in entry) || entry.attempt === 0))
    expect(before.map(({ noisy }) => noisy)).toEqual([false, true, false])
  })
})

describe("what is reported", () => {
  it("takes medians of the last attempts", () => {
    const [ours, other] = rowsOf(entries, "drain")
    expect(ours?.numbers["perSecond"]).toEqual({ median: 1100, min: 1000, max: 1200, rounds: 3 })
    expect(other?.numbers["perSecond"]).toEqual({ median: 500, min: 400, max: 550, rounds: 3 })
    expect(spreadOf([3])).toEqual({ median: 3, min: 3, max: 3, rounds: 1 })
  })

  it("says why there is no number", () => {
    const text = measureTable(entries, "drain")
    expect(text).toContain("| effect-awa | 1,100 (1,000–1,200) |")
    expect(text).toContain("- slow: failed: no answer within a minute")
  })

  it("compares within the run", () => {
    const [drain] = ratiosOf(entries)
    expect(drain).toEqual({
      what: "drain, over the best TypeScript peer, the best being other",
      value: 2.2,
      gate: "≥ 1.6, goal ≥ 2.0"
    })
  })

  it("is a page with all that was found", () => {
    const text = markdown(entries, new Map([["drain", "drain.svg"]]))
    expect(text).toContain("1 rounds were repeated, 0 are still off")
    expect(text).toContain("![Drain of jobs that do nothing](drain.svg)")
    expect(text).toContain("| other | 1.0.0 | Node 24 | a \\| b | at least once | none |")
    expect(text).toContain("- absent: not installed here: go")
  })

  it("writes numbers with three digits that count", () => {
    expect([0, 0.00512, 1.2345, 123.45, 12_345.6, 1_234_567].map(short)).toEqual([
      ...["0", "0.0051", "1.23", "123", "12,350", "1,235,000"]
    ])
  })

  it("draws pictures that stand alone", () => {
    const svg = charts(entries).get("drain")
    expect(svg).toMatch(/^<svg [^>]*xmlns="http:\/\/www.w3.org\/2000\/svg"[\s\S]*<\/svg>$/)
    expect(svg).toContain("1,100")
    expect(svg).toContain("Drain of jobs that do nothing")
  })

  it("draws lines where numbers are compared", () => {
    const numbers = { "processes 1": 100, "processes 2": 150, "processes 4": 140 }
    const lines: Entry = { entry: "result", ...place(0), measure: "processes", peer: "other", values: { numbers } }
    const windows: Entry = {
      entry: "result",
      ...{ ...place(0), measure: "horizon", peer: "other" },
      values: { numbers: { "xid, first window": 10 }, series: { xid: [10, 9, 8], scans: [10, 10, 10] } }
    }
    const drawn = charts([...entries, lines, windows])
    expect(drawn.get("processes")).toContain("processes →")
    expect(drawn.get("horizon")).toContain("scans")
  })

  it("replaces its section of the README, and nothing else", () => {
    const once = replaceSection("# Title\n\n## Use\n\nText\n\n## Development\n\nMore\n", "first")
    expect(once).toMatch(
      /^# Title\n\n## Use\n\nText\n\n## Beside other queues\n\n<!--[^]*-->\n\n## Development\n\nMore\n$/
    )
    const after = replaceSection(once, "second")
    expect(after).toBe(once.replace("first", "second"))
    expect(replaceSection("# Title\n", "first")).toMatch(/^# Title\n\n## Beside other queues\n\n<!--/)
  })
})
