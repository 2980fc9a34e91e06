/**
 * The billing inbox in a storm: `npm run demo`, and `npm run demo -- --at-least-once` for the difference.
 */
import { Command, Options, ValidationError } from "@effect/cli"
import * as NodeContext from "@effect/platform-node/NodeContext"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Effect, Exit, Logger, LogLevel, Schema } from "effect"
import * as FaultProxy from "effect-awa/layers/testing/FaultProxy"
import { readAccount } from "./account.js"
import { Database, DatabaseLive } from "./database.js"
import { heading, print, showProgress, table } from "./display.js"
import { makeFleet, WorkerEnded } from "./fleet.js"
import { createTables, fillInbox, invoiceCount } from "./inbox.js"
import { serveProvider } from "./provider.js"
import { storm } from "./storm.js"
import { complaints, lines, type Outcome } from "./verdict.js"
import { makeWatch } from "./watch.js"

class DemoFailed extends Schema.TaggedError<DemoFailed>()("DemoFailed", { reasons: Schema.Array(Schema.String) }) {}

interface Options {
  readonly seed: number
  readonly atLeastOnce: boolean
}

/** Everything that happens before the account is read. */
const weather = ({ atLeastOnce, seed }: Options) =>
  Effect.gen(function* () {
    const { awa, server, url } = yield* Database
    yield* createTables
    const provider = yield* serveProvider(seed)
    const proxy = yield* FaultProxy.makeUrl(url)
    const fleet = yield* makeFleet({
      runtimeUrl: url,
      applicationUrl: yield* proxy.through(url),
      paymentsUrl: provider.url,
      schema: awa,
      atLeastOnce
    })
    yield* heading(`effect-awa, billing inbox: ${atLeastOnce ? "AT LEAST once" : "exactly once"}`, {
      server,
      inbox: `${invoiceCount.toLocaleString("en-US")} invoices, each enqueued in the transaction that wrote it`,
      handler: atLeastOnce
        ? "ordinary: commits first, and the runtime reports its end later"
        : "caller-owned: its completion commits with its own rows",
      seed: String(seed)
    })
    yield* fleet.start
    yield* fleet.start
    yield* fillInbox(seed)

    const watch = yield* makeWatch
    const faults = yield* storm(seed, proxy, fleet, watch)
    const finished = watch.until((sample) => sample.finished)
    // None of these comes to an end; each can fail.
    const meanwhile = [showProgress(watch, faults), fleet.crash, faults.failure, watch.failure]
    yield* Effect.raceFirst(finished, Effect.all(meanwhile, { concurrency: "unbounded", discard: true })).pipe(
      Effect.timeoutFail({
        duration: "3 minutes",
        onTimeout: () => new DemoFailed({ reasons: ["the work was not finished in 3 minutes"] })
      })
    )
    yield* fleet.stop
    const damage = yield* faults.damage
    return { damage, provider: yield* provider.counts, said: yield* fleet.said }
  }).pipe(Effect.scoped)

const demo = (options: Options) =>
  Effect.gen(function* () {
    const { damage, provider, said } = yield* weather(options)
    const account = yield* readAccount(damage.kills, said)
    const inFlight = said
      .filter(({ message }) => message === "drained")
      .map(({ annotations }) => annotations["inFlight"])
    const outcome: Outcome = { account, damage, provider, inFlight }
    yield* print("", "Read back by SQL over a direct connection:", "")
    yield* table(lines(outcome))
    yield* options.atLeastOnce ? showDoubled(outcome) : judge(outcome)
  }).pipe(Effect.provide(DatabaseLive))

const judge = (outcome: Outcome) =>
  Effect.gen(function* () {
    const reasons = complaints(outcome)
    if (reasons.length > 0) return yield* new DemoFailed({ reasons })
    yield* print("Every effect exactly once. Now run it with --at-least-once.")
  })

const showDoubled = ({ account }: Outcome) =>
  Effect.gen(function* () {
    const { books, doubledInvoices } = account
    if (books.doubled === 0) return yield* new DemoFailed({ reasons: ["no invoice is in the ledger twice"] })
    yield* print(
      `${String(books.doubled)} invoices are in the ledger more than once, for example:`,
      ...doubledInvoices.map(({ invoiceId, rows }) => `  invoice ${String(invoiceId)}: ${rows}`),
      "",
      "That is what committing first and reporting later does. Without the flag the same storm doubles nothing."
    )
  })

const command = Command.make(
  "demo",
  {
    seed: Options.integer("seed").pipe(
      Options.withDefault(42),
      Options.withDescription("What the storm is drawn from")
    ),
    atLeastOnce: Options.boolean("at-least-once").pipe(
      Options.withDescription("The same storm over handlers that commit first and report later")
    )
  },
  demo
)

const explain = (cause: Cause.Cause<unknown>) =>
  Effect.sync(() => {
    const error = Cause.squash(cause)
    // What is wrong with the arguments has been said.
    if (ValidationError.isValidationError(error)) return
    if (Cause.isInterruptedOnly(cause)) console.error("\nStopped.")
    else if (error instanceof DemoFailed) console.error(["FAILED", ...error.reasons].join("\n  "))
    else if (error instanceof WorkerEnded) console.error(`FAILED\n  ${error.reason}`)
    else console.error(`FAILED\n${Cause.pretty(cause, { renderErrorCause: true })}`)
  })

Command.run(command, { name: "effect-awa demo", version: "1" })(process.argv).pipe(
  Effect.onError(explain),
  Effect.provide(NodeContext.layer),
  Logger.withMinimumLogLevel(LogLevel.Warning),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? 0 : Cause.isInterruptedOnly(exit.cause) ? 130 : 1)
  })
)
