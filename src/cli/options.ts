import * as Options from "@effect/cli/Options"
import * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"

/** @internal */
export const databaseUrl = Options.redacted("database-url").pipe(
  Options.optional,
  Options.withDescription("Where the database is. AWA_DATABASE_URL says it without showing it to other processes.")
)

/** @internal */
export const schema = Options.text("schema").pipe(
  Options.withDefault("awa"),
  Options.withDescription("The schema that effect-awa is installed in.")
)

/** @internal What was given, or what the environment says. */
export const urlOf = (
  given: Effect.Effect<Redacted.Redacted, unknown>
): Effect.Effect<Redacted.Redacted, ConfigError.ConfigError> =>
  Effect.orElse(given, () => Config.redacted("AWA_DATABASE_URL"))

/** @internal */
export const urlRule = "set AWA_DATABASE_URL, or give --database-url"
