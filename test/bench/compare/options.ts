/** The flags of a run. */
import { parseArgs } from "node:util"
import { measureNames } from "./measures.js"

export interface Options {
  /** By name; all that there are unless said otherwise. */
  readonly peers: ReadonlyArray<string> | undefined
  readonly measures: ReadonlyArray<string>
  readonly rounds: number
  /** How long one run of one peer is meant to take. */
  readonly seconds: number
  /** How long the horizon stays pinned. */
  readonly pinnedSeconds: number
  readonly idleSeconds: number
  /** Waiting jobs in the measure `backlog`: effect-awa's, and any other's. */
  readonly backlog: { readonly ours: number; readonly peers: number }
  readonly maxJobs: number
  /** A superuser's url; an embedded server unless given. */
  readonly url: string | undefined
  readonly out: string
  /** The name of a run to go on with. */
  readonly resume: string | undefined
  readonly publish: boolean
  /** To see that it works, not to measure. */
  readonly quick: boolean
  /** Nothing is measured: the tables and plots are made again from the run's journal. */
  readonly reportOnly: boolean
}

const amount = (text: string): number => {
  const match = /^(\d+(?:\.\d+)?)([kM]?)$/.exec(text)
  if (match === null) throw new Error(`not a number: ${text}`)
  return Number(match[1]) * (match[2] === "M" ? 1e6 : match[2] === "k" ? 1e3 : 1)
}

const list = (text: string): ReadonlyArray<string> => text.split(",").filter((name) => name !== "")

const measuresOf = (text: string): ReadonlyArray<string> => {
  if (text === "all") return measureNames
  const unknown = list(text).filter((name) => !measureNames.includes(name))
  if (unknown.length > 0)
    throw new Error(`--measures knows ${measureNames.join(", ")} and all, not ${unknown.join(", ")}`)
  return list(text)
}

export const readOptions = (args: ReadonlyArray<string>): Options => {
  const { values } = parseArgs({
    args: [...args],
    options: {
      peers: { type: "string" },
      measures: { type: "string", default: measureNames.filter((name) => name !== "backlog").join(",") },
      rounds: { type: "string" },
      seconds: { type: "string" },
      "pinned-seconds": { type: "string" },
      "max-jobs": { type: "string", default: "2M" },
      backlog: { type: "string" },
      url: { type: "string" },
      out: { type: "string", default: ".tmp/bench" },
      resume: { type: "string" },
      report: { type: "string" },
      long: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      publish: { type: "boolean", default: false }
    }
  })
  const { long, quick } = values
  const [ours = quick ? 20_000 : 10e6, peers = quick ? 10_000 : 1e6] = (values.backlog?.split(",") ?? []).map(amount)
  return {
    peers: values.peers === undefined ? undefined : list(values.peers),
    measures: measuresOf(values.measures),
    rounds: amount(values.rounds ?? (quick ? "1" : "3")),
    seconds: amount(values.seconds ?? (quick ? "3" : "20")),
    pinnedSeconds: amount(values["pinned-seconds"] ?? (quick ? "6" : long ? "600" : "180")),
    idleSeconds: quick ? 5 : 60,
    backlog: { ours, peers },
    maxJobs: amount(values["max-jobs"]),
    url: values.url,
    out: values.out,
    resume: values.resume ?? values.report,
    publish: values.publish,
    quick,
    reportOnly: values.report !== undefined
  }
}
