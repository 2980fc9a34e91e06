import * as Command from "@effect/cli/Command"
import * as Options from "@effect/cli/Options"
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Doctor from "../Doctor.js"
import { InvalidMigrationOption } from "../MigrationError.js"
import { databaseUrl, schema, urlOf, urlRule } from "./options.js"

/** The installation was examined, and is not as it should be. */
export class DoctorFound extends Schema.TaggedError<DoctorFound>("effect-awa/DoctorFound")("DoctorFound", {
  errors: Schema.Int
}) {
  override get message(): string {
    return `doctor found ${this.errors === 1 ? "1 error" : `${this.errors} errors`}`
  }
}

/** @internal 1: errors were found; 2: it could not be examined, also because the arguments were wrong. */
export const doctorExitCode = (exit: Exit.Exit<unknown, unknown>): number => {
  if (Exit.isSuccess(exit)) return 0
  return Option.exists(Cause.failureOption(exit.cause), (error) => error instanceof DoctorFound) ? 1 : 2
}

const indented = (text: string, by: string): string =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => (line === "" ? line : by + line))
    .join("\n")

/** @internal */
export const describeFinding = (finding: Doctor.Finding): string =>
  [
    `${finding.severity}: ${finding.code}: ${finding.object}`,
    `  found:    ${finding.found}`,
    `  expected: ${finding.expected}`,
    ...(finding.advice === null ? [] : [`  advice:   ${finding.advice}`]),
    ...(finding.sql === null ? [] : [`  mended by:\n${indented(finding.sql, "    ")}`]),
    ""
  ].join("\n")

const describeRuntime = ({ callerOwned, connections, contract, name, poolMode, wakeup }: Doctor.LiveRuntime): string =>
  `runtime ${name}: contract ${contract}, ${callerOwned ? "caller-owned and ordinary" : "ordinary"} completion, ` +
  `pools ${poolMode ?? "unknown"} (${connections.application} application, ${connections.runtime} runtime), ` +
  `work by ${wakeup ?? "means unknown"}`

const count = (n: number, what: string): string => `${n} ${what}${n === 1 ? "" : "s"}`

const describe = ({ findings, migrator, profile, runtimes, schema }: Doctor.Report): string => {
  const of = (severity: Doctor.Finding["severity"]) =>
    findings.filter((finding) => finding.severity === severity).length
  return [
    ...findings.map(describeFinding),
    ...(runtimes ?? []).map(describeRuntime),
    `Schema ${JSON.stringify(schema)}, ${profile} profile${migrator === null ? "" : `, migrator ${migrator}`}: ` +
      `${count(of("error"), "error")}, ${count(of("warning"), "warning")}, ${count(of("note"), "note")}. Nothing was changed.`
  ].join("\n")
}

const options = {
  databaseUrl,
  schema,
  strict: Options.boolean("strict").pipe(
    Options.withDescription("Ask for the strict profile, and for a role that may look at everything.")
  ),
  json: Options.boolean("json").pipe(Options.withDescription("Print the report as one JSON document.")),
  migrator: Options.text("migrator").pipe(
    Options.optional,
    Options.withDescription("The only role that may become the owners.")
  )
}

/** @internal */
export const doctor = Command.make(
  "doctor",
  options,
  Effect.fnUntraced(function* (given) {
    const url = yield* Effect.catchTag(
      urlOf(given.databaseUrl),
      "ConfigError",
      () => new InvalidMigrationOption({ option: "url", rule: urlRule })
    )
    const report = yield* Doctor.examine({
      url,
      schema: given.schema,
      strict: given.strict,
      migrator: Option.getOrUndefined(given.migrator)
    })
    yield* Console.log(given.json ? JSON.stringify(report, undefined, 2) : describe(report))
    const errors = report.findings.filter(({ severity }) => severity === "error").length
    if (errors > 0) return yield* new DoctorFound({ errors })
  })
).pipe(
  Command.withDescription(
    "Say whether an installation is what it claims to be, and print what mends it. " +
      "Exit code 0: no errors; 1: errors; 2: it could not be examined."
  )
)
