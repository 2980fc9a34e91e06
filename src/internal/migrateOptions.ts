import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import { InvalidMigrationOption } from "../MigrationError.js"
import { latestVersion } from "./migrateScript.js"
import { schemaFault } from "./names.js"

type Checked<A> = Either.Either<A, InvalidMigrationOption>

/** @internal */
export const checkSchema = (name: string): Checked<string> => {
  const rule = schemaFault(name)
  return rule === undefined ? Either.right(name) : Either.left(new InvalidMigrationOption({ option: "schema", rule }))
}

const checkInteger =
  (option: "ring" | "from", least: number, most: number) =>
  (value: number): Checked<number> =>
    Number.isInteger(value) && value >= least && value <= most
      ? Either.right(value)
      : Either.left(new InvalidMigrationOption({ option, rule: `expected an integer from ${least} to ${most}` }))

/** @internal */
export const checkRing = checkInteger("ring", 4, 64)

/** @internal */
export const checkVersion = checkInteger("from", 0, latestVersion)

/** @internal In milliseconds; 0 would mean for ever to PostgreSQL. */
export const checkLockTimeout = (duration: Duration.DurationInput): Checked<number> => {
  const millis = Math.ceil(Duration.toMillis(duration))
  return millis >= 1 && millis <= 86_400_000
    ? Either.right(millis)
    : Either.left(new InvalidMigrationOption({ option: "lockTimeout", rule: "expected 1 millisecond to 1 day" }))
}
