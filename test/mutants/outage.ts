import type { Mutant } from "../mutants.js"

const matrix = "test/runtime/Matrix.test.ts"
const outage = "test/runtime/Outage.test.ts"
const within = "is settled as the table says, and before its permit is free: within"
const beyond = "is settled as the table says, and before its permit is free: beyond"

/** Sabotages of reconciliation: its budget, its watcher, and the table of exits and evidence. */
export const outageMutants: ReadonlyArray<Mutant> = [
  {
    name: "give an attempt up at its budget without watching it",
    file: "src/Reconciliation.ts",
    from: "return (yield* watcher.watch(attempt)) ?",
    to: "return attempt.seen !== undefined ?",
    suite: matrix,
    test: beyond,
    core: true
  },
  {
    name: "never give an attempt up",
    file: "src/Reconciliation.ts",
    from: "if (remaining <= 0) {",
    to: "if (remaining <= -Infinity) {",
    suite: matrix,
    test: beyond
  },
  {
    name: "give an attempt up before its budget is spent",
    file: "src/internal/budget.ts",
    from: "return Math.min(exitedAtMillis + bounds.budgetMillis, until) - nowMillis",
    to: "return Math.min(exitedAtMillis + bounds.budgetMillis / 10, until) - nowMillis",
    suite: matrix,
    test: beyond
  },
  {
    name: "conclude a watched attempt that is open",
    file: "src/internal/watcher.ts",
    from: 'case "open": // rescue\'s to end: to close it now would be a guess at what the handler still meant to do',
    to: 'case "open":\n      return "closed-otherwise"',
    suite: matrix,
    test: beyond
  },
  {
    name: "beat for watched attempts",
    file: "src/internal/attemptLife.ts",
    from: "      inFlight.remove(entry)\n      permits.unsafeRelease(proof.value)",
    to: '      if (proof.value.how !== "unresolved") inFlight.remove(entry)\n      permits.unsafeRelease(proof.value)',
    suite: outage,
    test: "is beaten for no more: rescue takes it, and the job runs again",
    core: true
  },
  {
    name: "measure the budget by the wall clock",
    file: "src/internal/monotonic.ts",
    from: "performance.now()",
    to: "Date.now()",
    suite: outage,
    test: "is given up by time that passed, not by a clock that was set"
  },
  {
    name: "release permits at the watchers' bound",
    file: "src/internal/watcher.ts",
    from: 'return Effect.as(first ? tellEvent(attempt, "watchers-full") : Effect.void, false)',
    to: 'return Effect.as(first ? tellEvent(attempt, "watchers-full") : Effect.void, true)',
    suite: outage,
    test: "keeps its permit at the watchers' bound, and the worker claims no more, until evidence comes"
  },
  {
    name: "watch without a bound",
    file: "src/internal/watcher.ts",
    from: "if (watched.size >= options.watchers) {",
    to: "if (watched.size >= Infinity) {",
    suite: outage,
    test: "keeps its permit at the watchers' bound, and the worker claims no more, until evidence comes"
  },
  {
    name: "ignore a foreign receipt",
    file: "src/internal/classification.ts",
    from: 'if (exit.receipt === "foreign") return "foreign-receipt"',
    to: 'if (exit.receipt === "foreign") return undefined',
    suite: matrix,
    test: within
  },
  {
    name: "accept a receipt of a transaction that did not commit",
    file: "src/internal/classification.ts",
    from: 'return exit.finalizedXid === evidence.closedXid ? undefined : "receipt-rolled-back"',
    to: "return undefined",
    suite: matrix,
    test: within
  },
  {
    name: "settle a caller-owned attempt while its finalization is in flight",
    file: "src/internal/settling.ts",
    from: 'case "busy": // a finalization is in flight',
    to: 'case "busy":\n        return { how: "closed", outcome: ending.outcome, event: undefined }',
    suite: matrix,
    test: within,
    core: true
  },
  {
    name: "take an end whose answer was lost for another's",
    file: "src/internal/settling.ts",
    from: "if (exited.ending !== undefined && exited.flushId !== undefined) {",
    to: "if (exited.handler === undefined && exited.ending !== undefined && exited.flushId !== undefined) {",
    suite: matrix,
    test: within
  },
  {
    name: "take a call without an answer for somebody else's end",
    file: "src/internal/settling.ts",
    from: 'if (answer === "none" || answer === "busy") return "later"',
    to: "",
    suite: matrix,
    test: within
  },
  {
    name: "take unknown evidence for open",
    file: "src/internal/classification.ts",
    from: '    case "unknown":\n      return "unknown"',
    to: '    case "unknown":\n      return "open"',
    suite: matrix,
    test: "is settled as the table says, and before its permit is free: forgotten"
  },
  {
    name: "count a verdict as another",
    file: "src/internal/protocolEvents.ts",
    from: '"exit", exitClass)\n  tagged.set',
    to: '"exit", "success")\n  tagged.set',
    suite: matrix,
    test: within
  },
  {
    name: "count a confirmed verdict as another",
    file: "src/internal/protocolEvents.ts",
    from: 'MetricLabel.make("exit", exitClass)',
    to: 'MetricLabel.make("exit", "failure")',
    suite: matrix,
    test: within
  },
  {
    name: "count an event without its name",
    file: "src/internal/protocolEvents.ts",
    from: 'Metric.tagged(metrics.protocolEvents, "event", event)',
    to: "metrics.protocolEvents",
    suite: matrix,
    test: within
  },
  {
    name: "watch for ever",
    file: "src/internal/watcher.ts",
    from: "sinceMillis < before",
    to: "sinceMillis < before - 1e9",
    suite: matrix,
    test: "is settled as the table says, and before its permit is free: forgotten"
  },
  {
    name: "prune the evidence of those who may still ask",
    file: "src/internal/maintenanceSteps.ts",
    from: "`prune_segment(${ring.kept(1)})`",
    to: '"prune_segment($1::interval)"',
    suite: "test/runtime/Evidence.test.ts",
    test: "is kept for as long as any runtime of the fleet may ask for it, whatever the history's minimum"
  },
  {
    name: "sweep the evidence of leases of those who may still ask",
    file: "src/internal/maintenanceSteps.ts",
    from: "${retention.kept(4)}, $5)`",
    to: "$4::interval, $5)`",
    suite: "test/runtime/Evidence.test.ts",
    test: "is kept for as long as any runtime of the fleet may ask for it, whatever the history's minimum"
  },
  {
    name: "keep evidence for the most hasty runtime only",
    file: "schema/functions/074_ring.sql",
    from: "coalesce(max((r.capabilities",
    to: "coalesce(min((r.capabilities",
    suite: "test/runtime/Evidence.test.ts",
    test: "is kept for as long as any runtime of the fleet may ask for it, whatever the history's minimum"
  }
]
