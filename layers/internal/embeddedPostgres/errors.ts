/**
 * What can go wrong, kept apart from the public module so that its helpers can raise it without importing it back.
 */
import { Effect, Schema } from "effect"

/**
 * There is nothing to start: the binaries are not installed, or this machine cannot run them.
 *
 * @since 0.1.0
 * @category errors
 */
export class EmbeddedPostgresUnavailable extends Schema.TaggedError<EmbeddedPostgresUnavailable>(
  "effect-awa/EmbeddedPostgresUnavailable"
)("EmbeddedPostgresUnavailable", {
  reason: Schema.Literal("NotInstalled", "UnsupportedPlatform", "NoAccount"),
  message: Schema.String
}) {}

/**
 * PostgreSQL is there but did not do what was asked. `log` holds the end of what it said.
 *
 * @since 0.1.0
 * @category errors
 */
export class EmbeddedPostgresError extends Schema.TaggedError<EmbeddedPostgresError>(
  "effect-awa/EmbeddedPostgresError"
)("EmbeddedPostgresError", {
  phase: Schema.Literal("prepare", "initialize", "start", "stop"),
  message: Schema.String,
  log: Schema.optionalWith(Schema.String, { default: () => "" }),
  cause: Schema.optional(Schema.Defect)
}) {}

/** Failures of files and commands become the step's, with a sentence about what was attempted; ours stay what they are. */
export const duringPhase =
  (phase: EmbeddedPostgresError["phase"], attempted: string) =>
  <A, E extends { readonly message: string }, R>(self: Effect.Effect<A, E, R>) =>
    Effect.mapError(self, (cause) =>
      cause instanceof EmbeddedPostgresError
        ? cause
        : new EmbeddedPostgresError({ phase, message: `${attempted}: ${cause.message}`, cause })
    )
