import { callbackMutants } from "./mutants/callbacks.js"
import { adminMutants } from "./mutants/admin.js"
import { contractMutants } from "./mutants/contract.js"
import { doctorMutants } from "./mutants/doctor.js"
import { driverMutants } from "./mutants/drivers.js"
import { optionMutants } from "./mutants/options.js"
import { ormMutants } from "./mutants/orms.js"
import { outageMutants } from "./mutants/outage.js"
import { leftBehindMutants } from "./mutants/leftBehind.js"
import { lifeMutants } from "./mutants/life.js"
import { limitMutants } from "./mutants/limits.js"
import { matrixMutants } from "./mutants/matrix.js"
import { poolMutants } from "./mutants/pools.js"
import { privilegeMutants } from "./mutants/privileges.js"
import { faultMutants } from "./mutants/faults.js"
import { queryBuilderMutants } from "./mutants/queryBuilders.js"
import { gatingMutants } from "./mutants/gating.js"
import { sabotages } from "./pg/sabotages.js"

/** A sabotage of one place, and the test that must turn red by it. */
export interface Mutant {
  readonly name: string
  readonly file: string
  readonly from: string
  readonly to: string
  readonly suite: string
  readonly test: string
  /** The configuration of vitest that knows the suite, where it is not the usual one. */
  readonly config?: string
  /** What the environment says besides: the cell of the matrix in which the test turns red. */
  readonly env?: Readonly<Record<string, string>>
  /** Whether it belongs to the short form. */
  readonly core?: boolean
}

const callerOwned = "test/runtime/CallerOwned.test.ts"
const release = "test/runtime/Release.test.ts"
const ordinary = "test/runtime/Ordinary.test.ts"
const interruption = "test/runtime/Interruption.test.ts"
const enqueue = "test/runtime/Enqueue.test.ts"

const runtime: ReadonlyArray<Mutant> = [
  {
    name: "drop the closure guard of complete_job",
    file: "schema/functions/040_complete_job.sql",
    from: "on conflict (batch_id, batch_index) do nothing;\n    get diagnostics v_rows = row_count;",
    to: "on conflict (batch_id, batch_index) do nothing;\n    v_rows := 1;",
    suite: callerOwned,
    test: "leaves no row when it went stale while its transaction was open",
    core: true
  },
  {
    name: "release the permit before reconciling",
    file: "src/internal/attemptLife.ts",
    from: "      return reconciliation.unsafeSettle(",
    to: "      settleBy(entry, permits, Effect.succeed(completion.lost('early')))\n      permits = { ...permits, unsafeRelease: () => {} }\n      return reconciliation.unsafeSettle(",
    suite: release,
    test: "of caller-owned attempts is freed only after the database has answered for it",
    core: true
  },
  {
    name: "release the permit before the flush is answered",
    file: "src/internal/attemptLife.ts",
    from: "ending, hasState: entry.hasState }, (proof) =>\n        release(entry, permits, proof)\n      )",
    to: 'ending, hasState: entry.hasState }, () => {}), release(entry, permits, Exit.succeed(completion.lost("early")))',
    suite: release,
    test: "of ordinary attempts is freed only after the database has answered for it"
  },
  {
    name: "ignore the command tag of COMMIT",
    file: "src/internal/transactionEnd.ts",
    from: `if (tag !== "COMMIT")`,
    to: `if (tag === "")`,
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
    name: "complete in a transaction that its body has ended",
    file: "src/internal/transactionEnd.ts",
    from: 'closing.text !== "" && isIdle(connection)',
    to: "isIdle(connection) && false",
    suite: callerOwned,
    test: "is not completed by a finalization whose body has ended the transaction by itself"
  },
  {
    name: "take complete_job's refusal for any rollback",
    file: "src/internal/transactionEnd.ts",
    from: "if (refusal !== undefined) return",
    to: "if (refusal === null) return",
    suite: callerOwned,
    test: "cannot be completed twice in one transaction"
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
    file: "src/internal/attemptLife.ts",
    from: "      return reconciliation.unsafeSettle(",
    to: `      Effect.runFork(Effect.ignore(finalizing.pool.client.unsafe('select from "awa".segments')))\n      return reconciliation.unsafeSettle(`,
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
    suite: "test/runtime/Matrix.test.ts",
    test: "is settled as the table says, and before its permit is free: within"
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
    name: "settle an attempt while fibers of its handler run",
    file: "src/internal/attemptLife.ts",
    from: "    const exit = Effect.exit(handlerRun(handler, attemptHandle(entry, finalizing)))",
    to: "    const exit = Effect.exit(Effect.daemonChildren(handlerRun(handler, attemptHandle(entry, finalizing))))",
    suite: "test/runtime/Ordinary.test.ts",
    test: "ends with the fibers that its handler forked, and is not settled before"
  },
  {
    name: "let an interruption end an attempt unsettled",
    file: "src/internal/attemptLife.ts",
    from: "settle(entry, handler, permits, Exit.isSuccess(exit) ? exit.value : exit))",
    to: "Exit.isSuccess(exit) ? settle(entry, handler, permits, exit.value) : cutShort(entry, exit.cause))",
    suite: interruption,
    test: "gives back an attempt that was interrupted before its transaction"
  },
  {
    name: "count an attempt that was given back",
    file: "schema/functions/028_dispose.sql",
    from: "case when j.outcome in ('snoozed', 'released', 'gated') then",
    to: "case when j.outcome in ('snoozed') then",
    suite: interruption,
    test: "gives back an attempt that was interrupted before its transaction"
  },
  {
    name: "retry beyond the last attempt",
    file: "schema/functions/028_dispose.sql",
    from: "and j.attempt >= j.max_attempts)",
    to: "and false)",
    suite: ordinary,
    test: "ends in the terminal jobs after its last attempt, by whatever it was failed"
  },
  {
    name: "take a dead letter for a success",
    file: "src/internal/handlerRun.ts",
    from: ` ||\n  JobOutcome.$is("DeadLetter")(value)`,
    to: "",
    suite: ordinary,
    test: "goes to the dead letters when its handler says so, with the reason, and does not run again"
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
    from: "=> Proof.spend(settled)",
    to: "=> Proof.spend(settled) || true",
    suite: "test/Permits.test.ts",
    test: "frees one permit for one proof, once"
  },
  {
    name: "reconcile ordinary attempts too",
    file: "src/internal/attemptLife.ts",
    from: `if (handler.mode === "caller-owned") {\n      return`,
    to: `if (handler.mode !== undefined) {\n      return`,
    suite: release,
    test: "an ordinary job costs no reconciliation, and a share of two statements"
  },
  {
    name: "take a flush of completions for closed, whatever the number",
    file: "src/internal/closeCall.ts",
    from: `Column.number(row?.[0]) === requests.length`,
    to: `Column.number(row?.[0]) >= 0`,
    suite: "test/runtime/Flush.test.ts",
    test: "of completions is stale for the one that somebody else ended, and closes its neighbours"
  },
  {
    name: "begin the attempts of a full claim before the next one",
    file: "src/internal/claimLoop.ts",
    from: `yield* begin(starting)`,
    to: `yield* starting`,
    suite: "test/claimLoop.test.ts",
    test: "is followed by the next one before its attempts begin, which are in flight already; the end of claiming waits for them"
  },
  {
    name: "end the claiming while attempts begin",
    file: "src/internal/claimLoop.ts",
    from: `Effect.ensuring(next(0, 0), beginning.begun)`,
    to: `next(0, 0)`,
    suite: "test/claimLoop.test.ts",
    test: "is followed by the next one before its attempts begin, which are in flight already; the end of claiming waits for them"
  },
  {
    name: "count the stale members of a flush as closed",
    file: "src/internal/closeCall.ts",
    from: `(count(distinct ord) filter (where answer = 'closed'))::integer`,
    to: "count(distinct ord)::integer",
    suite: release,
    test: "is not held up by a stale member, nor by a neighbour that an application transaction holds"
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
  },
  {
    name: "enqueue a unique job as any other",
    file: "src/internal/enqueueCall.ts",
    from: `opts["unique"] = uniqueOptions(options.unique)`,
    to: `opts["unique"] = null`,
    suite: enqueue,
    test: "answers whether a job is new, is there already, or has replaced what was there"
  },
  {
    name: "hold a call to its definition's unique key although it says false",
    file: "src/Job.ts",
    from: "unique: overrides?.unique ?? (",
    to: "unique: overrides?.unique || (",
    suite: enqueue,
    test: "answers whether a job is new, is there already, or has replaced what was there"
  },
  {
    name: "leave it to the cause that nothing is installed",
    file: "src/internal/enqueueCall.ts",
    from: `const missing: ReadonlyArray<string> = ["3F000", "42P01", "42883"]`,
    to: `const missing: ReadonlyArray<string> = ["42P01"]`,
    suite: enqueue,
    test: "says that nothing is installed, and what installs it"
  },
  {
    name: "take a table of the application for a part of the schema",
    file: "src/internal/enqueueCall.ts",
    from: "${escaped}(?![\\p{L}\\p{N}_$])",
    to: "${escaped}",
    suite: enqueue,
    test: "leaves what else is missing to the driver's own words"
  },
  {
    name: "take a duplicate for a fault of the database",
    file: "src/internal/enqueueCall.ts",
    from: `Option.contains(sqlStateOf(error), "23505")`,
    to: `Option.contains(sqlStateOf(error), "")`,
    suite: enqueue,
    test: "fails with DuplicateJob where the definition or the call says so, and keeps the whole call out"
  },
  {
    name: "send whatever an untyped program says of a unique key",
    file: "src/internal/enqueueCall.ts",
    from: "options.unique === undefined || options.unique === false ? undefined : uniqueFault(options.unique)",
    to: "options.unique === undefined || options.unique === false || true ? undefined : uniqueFault(options.unique)",
    suite: enqueue,
    test: "names the part of `unique` and the rule"
  },
  {
    name: "trust every new connection",
    file: "src/internal/sameInstallation.ts",
    from: "else if (result.rows[0]?.[0] === wanted) finish()",
    to: "else if (result.rows.length > 0) finish()",
    suite: "test/runtime/Restore.test.ts",
    test: "under a running runtime is noticed by its next connection, before it claims there"
  },
  {
    name: "write at every tick",
    file: "schema/functions/074_ring.sql",
    from: "  v_age := clock_timestamp() - v_current.opened_at;\n",
    to: "  v_age := clock_timestamp() - v_current.opened_at;\n  update {{schema}}.segments s set opened_at = s.opened_at where s.slot = v_current.slot;\n",
    suite: "test/runtime/Idle.test.ts",
    test: "writes its own beat and nothing else, through every tick of maintenance"
  },
  {
    name: "start on a database that was replaced",
    file: "src/internal/startCheck.ts",
    from: `if (adopted?.[0] === "refused") {`,
    to: `if (adopted?.[0] === "never") {`,
    suite: "test/runtime/Restore.test.ts",
    test: "is refused at the start, by name, with the way out"
  }
]

const core: ReadonlySet<string> = new Set([
  "take the current segment from a row",
  "forget who was in progress below the cursor",
  "take a pending transaction for ended",
  "order a lane by seq",
  "drain under writers",
  "close without the receipt",
  "claim what has a tombstone",
  "forget the head",
  "store a twin nevertheless",
  "forget who was in progress when the mark was made",
  "bury what a claim has taken"
])

/** The engine's own sabotages name a file of schema/ and the path of a test. */
const engine = sabotages.map(({ file, from, name, test, to }): Mutant => {
  const [suite = "", ...path] = test.split(" > ")
  const folder = /^\d{4}_/.test(file) ? "migrations" : "functions"
  return { name, file: `schema/${folder}/${file}`, from, to, suite, test: path.join(" "), core: core.has(name) }
})

export const mutants: ReadonlyArray<Mutant> = [
  ...runtime,
  ...callbackMutants,
  ...contractMutants,
  ...doctorMutants,
  ...driverMutants,
  ...optionMutants,
  ...ormMutants,
  ...queryBuilderMutants,
  ...adminMutants,
  ...outageMutants,
  ...leftBehindMutants,
  ...lifeMutants,
  ...limitMutants,
  ...matrixMutants,
  ...poolMutants,
  ...privilegeMutants,
  ...gatingMutants,
  ...faultMutants,
  ...engine
]
