/** Printing an account, and what is wrong with it. */
import { Effect } from "effect"
import { chainOf, type Complaint, readAccount } from "./account.js"
import type { Drained, Fleet } from "./fleet.js"
import type { Known } from "./producers.js"
import { counts, number } from "./report.js"

export interface Judged {
  readonly totals: Readonly<Record<string, number>>
  readonly reasons: ReadonlyArray<string>
}

/** How many jobs are shown of each complaint, with their attempts. */
const shown = 5

const printComplaint = ({ found, what }: Complaint) =>
  Effect.gen(function* () {
    console.log(`\n  ${what}: ${number(found.length)}`)
    for (const { jobId, what: which } of found.slice(0, shown)) {
      console.log(`    job ${jobId} (${which})`)
      if (/^\d+$/.test(jobId)) for (const line of yield* chainOf(jobId)) console.log(`      ${line}`)
    }
  })

/** Every permit is back, and nothing was in flight, when the workers had drained. */
const ofWorkers = (drained: ReadonlyArray<Drained>, expected: number): ReadonlyArray<string> => [
  ...(drained.length === expected ? [] : [`${drained.length} workers drained, and not ${expected}`]),
  ...drained.flatMap(({ inFlight, permits, worker }) => [
    ...(inFlight === 0 ? [] : [`${worker} drained with ${inFlight} attempts in flight`]),
    ...permits
      .filter(({ free, total }) => free !== total)
      .map(({ free, queue, total }) => `${worker} has ${free} of ${total} permits of ${queue} at the end`)
  ])
]

export const judge = (known: Known, fleet: Fleet, drained: ReadonlyArray<Drained>, workers: number) =>
  Effect.gen(function* () {
    const incurable = yield* fleet.incurable
    for (const line of incurable) console.log(`\n  ${line}`)
    const { ambiguous, complaints, totals } = yield* readAccount(known)
    console.log(`\n  Read back by SQL over a direct connection:\n  ${counts(totals)}`)
    console.log(
      `  producers: ${counts({ committed: known.committed.length, refused: known.refused.length })}, ` +
        `answers to COMMIT lost ${number(known.ambiguous.length)} (${counts(ambiguous)})`
    )
    const permits = drained.flatMap(({ permits }) => permits.map(({ free, total }) => `${free}/${total}`))
    console.log(`  permits at the end: ${permits.join(", ")}`)
    yield* Effect.forEach(complaints, printComplaint, { discard: true })
    return {
      totals,
      reasons: [
        ...complaints.map(({ found, what }) => `${what}: ${found.length}`),
        ...ofWorkers(drained, workers),
        ...(incurable.length === 0 ? [] : ["workers met errors of the database that no repetition heals"])
      ]
    } satisfies Judged
  })
