/** The run as Markdown. */
import { median } from "../storage/statistics.js"
import { tolerance } from "./calibration.js"
import { entriesOf, type Entry } from "./journal.js"
import { measures } from "./measures.js"
import { peersOf, ratiosOf, roundStates, type Row, rowsOf, type Spread } from "./summary.js"

/** Three digits that count, with separators where they help. */
export const short = (value: number): string => {
  const size = Math.abs(value)
  if (!Number.isFinite(value)) return "–"
  if (size >= 1000) return Math.round(Number(value.toPrecision(4))).toLocaleString("en")
  if (size >= 100) return value.toFixed(0)
  if (size === 0) return "0"
  return String(Number(value.toPrecision(size >= 0.01 ? 3 : 2)))
}

const withSpread = ({ max, median: centre, min, rounds }: Spread, show = short): string =>
  rounds === 1 || min === max ? show(centre) : `${show(centre)} (${show(min)}–${show(max)})`

interface Column {
  readonly title: string
  readonly of: string
  readonly show?: (value: number) => string
}

const megabytes = (bytes: number) => short(bytes / 1e6)

const counts: ReadonlyArray<Column> = [
  { title: "jobs/s", of: "perSecond" },
  { title: "WAL bytes/job", of: "walBytes" },
  { title: "commits/job", of: "commits" },
  { title: "worker CPU µs/job", of: "workerMicros" },
  { title: "server CPU µs/job", of: "serverMicros" },
  { title: "peak MB", of: "peakBytes", show: megabytes },
  { title: "jobs", of: "jobs" }
]

const quantiles: ReadonlyArray<Column> = [
  ...["p50", "p95", "p99", "max"].map((of) => ({ title: `${of} ms`, of })),
  ...["p50", "p99"].map((of) => ({ title: `${of} ms since the call`, of: `since the call, ${of}` }))
]

const columns: Readonly<Record<string, ReadonlyArray<Column>>> = {
  enqueue: counts,
  drain: counts,
  owned: counts,
  grouped: counts,
  latency: quantiles,
  half: [{ title: "at jobs/s", of: "perSecond" }, ...quantiles],
  idle: [{ title: "statements a minute", of: "perMinute" }],
  processes: [1, 2, 4].map((n) => ({ title: n === 1 ? "1 process" : `${n} processes`, of: `processes ${n}` })),
  queues: [1, 4, 16, 64].map((n) => ({ title: n === 1 ? "1 queue" : `${n} queues`, of: `queues ${n}` })),
  horizon: ["snapshot", "xid", "scans"].flatMap((how) => [
    { title: `${how}: jobs/s at first`, of: `${how}, first window` },
    { title: `${how}: last third over first`, of: `${how}, last third over first` }
  ]),
  backlog: [
    { title: "backlog", of: "jobs" },
    { title: "jobs/s", of: "perSecond" },
    { title: "peak MB", of: "peakBytes", show: megabytes }
  ]
}

/** Of prose within a table. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ").trim()

export const table = (titles: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [titles, titles.map((_, i) => (i === 0 ? "---" : "---:")), ...rows]
    .map((cells) => `| ${cells.map(cell).join(" | ")} |`)
    .join("\n")

/** The quickest first; what has no numbers last. */
const byWorth = (rows: ReadonlyArray<Row>, measure: string): ReadonlyArray<Row> => {
  const first = columns[measure]?.[0]?.of ?? ""
  const rising = measure === "latency" || measure === "idle"
  const worth = (row: Row) => row.numbers[first]?.median ?? (rising ? Number.POSITIVE_INFINITY : -1)
  return [...rows].sort((a, b) => (rising ? worth(a) - worth(b) : worth(b) - worth(a)))
}

export const measureTable = (entries: ReadonlyArray<Entry>, measure: string): string => {
  const shown = columns[measure] ?? []
  const names = new Map(peersOf(entries).map(({ description, peer }) => [peer, description.name]))
  const rows = byWorth(rowsOf(entries, measure), measure)
  const measured = rows.filter((row) => row.none === undefined)
  const without = new Map<string, Array<string>>()
  for (const { none, peer } of rows) {
    if (none !== undefined) without.set(none, [...(without.get(none) ?? []), names.get(peer) ?? peer])
  }
  const notes = Array.from(without, ([why, who]) => `- ${who.join(", ")}: ${cell(why)}`)
  const cells = measured.map((row) => [
    names.get(row.peer) ?? row.peer,
    ...shown.map(({ of, show }) => {
      const spread = row.numbers[of]
      return spread === undefined ? "" : withSpread(spread, show)
    })
  ])
  return [table(["", ...shown.map(({ title }) => title)], cells), ...(notes.length > 0 ? ["", ...notes] : [])].join(
    "\n"
  )
}

const peersTable = (entries: ReadonlyArray<Entry>): string =>
  table(
    ["", "version", "runs on", "configuration", "when a worker dies", "its caller-owned lane"],
    peersOf(entries).map(({ description: { configuration, guarantee, name, owned, runtime, version } }) => [
      ...[name, version, runtime, configuration, guarantee],
      owned ?? "none"
    ])
  )

const ratiosTable = (entries: ReadonlyArray<Entry>): string =>
  table(
    ["effect-awa", "ratio", "target"],
    ratiosOf(entries).map(({ gate, value, what }) => [what, short(value), gate])
  )

const noiseNote = (entries: ReadonlyArray<Entry>): string => {
  const states = roundStates(entries)
  const all = entriesOf(entries, "calibration")
  const noisy = states.filter((state) => state.noisy)
  const repeated = states.filter((state) => state.attempt > 0)
  const rule = `${Math.round(tolerance * 100)} %`
  return [
    `Before each of the ${states.length} rounds the machine was calibrated: the median is ${short(median(all.map(({ cpu }) => cpu)))} blocks`,
    `hashed and ${short(median(all.map(({ fsync }) => fsync)))} flushes a second. A round whose calibration is more than ${rule} off either median is repeated, at`,
    `most twice. ${repeated.length} rounds were repeated, ${noisy.length} are still off and counted all the same` +
      (noisy.length === 0 ? "." : `: ${noisy.map(({ measure, round }) => `${measure} ${round + 1}`).join(", ")}.`)
  ].join("\n")
}

/** Everything that a run has found. */
export const markdown = (entries: ReadonlyArray<Entry>, images: ReadonlyMap<string, string>): string => {
  const run = entriesOf(entries, "run").at(-1)
  const skipped = new Map(entriesOf(entries, "skipped").map(({ peer, why }) => [peer, why]))
  for (const { peer } of peersOf(entries)) skipped.delete(peer)
  const sections = measures
    .map(({ name, title }) => ({ name, title, rows: rowsOf(entries, name) }))
    .filter(({ rows }) => rows.length > 0)
    .flatMap(({ name, title }) => {
      const image = images.get(name)
      return [`### ${title}`, measureTable(entries, name), ...(image === undefined ? [] : [`![${title}](${image})`])]
    })
  return [
    `Measured on ${run?.machine}, PostgreSQL ${run?.server} (${run?.settings}), commit ${run?.commit}, ${run?.at.slice(0, 10)}, by`,
    `\`\`\`sh\n${run?.command}\n\`\`\``,
    `Medians, with the least and the most of the rounds in parentheses; the peers take turns within each round.\n${noiseNote(entries)}`,
    ...(ratiosOf(entries).length > 0 ? ["### Ratios within this run", ratiosTable(entries)] : []),
    ...sections,
    "### What was compared",
    peersTable(entries),
    ...(skipped.size > 0 ? ["Left out:", [...skipped].map(([peer, why]) => `- ${peer}: ${cell(why)}`).join("\n")] : [])
  ].join("\n\n")
}
