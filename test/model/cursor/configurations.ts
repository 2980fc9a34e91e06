/** The bounds within which the snapshot cursor is checked, and its broken twins. */
import type { Configuration } from "../checker/configuration.js"

interface Bounds {
  readonly writers: number
  readonly inserts?: number
  readonly claimers: number
  readonly limit?: number
  readonly ring?: number
  readonly rotations?: number
  readonly spills?: number
}

const constants = (bounds: Bounds, twin = "none"): Record<string, string> => {
  const { claimers, inserts = 1, limit = 2, ring = 2, rotations = 0, spills = 0, writers } = bounds
  const sessions = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i).join(", ")
  return {
    Writers: `{${sessions(1, writers)}}`,
    Inserts: String(inserts),
    Claimers: `{${sessions(writers + 1, claimers)}}`,
    Limit: String(limit),
    Ring: String(ring),
    Rotations: String(rotations),
    Spills: String(spills),
    Twin: `"${twin}"`
  }
}

const of = (name: string, bounds: Bounds, twin: string, rest: Partial<Configuration>): Configuration => ({
  name: `cursor: ${name}`,
  folder: "cursor",
  module: "Cursor",
  constants: constants(bounds, twin),
  invariants: ["NoneLost", "NoneTwice", "Fifo"],
  ...rest
})

const model = (name: string, bounds: Bounds, rest: Partial<Configuration>) => of(name, bounds, "none", rest)
const twin = (name: string, bounds: Bounds, violates: string) => of(name, bounds, name, { violates, short: true })

export const cursorConfigurations: ReadonlyArray<Configuration> = [
  model(
    "two writers, two claimers, one rotation",
    { writers: 2, claimers: 2, rotations: 1 },
    { short: true, states: 172_438 }
  ),
  model(
    "a spill",
    { writers: 1, inserts: 2, claimers: 2, limit: 1, rotations: 1, spills: 1 },
    { short: true, states: 12_098 }
  ),
  model("three writers, three claimers", { writers: 3, claimers: 3, limit: 1 }, {}),
  model("a slot that is used again", { writers: 2, inserts: 2, claimers: 2, rotations: 2 }, {}),

  twin("a cursor in the order of seq", { writers: 2, claimers: 2 }, "NoneLost"),
  twin("nothing is pending", { writers: 2, claimers: 2 }, "NoneLost"),
  twin("its own transaction is not pending", { writers: 2, claimers: 1 }, "NoneLost"),
  twin("the snapshot comes before the lock", { writers: 2, claimers: 3, limit: 1 }, "NoneTwice"),
  twin("batch ids are cached by sessions", { writers: 2, claimers: 3, limit: 1 }, "NoneTwice"),
  twin("the current segment is a row", { writers: 1, claimers: 1, rotations: 1 }, "NoneLost"),
  twin("the segment is not read again", { writers: 1, claimers: 1, rotations: 1 }, "NoneLost"),
  twin("drain without the exclusive lock", { writers: 1, claimers: 1, rotations: 1 }, "NoneLost"),
  twin("a spill without the lane's lock", { writers: 1, claimers: 3, limit: 1, rotations: 1, spills: 1 }, "NoneTwice"),
  twin("the transaction id comes after the segment", { writers: 2, claimers: 2, rotations: 1 }, "Fifo"),
  twin("a claim takes what begins while it is under way", { writers: 2, claimers: 1, rotations: 1 }, "Fifo")
]
