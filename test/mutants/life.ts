/** Mutants of a worker's end: its stop, its signals, its deadline, and what it leaves behind. */
import type { Mutant } from "../mutants.js"

const stop = "test/runtime/Shutdown.test.ts"
const child = "test/runtime/Shutdown.process.test.ts"
const interruption = "test/runtime/Interruption.test.ts"
const crash = "test/life/Stop.life.ts"

const takenByClaim = "gives back an ordinary attempt that a claim under way has taken, and does not begin it"
const leftBehind = "names what it leaves behind, stores its progress, and what it says later is stale"
const atDeadline = "ends at its deadline, whatever hangs: a finalizer, a database that is away, a blocked event loop"

export const lifeMutants: ReadonlyArray<Mutant> = [
  {
    name: "ignore the second signal",
    file: "layers/internal/stopSignals.ts",
    from: "    process.exit(exitCodes[signal])\n",
    to: "",
    suite: child,
    test: "ends at once at the second signal, and not at npm's repetition of the first"
  },
  {
    name: "take npm's repetition of a signal for a second one",
    file: "layers/internal/stopSignals.ts",
    from: "if (signal === first.signal && now - first.at < repetition) return",
    to: "",
    suite: child,
    test: "ends at once at the second signal, and not at npm's repetition of the first"
  },
  {
    name: "lose a stop during the start",
    file: "layers/Worker.ts",
    from: "      const exit = yield* Effect.exit(restore(",
    to: "      yield* Fiber.await(starting)\n      const exit = yield* Effect.exit(restore(",
    suite: child,
    test: "that is told to stop while it starts does, whatever the start waits for"
  },
  {
    name: "begin what was claimed while the worker stopped",
    file: "src/internal/attemptLife.ts",
    from: '        if (supervisor.stopping()) entry.interruption ??= "shutdown"\n',
    to: "",
    suite: stop,
    test: takenByClaim
  },
  {
    name: "orphan a claim at the stop",
    file: "src/internal/workerSupervisor.ts",
    from: "    return Fiber.interruptAll(claimers)\n",
    to: "    return Effect.asVoid(Effect.forkDaemon(Fiber.interruptAll(claimers)))\n",
    suite: stop,
    test: takenByClaim
  },
  {
    name: "interrupt before the grace",
    file: "src/internal/workerStop.ts",
    from: "    if (Option.isSome(yield* waitAtMost(idle, grace))) return\n",
    to: "    void grace\n",
    suite: interruption,
    test: "lets handlers finish within the grace"
  },
  {
    name: "give back an attempt whose handler ignores its interruption",
    file: "src/internal/handlerRun.ts",
    from: "    ? handler.run(handle)",
    to: "    ? Effect.disconnect(handler.run(handle))",
    suite: stop,
    test: leftBehind
  },
  {
    name: "leave behind without the last word of progress",
    file: "src/internal/workerStop.ts",
    from: "    yield* waitAtMost(Effect.ignore(heartbeat.beat(spoke)), lastWordLimit)\n",
    to: "    void spoke\n",
    suite: stop,
    test: leftBehind
  },
  {
    name: "accept what a handler that was left behind commits late",
    file: "schema/functions/040_complete_job.sql",
    from: "on conflict (batch_id, batch_index) do nothing;\n    get diagnostics v_rows = row_count;",
    to: "on conflict (batch_id, batch_index) do nothing;\n    v_rows := 1;",
    suite: stop,
    test: leftBehind
  },
  {
    name: "let a stop outlast its deadline",
    file: "layers/internal/shutdownDeadline.ts",
    from: "        process.exit(exitCode)\n",
    to: "        void exitCode\n",
    suite: child,
    test: atDeadline
  },
  {
    name: "watch over the deadline by a timer alone",
    file: "layers/internal/shutdownDeadline.ts",
    from: "watchdog: startWatchdog(millis + slackMillis)",
    to: "watchdog: startWatchdog(millis + slackMillis * 1_000)",
    suite: child,
    test: atDeadline
  },
  {
    name: "wait for a transaction's body that ignores its interruption",
    file: "src/internal/transactionBody.ts",
    from: "if (Option.isNone(yield* observe(fiber, abandonMillis))) {",
    to: "if (Exit.isFailure(yield* Fiber.await(fiber))) {",
    suite: "test/runtime/LongTransaction.test.ts",
    test: "and ignores its interruption is refused by its maximum duration, rolled back, and runs again"
  },
  {
    name: "exit with 0 after a defect of the worker",
    file: "layers/Worker.ts",
    from: "      return yield* exit\n",
    to: "      return yield* Effect.interrupt\n",
    suite: crash,
    test: "with a defect of its own exits with 1, after the rest was stopped in order"
  },
  ...[
    {
      name: "say nothing of a handler that failed",
      from: "if (Exit.isSuccess(exit)) return undefined",
      to: "if (exit) return undefined"
    },
    { name: "tell the last failure as any other", from: "last || exitClassOf", to: "exitClassOf" },
    { name: "tell a defect as any other failure", from: '|| exitClassOf(cause) === "defect" ?', to: "?" },
    {
      name: "tell of a failure without its cause",
      from: "of ${maxAttempts}`,\n    cause\n",
      to: "of ${maxAttempts}`\n"
    },
    {
      name: "tell a choice as a failure",
      from: "instanceof OutcomeSelected) return undefined",
      to: "instanceof OutcomeSelected) void 0"
    }
  ].map((mutant) => ({
    ...mutant,
    file: "src/internal/handlerFailure.ts",
    suite: "test/runtime/Ordinary.test.ts",
    test: "whose handler fails is told to the log with its cause: the last failure and a defect as errors, a choice not at all"
  })),
  {
    name: "keep of a refused statement only that it failed",
    file: "src/internal/storedError.ts",
    from: "if (state === undefined) return message",
    to: "if (state !== '') return message",
    suite: "test/runtime/Ordinary.test.ts",
    test: "of which the database refused a statement keeps what the database said"
  },
  {
    name: "begin nobody after some that could not begin",
    file: "src/internal/claimLoop.ts",
    from: "yield* Effect.onError(begun, () => starting)",
    to: "yield* begun",
    suite: "test/claimLoop.test.ts",
    test: "begins its own, which are in flight: begun by nobody they would be beaten for all the same"
  },
  {
    name: "look at deadlines as seldom as at a long staleness",
    file: "src/internal/maintenanceSteps.ts",
    from: "Math.min(15_000, Math.max(1_000, Duration.toMillis(staleness) / 12))",
    to: "Math.max(1_000, Duration.toMillis(staleness) / 12)",
    suite: "test/maintenanceSteps.test.ts",
    test: "leaves no more than a quarter of a minute between two looks: the deadlines of young claims are looked at with them"
  },
  {
    name: "tell the end of a session by a word in the server's language",
    file: "src/internal/sqlState.ts",
    from: "|25P03$|25P04$",
    to: "",
    suite: "test/sqlState.test.ts",
    test: "that ended the session is known by its state, in whatever language the server says FATAL"
  },
  {
    name: "warn of what an operator has cancelled",
    file: "src/internal/workerLoops.ts",
    from: 'outcome === "cancelled" ? LogLevel.Info : LogLevel.Warning',
    to: "LogLevel.Warning",
    suite: "test/runtime/Ordinary.test.ts",
    test: "that an operator cancels is interrupted, and nobody is warned of it"
  },
  {
    name: "put an earlier release's functions over a later one's",
    file: "src/internal/migratePlan.ts",
    from: "revision > wanted.revision ?",
    to: "revision < 0 ?",
    suite: "test/migrations/migrate.test.ts",
    test: "leaves the functions of a later release alone, and replaces those of an earlier one"
  },
  {
    name: "print a script that puts an earlier release's functions over a later one's",
    file: "src/internal/migrateScript.ts",
    from: "if v_meta.revision > ${functionsRevision} then",
    to: "if false then",
    suite: "test/migrations/script.test.ts",
    test: "upgrades the version and the ring that it was printed for, and no other"
  }
]
