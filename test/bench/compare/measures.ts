/** What is measured, in the order of the report. */
import { backlog, horizon, processes, queues } from "./backlogs.js"
import { idle } from "./idle.js"
import { lane } from "./lanes.js"
import { half, latency } from "./latency.js"
import type { Measure } from "./measure.js"

export const measures: ReadonlyArray<Measure> = [
  lane("enqueue", "Bulk enqueue"),
  lane("drain", "Drain of jobs that do nothing"),
  lane("owned", "Drain of jobs that change a row and complete in the same transaction"),
  lane("grouped", "Drain of jobs that are completed a hundred in one transaction of the application"),
  latency,
  half,
  idle,
  processes,
  queues,
  horizon,
  backlog
]

export const measureNames: ReadonlyArray<string> = measures.map(({ name }) => name)
