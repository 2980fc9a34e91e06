/**
 * Every exit of a caller-owned handler × every state of its evidence, on a real database, through the worker's own pipeline
 * (contract C-04, C-17, C-19, C-21). The expectations are the one table in `matrix/table.ts`, which schema/README.md shows.
 */
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import type * as Reconciliation from "effect-awa/Reconciliation"
import { expectedOf, runColumn, warmUp } from "./matrix/column.js"
import { counting } from "./matrix/counts.js"
import { type Evidence, evidenceNames, evidences, type EvidenceColumn } from "./matrix/table.js"
import { shared, withWorker } from "./matrix/world.js"

interface Phase {
  readonly options: Reconciliation.ReconciliationOptions
  readonly budgetMillis: number
  readonly columns: ReadonlyArray<Evidence>
}

/** Its budget ends with the attempt's deadline, which comes once the call that is not answered was made. */
const hurried: Evidence = "beyond, answers lost"
/** The least that an attempt waits for, however close rescue is. */
const least = 1_000

const laterOf = (evidence: Evidence): EvidenceColumn["later"] => {
  const column: EvidenceColumn = evidences[evidence]
  return column.later
}

const patient = 30_000
const hasty = 300

/** Within the budget, however slow the machine; beyond it; and beyond the watcher's life. */
const phases: Readonly<Record<string, Phase>> = {
  within: {
    options: { budget: patient },
    budgetMillis: patient,
    columns: evidenceNames.filter((name) => laterOf(name) === undefined || name === hurried)
  },
  beyond: {
    options: { budget: hasty },
    budgetMillis: hasty,
    columns: evidenceNames.filter(
      (name) => name !== hurried && laterOf(name) !== undefined && laterOf(name) !== "watch-expired"
    )
  },
  forgotten: {
    options: { budget: hasty, watcherLife: 300 },
    budgetMillis: hasty,
    columns: evidenceNames.filter((name) => laterOf(name) === "watch-expired")
  }
}

describe("the exit of a caller-owned handler", () => {
  layer(shared, { excludeTestServices: true, timeout: "60 seconds" })("", (it) => {
    for (const [phase, { budgetMillis, columns, options }] of Object.entries(phases)) {
      it.effect(
        `is settled as the table says, and before its permit is free: ${phase}`,
        () =>
          withWorker(phase, options, (recorder) =>
            Effect.gen(function* () {
              yield* warmUp(phase, recorder)
              for (const evidence of columns) {
                const column = runColumn(phase, recorder, evidence, evidence === hurried ? least : budgetMillis)
                const { counted, heard, result } = yield* counting(recorder, column)
                assert.deepStrictEqual(result.seen, new Map<unknown, unknown>(expectedOf(evidence)), evidence)
                assert.deepStrictEqual(result.faults, [], evidence)
                assert.deepStrictEqual(counted, heard, evidence)
              }
            })
          ),
        120_000
      )
    }
  })
})
