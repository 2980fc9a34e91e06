/** Mutants of what a runtime does while caller-owned completion is disabled for a queue, and of the operator's way to enable it. */
import type { Mutant } from "../mutants.js"

const suite = "test/runtime/Gating.test.ts"
const aside = "its caller-owned jobs are put aside without a run, ordinary ones go on, and enabling runs them"
const refused =
  "an attempt that runs already is refused when it completes, and put aside: its rows are not there, its progress is"
const ends = (how: string, state = "gated") => `a handler that is refused and ends by ${how} leaves its job ${state}`
const forms = {
  suite: "test/callerOwnedDisabled.test.ts",
  test: "is known in every form in which a handler can hand it on"
}

export const gatingMutants: ReadonlyArray<Mutant> = [
  {
    name: "run what is to be put aside",
    file: "src/internal/attemptLife.ts",
    from: `entry.gated && handler.mode === "caller-owned"`,
    to: `false && handler.mode === "caller-owned"`,
    suite,
    test: aside
  },
  {
    name: "put aside ordinary jobs as well",
    file: "src/internal/attemptLife.ts",
    from: `entry.gated && handler.mode === "caller-owned"`,
    to: "entry.gated",
    suite,
    test: aside
  },
  {
    name: "do not hear from the claim that the queue is disabled",
    file: "src/Claim.ts",
    from: `if (Predicate.hasProperty(row[10], "gated")) gated = true`,
    to: "",
    suite,
    test: aside
  },
  {
    name: "make due in a test what was put aside",
    file: "layers/testing/Testing.ts",
    from: " and state <> 'gated'`",
    to: "`",
    suite,
    test: aside
  },
  {
    name: "retry what a disabled queue has refused",
    file: "src/internal/classification.ts",
    from: `gated ? Effect.succeed<Ending>({ outcome: "gated" }) : `,
    to: "",
    suite,
    test: refused,
    core: true
  },
  {
    name: "forget a refusal that the handler hides",
    file: "src/internal/attemptHandle.ts",
    from: "entry.gated = true",
    to: "entry.gated = false",
    suite,
    test: ends("failing with an error of its own")
  },
  {
    name: "put aside in spite of the outcome that the handler selects",
    file: "src/internal/classification.ts",
    from: " && !(error instanceof OutcomeSelected)",
    to: "",
    suite,
    test: ends("selecting an outcome in spite of it", "snoozed")
  },
  {
    name: "know the refusal only as the library's own error",
    file: "src/internal/callerOwnedDisabled.ts",
    from: `  if (Option.contains(sqlStateOf(error), "WA006")) return true\n`,
    to: "",
    ...forms
  },
  {
    name: "do not look at what caused a failure",
    file: "src/internal/callerOwnedDisabled.ts",
    from: "    next = next.cause",
    to: "    return false",
    ...forms
  },
  {
    name: "advertise no version of caller-owned completion",
    file: "src/Heartbeat.ts",
    from: "callerOwned: contractVersion, queues,",
    to: "callerOwned: true, queues,",
    suite,
    test: "advertises where it claims and that it can take part; who does not keeps the queue from being enabled"
  },
  {
    name: "name nobody in the way",
    file: "src/internal/enableCallerOwned.ts",
    from: `if (error.sqlState !== "55000") return undefined`,
    to: `if (error.sqlState !== "55001") return undefined`,
    suite,
    test: "advertises where it claims and that it can take part; who does not keeps the queue from being enabled"
  },
  {
    name: "enable with one part of what was put aside",
    file: "src/internal/enableCallerOwned.ts",
    from: "if (count < partSize) return moved",
    to: "return moved",
    suite: "test/runtime/Admin.test.ts",
    test: "disables and enables caller-owned completion; what was put aside runs again, in parts, and the counts say so"
  }
]
