/**
 * Chaos: `npm run chaos` (ten minutes), `npm run chaos -- --minutes 2`, `npm run chaos -- --seed 7`, and
 * `npm run chaos -- --scenario server-restart`.
 */
import { Command, Options, ValidationError } from "@effect/cli"
import * as NodeContext from "@effect/platform-node/NodeContext"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Effect, Exit, Logger, LogLevel, Option, Schema } from "effect"
import { run } from "./run.js"
import { runScenario, scenarioNames } from "./scenarios.js"

class ChaosFailed extends Schema.TaggedError<ChaosFailed>()("ChaosFailed", {
  line: Schema.String,
  reasons: Schema.Array(Schema.String)
}) {}

const command = Command.make(
  "chaos",
  {
    minutes: Options.float("minutes").pipe(
      Options.withDefault(10),
      Options.withDescription("How long the storm lasts")
    ),
    seed: Options.integer("seed").pipe(
      Options.optional,
      Options.withDescription("What everything is drawn from; a random one unless said otherwise")
    ),
    scenario: Options.choice("scenario", scenarioNames).pipe(
      Options.optional,
      Options.withDescription("One fault, and the throughput before and after it")
    )
  },
  ({ minutes, scenario, seed }) =>
    Effect.gen(function* () {
      const chosen = Option.getOrElse(seed, () => Math.floor(Math.random() * 1_000_000))
      console.log(`chaos, ${Option.getOrElse(scenario, () => `${minutes} minutes`)}, seed ${chosen}`)
      const { line, reasons } = yield* Option.match(scenario, {
        onNone: () => run({ minutes, seed: chosen }),
        onSome: (name) => runScenario(name, chosen)
      })
      if (reasons.length > 0) return yield* new ChaosFailed({ line, reasons })
      console.log(`\n${line}: nothing lost, nothing doubled.`)
    })
)

const explain = (cause: Cause.Cause<unknown>) =>
  Effect.sync(() => {
    const error = Cause.squash(cause)
    // What is wrong with the arguments has been said.
    if (ValidationError.isValidationError(error)) return
    if (Cause.isInterruptedOnly(cause)) console.error("\nStopped.")
    else if (error instanceof ChaosFailed) console.error([`\n${error.line}: FAILED`, ...error.reasons].join("\n  "))
    else console.error(`FAILED\n${Cause.pretty(cause, { renderErrorCause: true })}`)
  })

Command.run(command, { name: "effect-awa chaos", version: "1" })(process.argv).pipe(
  Effect.onError(explain),
  Effect.provide(NodeContext.layer),
  Logger.withMinimumLogLevel(LogLevel.Warning),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? 0 : Cause.isInterruptedOnly(exit.cause) ? 130 : 1)
  })
)
