/**
 * The `awa` command.
 *
 * @since 0.1.0
 */
import * as Command from "@effect/cli/Command"
import * as ValidationError from "@effect/cli/ValidationError"
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import { callerOwned } from "./callerOwned.js"
import { kinds } from "./kinds.js"
import { doctor, doctorExitCode } from "./doctor.js"
import { migrate } from "./migrate.js"
import { roles } from "./roles.js"
import { storage } from "./storage.js"
import { version } from "./version.js"

/**
 * The command and its subcommands.
 *
 * @since 0.1.0
 * @category constructors
 */
export const awa = Command.make("awa").pipe(
  Command.withDescription(
    "effect-awa: a PostgreSQL job queue in which a job's completion commits together with its work."
  ),
  Command.withSubcommands([migrate, roles, doctor, storage, kinds, callerOwned])
)

const parseAndRun = Command.run(awa, { name: "awa", version })

/** An error is one line; what was not expected is shown whole. */
const report = (
  cause: Cause.Cause<{ readonly message: string } | ValidationError.ValidationError>
): Effect.Effect<void> =>
  Option.match(Cause.failureOption(cause), {
    onNone: () => (Cause.isInterruptedOnly(cause) ? Effect.void : Console.error(`awa: ${Cause.pretty(cause)}`)),
    onSome: (error) =>
      ValidationError.isValidationError(error)
        ? Effect.void // printed by the parser
        : Console.error(`awa: ${error.message.replaceAll(/\s+/g, " ")}`)
  })

/**
 * Parses the arguments (those of the process, the executable included) and runs what they say. Says what went wrong on
 * standard error, one line for each error that can be foreseen, and fails with it: the caller turns that into exit code 1.
 *
 * @example
 * ```ts
 * import { NodeContext, NodeRuntime } from "@effect/platform-node"
 * import { Effect } from "effect"
 * import { run } from "effect-awa/cli/awa"
 *
 * export const main = run(["node", "awa", "migrate", "--print"]).pipe(Effect.provide(NodeContext.layer))
 * NodeRuntime.runMain(main, { disableErrorReporting: true })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const run = (args: ReadonlyArray<string>) => parseAndRun(args).pipe(Effect.tapErrorCause(report))

/**
 * The exit code of the process: 0 or 1; of `awa doctor`, 2 when nothing could be examined, since 1 says what was found.
 *
 * @since 0.1.0
 * @category constructors
 */
export const exitCode = (args: ReadonlyArray<string>, exit: Exit.Exit<unknown, unknown>): number => {
  if (args[2] === "doctor") return doctorExitCode(exit)
  return Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause) ? 0 : 1
}
