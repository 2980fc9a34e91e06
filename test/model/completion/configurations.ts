/** The bounds within which completion versus rescue is checked, and its broken twins. */
import type { Configuration } from "../checker/configuration.js"

const invariants = [
  "OneClosurePerClaim",
  "ClosureIsOfItsClaim",
  "EffectExactlyWhenCompleted",
  "OneCompletion",
  "AcceptedOnlyByEvidence",
  "SettledTellsTheTruth",
  "ReleasedMeansOver",
  "EveryJobSomewhere",
  "RescueNeverWaits"
]

interface Bounds {
  readonly owned: number
  readonly ordinary?: number
  readonly leases?: number
  readonly attempts: number
  readonly permits?: number
  readonly turns?: number
  readonly losses?: number
  readonly crashes?: number
  readonly failovers?: number
}

const constants = (bounds: Bounds, twin = "none"): Record<string, string> => {
  const {
    attempts,
    crashes = 0,
    failovers = 0,
    leases = 2,
    losses = 0,
    ordinary = 0,
    owned,
    permits = 2,
    turns = 0
  } = bounds
  const jobs = (first: number, count: number) => `{${Array.from({ length: count }, (_, i) => first + i).join(", ")}}`
  return {
    Owned: jobs(1, owned),
    Ordinary: jobs(owned + 1, ordinary),
    MaxLease: String(leases),
    Attempts: String(attempts),
    Permits: String(permits),
    Ring: "2",
    Turns: String(turns),
    Losses: String(losses),
    Crashes: String(crashes),
    Failovers: String(failovers),
    Budget: "1",
    Twin: `"${twin}"`
  }
}

const model = (name: string, bounds: Bounds, rest: Partial<Configuration>): Configuration => ({
  name: `completion: ${name}`,
  folder: "completion",
  module: "CompletionSpec",
  constants: constants(bounds),
  invariants,
  ...rest
})

const twin = (name: string, bounds: Bounds, violates: string, rest: Partial<Configuration> = {}): Configuration => ({
  name: `completion: ${name}`,
  folder: "completion",
  module: "CompletionSpec",
  constants: constants(bounds, name),
  invariants,
  violates,
  short: true,
  ...rest
})

const inTheEnd = { specification: "FairSpec", invariants: [] }

export const completionConfigurations: ReadonlyArray<Configuration> = [
  model(
    "a caller-owned job",
    { owned: 1, attempts: 2, turns: 2, losses: 1, crashes: 1 },
    { short: true, states: 34_678 }
  ),
  model(
    "two ordinary jobs",
    { owned: 0, ordinary: 2, attempts: 2, losses: 1, turns: 1 },
    { short: true, states: 23_960 }
  ),
  model("a lossy failover", { owned: 1, attempts: 2, losses: 1, failovers: 1 }, { short: true, states: 67_794 }),
  model(
    "a job ends, and its permits return",
    { owned: 1, attempts: 2, losses: 1, crashes: 1 },
    {
      ...inTheEnd,
      properties: ["EveryJobEnds", "EveryPermitReturns"],
      states: 6_679,
      short: true
    }
  ),

  model("more losses", { owned: 1, attempts: 2, turns: 2, losses: 2, crashes: 1 }, { states: 91_053 }),
  model("a job of each kind", { owned: 1, ordinary: 1, attempts: 3, losses: 1 }, { states: 185_302 }),
  model("three attempts over a lossy failover", { owned: 1, attempts: 3, failovers: 1 }, {}),

  twin("rescue does not look again", { owned: 1, attempts: 1 }, "OneClosurePerClaim"),
  twin("complete_job does not ask for the receipt", { owned: 1, attempts: 2, failovers: 1 }, "ClosureIsOfItsClaim"),
  twin("commit after a swallowed refusal", { owned: 1, attempts: 1 }, "EffectExactlyWhenCompleted"),
  twin("an unanswered commit is run again", { owned: 1, attempts: 1, losses: 1 }, "EveryJobSomewhere"),
  twin("release before reconciliation", { owned: 1, attempts: 1 }, "ReleasedMeansOver"),
  twin("the watcher settles by guess", { owned: 1, attempts: 1, losses: 2 }, "AcceptedOnlyByEvidence"),
  twin("rescue without the attempt lock", { owned: 1, attempts: 1 }, "RescueNeverWaits"),
  twin("close by the key alone", { owned: 0, ordinary: 1, attempts: 1, turns: 2 }, "ClosureIsOfItsClaim"),
  twin("a flush does not know itself", { owned: 0, ordinary: 1, attempts: 1, losses: 1 }, "SettledTellsTheTruth"),
  twin("retire a segment by its age", { owned: 1, ordinary: 1, attempts: 2, turns: 3 }, "ClosureIsOfItsClaim", {
    // the claim that is lost with its segment is seen first; here it is the late commit that counts
    invariants: ["ClosureIsOfItsClaim"]
  }),
  twin("nobody rescues", { owned: 1, attempts: 2, crashes: 1 }, "EveryJobEnds", {
    ...inTheEnd,
    properties: ["EveryJobEnds"]
  })
]
