/**
 * Who may do what: roles, ownership and grants from the manifest (contract C-50 to C-52).
 *
 * In the *compatible* profile one role owns everything, and other roles can be bound to capabilities. In the *strict* profile
 * tables belong to a role that nobody can log in as, routines to another one that has only what they need, the migrator can become
 * both and inherits neither, and no application role has a privilege on a table.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Manifest from "./internal/manifest.js"
import { type Connection, connect } from "./internal/migrateConnection.js"
import { checkSchema } from "./internal/migrateOptions.js"
import * as Script from "./internal/migrateScript.js"
import { isStorable } from "./internal/names.js"
import { lookAtRoles } from "./internal/rolesLook.js"
import { makeRolesScript, namedRoles, refusalOf, type RolesScript, type RolesTarget } from "./internal/rolesPlan.js"
import {
  type InvalidMigrationOption,
  MigrationBusy,
  type MigrationConnectionFailed,
  MigrationFailed
} from "./MigrationError.js"
import type { MigrateOptions } from "./Migrations.js"

/**
 * What a role may be bound to: a class of `schema/manifest.json`.
 *
 * @since 0.1.0
 * @category models
 */
export const Capability = Manifest.Capability
/**
 * @since 0.1.0
 * @category models
 */
export type Capability = typeof Capability.Type

/**
 * An option that no plan can be made of: which one, and the rule that it breaks.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidRolesOption extends Schema.TaggedError<InvalidRolesOption>("effect-awa/InvalidRolesOption")(
  "InvalidRolesOption",
  { option: Schema.String, rule: Schema.String }
) {
  override get message(): string {
    return `${this.option}: ${this.rule}`
  }
}

/**
 * The database is not as a plan needs it, for the reason given. Nothing was written.
 *
 * @since 0.1.0
 * @category errors
 */
export class RolesRefused extends Schema.TaggedError<RolesRefused>("effect-awa/RolesRefused")("RolesRefused", {
  reason: Schema.String
}) {
  override get message(): string {
    return this.reason
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export type RolesError =
  | InvalidRolesOption
  | RolesRefused
  | InvalidMigrationOption
  | MigrationConnectionFailed
  | MigrationFailed
  | MigrationBusy

/**
 * @since 0.1.0
 * @category models
 */
export interface RolesOptions extends Pick<MigrateOptions, "url" | "schema" | "lockTimeout"> {
  readonly profile: "strict" | "compatible"
  /** Strict: owns schema and tables, NOLOGIN; `<database>_<schema>_owner` unless said otherwise: roles are the server's. */
  readonly schemaOwner?: string | undefined
  /** Strict: owns the routines, NOLOGIN, with no more than they need; `<database>_<schema>_execution` unless said otherwise. */
  readonly executionOwner?: string | undefined
  /** Strict: the only role that can become the owners; the role of the url unless said otherwise. */
  readonly migrator?: string | undefined
  /** Which roles hold which capability: all that there are then. Roles that do not exist are created, NOLOGIN. */
  readonly bindings: Partial<Readonly<Record<Capability, ReadonlyArray<string>>>>
  /**
   * Settings of the finalizers' roles, for sessions that log in as them: 30 seconds a statement, 30 seconds idle in a transaction,
   * 10 seconds for a lock; `false` sets none.
   */
  readonly finalizerTimeouts?:
    | false
    | {
        readonly statement?: Duration.DurationInput
        readonly idleInTransaction?: Duration.DurationInput
        readonly lock?: Duration.DurationInput
      }
    | undefined
  /** `roles`: what needs CREATEROLE; `privileges`: what the owner of the schema does; both unless said otherwise. */
  readonly part?: "roles" | "privileges" | undefined
}

const nameRule = (name: string): string | undefined => {
  if (name === "") return "expected a non-empty name"
  if (!isStorable(name)) return "no NUL and no lone surrogates"
  if (Buffer.byteLength(name, "utf8") > 63) return "at most 63 bytes of UTF-8"
  if (name === "public" || name === "none" || name.startsWith("pg_")) return "a reserved name"
  return undefined
}

const checkName = (option: string, name: string): Effect.Effect<string, InvalidRolesOption> => {
  const rule = nameRule(name)
  return rule === undefined ? Effect.succeed(name) : Effect.fail(new InvalidRolesOption({ option, rule }))
}

const checkMillis = (option: string, duration: Duration.DurationInput) => {
  const millis = Math.ceil(Duration.toMillis(duration))
  return millis >= 1 && millis <= 86_400_000
    ? Effect.succeed(millis)
    : Effect.fail(new InvalidRolesOption({ option, rule: "expected 1 millisecond to 1 day" }))
}

const timeoutsOf = (given: RolesOptions["finalizerTimeouts"]) =>
  given === false
    ? Effect.succeed(undefined)
    : Effect.all({
        statement: checkMillis("finalizerTimeouts.statement", given?.statement ?? "30 seconds"),
        idleInTransaction: checkMillis("finalizerTimeouts.idleInTransaction", given?.idleInTransaction ?? "30 seconds"),
        lock: checkMillis("finalizerTimeouts.lock", given?.lock ?? "10 seconds")
      })

const targetOf = (options: RolesOptions, { database, me }: { readonly database: string; readonly me: string }) =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const strict = {
      schemaOwner: yield* checkName("schemaOwner", options.schemaOwner ?? `${database}_${schema}_owner`),
      executionOwner: yield* checkName("executionOwner", options.executionOwner ?? `${database}_${schema}_execution`),
      migrator: yield* checkName("migrator", options.migrator ?? me)
    }
    const bindings = yield* Effect.forEach(Capability.literals, (capability) =>
      Effect.forEach([...new Set(options.bindings[capability] ?? [])].sort(), (role) =>
        Effect.map(checkName(`bindings.${capability}`, role), () => ({ capability, role }))
      )
    )
    const target: RolesTarget = {
      schema,
      strict: options.profile === "strict" ? strict : undefined,
      bindings: bindings.flat(),
      finalizerMillis: yield* timeoutsOf(options.finalizerTimeouts)
    }
    return target
  })

const whereOf = (connection: Connection) =>
  connection
    .query(
      "look at the roles",
      "select current_user::text as me, current_database()::text as database",
      [],
      Script.limits.statement
    )
    .pipe(
      Effect.flatMap(Schema.decodeUnknown(Schema.Tuple(Schema.Struct({ me: Schema.String, database: Schema.String })))),
      Effect.mapError((error) =>
        error instanceof MigrationFailed
          ? error
          : new MigrationFailed({ step: "look at the roles", reason: error.message })
      ),
      Effect.map(([found]) => found)
    )

const scriptOf = (
  connection: Connection,
  options: RolesOptions
): Effect.Effect<RolesScript, InvalidRolesOption | RolesRefused | InvalidMigrationOption | MigrationFailed> =>
  Effect.gen(function* () {
    const target = yield* targetOf(options, yield* whereOf(connection))
    const facts = yield* lookAtRoles(connection, target.schema, namedRoles(target))
    const refusal = refusalOf(target, facts)
    if (refusal !== undefined) return yield* new RolesRefused({ reason: refusal })
    const script = makeRolesScript(target, facts)
    return {
      roles: options.part === "privileges" ? [] : script.roles,
      privileges: options.part === "roles" ? [] : script.privileges
    }
  })

const lockMillis = (options: RolesOptions): number => Math.ceil(Duration.toMillis(options.lockTimeout ?? "2 minutes"))

/** Reads as another migration would, and writes nothing. */
const beginLook = Script.begin(Script.limits.lock)

/**
 * What `apply` would do to this database as it is now, as one SQL script to be reviewed, and run by psql or by `apply`: its own
 * BEGIN and COMMIT. Nothing is written.
 *
 * @example
 * ```ts
 * import { Redacted } from "effect"
 * import { Roles } from "effect-awa"
 *
 * export const sql = Roles.plan({
 *   url: Redacted.make("postgres://migrator@localhost/app"),
 *   profile: "strict",
 *   bindings: { producer: ["app"], finalizer: ["app"], expectation: ["app"], executor: ["worker"], maintenance: ["worker"] }
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const plan = (options: RolesOptions): Effect.Effect<string, RolesError> =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const connection = yield* connect(options.url, "effect-awa roles")
    yield* connection.execute("begin", beginLook, Script.limits.statement)
    const { privileges, roles } = yield* scriptOf(connection, options)
    yield* connection.execute("rollback", "rollback", Script.limits.statement)
    const section = (title: string, statements: ReadonlyArray<string>) =>
      statements.length === 0 ? [] : [`-- ${title}`, ...statements.map((statement) => `${statement};`), ""]
    return [
      `-- effect-awa: ${options.profile} roles of the schema ${JSON.stringify(schema)}. One transaction, its own; no psql commands.`,
      Script.begin(lockMillis(options)) + Script.lock(schema) + Script.boundStatements,
      ...section("Roles, as a role that may create and administer them.", roles),
      ...section("Ownership, bindings and privileges, as the owner of the schema.", privileges),
      "commit;",
      ""
    ].join("\n")
  }).pipe(Effect.scoped)

/**
 * Creates what roles are missing, hands over ownership (strict), records the bindings and grants exactly what the manifest gives
 * them, in one transaction. Needs CREATEROLE, or ADMIN on the roles, for the first part, and the owner of the schema for the
 * second; no superuser. Run again at any time: with other bindings, what is not bound any more is revoked.
 *
 * @since 0.1.0
 * @category constructors
 */
export const apply = (options: RolesOptions): Effect.Effect<void, RolesError> =>
  Effect.gen(function* () {
    const schema = yield* checkSchema(options.schema ?? "awa")
    const connection = yield* connect(options.url, "effect-awa roles")
    yield* run(connection, schema, options).pipe(
      Effect.tapError(() => connection.execute("rollback", "rollback", 5_000).pipe(Effect.ignore))
    )
  }).pipe(Effect.scoped, Effect.withSpan("effect-awa.roles.apply"))

const run = (connection: Connection, schema: string, options: RolesOptions): Effect.Effect<void, RolesError> =>
  Effect.gen(function* () {
    const millis = lockMillis(options)
    const messageMillis = millis + Script.limits.statement * 3
    yield* connection.execute("begin", Script.begin(millis), messageMillis)
    yield* connection.execute("lock", Script.lock(schema), messageMillis).pipe(
      Effect.catchIf(
        (error) => error.sqlState === "55P03",
        () => new MigrationBusy({ schema, waitedMillis: millis })
      )
    )
    yield* connection.execute("begin", Script.boundStatements, messageMillis)
    const { privileges, roles } = yield* scriptOf(connection, options)
    for (const statement of [...roles, ...privileges]) {
      const [title = ""] = statement.split("\n").filter((line) => line !== "" && !line.startsWith("--"))
      yield* connection.execute(title === "do $$" ? "privileges" : title.slice(0, 120), statement, messageMillis)
    }
    const command = yield* connection.execute("commit", "commit", messageMillis)
    // a transaction that a failed statement aborted answers ROLLBACK, without an error (C-42)
    if (command !== "COMMIT") {
      return yield* new MigrationFailed({ step: "commit", reason: `the server answered ${command}` })
    }
  })
