/**
 * Whether an installation is what it claims to be, and whether its surroundings let it work (contract C-53, C-22).
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { ClientConfig } from "pg"
import { awaCommand } from "./internal/awaCommand.js"
import { codes as codeEntries } from "./internal/doctor/codes.js"
import { examination } from "./internal/doctor/examine.js"
import type { LiveRuntime } from "./internal/doctor/fleet.js"
import type { Finding } from "./internal/doctor/finding.js"
import { connect } from "./internal/migrateConnection.js"
import { checkSchema } from "./internal/migrateOptions.js"
import type { InvalidMigrationOption, MigrationConnectionFailed, MigrationFailed } from "./MigrationError.js"

export type {
  /**
   * @since 0.1.0
   * @category models
   */
  Finding
} from "./internal/doctor/finding.js"

export type {
  /**
   * @since 0.1.0
   * @category models
   */
  LiveRuntime
} from "./internal/doctor/fleet.js"

/**
 * A stable name of what can be found.
 *
 * @since 0.1.0
 * @category models
 */
export type Code = Finding["code"]

/**
 * Every code with its severity, what it is under `strict`, and what it means.
 *
 * @since 0.1.0
 * @category models
 */
export const codes: Readonly<
  Record<
    Code,
    { readonly severity: Finding["severity"]; readonly strict?: Finding["severity"]; readonly meaning: string }
  >
> = codeEntries

/**
 * @since 0.1.0
 * @category models
 */
export interface DoctorOptions {
  /** Where the database is; two connections are opened. Doctor sees what this role may see, and says what it could not look at. */
  readonly url: Redacted.Redacted | ClientConfig
  /** The schema that effect-awa is installed in; `awa` unless said otherwise. */
  readonly schema?: string | undefined
  /** Whether what the strict profile asks for is asked for here. */
  readonly strict?: boolean | undefined
  /** The only role that may become the owners; unless said otherwise, whoever is the only one that can, and nothing more. */
  readonly migrator?: string | undefined
  /** How old a transaction may be before it is a finding; 5 minutes unless said otherwise. */
  readonly longTransaction?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Report {
  readonly schema: string
  readonly profile: "strict" | "compatible"
  /** Strict: the role that was said, or taken, to be the migrator; a superuser needs no membership, and is not known by any. */
  readonly migrator: string | null
  /** The runtimes that live, as they say of themselves (contract C-22); null where the role of the url may not read of them. */
  readonly runtimes: ReadonlyArray<LiveRuntime> | null
  /** What is wrong first, in a stable order. */
  readonly findings: ReadonlyArray<Finding>
}

/**
 * Nothing is installed under this name; there is nothing to examine.
 *
 * @since 0.1.0
 * @category errors
 */
export class NotInstalled extends Schema.TaggedError<NotInstalled>("effect-awa/NotInstalled")("NotInstalled", {
  schema: Schema.String
}) {
  override get message(): string {
    return `nothing of effect-awa is installed in schema ${JSON.stringify(this.schema)}; run ${awaCommand("migrate", this.schema)}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export type DoctorError = InvalidMigrationOption | MigrationConnectionFailed | MigrationFailed | NotInstalled

const rank = { error: 0, warning: 1, note: 2 } as const

/**
 * Looks, and writes nothing.
 *
 * @example
 * ```ts
 * import { Console, Effect, Redacted } from "effect"
 * import { Doctor } from "effect-awa"
 *
 * export const program = Doctor.examine({ url: Redacted.make("postgres://localhost/app"), strict: true }).pipe(
 *   Effect.flatMap(({ findings }) => Effect.forEach(findings, ({ code, found }) => Console.log(`${code}: ${found}`)))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const examine = (options: DoctorOptions): Effect.Effect<Report, DoctorError> =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const another = connect(options.url, "effect-awa doctor")
    const connection = yield* another
    const examined = yield* examination(connection, {
      schema,
      strict: options.strict ?? false,
      migrator: options.migrator,
      patienceMillis: Math.max(0, Math.ceil(Duration.toMillis(options.longTransaction ?? "5 minutes"))),
      another
    })
    if (examined === undefined) return yield* new NotInstalled({ schema })
    const report: Report = {
      schema,
      profile: examined.isStrict ? "strict" : "compatible",
      migrator: examined.migrator ?? null,
      runtimes: examined.runtimes ?? null,
      findings: examined.findings.toSorted((a, b) => rank[a.severity] - rank[b.severity])
    }
    return report
  }).pipe(Effect.scoped, Effect.withSpan("effect-awa.doctor.examine"))
