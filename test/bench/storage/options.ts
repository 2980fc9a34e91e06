/** The flags of a run. */
import { parseArgs } from "node:util"
import type { Result } from "./report.js"

export interface Options {
  /** A superuser's url. */
  readonly server: string
  readonly seed: number
  /** How long a phase lasts; every benchmark has its own default. */
  readonly seconds: number | undefined
  /** Backlogs, or numbers of jobs; every benchmark has its own default. */
  readonly sizes: ReadonlyArray<number> | undefined
  /** Small and short: to see that it works, not to measure. */
  readonly quick: boolean
  readonly profile: boolean
}

export type Benchmark = (options: Options) => Promise<Result>

const amount = (text: string): number => {
  const match = /^(\d+(?:\.\d+)?)([kM]?)$/.exec(text)
  if (match === null) throw new Error(`not a number: ${text}`)
  return Number(match[1]) * (match[2] === "M" ? 1e6 : match[2] === "k" ? 1e3 : 1)
}

export const readFlags = (names: ReadonlyArray<string>) => {
  const { values } = parseArgs({
    options: {
      only: { type: "string", default: names.join(",") },
      seconds: { type: "string" },
      minutes: { type: "string" },
      size: { type: "string" },
      seed: { type: "string", default: "1" },
      url: { type: "string" },
      out: { type: "string", default: ".tmp/bench-storage" },
      quick: { type: "boolean", default: false },
      profile: { type: "boolean", default: false }
    }
  })
  const only = values.only.split(",")
  const unknown = only.filter((name) => !names.includes(name))
  if (unknown.length > 0) throw new Error(`--only knows ${names.join(", ")}, not ${unknown.join(", ")}`)
  const seconds =
    values.seconds === undefined
      ? values.minutes === undefined
        ? undefined
        : 60 * amount(values.minutes)
      : amount(values.seconds)
  return {
    only,
    seconds,
    sizes: values.size?.split(",").map(amount),
    seed: amount(values.seed),
    url: values.url,
    out: values.out,
    quick: values.quick,
    profile: values.profile
  }
}
