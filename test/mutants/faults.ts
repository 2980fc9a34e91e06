/** Mutants of what must not depend on a role's settings or a process's clock, and of the fault kit itself. */
import type { Mutant } from "../mutants.js"

const hostile = "test/faults/HostileRole.test.ts"

export const faultMutants: ReadonlyArray<Mutant> = [
  {
    name: "let the role choose the isolation of the runtime's statements",
    file: "src/internal/runtimeCall.ts",
    from: "`begin isolation level read committed; set local",
    to: "`begin; set local",
    suite: hostile,
    test: "a worker, as a role with serializable, does everything"
  },
  {
    name: "let the role limit the statements of an application transaction",
    file: "src/internal/beginText.ts",
    from: "set local statement_timeout = ${limit}; ",
    to: "",
    suite: hostile,
    test: "a worker, as a role with statementTimeout, does everything"
  },
  {
    name: "let the role limit the pauses of an application transaction",
    file: "src/internal/beginText.ts",
    from: "; set local idle_in_transaction_session_timeout = ${limit}",
    to: "",
    suite: hostile,
    test: "a worker, as a role with idleInTransaction, does everything"
  },
  {
    name: "reckon a delay by the producer's clock",
    file: "src/internal/enqueueCall.ts",
    from: `opts["delay_ms"] = Math.ceil(Duration.toMillis(options.delay))`,
    to: `opts["run_at"] = new Date(Date.now() + Duration.toMillis(options.delay)).toISOString()`,
    suite: "test/faults/ClockSkew.test.ts",
    test: "keep to the database's clock: schedules, retries, deadlines, heartbeats and rescue"
  },
  {
    name: "believe a LISTEN connection that says nothing",
    file: "src/Wakeup.ts",
    from: "yield* Effect.raceFirst(listener.ended, beat)",
    to: "void beat\n      yield* listener.ended",
    suite: "test/faults/HalfOpen.test.ts",
    test: "a worker whose LISTEN connection is half-open notices by its probe, and finds what it was not told of"
  },
  {
    name: "make every connection half-open",
    file: "layers/testing/internal/halfOpen.ts",
    from: "match = ({ listening }) => listening",
    to: "match = () => true",
    suite: "test/faults/HalfOpen.test.ts",
    test: "takes the connection that listens and no other: the server goes on notifying, and nobody is told"
  },
  {
    name: "stop a server gently that is to crash",
    file: "layers/testing/ServerRestart.ts",
    from: "yield* server.stop(mode)",
    to: 'yield* server.stop("fast")',
    suite: "test/faults/ServerRestart.test.ts",
    test: "proves by the server's own words that it was away, and whether it crashed"
  },
  {
    name: "keep to oneself why a test has no database",
    file: "layers/testing/TestDatabase.ts",
    from: " failed: ${reasonOf(this.cause)}",
    to: " failed",
    suite: "test/runtime/Testing.test.ts",
    test: "says why it could not be made, and never repeats the url"
  },
  {
    name: "shift only one form of the clock",
    file: "layers/testing/ClockSkew.ts",
    from: 'get: (target, key, receiver) => (key === "now" ? now : Reflect.get(target, key, receiver))',
    to: "get: (target, key, receiver) => Reflect.get(target, key, receiver)",
    suite: "test/faults/WorkerProcess.test.ts",
    test: "a worker's process has a clock that is 600000 ms ahead, in all its forms"
  },
  {
    name: "kill whom nobody asked to",
    file: "layers/testing/Backends.ts",
    from: "chosen?.test(applicationName) ?? true",
    to: "chosen?.test(applicationName) !== undefined",
    suite: "test/faults/Backends.test.ts",
    test: "ends the sessions that match, and answers those that the server says are gone"
  }
]
