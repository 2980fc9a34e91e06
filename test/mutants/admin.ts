import type { Mutant } from "../mutants.js"

const suite = "test/runtime/Admin.test.ts"
const file = "src/Admin.ts"
const settings = "src/internal/queueSettings.ts"

/** The sabotages of the operators' services. */
export const adminMutants: ReadonlyArray<Mutant> = [
  {
    name: "do not ask again for what is busy",
    file,
    from: "if (rest.length === 0 || performance.now() - startedAt >= patienceMillis) break",
    to: "break",
    suite,
    test: "asks again for what is busy, and answers busy when its patience is over"
  },
  {
    name: "ask for ever for what is busy",
    file,
    from: "performance.now() - startedAt >= patienceMillis",
    to: "patienceMillis < 0",
    suite,
    test: "asks again for what is busy, and answers busy when its patience is over"
  },
  {
    name: "drain without a pause of the queue",
    file,
    from: "      yield* pauseQueue(queue)\n",
    to: "",
    suite,
    test: "drains a queue: paused at once, done when its handlers are, and paused still when time is over"
  },
  {
    name: "drain without a look at what runs",
    file,
    from: `if (!(yield* flag("queue_running", queue))) return`,
    to: `if (!(yield* flag("queue_running", ""))) return`,
    suite,
    test: "drains a queue: paused at once, done when its handlers are, and paused still when time is over"
  },
  {
    name: "begin every page of a filter at its first id",
    file,
    from: "behind = part.at(-1)?.jobId",
    to: "behind = after",
    suite,
    test: "redrives by a filter, page by page, and goes on behind an id"
  },
  {
    name: "take a negative duration of a queue's setting for none",
    file: "src/internal/optionRules.ts",
    from: "return !(input >= 0)",
    to: "return false",
    suite,
    test: "refuses a setting of a queue that cannot be kept, by the name it was written under"
  },
  {
    name: "leave a queue's rate to the server, which has another name for it",
    file: settings,
    from: "Number.isInteger(limit) && limit >= 1",
    to: "limit < Infinity",
    suite,
    test: "refuses a setting of a queue that cannot be kept, by the name it was written under"
  },
  {
    name: "clear the settings that are not given",
    file: settings,
    from: `if (attemptDeadline !== undefined) {`,
    to: `if (attemptDeadline !== undefined || aging !== undefined) {`,
    suite,
    test: "sets what is given of a queue, and leaves the rest"
  }
]
