/** Mutants of the pools, of what is asked of a pooler, and of the wake-up. */
import type { Mutant } from "../mutants.js"

const separation = "test/runtime/PoolSeparation.test.ts"
const exhaustion = "test/runtime/PoolExhaustion.test.ts"
const sharedPool = "test/runtime/SharedPool.test.ts"
const start = "test/runtime/PoolStart.test.ts"

const turns = "test/turns.test.ts"
const handsOn = "hands no connection on whose transaction did not commit"

const separate = "each side's statements stay on its own connections, in the server's own log"

export const poolMutants: ReadonlyArray<Mutant> = [
  {
    name: "prepare whatever the runtime asks",
    file: "src/internal/runtimeCall.ts",
    from: "const prepared = statement.prepare === true && !robbed",
    to: "const prepared = !robbed",
    suite: separation,
    test: separate
  },
  {
    name: "take a session's advisory lock for leadership",
    file: "schema/functions/070_lead.sql",
    from: "pg_try_advisory_xact_lock(",
    to: "pg_try_advisory_lock(",
    suite: separation,
    test: separate
  },
  {
    name: "ask the application's connection for evidence",
    file: "src/internal/attemptLife.ts",
    from: "      return reconciliation.unsafeSettle(",
    to: `      Effect.runFork(Effect.ignore(finalizing.pool.client.unsafe('select from "awa".meta')))\n      return reconciliation.unsafeSettle(`,
    suite: separation,
    test: separate
  },
  {
    name: "run beats on the application pool",
    file: "src/Worker.ts",
    from: "    keepBeating(heartbeat, inFlight,",
    to: "    keepBeating({ ...heartbeat, beat: (entries) => Effect.zipRight(Effect.ignore(Effect.scoped(applicationPool.client.reserve)), heartbeat.beat(entries)) }, inFlight,",
    suite: exhaustion,
    test: "beats, reconciliation and maintenance go on, and nobody who waits is rescued",
    core: true
  },
  {
    name: "let admission go above the reserve",
    file: "src/ApplicationPool.ts",
    from: "makeTurns(admission, undefined)",
    to: "makeTurns(Number.MAX_SAFE_INTEGER - admission, undefined)",
    suite: sharedPool,
    test: "admits caller-owned transactions below the reserve, while the others wait and the runtime goes on",
    core: true
  },
  {
    name: "lose the turn of whoever is interrupted as it comes",
    file: "src/internal/turns.ts",
    from: "return given === undefined ? Effect.void : end(given.held, true)",
    to: "return Effect.void",
    suite: turns,
    test: "turns are passed on by whoever is interrupted when its turn has come, and while it waits"
  },
  {
    name: "keep a connection from the pool as long as somebody waits",
    file: "src/internal/turns.ts",
    from: " && monotonicMillis() - held.sinceMillis < handedOnMillis) {",
    to: ") {",
    suite: turns,
    test: "turns are so many at once; the others come in their order, with the connection that is handed on"
  },
  {
    name: "hand a connection on whatever became of its transaction",
    file: "src/ApplicationPool.ts",
    from: "makings.turns.end(held, reusable)",
    to: "makings.turns.end(held, reusable || true)",
    suite: sharedPool,
    test: handsOn
  },
  {
    name: "leave a transaction in the context of its body's fiber",
    file: "src/internal/transactionBody.ts",
    from: "    return FiberRefs.delete(after, FiberRef.currentContext)",
    to: "    return after",
    suite: "test/runtime/CallerOwned.test.ts",
    test: "a caller-owned attempt goes on outside its transaction when that has ended, and can open another"
  },
  {
    name: "start with a caller-owned concurrency that leaves no reserve",
    file: "src/internal/workerOptions.ts",
    from: "return atOnce <= application",
    to: "return atOnce <= 10_000",
    suite: sharedPool,
    test: "refuses a caller-owned concurrency that does not leave the reserve, unless its transactions are bounded"
  },
  {
    name: "bound caller-owned transactions by all connections",
    file: "src/SharedPool.ts",
    from: "callerOwned <= application)",
    to: "callerOwned <= connections)",
    suite: sharedPool,
    test: "is refused, by name and before anything is opened, when it does not leave the runtime its reserve"
  },
  {
    name: "skip the comparison with max_connections",
    file: "src/ApplicationPool.ts",
    from: "  yield* checkBudget(",
    to: "  void checkBudget(",
    suite: start,
    test: "is compared with the server's limits: a warning, or a refusal where it was asked to be strict"
  },
  {
    name: "let the driver throw at a url",
    file: "src/internal/connectionUrl.ts",
    from: "    return `not a connection",
    to: "    if (form !== '') return undefined\n    return `not a connection",
    suite: start,
    test: "answers an option that breaks its rule by name, and never repeats a url"
  },
  {
    name: "let the server cut a schema's name off",
    file: "src/internal/names.ts",
    from: `  if (Buffer.byteLength(name, "utf8") > 63) return`,
    to: `  if (Buffer.byteLength(name, "utf8") > 630) return`,
    suite: start,
    test: "answers an option that breaks its rule by name, and never repeats a url"
  },
  {
    name: "advise to install into awa, whatever the schema's name",
    file: "src/internal/awaCommand.ts",
    from: `schema === "awa" ? "" :`,
    to: `schema !== "" ? "" :`,
    suite: "test/runtime/Pools.test.ts",
    test: "a runtime without a schema, or behind its contract, is refused and writes nothing"
  },
  {
    name: "do not name the database in which nothing is installed",
    file: "src/internal/startCheck.ts",
    from: "of the database ${quoteIdentifier(Column.string(found?.[1]))}",
    to: "",
    suite: "test/runtime/Pools.test.ts",
    test: "a runtime without a schema, or behind its contract, is refused and writes nothing"
  },
  {
    name: "fail on another product's meta as the database does",
    file: "src/internal/startCheck.ts",
    from: "(isForeign(error) ? foreign(place) : error)",
    to: "error",
    suite: start,
    test: "takes another product's meta for what it is, whatever its form"
  },
  {
    name: "believe LISTEN without probing",
    file: "src/Wakeup.ts",
    from: "if (!(yield* listener.probe)) {",
    to: "if (options.queues.length === -1) {",
    suite: "test/Wakeup.test.ts",
    test: "does not believe LISTEN before a notification was heard, says so once, and comes back"
  },
  {
    name: "say at every try that polling took over",
    file: "src/Wakeup.ts",
    from: "      told = true\n",
    to: "",
    suite: "test/Wakeup.test.ts",
    test: "does not believe LISTEN before a notification was heard, says so once, and comes back"
  },
  {
    name: "probe LISTEN from the connection that listens",
    file: "src/internal/listener.ts",
    from: "yield* options.notify(awaited.payload)",
    to: 'const own = awaited.payload\n      yield* Effect.promise(() => client.query("select pg_notify($1, $2)", [options.channel, own]))',
    suite: "test/poolers/Worker.poolers.ts",
    test: "is not believed in transaction mode: polling takes over, visibly, until it is heard again",
    config: "vitest.poolers.config.ts"
  },
  {
    name: "lose what a transaction's body has set of its fiber",
    file: "src/internal/transactionBody.ts",
    from: "    return FiberRefs.delete(after, FiberRef.currentContext)",
    to: "    return undefined",
    suite: "test/runtime/CallerOwned.test.ts",
    test: "a caller-owned attempt goes on outside its transaction when that has ended, and can open another"
  },
  {
    name: "prepare on whatever connection",
    file: "src/internal/pgClient.ts",
    from: "const direct = Predicate.isNumber(client.processID) && String(client.processID) === row.pid",
    to: "const direct = true",
    suite: "test/pg/preparedClosing.test.ts",
    test: "is prepared on no connection that a pooler may give another backend, with progress neither"
  },
  {
    name: "prepare again where it is taken away",
    file: "src/internal/pgClient.ts",
    from: `if (Predicate.hasProperty(error, "code") && error.code === "26000") robbed = true`,
    to: "",
    suite: "test/pg/preparedClosing.test.ts",
    test: "is prepared no more when somebody has taken a prepared statement away"
  },
  {
    name: "let the runtime rely on prepared statements that are gone",
    file: "src/internal/runtimeCall.ts",
    from: `if (Predicate.hasProperty(cause, "code") && cause.code === "26000") robbed = true`,
    to: "",
    suite: "test/pg/preparedRuntime.test.ts",
    test: "a runtime's prepared statement that is gone fails once, and nothing is prepared from then on"
  },
  ...[
    {
      name: "let the database choose the isolation of what goes alone",
      from: "set default_transaction_isolation = 'read committed'",
      to: "select 1"
    },
    {
      name: "let what goes alone wait for a lock as long as the database allows",
      from: "set lock_timeout = ${usualMillis}; ",
      to: ""
    },
    { name: "let what goes alone last for ever", from: "`set statement_timeout = ${usualMillis}; ", to: "`" },
    {
      name: "let what has a lock limit of its own go alone",
      from: " && statement.lockTimeoutMillis === undefined",
      to: ""
    },
    { name: "let what has a limit of its own go alone", from: " && statement.timeoutMillis === undefined", to: "" },
    {
      name: "keep the connection of what failed alone",
      from: "if (alone) finish(failure !== undefined)",
      to: "if (alone) finish(false)"
    },
    { name: "let nothing go alone", from: "const alone = prepared && ", to: "const alone = false && prepared && " }
  ].map((mutant) => ({
    ...mutant,
    file: "src/internal/runtimeCall.ts",
    suite: "test/pg/statementAlone.test.ts",
    test: "a runtime's prepared statement goes alone, under its own limits and not the database's"
  }))
]
