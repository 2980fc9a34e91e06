/**
 * A role whose own settings are against the programs that connect as it: short time limits, another isolation level, another
 * time zone, strings that are read differently, no search path.
 *
 * @since 0.1.0
 */
import { randomBytes } from "node:crypto"
import type { Scope } from "effect"
import { Effect, Redacted, Schema } from "effect"
import { quoteIdentifier, quoteLiteral } from "../../src/internal/renderSql.js"
import { type AdminQuery, makeAdminQuery } from "./internal/admin.js"

/**
 * The role could not be made.
 *
 * @since 0.1.0
 * @category errors
 */
export class HostileRoleError extends Schema.TaggedError<HostileRoleError>("effect-awa/HostileRoleError")(
  "HostileRoleError",
  { operation: Schema.String, cause: Schema.Defect }
) {
  override get message(): string {
    return `The role with settings of its own: ${this.operation} failed`
  }
}

/**
 * Settings of a role, by their names.
 *
 * @since 0.1.0
 * @category models
 */
export type RoleSettings = Readonly<Record<string, string>>

/**
 * Settings that sites are known to have, and that a program must not depend on.
 *
 * @since 0.1.0
 * @category constants
 */
export const hostile = {
  statementTimeout: { statement_timeout: "1s" },
  idleInTransaction: { idle_in_transaction_session_timeout: "1s" },
  serializable: { default_transaction_isolation: "serializable" },
  /** West of UTC and east of it, so that a wrong sign cannot pass for both. */
  west: { TimeZone: "America/New_York" },
  east: { TimeZone: "Pacific/Kiritimati" },
  backslashes: { standard_conforming_strings: "off", escape_string_warning: "off", backslash_quote: "on" },
  noSearchPath: { search_path: "" }
} as const satisfies Readonly<Record<string, RoleSettings>>

/**
 * All of `hostile` at once, with the eastern time zone.
 *
 * @since 0.1.0
 * @category constants
 */
export const everything: RoleSettings = {
  ...hostile.statementTimeout,
  ...hostile.idleInTransaction,
  ...hostile.serializable,
  ...hostile.east,
  ...hostile.backslashes,
  ...hostile.noSearchPath
}

/**
 * A role for as long as its scope.
 *
 * @since 0.1.0
 * @category models
 */
export interface HostileRole {
  readonly role: string
  /** The url, with the role's name and password. */
  readonly url: Redacted.Redacted
  /** What a new session of the role has of its settings, as the server says. */
  readonly inForce: Effect.Effect<RoleSettings, HostileRoleError>
  /** Whether every setting is in force in a new session. */
  readonly tookEffect: Effect.Effect<boolean, HostileRoleError>
}

const failed = (operation: string) => Effect.mapError((cause: unknown) => new HostileRoleError({ operation, cause }))

const readSettings = (query: AdminQuery, names: ReadonlyArray<string>) =>
  Effect.map(
    query(
      `select s.name, pg_catalog.current_setting(s.name), s.source from pg_catalog.pg_settings s
       where pg_catalog.lower(s.name) = any ($1)`,
      [names.map((name) => name.toLowerCase())]
    ),
    (rows) =>
      rows.filter(([, , source]) => source === "user").map(([name, value]) => [String(name), String(value)] as const)
  )

/**
 * Makes a role that may do what the url's own role may, with these settings, and drops it when the scope closes.
 *
 * @example
 * ```ts
 * import { Effect, Redacted } from "effect"
 * import { HostileRole } from "effect-awa/testing"
 *
 * const url = Redacted.make("postgres://postgres@localhost:5432/app")
 * export const program = Effect.gen(function* () {
 *   const role = yield* HostileRole.make({ url, settings: HostileRole.hostile.serializable })
 *   return role.url // for the program's pools
 * }).pipe(Effect.scoped)
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: {
  readonly url: Redacted.Redacted
  readonly settings: RoleSettings
}): Effect.Effect<HostileRole, HostileRoleError, Scope.Scope> =>
  Effect.gen(function* () {
    const admin = yield* makeAdminQuery(options.url)
    const role = `awa_hostile_${randomBytes(5).toString("hex")}`
    const password = randomBytes(18).toString("base64url")
    const name = quoteIdentifier(role)
    yield* Effect.acquireRelease(
      Effect.flatMap(admin("select current_user"), ([row]) =>
        admin(
          `create role ${name} login password ${quoteLiteral(password)} in role ${quoteIdentifier(String(row?.[0]))}`
        )
      ),
      () => Effect.ignoreLogged(admin(`drop owned by ${name}; drop role ${name}`))
    ).pipe(failed("create"))
    for (const [setting, value] of Object.entries(options.settings)) {
      yield* admin(`alter role ${name} set ${quoteIdentifier(setting.toLowerCase())} = ${quoteLiteral(value)}`).pipe(
        failed(`alter role set ${setting}`)
      )
    }
    const changed = new URL(Redacted.value(options.url))
    changed.username = role
    changed.password = password
    const url = Redacted.make(changed.toString())
    const names = Object.keys(options.settings)
    const found = Effect.scoped(Effect.flatMap(makeAdminQuery(url), (query) => readSettings(query, names))).pipe(
      failed("connect")
    )
    return {
      role,
      url,
      inForce: Effect.map(found, (rows) => Object.fromEntries(rows)),
      tookEffect: Effect.map(found, (rows) => rows.length === names.length)
    }
  })
