/** What a run has found so far, a line at a time, so that an interrupted one can go on. */
import { Schema } from "effect"
import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs"
import { dirname } from "node:path"
import { Description } from "../peers/protocol.js"

const Numbers = Schema.Record({ key: Schema.String, value: Schema.Number })

export const Values = Schema.Struct({
  numbers: Numbers,
  series: Schema.optional(Schema.Record({ key: Schema.String, value: Schema.Array(Schema.Number) }))
})
export type Values = typeof Values.Type

const place = { measure: Schema.String, round: Schema.Int, attempt: Schema.Int }

export const Entry = Schema.Union(
  /** Once at the beginning, and again whenever the run was resumed. */
  Schema.Struct({
    entry: Schema.Literal("run"),
    at: Schema.String,
    commit: Schema.String,
    machine: Schema.String,
    server: Schema.String,
    settings: Schema.String,
    command: Schema.String
  }),
  Schema.Struct({
    entry: Schema.Literal("peer"),
    peer: Schema.String,
    typescript: Schema.Boolean,
    description: Description
  }),
  Schema.Struct({ entry: Schema.Literal("skipped"), peer: Schema.String, why: Schema.String }),
  Schema.Struct({ entry: Schema.Literal("rate"), peer: Schema.String, lane: Schema.String, perSecond: Schema.Number }),
  Schema.Struct({ entry: Schema.Literal("calibration"), ...place, cpu: Schema.Number, fsync: Schema.Number }),
  Schema.Struct({ entry: Schema.Literal("result"), ...place, peer: Schema.String, values: Values }),
  Schema.Struct({
    entry: Schema.Literal("none"),
    ...place,
    peer: Schema.String,
    kind: Schema.Literal("unsupported", "failed"),
    why: Schema.String
  })
)
export type Entry = typeof Entry.Type
export type EntryOf<Kind extends Entry["entry"]> = Extract<Entry, { readonly entry: Kind }>

export interface Journal {
  readonly path: string
  readonly entries: ReadonlyArray<Entry>
  readonly add: (entry: Entry) => void
}

export const entriesOf = <Kind extends Entry["entry"]>(
  entries: ReadonlyArray<Entry>,
  kind: Kind
): ReadonlyArray<EntryOf<Kind>> => entries.filter((entry): entry is EntryOf<Kind> => entry.entry === kind)

const decode = Schema.decodeUnknownSync(Schema.parseJson(Entry))

/** A line that was being written when the run was killed is not one. */
const read = (path: string): Array<Entry> =>
  readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line.endsWith("}"))
    .map((line) => decode(line))

export const openJournal = (path: string): Journal => {
  mkdirSync(dirname(path), { recursive: true })
  const entries = existsSync(path) ? read(path) : []
  // after a line that was cut off, the next one must begin a new one
  if (entries.length > 0) appendFileSync(path, "\n")
  return {
    path,
    entries,
    add: (entry) => {
      entries.push(entry)
      appendFileSync(path, `${JSON.stringify(entry)}\n`)
    }
  }
}
