/** What the rounds say together. */
import { median } from "../storage/statistics.js"
import { type Calibration, isNoisy } from "./calibration.js"
import { entriesOf, type Entry, type EntryOf } from "./journal.js"

export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
  readonly rounds: number
}

export const spreadOf = (values: ReadonlyArray<number>): Spread => ({
  median: median(values),
  min: Math.min(...values),
  max: Math.max(...values),
  rounds: values.length
})

type Place = Pick<EntryOf<"result">, "measure" | "round" | "attempt">

const sameRound = (a: Place, b: Place) => a.measure === b.measure && a.round === b.round

/** Only the last attempt of a round counts. */
export const lastAttempts = <E extends Place>(entries: ReadonlyArray<E>, all: ReadonlyArray<Place>): ReadonlyArray<E> =>
  entries.filter((entry) => !all.some((other) => sameRound(entry, other) && other.attempt > entry.attempt))

export interface RoundState extends Calibration {
  readonly measure: string
  readonly round: number
  readonly attempt: number
  readonly noisy: boolean
}

/** Each round of each measure by its last attempt, and whether the machine was itself then. */
export const roundStates = (entries: ReadonlyArray<Entry>): ReadonlyArray<RoundState> => {
  const all = entriesOf(entries, "calibration")
  return lastAttempts(all, all).map(({ attempt, cpu, fsync, measure, round }) => ({
    ...{ attempt, cpu, fsync, measure, round },
    noisy: isNoisy({ cpu, fsync }, all)
  }))
}

export interface Row {
  readonly peer: string
  readonly typescript: boolean
  /** Whether its caller-owned lane is one transaction. */
  readonly atomic: boolean
  readonly numbers: Readonly<Record<string, Spread>>
  /** Of the first round that has any. */
  readonly series: Readonly<Record<string, ReadonlyArray<number>>>
  /** Why there are no numbers. */
  readonly none: string | undefined
}

const rowOf = (
  peer: EntryOf<"peer">,
  results: ReadonlyArray<EntryOf<"result">>,
  nones: ReadonlyArray<EntryOf<"none">>
): Row => {
  const names = new Set(results.flatMap(({ values }) => Object.keys(values.numbers)))
  const spreads = [...names].map((name) => {
    const values = results.map((result) => result.values.numbers[name]).filter((value) => value !== undefined)
    return [name, spreadOf(values)] as const
  })
  return {
    peer: peer.peer,
    typescript: peer.typescript,
    atomic: peer.description.atomic === true,
    numbers: Object.fromEntries(spreads),
    series: results.find(({ values }) => values.series !== undefined)?.values.series ?? {},
    none: results.length > 0 ? undefined : nones.map(({ kind, why }) => `${kind}: ${why}`).at(-1)
  }
}

/** Each peer's last description: a resumed run writes it again. */
export const peersOf = (entries: ReadonlyArray<Entry>): ReadonlyArray<EntryOf<"peer">> => [
  ...new Map(entriesOf(entries, "peer").map((entry) => [entry.peer, entry])).values()
]

/** The rows of one measure: those that have been measured, and those that could not be. */
export const rowsOf = (entries: ReadonlyArray<Entry>, measure: string): ReadonlyArray<Row> => {
  const all = entriesOf(entries, "calibration")
  const results = lastAttempts(entriesOf(entries, "result"), all).filter((entry) => entry.measure === measure)
  const nones = lastAttempts(entriesOf(entries, "none"), all).filter((entry) => entry.measure === measure)
  return peersOf(entries)
    .map((peer) => {
      const of = <E extends { readonly peer: string }>(list: ReadonlyArray<E>) =>
        list.filter((entry) => entry.peer === peer.peer)
      return rowOf(peer, of(results), of(nones))
    })
    .filter((row) => Object.keys(row.numbers).length > 0 || row.none !== undefined)
}

export interface Ratio {
  readonly what: string
  readonly value: number
  readonly gate: string
}

const ours = "effect-awa"
const byPg = "effect-awa-pg"
const floor = "floor"

const valueOf = (rows: ReadonlyArray<Row>, peer: string, name: string): number | undefined =>
  rows.find((row) => row.peer === peer)?.numbers[name]?.median

const bestOf = (rows: ReadonlyArray<Row>, name: string, among: (row: Row) => boolean, low = false) => {
  const values = rows
    .filter((row) => !row.peer.startsWith(ours) && row.peer !== floor && among(row))
    .map((row) => ({ peer: row.peer, value: row.numbers[name]?.median }))
    .flatMap(({ peer, value }) => (value === undefined ? [] : [{ peer, value }]))
    .sort((a, b) => (low ? a.value - b.value : b.value - a.value))
  return values[0]
}

/** The targets, as ratios within the run. */
export const ratiosOf = (entries: ReadonlyArray<Entry>): ReadonlyArray<Ratio> => {
  const rows = (measure: string) => rowsOf(entries, measure)
  const ratios: Array<Ratio> = []
  const add = (what: string, value: number | undefined, other: number | undefined, gate: string) => {
    if (value !== undefined && other !== undefined) ratios.push({ what, value: value / other, gate })
  }
  const [enqueue, drain, owned, latency] = [rows("enqueue"), rows("drain"), rows("owned"), rows("latency")]
  const against = (what: string, list: ReadonlyArray<Row>, among: (row: Row) => boolean, gate: string) => {
    const best = bestOf(list, "perSecond", among)
    add(`${what}, the best being ${best?.peer ?? "none"}`, valueOf(list, ours, "perSecond"), best?.value, gate)
  }
  against("drain, over the best TypeScript peer", drain, (row) => row.typescript, "≥ 1.6, goal ≥ 2.0")
  against("drain, over the best other peer", drain, (row) => !row.typescript, "≥ 1.5")
  against("bulk enqueue, over the best TypeScript peer", enqueue, (row) => row.typescript, "≥ 1.5")
  const atomic = bestOf(owned, "perSecond", (row) => row.atomic)
  for (const [peer, by] of [
    [byPg, "by node-postgres"],
    [ours, "by Effect's SqlClient"]
  ] as const) {
    const rate = valueOf(owned, peer, "perSecond")
    const over = (what: string): string => `caller-owned ${by}, over ${what}`
    add(over(`the best peer that completes in the transaction, ${atomic?.peer ?? "none"}`), rate, atomic?.value, "≥ 2")
    add(over("the same transaction without a queue"), rate, valueOf(owned, floor, "perSecond"), "≥ 0.60, goal ≥ 0.80")
  }
  against("a hundred jobs in one transaction, over the best peer", rows("grouped"), () => true, "≥ 2")
  add(
    "caller-owned, over the same job by an ordinary handler",
    valueOf(owned, ours, "perSecond"),
    valueOf(owned, "effect-awa-ordinary", "perSecond"),
    ""
  )
  add(
    "WAL of claim and close, over graphile-worker's drain",
    valueOf(drain, ours, "walBytes"),
    valueOf(drain, "graphile-worker", "walBytes"),
    "≤ 0.5"
  )
  add("commits a drained job", valueOf(drain, ours, "commits"), 1, "≤ 0.01")
  for (const [quantile, gate] of [
    ["p50", "≤ 2"],
    ["p99", "≤ 3"]
  ] as const) {
    const name = `since the call, ${quantile}`
    const over = valueOf(latency, floor, name)
    add(`latency at 200/s since the call, ${quantile}, over the floor`, valueOf(latency, ours, name), over, gate)
    // from the enqueue's return some are at zero, and nothing can be divided by that
    const best = bestOf(latency, name, (row) => row.peer !== "bullmq-redis", true)
    const what = `latency at 200/s since the call, ${quantile}, over the best peer on PostgreSQL, ${best?.peer ?? "none"}`
    add(what, valueOf(latency, ours, name), best?.value, "< 1")
  }
  add("statements of an idle worker a minute", valueOf(rows("idle"), ours, "perMinute"), 1, "≤ 12")
  return ratios
}
