import { sabotages } from "./pg/sabotages.js"

/** A sabotage of one place, and the test that must turn red by it. */
export interface Mutant {
  readonly name: string
  readonly file: string
  readonly from: string
  readonly to: string
  readonly suite: string
  readonly test: string
  /** Whether it belongs to the short form. */
  readonly core?: boolean
}

const callerOwned = "test/runtime/CallerOwned.test.ts"
const release = "test/runtime/Release.test.ts"
const ordinary = "test/runtime/Ordinary.test.ts"
const interruption = "test/runtime/Interruption.test.ts"

const runtime: ReadonlyArray<Mutant> = [
  {
    name: "drop the closure guard of complete_job",
    file: "schema/functions/040_complete_job.sql",
    from: "  if v_rows = 0 then",
    to: "  if false then",
    suite: callerOwned,
    test: "leaves no row when it went stale while its transaction was open",
    core: true
  },
  {
    name: "release the permit before reconciling",
    file: "src/Worker.ts",
    from: `return reconciliation.settle(entry, handler, exit)`,
    to: `return Effect.as(Effect.forkDaemon(reconciliation.settle(entry, handler, exit)), completion.lost("early"))`,
    suite: release,
    test: "of caller-owned attempts is freed only after the database has answered for it",
    core: true
  },
  {
    name: "release the permit before the flush is answered",
    file: "src/Worker.ts",
    from: "completion.end({ token: entry.attempt.token, ending, hasState: entry.hasState })",
    to: 'Effect.as(Effect.forkDaemon(completion.end({ token: entry.attempt.token, ending, hasState: entry.hasState })), completion.lost("early"))',
    suite: release,
    test: "of ordinary attempts is freed only after the database has answered for it"
  },
  {
    name: "ignore the command tag of COMMIT",
    file: "src/ApplicationPool.ts",
    from: `return tag === "COMMIT"`,
    to: `return tag !== ""`,
    suite: callerOwned,
    test: "notices a COMMIT that is answered by ROLLBACK",
    core: true
  },
  {
    name: "commit after a swallowed stale failure",
    file: "src/ApplicationPool.ts",
    from: "if (finalizations.failed()) {",
    to: "if (finalizations.failed() && false) {",
    suite: callerOwned,
    test: "cannot commit after its stale failure was swallowed",
    core: true
  },
  {
    name: "commit without the proof that the completion is in place",
    file: "src/internal/commitGuard.ts",
    from: "if (finalizations.noted.length === 0) return",
    to: "if (finalizations.noted.length >= 0) return",
    suite: callerOwned,
    test: "cannot commit without a completion that was rolled back with its savepoint"
  },
  {
    name: "run a runtime statement on the application's connection",
    file: "src/Worker.ts",
    from: `return reconciliation.settle(entry, handler, exit)`,
    to: `return Effect.zipRight(Effect.ignore(finalizing.pool.client.unsafe('select from "awa".segments')), reconciliation.settle(entry, handler, exit))`,
    suite: "test/runtime/Pools.test.ts",
    test: "no runtime statement runs on an application connection, whatever a handler does with its transaction",
    core: true
  },
  {
    name: "let a leaked fiber write on the connection after its transaction",
    file: "src/ApplicationPool.ts",
    from: "    own.close()\n",
    to: "",
    suite: "test/runtime/Pools.test.ts",
    test: "no runtime statement runs on an application connection, whatever a handler does with its transaction"
  },
  {
    name: "take open evidence for a completion",
    file: "src/internal/classification.ts",
    from: `    case "open":
      return "open"`,
    to: `    case "open":
      return "accepted"`,
    suite: callerOwned,
    test: "runs again when its COMMIT never reached the server",
    core: true
  },
  {
    name: "believe a failed handler instead of the evidence",
    file: "src/internal/classification.ts",
    from: `return evidence.outcome === "completed" ? "accepted" : "stale"`,
    to: `return "stale"`,
    suite: callerOwned,
    test: "is accepted from durable evidence when its handler ends with a failure after the commit"
  },
  {
    name: "accept any receipt",
    file: "src/internal/classification.ts",
    from: `fields.token === token ? "own" : "foreign"`,
    to: `"own"`,
    suite: callerOwned,
    test: "cannot be completed by the receipt of another attempt"
  },
  {
    name: "make an attempt's whole life interruptible",
    file: "src/internal/workerSupervisor.ts",
    from: "Effect.uninterruptible(Effect.forkDaemon(watched(life)))",
    to: "Effect.interruptible(Effect.forkDaemon(watched(life)))",
    suite: interruption,
    test: "accepts an attempt that was interrupted after its transaction"
  },
  {
    name: "count an attempt that was given back",
    file: "schema/functions/030_close.sql",
    from: "case when i.outcome in ('snoozed', 'released') then",
    to: "case when i.outcome in ('snoozed') then",
    suite: interruption,
    test: "gives back an attempt that was interrupted before its transaction"
  },
  {
    name: "retry beyond the last attempt",
    file: "schema/functions/030_close.sql",
    from: "and e.attempt + 1 >= e.max_attempts)",
    to: "and false)",
    suite: ordinary,
    test: "ends in the terminal jobs after its last attempt, by whatever it was failed"
  },
  {
    name: "store an error as it comes",
    file: "src/internal/storable.ts",
    from: `text.slice(0, limit).replaceAll("\\u0000", "\\uFFFD").toWellFormed()`,
    to: `text.slice(0, limit)`,
    suite: ordinary,
    test: "keeps failing when its error cannot be stored as it is"
  },
  {
    name: "free a permit by any object",
    file: "src/internal/makeSettled.ts",
    from: "=> made.delete(settled)",
    to: "=> made.delete(settled) || true",
    suite: "test/Permits.test.ts",
    test: "frees one permit for one proof, once"
  },
  {
    name: "reconcile ordinary attempts too",
    file: "src/Worker.ts",
    from: `if (handler.mode === "caller-owned") return`,
    to: `if (handler.mode !== undefined) return`,
    suite: release,
    test: "an ordinary job costs no reconciliation, and a share of two statements"
  },
  {
    name: "let a hung neighbour hold up its batch",
    file: "src/Completion.ts",
    from: `sqlState === "55P03" ||`,
    to: ``,
    suite: release,
    test: "is not held up by a stale member, nor by a neighbour that an application transaction holds"
  },
  {
    name: "accept pools of two databases",
    file: "src/internal/samePrimary.ts",
    from: `if (application !== runtimeIdentity ||`,
    to: `if (`,
    suite: "test/runtime/Pools.test.ts",
    test: "must reach the same database"
  }
]

const core: ReadonlySet<string> = new Set([
  "take the current segment from a row",
  "forget who was in progress below the cursor",
  "take a pending transaction for ended",
  "order a lane by seq",
  "drain under writers",
  "close without the receipt"
])

/** The engine's own sabotages name a file of schema/ and the path of a test. */
const engine = sabotages.map(({ file, from, name, test, to }): Mutant => {
  const [suite = "", ...path] = test.split(" > ")
  const folder = /^\d{4}_/.test(file) ? "migrations" : "functions"
  return { name, file: `schema/${folder}/${file}`, from, to, suite, test: path.join(" "), core: core.has(name) }
})

export const mutants: ReadonlyArray<Mutant> = [...runtime, ...engine]
